#!/usr/bin/env bash
# e2e/kind.sh start|test|logs|stop|all: runs the end-to-end tests on kind clusters. 'make e2e' and its
# parts call it. E2E_IMAGE is the image of the manager, and E2E_MONITORING_IMAGE that of a Prometheus; they must exist. The
# environment variables of kind/common.sh apply as well.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../kind/common.sh"
cd "$root"

# The spokes and their labels, as in e2e/suite_test.go.
declare -A spokes=([eu-1]=env=prod,region=eu [us-1]=env=dev,region=us)
binary=$root/bin/tests/plain/e2e.test

step() { .ci/step "$@"; }

# The namespace enforces restricted pods, as on a strict platform.
prepare_hub() {
	on hub create namespace "$namespace" --dry-run=client -o yaml | on hub apply --server-side -f - >/dev/null
	on hub label --overwrite namespace "$namespace" pod-security.kubernetes.io/enforce=restricted \
		pod-security.kubernetes.io/enforce-version=latest >/dev/null
	local name
	if [[ -z $(on hub -n "$namespace" get secrets -l owner=helm,name=rulefleet -o name) ]]; then
		start_as_the_readme
	else
		rulefleet upgrade --set-string image.repository="${E2E_IMAGE%:*}" --set-string image.tag="${E2E_IMAGE##*:}"
	fi
	for name in "${!spokes[@]}"; do
		rulefleet join "$name" --spoke-context "kind-$prefix-$name" --server "https://$prefix-$name-control-plane:6443" -l "${spokes[$name]}"
	done
}

# start_as_the_readme runs the three commands of the plugin in README.md, and the last until the Prometheus of eu-1 evaluates
# an AlertRule: that of a Deployment there. The tests need spokes without a Prometheus, so it and its spoke go then.
start_as_the_readme() {
	local commands context=kind-$prefix-eu-1 image=$E2E_IMAGE
	commands=$(sed -n '/^## Install$/,/^## An alert$/s/^kubectl rulefleet /rulefleet /p' README.md |
		sed "s|eu-prod-1 --spoke-context eu-prod-1|eu-1 --spoke-context $context --server https://$prefix-eu-1-control-plane:6443|")
	[[ $(wc -l <<<"$commands") == 3 && $commands =~ ^rulefleet\ install\ .*rulefleet\ join\ eu-1\ .*rulefleet\ status\ -A$ ]] ||
		fail "README.md does not install, join and ask for the status by three commands: $commands"
	: "$image" # the commands use it
	install_prometheus
	SECONDS=0
	eval "$commands"
	until rulefleet status -A | grep '^Rules that are ready in every spoke on which they are placed: [1-9]'; do
		((SECONDS < 90)) || fail "no AlertRule is ready $SECONDS s after the first command in README.md"
		sleep 0.5
	done
	[[ $(on hub get alertrules -A -o jsonpath='{.items[*].status.clusters[*].phase}') == *Evaluating* ]] || fail "the AlertRule is not evaluated"
	say "Prometheus evaluates an AlertRule $SECONDS s after the first of three commands"
	((SECONDS <= 90)) || fail "this is more than 90 s"
	rulefleet unjoin eu-1 --spoke-context "$context" --yes
	on eu-1 delete --wait -f e2e/kind-monitoring.yaml >/dev/null
	# shellcheck disable=SC2046
	on eu-1 delete --wait $(monitoring_crds) >/dev/null
}

# install_prometheus installs prometheus-operator and a Prometheus in eu-1, where start has put their image.
install_prometheus() {
	# shellcheck disable=SC2046
	on eu-1 apply --server-side $(monitoring_crds) >/dev/null
	on eu-1 apply -f e2e/kind-monitoring.yaml >/dev/null
	on eu-1 -n monitoring wait --for condition=Available --timeout 180s prometheus/main >/dev/null
}

# monitoring_crds prints the arguments for the CRDs that prometheus-operator needs, but for that of kind/up.
monitoring_crds() {
	local kind
	for kind in prometheuses servicemonitors podmonitors probes; do
		echo -f "$(crd_of "$kind")"
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

# load CLUSTER IMAGE
load() { kind load docker-image --quiet --name "$prefix-$1" "$2"; }

suite() { (cd e2e && "$binary" -provider=kind -test.parallel 8 "$@"); }

start() {
	require_image
	if [[ -n $(clusters) && ! -e $dir/$tests_mark ]]; then
		stopping=no
		fail "clusters that do not belong to the tests exist: $(clusters | xargs). Remove them with kind/down, or set KIND_PREFIX and KIND_DIR to use others"
	fi
	mkdir -p "$dir"
	touch "$dir/$tests_mark"
	step 'e2e: clusters' kind/up "${!spokes[@]}"
	.ci/beside 'e2e: image of a Prometheus into eu-1' "$0" load eu-1 "$E2E_MONITORING_IMAGE" -- 'e2e: image into the hub' "$0" load hub "$E2E_IMAGE"
	step 'e2e: installation and registration' "$0" prepare
	step 'e2e: values of the suite' "$0" suite -test.run '^$'
}

# Tests of the suite that also runs on processes: the main paths, and what depends on the other controllers of a cluster.
readonly sample=(DeploymentToPrometheusRule AlertRuleOfAPerson AnnotationsOfADeployment Kinds TemplateSelects Placement
	PlacementFollowsLabels NamespaceMissing DriftIsPutBack GeneratedRuleIsPutBack ConflictIsLeftAlone BadRuleHarmsNoOther Columns)

# tests runs that sample, then the tests that need kind, which end with an uninstallation, and then the commands in the
# documentation. It prints how many tests ran, and fails if one is missing.
tests() {
	require_image
	local log=$dir/tests.log
	registered || step 'e2e: installation and registration' "$0" prepare
	step 'e2e: suite' "$0" suite -test.v -test.timeout 20m -test.run "^Test($(IFS='|' && echo "${sample[*]}"))\$" | tee "$log"
	count "$log" "${#sample[@]}" 'suite on kind'
	step 'e2e: life of an installation' "$0" suite -test.v -test.timeout 20m -test.run '^TestKind$' | tee "$log"
	count "$log" 1 'tests of the installation'
	step 'e2e: commands of the docs' e2e/docs.sh
}

# count LOG NUMBER WHAT
count() {
	local passed
	passed=$(grep -c '^--- PASS: ' "$1" || true)
	echo "e2e: $3: $passed tests ran"
	((passed == $2)) || fail "$passed tests ran, want $2"
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
start | logs | stop | all) "$1" ;;
test) tests ;;
prepare) prepare_hub ;;
load | suite) "$@" ;;
export) kind export logs --quiet --name "$prefix-$2" "$3" ;;
*) fail "usage: e2e/kind.sh start|test|logs|stop|all" ;;
esac
