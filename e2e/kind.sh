#!/usr/bin/env bash
# e2e/kind.sh start|test|logs|stop|all: runs the end-to-end tests on kind clusters. 'make e2e' and its
# parts call it. E2E_IMAGE is the image of the manager, which must exist. The environment variables of
# kind/common.sh apply as well.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../kind/common.sh"
cd "$root"

# The spokes and their labels, as in e2e/suite_test.go.
declare -A spokes=([eu-1]=env=prod,region=eu [us-1]=env=dev,region=us)
binary=$root/bin/e2e.test

step() { .ci/step "$@"; }

# The namespace enforces restricted pods, as on a strict platform.
prepare_hub() {
	on hub create namespace "$namespace" --dry-run=client -o yaml | on hub apply --server-side -f - >/dev/null
	on hub label --overwrite namespace "$namespace" pod-security.kubernetes.io/enforce=restricted \
		pod-security.kubernetes.io/enforce-version=latest >/dev/null
	local name verb=install
	[[ -z $(on hub -n "$namespace" get secrets -l owner=helm,name=rulefleet -o name) ]] || verb=upgrade
	rulefleet "$verb" --set-string image.repository="${E2E_IMAGE%:*}" --set-string image.tag="${E2E_IMAGE##*:}"
	for name in "${!spokes[@]}"; do
		rulefleet join "$name" --spoke-context "kind-$prefix-$name" --server "https://$prefix-$name-control-plane:6443" -l "${spokes[$name]}"
	done
}

# rulefleet runs the kubectl plugin, as a person with the kubeconfigs of all clusters does.
rulefleet() {
	local files=("$(kubeconfig_of hub)") name
	for name in "${!spokes[@]}"; do files+=("$(kubeconfig_of "$name")"); done
	(IFS=: && KUBECONFIG="${files[*]}" "$root/bin/kubectl-rulefleet" --context "kind-$prefix-hub" "$@")
}

# registered checks that no earlier run of the tests has uninstalled everything.
registered() {
	local name
	for name in "${!spokes[@]}"; do
		on hub -n "$namespace" get secret "$name" >/dev/null 2>&1 || return 1
	done
}

load() { kind load docker-image --quiet --name "$prefix-hub" "$E2E_IMAGE"; }

suite() { (cd e2e && "$binary" -provider=kind -test.parallel 4 "$@"); }

start() {
	require_image
	if [[ -n $(clusters) && ! -e $dir/$tests_mark ]]; then
		stopping=no
		fail "clusters that do not belong to the tests exist: $(clusters | xargs). Remove them with kind/down, or set KIND_PREFIX and KIND_DIR to use others"
	fi
	mkdir -p "$dir"
	touch "$dir/$tests_mark"
	step 'e2e: clusters' kind/up "${!spokes[@]}"
	step 'e2e: image into the hub' "$0" load
	step 'e2e: installation and registration' "$0" prepare
	step 'e2e: values of the suite' "$0" suite -test.run '^$'
}

# tests runs the suite that also runs on processes, then the tests that need kind, which end with an
# uninstallation, and then the commands in the documentation. It prints how many tests ran, and fails if none did.
tests() {
	require_image
	local log=$dir/tests.log
	registered || step 'e2e: installation and registration' "$0" prepare
	step 'e2e: suite' "$0" suite -test.v -test.timeout 20m -test.skip '^Test(Fault|Kind)' | tee "$log"
	count "$log" 20 'suite on kind'
	step 'e2e: life of an installation' "$0" suite -test.v -test.timeout 20m -test.run '^TestKind' | tee "$log"
	count "$log" 1 'tests of the installation'
	step 'e2e: commands of the docs' e2e/docs.sh
}

# count LOG MINIMUM WHAT
count() {
	local passed skipped
	passed=$(grep -c '^--- PASS: ' "$1" || true)
	skipped=$(grep -c '^--- SKIP: ' "$1" || true)
	echo "e2e: $3: $passed tests ran, $skipped were skipped (they need the clusters and the manager as processes)"
	((passed >= $2)) || fail "$passed tests ran, want $2"
}

# logs collects the logs of all clusters, and never fails.
logs() {
	local out name kinds=alertrules,alertruletemplates,spokeclusters
	out=$dir/logs-$(date +%Y%m%d-%H%M%S)
	mkdir -p "$out"
	for name in $(clusters); do
		if [[ $name != hub ]]; then kinds=prometheusrules,deployments; fi
		docker unpause "$prefix-$name-control-plane" >/dev/null 2>&1 || true
		timeout 60 "$0" export "$name" "$out/$name" >/dev/null 2>&1 || true
		on "$name" get events -A --sort-by=.lastTimestamp --request-timeout 10s >"$out/$name-events.txt" 2>&1 || true
		on "$name" get pods -A -o wide --request-timeout 10s >"$out/$name-pods.txt" 2>&1 || true
		on "$name" get "$kinds" -A -o yaml --request-timeout 10s >"$out/$name-objects.yaml" 2>&1 || true
		kinds=alertrules,alertruletemplates,spokeclusters
	done
	for name in $(on hub -n "$namespace" get pods -o name --request-timeout 10s 2>/dev/null || true); do
		on hub -n "$namespace" logs "$name" --all-containers >"$out/hub-${name##*/}.log" 2>&1 || true
		on hub -n "$namespace" logs "$name" --all-containers --previous >"$out/hub-${name##*/}-previous.log" 2>/dev/null || true
	done
	find "$out" -type f -empty -delete
	say "the logs of all clusters are in $out"
}

stop() { step 'e2e: clusters removed' kind/down; }

# all always stops what it started, unless KEEP=1.
all() {
	trap 'end' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	start
	tests
}

end() {
	local code=$?
	trap '' INT TERM
	if ((code != 0 && code != 130 && code != 143)); then logs; fi
	if [[ ${stopping:-} == no ]]; then exit "$code"; fi
	if [[ ${KEEP:-} == 1 ]]; then
		say "KEEP=1: the clusters are kept; to remove them: make e2e-stop"
	else
		stop || code=1
	fi
	exit "$code"
}

require_image() {
	[[ -n ${E2E_IMAGE:-} ]] || fail "E2E_IMAGE is not set; run this with make"
	require_docker
	docker image inspect "$E2E_IMAGE" >/dev/null 2>&1 || fail "image $E2E_IMAGE not found; build it with 'make image'"
	# The tests must be built already, so that their time does not include the build.
	[[ -x $binary && -x bin/kubectl-rulefleet ]] || fail "$binary or bin/kubectl-rulefleet not found; build them with 'make e2e-build'"
}

case ${1:-} in
start | logs | stop | all | load) "$1" ;;
test) tests ;;
prepare) prepare_hub ;;
suite) shift && suite "$@" ;;
export) kind export logs --quiet --name "$prefix-$2" "$3" ;;
*) fail "usage: e2e/kind.sh start|test|logs|stop|all" ;;
esac
