#!/usr/bin/env bash
# e2e/build-pipeline.sh [OUT [PROGRAM…]]: puts the programs that make alerts of what a cluster does
# into OUT (default: bin/pipeline), each at the version in the go.mod of its module. With PROGRAM, it puts only these.
# Prometheus, which is between them, is built by prometheus/build.sh. See cached-build.sh.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/.." && pwd)
out=${1:-$root/bin/pipeline}
mkdir -p "$out"
out=$(cd "$out" && pwd)
shown=${out#"$root/"}

cd "$here"
# shellcheck source=cached-build.sh
source cached-build.sh

readonly flags=(-trimpath -ldflags '-s -w')

programs=("${@:2}")
if ((${#programs[@]} == 0)); then programs=(kube-state-metrics prometheus-operator alertmanager); fi

# provide PROGRAM PACKAGE [MODULE]: the module is the folder of the program's name, or MODULE.
provide() {
	local hash
	if [[ " ${programs[*]} " != *" $1 "* ]]; then return; fi
	cd "$here/${3:-$1}"
	hash=$({ go env GOVERSION GOOS GOARCH && sha256sum go.mod go.sum ../build-pipeline.sh ../cached-build.sh; } | digest)
	use "$1" "$hash" "$out"
	if is_placed; then
		say "it is up to date in $shown"
		return
	fi
	lock
	if ! is_placed; then
		if ! cache_is_whole; then say "building it; a first build takes about a minute on 2 cores"; fi
		place "${flags[@]}" "$2"
		say "it is in $shown"
	fi
}

provide kube-state-metrics k8s.io/kube-state-metrics/v2
provide prometheus-operator github.com/prometheus-operator/prometheus-operator/cmd/operator
provide prometheus-config-reloader github.com/prometheus-operator/prometheus-operator/cmd/prometheus-config-reloader prometheus-operator
provide alertmanager github.com/prometheus/alertmanager/cmd/alertmanager
