#!/usr/bin/env bash
# e2e/controlplane/build.sh [OUT]: puts the programs of a control plane and the
# CustomResourceDefinitions of prometheus-operator into OUT (default: bin/k8s).
#
# OUT/etcd, OUT/kube-apiserver, … are links to one binary, which is built once for
# what this folder holds and kept in the cache by a hash of that. OUT has its own
# link to it, so that clearing the cache breaks no checkout. Concurrent runs are
# safe: everything appears by rename, and one run builds while the others wait.
set -euo pipefail
export GOWORK=off

readonly programs=(etcd kube-apiserver kube-controller-manager kube-scheduler kubectl)
readonly operator=github.com/prometheus-operator/prometheus-operator
readonly crds=(prometheusrules prometheuses thanosrulers servicemonitors podmonitors probes alertmanagers)
readonly kept=2 # Newest cache entries: switching between two branches rebuilds nothing.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:-$root/bin/k8s}
mkdir -p "$out"
out=$(cd "$out" && pwd)
shown=${out#"$root/"}

say() { echo "controlplane: $*"; }

# The version of Kubernetes is stated once, in go.mod.
version=
while read -r module value _; do
	if [[ $module == k8s.io/kubernetes ]]; then version=$value; fi
done <"$here/go.mod"
if [[ ! $version =~ ^v([0-9]+)\.([0-9]+)\. ]]; then
	say "no version of k8s.io/kubernetes in go.mod" >&2
	exit 1
fi
readonly version major=${BASH_REMATCH[1]} minor=${BASH_REMATCH[2]}

digest() {
	local sum
	sum=$(sha256sum) && echo "${sum:0:16}"
}

cd "$here"
binary_hash=$({ go env GOVERSION GOOS GOARCH && sha256sum go.mod go.sum ./*.go build.sh; } | digest)
crds_hash=$(sha256sum build.sh ../monitoring/go.mod ../monitoring/go.sum | digest)
readonly cache=${RULEFLEET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rulefleet}/controlplane
readonly entry=$cache/$binary_hash

# size prints the bytes of a file, or 0 when there is none.
size() { if [[ -f $1 ]]; then echo $(($(wc -c <"$1"))); else echo 0; fi; }

# content prints a small file, or nothing when there is none.
content() { if [[ -f $1 ]]; then echo "$(<"$1")"; fi; }

# A binary counts only with the size that was noted when it was complete: a full
# disk or a cache that was restored in part leaves a shorter one.
cache_is_whole() {
	[[ -x $entry/controlplane && $(content "$entry/size") == "$(size "$entry/controlplane")" ]]
}

binary_is_placed() {
	[[ -x $out/controlplane && $(content "$out/.controlplane") == "$binary_hash $(size "$out/controlplane")" ]] || return 1
	local program
	for program in "${programs[@]}"; do
		[[ $out/$program -ef $out/controlplane ]] || return 1
	done
}

crds_are_placed() {
	[[ $(content "$out/crds/.hash") == "$crds_hash" ]] || return 1
	local crd
	for crd in "${crds[@]}"; do
		[[ -s $out/crds/monitoring.coreos.com_$crd.yaml ]] || return 1
	done
}

# write puts its input into a file by rename.
write() { cat >"$1.$$" && mv -f "$1.$$" "$1"; }

build() {
	local p=k8s.io/component-base/version next=15
	# The date and the commit are fixed, so that a rebuild gives the same binary.
	local flags="-s -w -X $p.gitVersion=$version -X $p.gitMajor=$major -X $p.gitMinor=$minor
		-X $p.gitTreeState=clean -X $p.gitCommit=0000000000000000000000000000000000000000
		-X $p.buildDate=2026-01-01T00:00:00Z"
	say "building ${programs[*]} $version; a first build takes about 5 minutes on 2 cores"
	SECONDS=0
	mkdir -p "$entry"
	CGO_ENABLED=0 go build -buildvcs=false -ldflags "$flags" -o "$entry/controlplane.$$" . &
	building=$!
	# A background job does not hear Ctrl-C.
	trap 'kill "$building" 2>/dev/null || true; rm -f "$entry/controlplane.$$"' EXIT
	while kill -0 "$building" 2>/dev/null; do
		sleep 1
		if ((SECONDS >= next)); then
			say "still building after $SECONDS s"
			next=$((SECONDS + 15))
		fi
	done
	wait "$building"
	mv -f "$entry/controlplane.$$" "$entry/controlplane"
	trap - EXIT
	size "$entry/controlplane" | write "$entry/size"
	say "built in $SECONDS s"
	remove_old
}

remove_old() {
	local old n=0
	while read -r old; do
		# Only what this script made has a name that is a hash.
		if [[ ! $old =~ ^[0-9a-f]{16}/$ ]]; then continue; fi
		n=$((n + 1))
		if ((n > kept)); then rm -rf "${cache:?}/$old"; fi
	done < <(cd "$cache" && ls -1dt -- */)
}

place_binary() {
	if ! cache_is_whole; then build; fi
	touch "$entry" # It is the newest now, for remove_old.
	# The cache may be on another file system.
	ln -f "$entry/controlplane" "$out/controlplane.$$" 2>/dev/null ||
		cp "$entry/controlplane" "$out/controlplane.$$"
	mv -f "$out/controlplane.$$" "$out/controlplane"
	# mv leaves the source when both are links to one file.
	rm -f "$out/controlplane.$$"
	local program
	for program in "${programs[@]}"; do
		ln -sf controlplane "$out/$program.$$"
		mv -f "$out/$program.$$" "$out/$program"
	done
	echo "$binary_hash $(size "$out/controlplane")" | write "$out/.controlplane"
	say "${programs[*]} $version are in $shown"
}

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

if binary_is_placed && crds_are_placed; then
	say "$version in $shown is up to date"
	exit
fi

mkdir -p "$cache"
exec {lock}>"$cache/lock"
if command -v flock >/dev/null && ! flock -n "$lock"; then
	say "waiting for another build to end"
	flock "$lock"
fi
if ! binary_is_placed; then place_binary; fi
if ! crds_are_placed; then place_crds; fi
