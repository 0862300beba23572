package delivery

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

func named(names ...v1alpha1.ClusterName) v1alpha1.ClusterSelection {
	return v1alpha1.ClusterSelection{Names: names}
}

func except(names ...v1alpha1.ClusterName) v1alpha1.ClusterSelection {
	s := onAll()
	s.Exclude = &v1alpha1.ClusterExclusion{Names: names}
	return s
}

func onAll() v1alpha1.ClusterSelection {
	return v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{}}
}

func TestEffective(t *testing.T) {
	base := v1alpha1.AlertSpec{
		Alert: "A", Expr: "up == 0", For: "5m", Severity: "warning", KeepFiringFor: "1m", Interval: "30s",
		Labels: ruletest.Texts{"team": "shop", "tier": "2"}, Annotations: ruletest.Texts{"summary": "down", "runbook": "x"},
	}
	prod := v1alpha1.ClusterSelection{Selector: ruletest.ProdSelector}
	spoke := rule.Cluster{Name: "eu-1", Labels: map[string]string{"env": "prod"}}
	type overrides = []v1alpha1.Override
	for name, c := range map[string]struct {
		base      func(*v1alpha1.AlertRule)
		overrides overrides
		want      func(*v1alpha1.AlertSpec)
		state     v1alpha1.State
	}{
		"none":              {},
		"for other spokes":  {overrides: overrides{{ClusterSelection: named("us-1"), Expr: "x", State: v1alpha1.Disabled}}},
		"but here":          {overrides: overrides{{ClusterSelection: except("eu-1"), Expr: "x", State: v1alpha1.Disabled}}},
		"nothing is picked": {overrides: overrides{{Expr: "x"}}},
		"a selector that is not valid": {
			overrides: overrides{{ClusterSelection: v1alpha1.ClusterSelection{Selector: ruletest.BadSelector}, Expr: "x"}},
		},
		"every field, by label": {
			overrides: overrides{{
				ClusterSelection: prod, State: v1alpha1.Disabled, Expr: "up < 1", For: "1m", KeepFiringFor: "2m", Interval: "3m", Severity: "critical",
				Labels: ruletest.Texts{"team": "sre", "new": "1"}, Annotations: ruletest.Texts{"summary": "oh"},
			}},
			want: func(a *v1alpha1.AlertSpec) {
				a.Expr, a.For, a.KeepFiringFor, a.Interval, a.Severity = "up < 1", "1m", "2m", "3m", "critical"
				a.Labels, a.Annotations = ruletest.Texts{"team": "sre", "tier": "2", "new": "1"}, ruletest.Texts{"summary": "oh", "runbook": "x"}
			},
			state: v1alpha1.Disabled,
		},
		"the first that sets a field takes precedence, field by field": {
			overrides: overrides{
				{ClusterSelection: named("eu-1"), For: "1m", KeepFiringFor: "0s", Interval: "1m", Labels: ruletest.Texts{"team": "a"}},
				{ClusterSelection: prod, For: "2m", Expr: "b", Labels: ruletest.Texts{"team": "b", "tier": "b"}, State: v1alpha1.Enabled},
				{ClusterSelection: onAll(), For: "3m", KeepFiringFor: "3m", Interval: "3m", Expr: "c", Severity: "info", Labels: ruletest.Texts{"tier": "c"}, State: v1alpha1.Disabled},
			},
			want: func(a *v1alpha1.AlertSpec) {
				a.For, a.Expr, a.Severity, a.Labels = "1m", "b", "info", ruletest.Texts{"team": "a", "tier": "b"}
				a.KeepFiringFor, a.Interval = "0s", "1m"
			},
			state: v1alpha1.Enabled,
		},
		"an empty value removes, and an override after it does not bring it back": {
			overrides: overrides{
				{ClusterSelection: onAll(), Labels: ruletest.Texts{"team": "", "none": ""}, Annotations: ruletest.Texts{"runbook": ""}},
				{ClusterSelection: onAll(), Labels: ruletest.Texts{"team": "b"}},
			},
			want: func(a *v1alpha1.AlertSpec) {
				a.Labels, a.Annotations = ruletest.Texts{"tier": "2"}, ruletest.Texts{"summary": "down"}
			},
		},
		"enabled in some": {
			base:      func(r *v1alpha1.AlertRule) { r.Spec.State = v1alpha1.Disabled },
			overrides: overrides{{ClusterSelection: prod, State: v1alpha1.Enabled}}, state: v1alpha1.Enabled,
		},
		"severity by its label": {
			overrides: overrides{{ClusterSelection: prod, Labels: ruletest.Texts{"severity": "page"}}, {ClusterSelection: prod, Severity: "info"}},
			want: func(a *v1alpha1.AlertSpec) {
				a.Severity, a.Labels = "", ruletest.Texts{"team": "shop", "tier": "2", "severity": "page"}
			},
		},
		"severity removed": {
			overrides: overrides{{ClusterSelection: prod, Labels: ruletest.Texts{"severity": ""}}},
			want:      func(a *v1alpha1.AlertSpec) { a.Severity = "" },
		},
		"severity instead of its label": {
			base: func(r *v1alpha1.AlertRule) {
				r.Spec.Severity, r.Spec.Labels = "", ruletest.Texts{"severity": "{{ $labels.s }}", "team": "shop", "tier": "2"}
			},
			overrides: overrides{{ClusterSelection: prod, Severity: "info"}, {ClusterSelection: prod, Labels: ruletest.Texts{"severity": "page"}}},
			want:      func(a *v1alpha1.AlertSpec) { a.Severity = "info" },
		},
		"a base without labels": {
			base:      func(r *v1alpha1.AlertRule) { r.Spec.Labels = nil },
			overrides: overrides{{ClusterSelection: prod, Labels: ruletest.Texts{"new": "1"}}},
			want:      func(a *v1alpha1.AlertSpec) { a.Labels = ruletest.Texts{"new": "1"} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := ruletest.Rule(func(r *v1alpha1.AlertRule) { r.Spec.AlertSpec, r.Spec.Overrides = *base.DeepCopy(), c.overrides })
			if c.base != nil {
				c.base(r)
			}
			before := r.DeepCopy()
			want := *base.DeepCopy()
			if c.want != nil {
				c.want(&want)
			}
			got, state := rule.Merge(r.Spec.AlertSpec, slices.Values(r.Spec.Overrides), spoke).Alert, rule.StateIn(r, spoke)
			if !reflect.DeepEqual(got, want) || state != c.state {
				t.Errorf("%s: got %+v, %q\nwant %+v, %q", name, got, state, want, c.state)
			}
			if !reflect.DeepEqual(r, before) {
				t.Errorf("%s: the AlertRule was changed", name)
			}
			placed, err := rule.PlacedIn(r, spoke)
			if err != nil || placed != (c.state != v1alpha1.Disabled) {
				t.Errorf("%s: placed: %v, %v", name, placed, err)
			}
			if placed && !rule.MaybeEnabled(r) {
				t.Errorf("%s: it is placed, and can't be enabled", name)
			}
		})
	}
	r := ruletest.Rule(func(r *v1alpha1.AlertRule) {
		r.Spec.Placement, r.Spec.Overrides = named("us-1"), []v1alpha1.Override{{ClusterSelection: named("eu-1"), State: v1alpha1.Enabled}}
	})
	if placed, err := rule.PlacedIn(r, spoke); placed || err != nil {
		t.Errorf("an override places it: %v, %v", placed, err)
	}
	r.Spec.State = v1alpha1.Disabled
	if !rule.MaybeEnabled(r) {
		t.Error("an override that enables it does not count")
	}
	r.Spec.Overrides[0].State = ""
	if rule.MaybeEnabled(r) {
		t.Error("it is disabled everywhere")
	}
}

// A mistake is told of the field in which a person can correct it.
func TestOverrideIsBlamed(t *testing.T) {
	key := ruletest.Long("k", 100)
	for field, o := range map[string]v1alpha1.Override{
		"spec.overrides[1].expr":                      {Expr: `up{a="$(cluster.labels.nope)"}`},
		"spec.overrides[1].labels[team]":              {Labels: ruletest.Texts{"team": "$(cluster.labels.nope)"}},
		"spec.overrides[1].annotations[summary]":      {Annotations: ruletest.Texts{"summary": "$(cluster.labels.nope)"}},
		"spec.annotations[" + clip.Excerpt(key) + "]": {Annotations: ruletest.Texts{key: "$(cluster.labels.nope)"}},
	} {
		t.Run(field, func(t *testing.T) {
			o.ClusterSelection = onAll()
			r := ruletest.Rule(func(r *v1alpha1.AlertRule) {
				r.Spec.Overrides = []v1alpha1.Override{{ClusterSelection: named("us-1"), For: "1m"}, o}
			})
			_, err := Render(r, eu, options)
			bad, ok := errors.AsType[*rule.Invalid](err)
			if !ok || bad.Field != field || !strings.Contains(bad.Message, "nope") {
				t.Errorf("%s: got %v", field, err)
			}
		})
	}
}

func TestSuspend(t *testing.T) {
	p, err := Render(ruletest.Rule(), eu, options)
	if err != nil {
		t.Fatal(err)
	}
	former := held(t, moved)
	for action, plan := range map[Action]Plan{
		Suspended:   Decide(p, held(t, drifted), nil, ruletest.HubID, ""),
		Keep:        Decide(p, held(t), nil, ruletest.HubID, ""),
		Conflict:    Decide(p, held(t, foreign), nil, ruletest.HubID, ""),
		None:        Decide(nil, nil, []*monitoringv1.PrometheusRule{former, held(t)}, ruletest.HubID, ""),
		Terminating: Decide(p, held(t, terminating), nil, ruletest.HubID, ""),
	} {
		t.Run(fmt.Sprint(action), func(t *testing.T) {
			if got := plan.Suspend(); !reflect.DeepEqual(got, Plan{Action: action}) {
				t.Errorf("%s becomes %+v", plan.Action, got)
			}
		})
	}
	if got := Decide(p, nil, nil, ruletest.HubID, "").Suspend(); got.Action != Suspended || got.Object != nil {
		t.Errorf("a missing one: %+v", got)
	}
	if got := Decide(p, held(t), []*monitoringv1.PrometheusRule{former}, ruletest.HubID, "").Suspend(); got.Action != Suspended || got.Delete != nil {
		t.Errorf("one that is in its former place too: %+v", got)
	}
}
