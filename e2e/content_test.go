package e2e

import (
	"fmt"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	"github.com/rulefleet/rulefleet/pkg/testing/promtool"
)

// TestBadRuleHarmsNoOther creates a rule that no Prometheus can load among a hundred valid ones, bypassing the
// admission webhook.
func TestBadRuleHarmsNoOther(t *testing.T) {
	parallelOnShared(t)
	const good = 100
	a, b, ns := shared().Spoke(spokeA), shared().Spoke(spokeB), unique(t)
	namespace(t, ns, a, b)
	bad := alertRule(ns+"-bad", ns, onEvery())
	bad.Spec.Expr = `sum by (job (up{job="x"}) > 1`
	keys := make([]client.ObjectKey, 0, good)
	for i := range good {
		if i == good/2 {
			create(t, shared().Hub, bad)
		}
		keys = append(keys, create(t, shared().Hub, alertRule(fmt.Sprintf("%s-%d", ns, i), ns, onEvery())))
	}
	c := expectCondition(t, shared(), bad, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonInvalidExpr)
	if !strings.Contains(c.Message, "spec.expr: 1:13: ") || !strings.Contains(c.Message, "\n            ^") {
		t.Errorf("the message is %q", c.Message)
	}
	for _, key := range keys {
		ar := expectReady(t, shared(), key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
		if !meta.IsStatusConditionTrue(ar.Status.Conditions, v1alpha1.ConditionAccepted) || ar.Status.Summary.Ready != "2/2" {
			t.Errorf("the status of %s is %+v", key, ar.Status)
		}
	}
	for _, m := range []*fleet.Member{a, b} {
		var list monitoringv1.PrometheusRuleList
		must(t, m.Client.List(t.Context(), &list, client.InNamespace(ns)))
		if len(list.Items) != good {
			t.Errorf("%s has %d rules, not %d", m.Name(), len(list.Items), good)
		}
		must(t, nonePushed(t.Context(), m, client.ObjectKeyFromObject(bad)))
	}
}

// TestContent has Deployments in a spoke with every character that an API server accepts: Prometheus can load
// their rules and those of their neighbors.
func TestContent(t *testing.T) {
	parallelOnShared(t)
	a, ns := shared().Spoke(spokeA), unique(t)
	namespace(t, ns, a)
	longest := strings.Repeat("a.b-c", 50) + "end"
	huge := strings.Repeat("🐎\"'`\\\n{{ }} $(", 12_000) // 228,000 bytes: an object may carry 262,144
	tpl := template(ns, v1alpha1.NamespaceName(ns))
	tpl.Spec.Labels["team"] = "$(deployment.annotations.example.com/team)"
	tpl.Spec.Annotations = map[string]v1alpha1.LabelText{
		"summary":     `{{ $labels.deployment }} of $(deployment.annotations.example.com/team) in $(cluster.name): "{{ $value }}"`,
		"description": "It's \\ down\n\n`{{ printf \"%q\" \"}}\" }}` 🚒",
	}
	create(t, shared().Hub, tpl)
	teams := map[string]string{
		"quotes": `"'` + "`", "backslashes": `\\\`, "lines": "a\r\nb\n", "open": "{{", "close": "}}", "action": "{{ .Labels }}",
		"emoji": "🐎🚒👩‍👩‍👧", "placeholder": "$(cluster.name)", longest[:253]: "long", "huge": huge, "braces": strings.Repeat("{a", 512), "neighbor": "shop",
	}
	var paths, names []string
	for name, team := range teams {
		d := deployment(ns, name)
		for _, labels := range []map[string]string{d.Labels, d.Spec.Selector.MatchLabels, d.Spec.Template.Labels} {
			labels["app"] = "x"
		}
		d.Annotations = map[string]string{"example.com/team": team}
		create(t, a, d)
		paths, names = append(paths, path(spokeA, ns, name)), append(names, name)
	}
	for i, key := range expectMade(t, ns, paths...) {
		t.Run(names[i], func(t *testing.T) {
			expectReady(t, shared(), key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
			pr := expectPushed(t, a, key, 1)
			want := teams[names[i]]
			if names[i] == "huge" {
				want = strings.ToValidUTF8(want[:1024], "")
			}
			if got := rendered(t, pr.Spec.Groups[0].Rules[0].Labels["team"]); got != want {
				t.Errorf("the label comes out as %q, not %q", got, want)
			}
			if err := promtool.Check(t.Context(), pr.Spec.Groups); err != nil {
				t.Errorf("promtool does not accept what was pushed: %v", err)
			}
		})
	}
}
