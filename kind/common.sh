#!/usr/bin/env bash
# kind/common.sh is sourced by the other scripts in this folder and by e2e/kind.sh.
#
#   KIND_PREFIX      the prefix of the clusters' names: rulefleet-hub, rulefleet-eu-1, …
#   KIND_DIR         the folder of the kubeconfigs; ~/.kube/config is never changed
#   E2E_NODE_IMAGE   the image of the nodes; by default kind's own, which is pulled
set -euo pipefail

if ((BASH_VERSINFO[0] < 5)); then
	echo "${0##*/}: bash 5 or newer is required; this is bash $BASH_VERSION" >&2
	exit 1
fi

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/.." && pwd)
prefix=${KIND_PREFIX:-rulefleet}
dir=${KIND_DIR:-$root/bin/kind}

# shellcheck source=../.ci/docker.sh
source "$root/.ci/docker.sh"

# This file marks clusters that belong to 'make e2e', which may change and delete them.
readonly tests_mark=made-by-e2e
readonly namespace=rulefleet-system
readonly kind_version=v0.33.0
readonly kind_module=sigs.k8s.io/kind@$kind_version
readonly operator_module=github.com/prometheus-operator/prometheus-operator

say() { echo "${0##*/}: $*"; }

fail() {
	echo "${0##*/}: $*" >&2
	exit 1
}

# kind runs the program kind on the PATH. If there is none, it builds one into bin/tools.
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
		[[ -x $kubectl_path ]] || fail "kubectl not found; install it, or build it with 'make controlplane'"
	fi
	"$kubectl_path" "$@"
}

kubeconfig_of() { echo "$dir/$1.kubeconfig"; }

# on NAME …: runs kubectl on one of the clusters.
on() {
	local name=$1
	shift
	kubectl --kubeconfig "$(kubeconfig_of "$name")" "$@"
}

# crd_of KINDS: prints the path of a CRD of prometheus-operator, which comes from its module.
crd_of() {
	local module
	module=$(go -C "$root/e2e/monitoring" list -m -f '{{.Dir}}' "$operator_module")
	echo "$module/example/prometheus-operator-crd/monitoring.coreos.com_$1.yaml"
}

# clusters prints the names of the existing clusters that kind/up created, without the prefix. It recognizes them by
# their kubeconfigs, so that kind/down spares clusters of the same prefix that somebody else created.
clusters() {
	local name
	for name in $(kind get clusters --quiet); do
		if [[ $name == "$prefix"-* && -e $(kubeconfig_of "${name#"$prefix-"}") ]]; then echo "${name#"$prefix-"}"; fi
	done
}

# exists NAME: whether there is such a cluster, even if kind/up did not create it. It does not use a pipe: grep -q exits
# at the first match, which fails the process that writes to it.
exists() {
	local all
	all=$(kind get clusters --quiet)
	grep -Fxq -- "$prefix-$1" <<<"$all"
}
