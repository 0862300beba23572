#!/usr/bin/env bash
# kind/common.sh is sourced by the scripts beside it and by e2e/kind.sh.
#
#   KIND_PREFIX      what the clusters' names begin with: rulefleet-hub, rulefleet-eu-1, …
#   KIND_DIR         the folder of their kubeconfigs; ~/.kube/config is never touched
#   E2E_NODE_IMAGE   the image of the nodes, instead of kind's own, which is pulled
set -euo pipefail

if ((BASH_VERSINFO[0] < 5)); then
	echo "${0##*/}: this needs bash 5 or newer, and is run by $BASH_VERSION" >&2
	exit 1
fi

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/.." && pwd)
prefix=${KIND_PREFIX:-rulefleet}
dir=${KIND_DIR:-$root/bin/kind}

# shellcheck source=../.ci/docker.sh
source "$root/.ci/docker.sh"

# Says that the clusters are those of 'make e2e', which may do with them as it likes.
readonly tests_mark=made-by-e2e
readonly namespace=rulefleet-system
readonly kind_version=v0.33.0
readonly kind_module=sigs.k8s.io/kind@$kind_version

say() { echo "${0##*/}: $*"; }

fail() {
	echo "${0##*/}: $*" >&2
	exit 1
}

# kind is that of the system; else it is built once.
kind() {
	if [[ -z ${kind_path:-} ]]; then
		kind_path=$(type -P kind || true)
		if [[ -z $kind_path ]]; then
			kind_path=$root/bin/tools/kind
			[[ -x $kind_path ]] || GOBIN=$root/bin/tools go install "$kind_module"
		fi
	fi
	"$kind_path" "$@"
}

kubectl() {
	if [[ -z ${kubectl_path:-} ]]; then
		kubectl_path=$(type -P kubectl || echo "$root/bin/k8s/kubectl")
		[[ -x $kubectl_path ]] || fail "there is no kubectl; 'make controlplane' builds one"
	fi
	"$kubectl_path" "$@"
}

kubeconfig_of() { echo "$dir/$1.kubeconfig"; }

# on NAME …: kubectl on one of the clusters.
on() {
	local name=$1
	shift
	kubectl --kubeconfig "$(kubeconfig_of "$name")" "$@"
}

# clusters prints the names, without the prefix, of those that exist.
clusters() {
	local name
	for name in $(kind get clusters --quiet); do
		if [[ $name == "$prefix"-* ]]; then echo "${name#"$prefix-"}"; fi
	done
}

# Not by a pipe: grep -q ends with the first match, and who still writes to it fails.
exists() {
	local all
	all=$(clusters)
	grep -Fxq -- "$1" <<<"$all"
}
