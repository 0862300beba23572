#!/usr/bin/env bash
# e2e/monitoring-image.sh NAME: builds Prometheus, prometheus-operator and its config-reloader for the system that Docker
# runs on, and puts them into an image, which needs no registry. kind-monitoring.yaml runs them.
set -euo pipefail
umask 022

name=${1:?usage: e2e/monitoring-image.sh NAME}
cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=../.ci/docker.sh
source ../.ci/docker.sh
require_docker

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
export GOOS=linux GOARCH
GOARCH=$(docker version --format '{{ .Server.Arch }}')

prometheus/build.sh "$context/prometheus"
./build-pipeline.sh "$context/operator" prometheus-operator prometheus-config-reloader
printf 'FROM scratch\nCOPY prometheus/prometheus operator/prometheus-operator operator/prometheus-config-reloader /bin/\n' >"$context/Dockerfile"
docker build --quiet --tag "$name" "$context"
