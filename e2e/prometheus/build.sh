#!/usr/bin/env bash
# e2e/prometheus/build.sh [OUT]: puts the programs of Prometheus that tests run into
# OUT (default: bin/prometheus), at the version in go.mod. See ../cached-build.sh.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:-$root/bin/prometheus}
mkdir -p "$out"
out=$(cd "$out" && pwd)
shown=${out#"$root/"}

cd "$here"
# shellcheck source=../cached-build.sh
source ../cached-build.sh

# Without the clouds' service discoveries, which no test needs, a third of the code
# is left.
readonly flags=(-trimpath -tags remove_all_sd -ldflags '-s -w')

hash=$({ go env GOVERSION GOOS GOARCH && sha256sum go.mod go.sum build.sh ../cached-build.sh; } | digest)

# provide PROGRAM PACKAGE
provide() {
	use "$1" "$hash" "$out"
	if is_placed; then
		say "it is up to date in $shown"
		return
	fi
	lock
	if ! is_placed; then
		if ! cache_is_whole; then say "building it; a first build takes about 2 minutes on 2 cores"; fi
		place "${flags[@]}" "$2"
		say "it is in $shown"
	fi
}

provide promtool github.com/prometheus/prometheus/cmd/promtool
provide prometheus github.com/prometheus/prometheus/cmd/prometheus
