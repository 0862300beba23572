#!/usr/bin/env bash
# e2e/docs.sh: runs the commands that README and docs show, on the clusters of kind/up, as a
# reader would: all blocks that are marked as sh, in their order, of one page after the
# other. Names that stand for others, such as NAME, are replaced. E2E_IMAGE names the image of the manager, which is built already.
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

readonly pages='README.md docs/alertrules.md docs/backup.md docs/install.md docs/operations.md docs/registering.md docs/troubleshooting.md docs/upgrading.md'
if [[ $(grep -l '^```sh$' README.md docs/*.md | sort | xargs) != "$(xargs -n 1 <<<"$pages" | sort | xargs)" ]]; then
	fail "the pages with commands are $(grep -l '^```sh$' README.md docs/*.md | xargs), and not $pages"
fi

# read_as_a_person runs commands, and shows them as they are run.
read_as_a_person() { bash -euo pipefail -v <<<"$1"; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
on hub delete namespace "$namespace" rulefleet-generated --ignore-not-found --wait >/dev/null

# What a reader has: the tools, and a kubeconfig whose contexts have short names.
make -s helm
mkdir "$work/bin"
ln -s "$root/bin/tools/helm" "$work/bin/helm"
ln -s "$(type -P kubectl || echo "$root/bin/k8s/kubectl")" "$work/bin/kubectl"
kind version >/dev/null
ln -s "$kind_path" "$work/bin/kind"
export PATH=$work/bin:$PATH
for name in $(clusters); do
	"$work/bin/kubectl" --kubeconfig "$(kubeconfig_of "$name")" config view --raw --flatten >"$work/$name"
	"$work/bin/kubectl" --kubeconfig "$work/$name" config rename-context "kind-$prefix-$name" "$name" >/dev/null
done

say "README.md"
KUBECONFIG=$work/none read_as_a_person "$(commands README.md '## Try it on kind' '## On your own clusters')"

# What a reader of the next pages has: a Deployment, and its AlertRule.
kubectl --kubeconfig "$work/eu-1" create namespace shop --dry-run=client -o yaml | kubectl --kubeconfig "$work/eu-1" apply -f - >/dev/null
kubectl --kubeconfig "$work/eu-1" create deployment web --namespace shop --image web --dry-run=client -o yaml |
	kubectl --kubeconfig "$work/eu-1" apply -f - >/dev/null
SECONDS=0
until generated=$(kubectl --kubeconfig "$work/hub" get alertrules -n rulefleet-generated -o name | awk '/shop-web/ && !n++') && [[ -n $generated ]]; do
	((SECONDS < 60)) || fail "Deployment shop/web has no AlertRule after 60 s"
	sleep 1
done
say "docs/alertrules.md and docs/operations.md"
KUBECONFIG=$work/hub read_as_a_person "$(commands docs/alertrules.md | sed "s/\\bNAME\\b/${generated##*/}/")"
KUBECONFIG=$work/hub read_as_a_person "$(commands docs/operations.md | sed 's/eu-prod-1/eu-1/')"

export KUBECONFIG=$work/hub:$work/eu-1:$work/us-1
export IMAGE=$E2E_IMAGE SERVER=https://$prefix-eu-1-control-plane:6443
kubectl config use-context hub >/dev/null
kind load docker-image --quiet --name "$prefix-hub" "$E2E_IMAGE"
helm uninstall rulefleet --namespace "$namespace" --wait
say "docs"
read_as_a_person "$(
	commands docs/install.md '' '## Uninstall'
	commands docs/registering.md
	commands docs/upgrading.md
	# A reader is slower. The lease of the former installation has to run out, and then the
	# leader puts the CA into the webhook's configuration.
	echo "timeout 60 bash -c 'until sed s/high-request-latency/another/ docs/examples/alertrule-by-label.yaml | kubectl create --dry-run=server -f - >/dev/null 2>&1; do sleep 1; done'"
	echo "cd '$work'"
	commands docs/backup.md
	echo "cd '$root'"
	commands docs/troubleshooting.md
	commands docs/install.md '## Uninstall'
)"
say "all commands of the docs were run"
