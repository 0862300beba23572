package rule

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

func named(names ...v1alpha1.ClusterName) v1alpha1.ClusterSelection {
	return v1alpha1.ClusterSelection{Names: names}
}

func onAll() v1alpha1.ClusterSelection {
	return v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{}}
}

func TestEffective(t *testing.T) {
	base := v1alpha1.AlertSpec{
		Alert: "A", Expr: "up == 0", For: "5m", Severity: "warning", KeepFiringFor: "1m", Interval: "30s",
		Labels: texts{"team": "shop", "tier": "2"}, Annotations: texts{"summary": "down", "runbook": "x"},
	}
	prod := v1alpha1.ClusterSelection{Selector: prodSelector}
	spoke := Cluster{Name: "eu-1", Labels: map[string]string{"env": "prod"}}
	type overrides = []v1alpha1.Override
	for name, c := range map[string]struct {
		base      func(*v1alpha1.AlertRule)
		overrides overrides
		want      func(*v1alpha1.AlertSpec)
		state     v1alpha1.State
	}{
		"none":              {},
		"for other spokes":  {overrides: overrides{{ClusterSelection: named("us-1"), Expr: "x", State: v1alpha1.Disabled}}},
		"nothing is picked": {overrides: overrides{{Expr: "x"}}},
		"a selector that is not valid": {
			overrides: overrides{{ClusterSelection: v1alpha1.ClusterSelection{Selector: badSelector}, Expr: "x"}},
		},
		"every field, by label": {
			overrides: overrides{{
				ClusterSelection: prod, State: v1alpha1.Disabled, Expr: "up < 1", For: "1m", Severity: "critical",
				Labels: texts{"team": "sre", "new": "1"}, Annotations: texts{"summary": "oh"},
			}},
			want: func(a *v1alpha1.AlertSpec) {
				a.Expr, a.For, a.Severity = "up < 1", "1m", "critical"
				a.Labels, a.Annotations = texts{"team": "sre", "tier": "2", "new": "1"}, texts{"summary": "oh", "runbook": "x"}
			},
			state: v1alpha1.Disabled,
		},
		"the first that sets a field wins, field by field": {
			overrides: overrides{
				{ClusterSelection: named("eu-1"), For: "1m", Labels: texts{"team": "a"}},
				{ClusterSelection: prod, For: "2m", Expr: "b", Labels: texts{"team": "b", "tier": "b"}, State: v1alpha1.Enabled},
				{ClusterSelection: onAll(), For: "3m", Expr: "c", Severity: "info", Labels: texts{"tier": "c"}, State: v1alpha1.Disabled},
			},
			want: func(a *v1alpha1.AlertSpec) {
				a.For, a.Expr, a.Severity, a.Labels = "1m", "b", "info", texts{"team": "a", "tier": "b"}
			},
			state: v1alpha1.Enabled,
		},
		"an empty value removes, and an override after it does not bring it back": {
			overrides: overrides{
				{ClusterSelection: onAll(), Labels: texts{"team": "", "none": ""}, Annotations: texts{"runbook": ""}},
				{ClusterSelection: onAll(), Labels: texts{"team": "b"}},
			},
			want: func(a *v1alpha1.AlertSpec) {
				a.Labels, a.Annotations = texts{"tier": "2"}, texts{"summary": "down"}
			},
		},
		"enabled in some": {
			base:      func(r *v1alpha1.AlertRule) { r.Spec.State = v1alpha1.Disabled },
			overrides: overrides{{ClusterSelection: prod, State: v1alpha1.Enabled}}, state: v1alpha1.Enabled,
		},
		"severity by its label": {
			overrides: overrides{{ClusterSelection: prod, Labels: texts{"severity": "page"}}, {ClusterSelection: prod, Severity: "info"}},
			want: func(a *v1alpha1.AlertSpec) {
				a.Severity, a.Labels = "", texts{"team": "shop", "tier": "2", "severity": "page"}
			},
		},
		"severity removed": {
			overrides: overrides{{ClusterSelection: prod, Labels: texts{"severity": ""}}},
			want:      func(a *v1alpha1.AlertSpec) { a.Severity = "" },
		},
		"severity instead of its label": {
			base: func(r *v1alpha1.AlertRule) {
				r.Spec.Severity, r.Spec.Labels = "", texts{"severity": "{{ $labels.s }}", "team": "shop", "tier": "2"}
			},
			overrides: overrides{{ClusterSelection: prod, Severity: "info"}, {ClusterSelection: prod, Labels: texts{"severity": "page"}}},
			want:      func(a *v1alpha1.AlertSpec) { a.Severity = "info" },
		},
		"a base without labels": {
			base:      func(r *v1alpha1.AlertRule) { r.Spec.Labels = nil },
			overrides: overrides{{ClusterSelection: prod, Labels: texts{"new": "1"}}},
			want:      func(a *v1alpha1.AlertSpec) { a.Labels = texts{"new": "1"} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRule(func(r *v1alpha1.AlertRule) { r.Spec.AlertSpec, r.Spec.Overrides = *base.DeepCopy(), c.overrides })
			if c.base != nil {
				c.base(r)
			}
			before := r.DeepCopy()
			want := *base.DeepCopy()
			if c.want != nil {
				c.want(&want)
			}
			got, state := effective(r, spoke).alert, StateIn(r, spoke)
			if !reflect.DeepEqual(got, want) || state != c.state {
				t.Errorf("%s: got %+v, %q\nwant %+v, %q", name, got, state, want, c.state)
			}
			if !reflect.DeepEqual(r, before) {
				t.Errorf("%s: the AlertRule was changed", name)
			}
			placed, err := PlacedIn(r, spoke)
			if err != nil || placed != (c.state != v1alpha1.Disabled) {
				t.Errorf("%s: placed: %v, %v", name, placed, err)
			}
			if placed && !MaybeEnabled(r) {
				t.Errorf("%s: it is placed, and can't be enabled", name)
			}
		})
	}
	r := newRule(func(r *v1alpha1.AlertRule) {
		r.Spec.Placement, r.Spec.Overrides = named("us-1"), []v1alpha1.Override{{ClusterSelection: named("eu-1"), State: v1alpha1.Enabled}}
	})
	if placed, err := PlacedIn(r, spoke); placed || err != nil {
		t.Errorf("an override places it: %v, %v", placed, err)
	}
	r.Spec.State = v1alpha1.Disabled
	if !MaybeEnabled(r) {
		t.Error("an override that enables it does not count")
	}
	r.Spec.Overrides[0].State = ""
	if MaybeEnabled(r) {
		t.Error("it is disabled everywhere")
	}
}

// A mistake is told of the field in which a person can correct it.
func TestOverrideIsBlamed(t *testing.T) {
	key := long("k", 100)
	for field, o := range map[string]v1alpha1.Override{
		"spec.overrides[1].expr":                 {Expr: `up{a="$(cluster.labels.nope)"}`},
		"spec.overrides[1].labels[team]":         {Labels: texts{"team": "$(cluster.labels.nope)"}},
		"spec.overrides[1].annotations[summary]": {Annotations: texts{"summary": "$(cluster.labels.nope)"}},
		"spec.annotations[" + excerpt(key) + "]": {Annotations: texts{key: "$(cluster.labels.nope)"}},
	} {
		t.Run(field, func(t *testing.T) {
			o.ClusterSelection = onAll()
			r := newRule(func(r *v1alpha1.AlertRule) {
				r.Spec.Overrides = []v1alpha1.Override{{ClusterSelection: named("us-1"), For: "1m"}, o}
			})
			_, err := Render(r, eu, options)
			bad, ok := errors.AsType[*Invalid](err)
			if !ok || bad.Field != field || !strings.Contains(bad.Message, "nope") {
				t.Errorf("%s: got %v", field, err)
			}
		})
	}
}

func TestSuspend(t *testing.T) {
	p, err := Render(newRule(), eu, options)
	if err != nil {
		t.Fatal(err)
	}
	former := held(t, moved)
	for action, plan := range map[Action]Plan{
		Suspended:   Decide(p, held(t, drifted), nil, hubID, ""),
		Keep:        Decide(p, held(t), nil, hubID, ""),
		Conflict:    Decide(p, held(t, foreign), nil, hubID, ""),
		None:        Decide(nil, nil, []*monitoringv1.PrometheusRule{former, held(t)}, hubID, ""),
		Terminating: Decide(p, held(t, terminating), nil, hubID, ""),
	} {
		t.Run(fmt.Sprint(action), func(t *testing.T) {
			if got := plan.Suspend(); !reflect.DeepEqual(got, Plan{Action: action}) {
				t.Errorf("%s becomes %+v", plan.Action, got)
			}
		})
	}
	if got := Decide(p, nil, nil, hubID, "").Suspend(); got.Action != Suspended || got.Object != nil {
		t.Errorf("a missing one: %+v", got)
	}
	if got := Decide(p, held(t), []*monitoringv1.PrometheusRule{former}, hubID, "").Suspend(); got.Action != Suspended || got.Delete != nil {
		t.Errorf("one that is in its former place too: %+v", got)
	}
}
