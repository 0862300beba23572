package e2e

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	"github.com/rulefleet/rulefleet/pkg/testing/pipeline"
)

// everyField has every field that a group of a PrometheusRule has.
const everyField = `
- name: records
  interval: 1s
  limit: 100
  query_offset: 1s
  partial_response_strategy: abort
  labels: {source: pack}
  rules:
  - {record: "pack:load:max", expr: 'max by (job) (pack_load)', labels: {kind: max}}
  - {record: "pack:one", expr: 1}
- name: alerts
  interval: 1s
  rules:
  - {alert: PackHigh, expr: 'pack:load:max > 10', for: 1s, keep_firing_for: 2s, labels: {severity: critical}, annotations: {summary: '{{ $labels.job }} is at {{ $value }}'}}
  - {alert: PackHigh, expr: 'pack:load:max > 5', for: 1h, labels: {severity: warning}}
  - {alert: PackAbsent, expr: 'pack_of_another_exporter > 0'}
`

// samplePack returns a RulePack with rules of every form in the operator's own namespace.
func samplePack(t *testing.T, name, namespace string, rules int) *v1alpha1.RulePack {
	t.Helper()
	p := &v1alpha1.RulePack{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: name},
		Spec:       v1alpha1.RulePackSpec{Placement: onEvery(), RuleNamespace: v1alpha1.NamespaceName(namespace)},
	}
	must(t, yaml.UnmarshalStrict([]byte(everyField), &p.Spec.Groups))
	more := monitoringv1.RuleGroup{Name: "more", Interval: new(monitoringv1.Duration("1s"))}
	for i := len(p.Spec.Groups[0].Rules) + len(p.Spec.Groups[1].Rules); i+1 < rules; i += 2 {
		more.Rules = append(more.Rules,
			monitoringv1.Rule{Record: fmt.Sprintf("pack:more:%d", i), Expr: intstr.FromString(fmt.Sprintf(`sum by (job) (rate(pack_load{job!="%d"}[5m])) or vector(%d)`, i, i))},
			monitoringv1.Rule{Alert: fmt.Sprintf("PackMore%d", i), Expr: intstr.FromString(fmt.Sprintf("pack:more:%d < 0", i)), For: new(monitoringv1.Duration("5m")), Labels: map[string]string{"severity": "info"}})
	}
	p.Spec.Groups = append(p.Spec.Groups, more)
	return p
}

// packIs waits until the status of a RulePack is as wanted.
func packIs(t *testing.T, f *fleet.Fleet, key client.ObjectKey, what string, check func(p *v1alpha1.RulePack) bool) {
	t.Helper()
	p := &v1alpha1.RulePack{}
	within(t, linkLimit, "RulePack "+key.Name+" "+what, func(ctx context.Context) error {
		if err := read(ctx, f.Hub, key, p); err != nil {
			return err
		}
		if p.Status.ObservedGeneration != p.Generation || !check(p) {
			return fmt.Errorf("the status is %+v", p.Status)
		}
		return nil
	})
}

// packRow returns the row of a spoke, which may be empty.
func packRow(p *v1alpha1.RulePack, spoke string) v1alpha1.ClusterStatus {
	for i := range p.Status.Clusters {
		if r := p.Status.Clusters[i]; string(r.Name) == spoke && r.ObservedGeneration == p.Generation {
			return r
		}
	}
	return v1alpha1.ClusterStatus{}
}

// evaluatesPack waits until every rule is evaluated where a Prometheus is.
func (e *evaluating) evaluatesPack(t *testing.T, key client.ObjectKey) {
	t.Helper()
	packIs(t, e.Fleet, key, "is evaluated", func(p *v1alpha1.RulePack) bool {
		return packRow(p, spokeA).Phase == v1alpha1.PhaseEvaluating && packRow(p, spokeB).Phase == v1alpha1.PhaseEvaluating && packRow(p, thirdSpoke).Phase == v1alpha1.PhaseApplied
	})
}

// packObject returns the PrometheusRule of a RulePack in a spoke.
func packObject(t *testing.T, m *fleet.Member, pack *v1alpha1.RulePack) *monitoringv1.PrometheusRule {
	t.Helper()
	pr := &monitoringv1.PrometheusRule{}
	name := rule.ObjectName("evaluating", rule.KeyOf(pack))
	must(t, m.Client.Get(t.Context(), client.ObjectKey{Namespace: string(pack.Spec.RuleNamespace), Name: name}, pr))
	return pr
}

// packs follows a RulePack of 151 rules to three spokes, two of which evaluate it.
func (e *evaluating) packs(t *testing.T) {
	all := []*fleet.Member{e.Hub, e.Spoke(spokeA), e.Spoke(spokeB), e.Spoke(thirdSpoke)}
	reset := func() {
		for _, m := range all {
			must(t, m.Audit().Reset())
		}
	}
	writes := func(m *fleet.Member) []string {
		user := fleet.SpokeUser
		if m == e.Hub {
			user = fleet.HubUser
		}
		out, err := writesOf(m, user)
		must(t, err)
		return slices.DeleteFunc(out, func(w string) bool { return m == e.Hub && !strings.Contains(w, "rulepacks") })
	}
	pack := samplePack(t, "sample", e.shop, 151)
	// sent returns the writes of the pack to a spoke, without those for an earlier test and for the AlertRule of the same
	// name.
	sent := func(m *fleet.Member) []string {
		return slices.DeleteFunc(writes(m), func(w string) bool { return !strings.Contains(w, rule.ObjectName("evaluating", rule.KeyOf(pack))) })
	}
	e.first.SetMetric("pack_load", map[string]string{"job": "a"}, 1)
	e.second.SetMetric("pack_load", map[string]string{"job": "a"}, 1)
	reset()
	key := create(t, e.Hub, pack)
	namesake := alertRule(pack.Name, e.shop, onNamed(spokeA)) // it has nothing to do with the RulePack
	namesake.Spec.Expr = "vector(1) > 2"
	namesakeKey := create(t, e.Hub, namesake)
	e.evaluatesPack(t, key)
	packIs(t, e.Fleet, key, "misses the series of another exporter alone", func(p *v1alpha1.RulePack) bool {
		lacks := []string{"pack_of_another_exporter"}
		return slices.Equal(packRow(p, spokeA).MissingMetrics, lacks) && slices.Equal(packRow(p, spokeB).MissingMetrics, lacks)
	})
	for name, cluster := range map[string]string{spokeA: "prod-" + spokeA, spokeB: "prod-" + spokeB, thirdSpoke: thirdSpoke} {
		want := pack.DeepCopy().Spec.Groups
		for i := range want {
			for j := range want[i].Rules {
				if r := &want[i].Rules[j]; r.Alert != "" {
					r.Labels = rule.WithKeys(r.Labels, map[string]string{"cluster": cluster}, []string{"cluster"})
				}
			}
		}
		if got := packObject(t, e.Spoke(name), pack).Spec.Groups; !reflect.DeepEqual(got, want) {
			t.Errorf("%s has %+v, want %+v", name, got, want)
		}
		if w := sent(e.Spoke(name)); len(w) != 1 || !strings.HasPrefix(w[0], "create prometheusrules/ "+e.shop) {
			t.Errorf("%s got %q", name, w)
		}
	}
	t.Logf("the hub got %q", writes(e.Hub))
	e.evaluates(t, namesakeKey, spokeA)
	must(t, e.Hub.Client.Delete(t.Context(), namesake))

	e.first.SetMetric("pack_load", map[string]string{"job": "a"}, 20)
	n := e.notified(t, linkLimit, pipeline.Firing, map[string]string{"alertname": "PackHigh", "severity": "critical", "cluster": "prod-" + spokeA, "job": "a"})
	if !strings.Contains(fmt.Sprint(n), "a is at 20") {
		t.Errorf("the notification is %+v", n)
	}
	packIs(t, e.Fleet, key, "fires", func(p *v1alpha1.RulePack) bool {
		return p.Status.Summary.Firing != nil && *p.Status.Summary.Firing == 1 && packRow(p, spokeA).Firing == 1
	})

	change := func(edit func(p *v1alpha1.RulePack)) {
		update(t, e.Hub, &v1alpha1.RulePack{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}, edit)
	}
	eventually(t, "the AlertRule is gone", func(ctx context.Context) error { return nonePushed(ctx, e.Spoke(spokeA), namesakeKey) })
	reset()
	change(func(p *v1alpha1.RulePack) {
		p.Spec.Patches = []v1alpha1.RulePatch{{
			ClusterSelection: onNamed(spokeA), Group: "alerts", Rule: "PackHigh", MatchLabels: map[string]v1alpha1.LabelText{"severity": "critical"}, Expr: "pack:load:max > 30",
		}}
	})
	packIs(t, e.Fleet, key, "is quiet with the patch", func(p *v1alpha1.RulePack) bool {
		return packRow(p, spokeA).Phase == v1alpha1.PhaseEvaluating && p.Status.Summary.Firing != nil && *p.Status.Summary.Firing == 0
	})
	for _, m := range all[1:] {
		want := 0
		if m.Name() == spokeA {
			want = 1
		}
		if w := writes(m); len(w) != want {
			t.Errorf("for a patch, %s got %q", m.Name(), w)
		}
	}

	// A new version keeps the patches, and names those that no longer match.
	change(func(p *v1alpha1.RulePack) {
		p.Spec.Groups[1].Rules[0].Alert = "PackVeryHigh"
		p.Spec.Groups[1].Rules = append(p.Spec.Groups[1].Rules, monitoringv1.Rule{Alert: "PackFails", Expr: intstr.FromString(`label_replace(pack_load, "x", "1", "", "") * on (job) (pack_load or on (y) label_replace(pack_load, "y", "2", "", ""))`)})
	})
	packIs(t, e.Fleet, key, "names the patch and the rule that fails", func(p *v1alpha1.RulePack) bool {
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionAccepted)
		r := packRow(p, spokeA)
		return c.Status == metav1.ConditionTrue && strings.Contains(c.Message, "spec.patches[0] matches no rule") &&
			r.Reason == v1alpha1.ReasonEvaluationFailed && strings.Contains(r.Message, "1 of 152 rules fail; the first is PackFails of group alerts: ")
	})

	// A bad rule that came past the webhook changes nothing in the spokes.
	reset()
	change(func(p *v1alpha1.RulePack) { p.Spec.Groups[1].Rules[3].Expr = intstr.FromString("up ==") })
	packIs(t, e.Fleet, key, "is not accepted", func(p *v1alpha1.RulePack) bool {
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionAccepted)
		return c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonInvalidExpr && strings.HasPrefix(c.Message, "spec.groups[1].rules[3].expr: rule PackFails of group alerts: 1:6: ")
	})
	if w := sent(e.Spoke(spokeB)); len(w) > 0 {
		t.Errorf("it was changed: %q", w)
	}
	change(func(p *v1alpha1.RulePack) { p.Spec.Groups[1].Rules = p.Spec.Groups[1].Rules[:3] })
	e.evaluatesPack(t, key)

	must(t, e.Hub.Client.Delete(t.Context(), pack))
	for _, m := range all[1:] {
		eventually(t, "the rules are gone from "+m.Name(), func(ctx context.Context) error {
			var list monitoringv1.PrometheusRuleList
			if err := m.Client.List(ctx, &list, client.HasLabels{v1alpha1.RulePackHashLabel}); err != nil || len(list.Items) > 0 {
				return fmt.Errorf("%d are there: %w", len(list.Items), err)
			}
			return nil
		})
	}
}
