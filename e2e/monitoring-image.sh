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
arch=$(docker version --format '{{ .Server.Arch }}')

# build MODULE PACKAGE PROGRAM [FLAG…]: the flags are those of prometheus/build.sh and build-pipeline.sh.
build() {
	local module=$1 package=$2 program=$3
	shift 3
	env GOWORK=off CGO_ENABLED=0 GOOS=linux GOARCH="$arch" go -C "$module" build -buildvcs=false -trimpath "$@" -ldflags '-s -w' \
		-o "$context/bin/$program" "$package"
}

operator=github.com/prometheus-operator/prometheus-operator/cmd
build prometheus github.com/prometheus/prometheus/cmd/prometheus prometheus -tags remove_all_sd
build prometheus-operator $operator/operator operator
build prometheus-operator $operator/prometheus-config-reloader prometheus-config-reloader
printf 'FROM scratch\nCOPY bin/ /bin/\n' >"$context/Dockerfile"
docker build --quiet --tag "$name" "$context"
