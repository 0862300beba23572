#!/usr/bin/env bash
# e2e/upgrade.sh IMAGE REVISION: installs the chart of an earlier revision of this repository on kind clusters, with 50
# templates that have the keys of that revision, and upgrades it to the plugin in bin and to IMAGE. It fails if a rule is
# made, lost or written, by the upgrade or when the keys of the templates are renamed. 'make e2e-upgrade' calls it. The
# environment variables of kind/common.sh apply.
set -euo pipefail
export KIND_PREFIX=${KIND_PREFIX:-rulefleet-upgrade}
export KIND_DIR=${KIND_DIR:-$PWD/bin/kind-upgrade}
source "$(dirname "${BASH_SOURCE[0]}")/../kind/common.sh"
cd "$root"

image=$1 revision=$2
readonly templates=50 spoke=eu-1 before=rulefleet.test/manager:before
work=$(mktemp -d)

end() {
	local code=$?
	trap '' INT TERM
	rm -rf "$work"
	if ((code != 0)); then on hub -n "$namespace" logs deployment/rulefleet --tail 50 >&2 || true; fi
	kind/down || code=1
	exit "$code"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# plugin FOLDER …: runs the kubectl plugin in a folder.
plugin() {
	local binary=$1/kubectl-rulefleet
	shift
	KUBECONFIG=$(kubeconfig_of hub):$(kubeconfig_of "$spoke") "$binary" --context "kind-$prefix-hub" "$@"
}

# image_values IMAGE: prints the flags for it.
image_values() { echo --set-string image.repository="${1%:*}" --set-string image.tag="${1##*:}"; }

# workloads prints the Deployments, which have no pods.
workloads() {
	local i
	for ((i = 0; i < templates; i++)); do
		cat <<-END
			apiVersion: apps/v1
			kind: Deployment
			metadata: {namespace: shop, name: web-$i, labels: {scope: "$i"}}
			spec:
			  replicas: 0
			  selector: {matchLabels: {app: web-$i}}
			  template: {metadata: {labels: {app: web-$i}}, spec: {containers: [{name: web, image: web}]}}
			---
		END
	done
}

# scoped PLACEMENT SELECTOR: prints a template for each Deployment, with the line of its placement and that of its
# selector, in which N is the number of the template.
scoped() {
	local i
	for ((i = 0; i < templates; i++)); do
		cat <<-END
			apiVersion: rulefleet.io/v1alpha1
			kind: AlertRuleTemplate
			metadata: {name: scoped-$i}
			spec:
			  $1
			  ${2//N/$i}
			  alert: Scoped$i
			  expr: up{namespace="\$(deployment.namespace)",deployment="\$(deployment.name)"} == 0
			  for: 5m
			  severity: warning
			---
		END
	done
}

# rules prints what identifies the content of each AlertRule and each PrometheusRule.
rules() {
	local line='{range .items[*]}{.metadata.namespace}/{.metadata.name} {.metadata.uid}'
	on hub get alertrules -A -o jsonpath="$line {.metadata.generation}{\"\n\"}{end}" | sort
	on "$spoke" get prometheusrules -A -o jsonpath="$line {.metadata.resourceVersion}{\"\n\"}{end}" | sort
}

# scoped_with WORDS: prints how many of the templates have these words about Accepted, and what they generated.
scoped_with() {
	on hub get alertruletemplates -o jsonpath='{range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Accepted")].status} {.status.summary.generated} {.metadata.generation}={.status.conditions[?(@.type=="Accepted")].observedGeneration} {.status.conditions[?(@.type=="Accepted")].message}{"\n"}{end}' |
		grep -Ec "^scoped-[0-9]+ $1" || true
}

# await WHAT COMMAND …: waits until a command prints the number of templates.
await() {
	local what=$1 is
	shift
	SECONDS=0
	until is=$("$@") && [[ $is == "$templates" ]]; do
		((SECONDS < 180)) || fail "$what: $is of $templates after $SECONDS s"
		sleep 1
	done
	say "$what: $templates after $SECONDS s"
}

placed() { on "$spoke" -n shop get prometheusrules -o jsonpath='{range .items[*]}{.spec.groups[0].rules[0].alert}{"\n"}{end}' | grep -c '^Scoped' || true; }

# unchanged FILE WHAT
unchanged() {
	rules >"$work/now"
	diff "$1" "$work/now" || fail "$2: rules were made, lost or written"
	say "$2: $(wc -l <"$work/now") AlertRules and PrometheusRules, none made, lost or written"
}

require_docker
mkdir "$work/source"
git archive "$revision" | tar -x -C "$work/source"
make -C "$work/source" --no-print-directory plugin image VERSION="$revision" IMAGE="$before"
kind/up "$spoke"
kind load docker-image --quiet --name "$prefix-hub" "$before" "$image"

# shellcheck disable=SC2046
plugin "$work/source/bin" install $(image_values "$before")
plugin "$work/source/bin" join "$spoke" --spoke-context "kind-$prefix-$spoke" --server "https://$prefix-$spoke-control-plane:6443" -l env=prod
on "$spoke" create namespace shop
workloads | on "$spoke" apply --server-side -f - >/dev/null
scoped 'clusters: {selector: {matchLabels: {env: prod}}}' 'workloads: {matchLabels: {scope: "N"}}' | on hub create -f - >/dev/null
await 'rules of the templates in the spoke' placed
rules >"$work/before"

# shellcheck disable=SC2046
plugin bin upgrade $(image_values "$image")
await 'templates whose former keys are refused' scoped_with 'False 1 .*clusters was renamed; move its content to spec.placement'
unchanged "$work/before" 'upgrade'
scoped 'placement: {selector: {matchLabels: {env: prod}}}' 'workloads: {selector: {matchLabels: {scope: "N"}}}' | on hub replace -f - >/dev/null
await 'templates with the new keys' scoped_with 'True 1 2=2'
unchanged "$work/before" 'new keys'
