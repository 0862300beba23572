#!/usr/bin/env bash
# e2e/controlplane/build.sh [OUT]: puts the programs of a control plane, the data that clusters begin with (a seed),
# and the CustomResourceDefinitions of prometheus-operator into OUT (default: bin/k8s).
#
# See ../cached-build.sh.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:-$root/bin/k8s}
mkdir -p "$out"
out=$(cd "$out" && pwd)
shown=${out#"$root/"}

cd "$here"
# shellcheck source=../cached-build.sh
source ../cached-build.sh

readonly operator=github.com/prometheus-operator/prometheus-operator
readonly crds=(prometheusrules prometheuses thanosrulers servicemonitors podmonitors probes alertmanagers)

# The version of Kubernetes is stated once, in go.mod.
version=
while read -r module value _; do
	if [[ $module == k8s.io/kubernetes ]]; then version=$value; fi
done <go.mod
if [[ ! $version =~ ^v([0-9]+)\.([0-9]+)\. ]]; then
	echo "controlplane: no version of k8s.io/kubernetes in go.mod" >&2
	exit 1
fi
readonly version major=${BASH_REMATCH[1]} minor=${BASH_REMATCH[2]}

# The date and the commit are fixed, so that a rebuild gives the same programs.
readonly p=k8s.io/component-base/version
readonly flags="-s -w -X $p.gitVersion=$version -X $p.gitMajor=$major -X $p.gitMinor=$minor
	-X $p.gitTreeState=clean -X $p.gitCommit=0000000000000000000000000000000000000000
	-X $p.buildDate=2026-01-01T00:00:00Z"

programs_hash=$({ go env GOVERSION GOOS GOARCH && sha256sum go.mod go.sum ./*/*.go build.sh ../cached-build.sh; } | digest)
crds_hash=$(sha256sum build.sh ../monitoring/go.mod ../monitoring/go.sum | digest)
seed_hash=$({ echo "$programs_hash" && cat "$root"/pkg/testing/controlplane/*.go; } | digest)

# provide PROGRAM PACKAGE
provide() {
	use "$1" "$programs_hash" "$out"
	if is_placed; then return; fi
	lock
	if is_placed; then return; fi
	if ! cache_is_whole; then say "building it, version $version; all programs together take about 5 minutes on 2 cores"; fi
	place -trimpath -ldflags "$flags" "$2"
	say "it is in $shown"
}

crds_are_placed() {
	[[ $(content "$out/crds/.hash") == "$crds_hash" ]] || return 1
	local crd
	for crd in "${crds[@]}"; do
		[[ -s $out/crds/monitoring.coreos.com_$crd.yaml ]] || return 1
	done
}

seed_is_placed() { [[ -d $out/seed && $(content "$out/.seed") == "$seed_hash" ]]; }

place_crds() {
	local dir crd made=$out/crds.$$
	go -C ../monitoring mod download "$operator"
	dir=$(go -C ../monitoring list -m -f '{{.Dir}}' "$operator")
	rm -rf "$made"
	mkdir -p "$made"
	for crd in "${crds[@]}"; do
		cp "$dir/example/prometheus-operator-crd/monitoring.coreos.com_$crd.yaml" "$made/"
	done
	# Files in the module cache are read-only.
	chmod u+w "$made"/*.yaml
	echo "$crds_hash" | write "$made/.hash"
	rm -rf "$out/crds"
	mv "$made" "$out/crds"
	say "${#crds[@]} CustomResourceDefinitions of prometheus-operator are in $shown/crds"
}

place_seed() {
	rm -f "$out/.seed"
	CGO_ENABLED=0 go -C "$root" run ./pkg/testing/controlplane/seed "$out"
	echo "$seed_hash" | write "$out/.seed"
	say "the data that clusters begin with is in $shown/seed"
}

provide etcd ./etcd
provide kube-apiserver ./kube-apiserver
provide kube-controller-manager ./kube-controller-manager
provide kubectl k8s.io/kubernetes/cmd/kubectl

use controlplane "$seed_hash" "$out"
if crds_are_placed && seed_is_placed; then
	say "$version in $shown is up to date"
	exit
fi

lock
if ! crds_are_placed; then place_crds; fi
if ! seed_is_placed; then place_seed; fi
