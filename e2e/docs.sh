#!/usr/bin/env bash
# e2e/docs.sh: runs the commands in docs on the clusters of kind/up, as a reader would: all blocks
# that are marked as sh, in their order, one page after the other. It replaces names that stand for
# others, such as NAME. Blocks that are marked as bash are not run. E2E_IMAGE names the image of the
# manager, which is built already.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../kind/common.sh"
cd "$root"

# commands FILE [FROM [TO]]: the blocks between two headings, each after a line that says
# where it is.
commands() {
	awk -v from="${2:-}" -v to="${3:-}" -v file="$1" '
		BEGIN { on = from == "" }
		/^#/ && !block { if (on && to != "" && $0 == to) exit; if ($0 == from) { on = 1; found = 1 } }
		/^```sh$/ && on { block = 1; n++; printf "echo %c== %s, line %d%c\n", 39, file, NR, 39; next }
		/^```$/ { block = 0 }
		block { print }
		END { if (!n || (from != "" && !found)) exit 1 }
	' "$1" || fail "there are no commands in $1, from '${2:-}'"
}

readonly pages='docs/how-to/backup.md docs/how-to/canary.md docs/how-to/install.md docs/how-to/kind.md docs/how-to/manage-spokes.md docs/how-to/register.md docs/how-to/rule-packs.md docs/how-to/silence.md docs/how-to/slo.md docs/how-to/templates.md docs/how-to/troubleshoot.md docs/how-to/upgrade.md docs/how-to/write-alerts.md docs/reference/status.md docs/tutorial.md'
readonly how=docs/how-to
found=$(grep -rl --include='*.md' '^[[:space:]]*```sh$' README.md CONTRIBUTING.md docs | LC_ALL=C sort | xargs)
[[ $found == "$pages" ]] || fail "the pages with commands are $found, and not $pages"
# Refuse indented blocks, because the pattern above does not find them.
if grep -rn --include='*.md' '^[[:space:]][[:space:]]*```sh$' docs; then fail "a block of commands is indented"; fi

# read_as_a_person runs commands, and shows them as they are run. The time limit ends a loop that would wait forever.
read_as_a_person() { timeout --foreground 30m bash -euo pipefail -v <<<"$1"; }

work=$(mktemp -d)
trap 'rm -rf "$work" alertrules.yaml' EXIT # docs/how-to/templates.md saves that file
on hub delete namespace "$namespace" rulefleet-generated --ignore-not-found --wait >/dev/null

# Prepare what a reader has: the tools, and a kubeconfig whose contexts have short names.
make -s helm
mkdir "$work/bin"
ln -s "$root/bin/tools/helm" "$work/bin/helm"
ln -s "$(type -P kubectl || echo "$root/bin/k8s/kubectl")" "$work/bin/kubectl"
ln -s "$root/bin/kubectl-rulefleet" "$work/bin/kubectl-rulefleet"
kind version >/dev/null
ln -s "$kind_path" "$work/bin/kind"
export PATH=$work/bin:$PATH
for name in $(clusters); do
	"$work/bin/kubectl" --kubeconfig "$(kubeconfig_of "$name")" config view --raw --flatten >"$work/$name"
	"$work/bin/kubectl" --kubeconfig "$work/$name" config rename-context "kind-$prefix-$name" "$name" >/dev/null
done

# of_these_clusters replaces the cluster names in a page by the names of the clusters of this run.
of_these_clusters() { sed -E "s/\\brulefleet-(hub|eu-1|us-1)\\b/$prefix-\\1/g"; }

# Run the tutorial on the existing clusters, which have no Prometheus, with the image that is already built. Then
# remove what it created: a reader deletes the clusters at its end.
say "docs/tutorial.md"
for name in hub eu-1; do kubectl --kubeconfig "$(kubeconfig_of "$name")" config view --raw --flatten >"$work/tutorial-$name"; done
docker tag "$E2E_IMAGE" ghcr.io/rulefleet/manager:tutorial
kind load docker-image --quiet --name "$prefix-hub" ghcr.io/rulefleet/manager:tutorial
on eu-1 delete namespace shop --ignore-not-found --wait >/dev/null
# Use an assignment: a command substitution that fails in an argument would not end the script.
script=$(commands docs/tutorial.md | of_these_clusters)
KUBECONFIG=$work/tutorial-hub:$work/tutorial-eu-1 read_as_a_person "$script"
on hub delete spokes --all --timeout=180s >/dev/null
helm uninstall rulefleet --kubeconfig "$work/hub" --namespace "$namespace" --wait
on hub delete alertrules -n "$namespace" --all >/dev/null
on hub delete namespace "$namespace" rulefleet-generated --wait=false >/dev/null
# Kubernetes retries the deletion of a namespace that still has pods only after 16 seconds.
on eu-1 delete deployments -n shop --all --cascade=foreground --wait >/dev/null
on eu-1 delete namespace shop --wait >/dev/null
on hub wait --for delete --timeout 180s "namespace/$namespace" namespace/rulefleet-generated >/dev/null

say "$how/kind.md"
script=$(commands $how/kind.md | of_these_clusters)
KUBECONFIG=$work/none read_as_a_person "$script"

# Create what the next pages presuppose: a Deployment, and its AlertRule.
kubectl --kubeconfig "$work/eu-1" create namespace shop --dry-run=client -o yaml | kubectl --kubeconfig "$work/eu-1" apply -f - >/dev/null
kubectl --kubeconfig "$work/eu-1" create deployment web --namespace shop --image web --dry-run=client -o yaml |
	kubectl --kubeconfig "$work/eu-1" apply -f - >/dev/null
SECONDS=0
until generated=$(kubectl --kubeconfig "$work/hub" get alertrules -n rulefleet-generated -o name | awk '/shop-web/ && !n++') && [[ -n $generated ]]; do
	((SECONDS < 60)) || fail "Deployment shop/web has no AlertRule after 60 s"
	sleep 1
done
say "$how: alerts and spokes"
script=$({
	commands $how/write-alerts.md
	commands $how/templates.md
	commands $how/canary.md
	commands $how/rule-packs.md
	commands $how/slo.md
	commands $how/silence.md
	commands $how/manage-spokes.md
	commands docs/reference/status.md
} | sed "s/\\bNAME\\b/${generated##*/}/; s/eu-prod-1/eu-1/")
KUBECONFIG=$work/hub read_as_a_person "$script"

export KUBECONFIG=$work/hub:$work/eu-1:$work/us-1
export IMAGE=$E2E_IMAGE
# The address in the context of the spoke is only for this machine; the hub's pods need another one.
server=https://$prefix-eu-1-control-plane:6443
kubectl config use-context hub >/dev/null
kind load docker-image --quiet --name "$prefix-hub" "$E2E_IMAGE"
helm uninstall rulefleet --namespace "$namespace" --wait
on hub delete lease rulefleet-manager -n "$namespace" --ignore-not-found >/dev/null # otherwise the next leader waits for its end
say "$how: from the installation to the uninstallation"
script=$(
	commands $how/install.md '' '## Uninstall'
	commands $how/register.md | sed "s|--spoke-context eu-1 |&--server $server |; s|^server=.*|server=$server|"
	commands $how/upgrade.md
	# A reader is slower. The lease of the former installation has to run out, and then the
	# leader puts the CA into the webhook's configuration.
	echo "timeout 60 bash -c 'until sed s/high-request-latency/another/ docs/examples/alertrule-by-label.yaml | kubectl create --dry-run=server -f - >/dev/null 2>&1; do sleep 1; done'"
	echo "cd '$work'"
	commands $how/backup.md
	echo "cd '$root'"
	commands $how/troubleshoot.md
	commands $how/install.md '## Uninstall'
)
read_as_a_person "$script"
say "all commands of the docs were run"
