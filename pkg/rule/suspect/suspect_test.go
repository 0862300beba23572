package suspect

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
)

var (
	lost   = time.Unix(1e9, 0) // when the kind or the SpokeCluster was made anew
	older  = lost.Add(-time.Second)
	gold   = map[string]string{"tier": "gold"}
	silver = map[string]string{"tier": "silver"}
)

func byTier(value string) v1alpha1.ClusterSelection {
	return v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": value}}}
}

func byName(names ...v1alpha1.ClusterName) v1alpha1.ClusterSelection {
	return v1alpha1.ClusterSelection{Names: names}
}

func excluding(s v1alpha1.ClusterSelection, name v1alpha1.ClusterName, selector *metav1.LabelSelector) v1alpha1.ClusterSelection {
	s.Exclude = &v1alpha1.ClusterExclusion{Selector: selector}
	if name != "" {
		s.Exclude.Names = []v1alpha1.ClusterName{name}
	}
	return s
}

func every() v1alpha1.ClusterSelection {
	return v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{}}
}

func TestSuspectAbsent(t *testing.T) {
	for name, tc := range map[string]struct {
		made      time.Time
		witnessed bool
		want      bool
	}{
		"older than the kind":                {made: older, want: true},
		"older than the kind, and witnessed": {made: older, witnessed: true},
		"as old as the kind":                 {made: lost, want: true},
		"as old as the kind, and witnessed":  {made: lost, witnessed: true},
		"younger":                            {made: lost.Add(time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Absent(tc.made, lost, tc.witnessed); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func placed(placement v1alpha1.ClusterSelection, state v1alpha1.State, overrides ...v1alpha1.Override) *v1alpha1.AlertRule {
	r := &v1alpha1.AlertRule{}
	r.Spec.Placement, r.Spec.State, r.Spec.Overrides = placement, state, overrides
	return r
}

func stateOf(s v1alpha1.ClusterSelection, state v1alpha1.State) v1alpha1.Override {
	return v1alpha1.Override{ClusterSelection: s, State: state}
}

// Each of these rules is not placed in cluster s, which was made anew and has no labels.
func TestSuspectUnplaced(t *testing.T) {
	notIn := v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "tier", Operator: metav1.LabelSelectorOpDoesNotExist},
	}}}
	goldRule := placed(byTier("gold"), "")
	for name, tc := range map[string]struct {
		rule *v1alpha1.AlertRule
		made time.Time // older where it is zero
		seen Seen
		want bool
	}{
		"a label is missed":                    {rule: goldRule, want: true},
		"and the object is as old":             {rule: goldRule, made: lost, want: true},
		"and the object is younger":            {rule: goldRule, made: lost.Add(time.Hour)},
		"excluded by name":                     {rule: placed(excluding(every(), "s", nil), "")},
		"excluded, whatever its labels":        {rule: placed(excluding(every(), "", &metav1.LabelSelector{}), "")},
		"excluded for want of a label":         {rule: placed(excluding(byName("s"), "", notIn.Selector), ""), want: true},
		"an override excludes it by name":      {rule: placed(every(), "", stateOf(excluding(every(), "other", nil), v1alpha1.Disabled))},
		"another one is named":                 {rule: placed(byName("other"), "")},
		"nothing is picked":                    {rule: placed(v1alpha1.ClusterSelection{}, "")},
		"disabled":                             {rule: placed(every(), v1alpha1.Disabled)},
		"disabled, and a label is missed":      {rule: placed(byTier("gold"), v1alpha1.Disabled)},
		"disabled there by name":               {rule: placed(every(), "", stateOf(byName("s"), v1alpha1.Disabled))},
		"disabled by name, enabled by a label": {rule: placed(every(), "", stateOf(byName("s"), v1alpha1.Disabled), stateOf(byTier("gold"), v1alpha1.Enabled))},
		"enabled by a label, disabled by name": {rule: placed(every(), "", stateOf(byTier("gold"), v1alpha1.Enabled), stateOf(byName("s"), v1alpha1.Disabled)), want: true},
		"disabled everywhere by an override":   {rule: placed(byTier("gold"), "", stateOf(every(), v1alpha1.Disabled))},
		"disabled for want of a label":         {rule: placed(byName("s"), "", stateOf(notIn, v1alpha1.Disabled)), want: true},
		"disabled, but for a label":            {rule: placed(byName("s"), v1alpha1.Disabled, stateOf(byTier("gold"), v1alpha1.Enabled)), want: true},
		"an override without a state":          {rule: placed(byName("other"), "", stateOf(byTier("gold"), ""))},
		"the label was seen to go":             {rule: goldRule, seen: Seen{Spokes: labeled(silver, gold)}},
		"another label was seen to go":         {rule: goldRule, seen: Seen{Spokes: labeled(silver)}, want: true},
		"the placement was seen to change":     {rule: goldRule, seen: Seen{Sources: []rule.Source{placed(byName("s"), "")}}},
		"the state was seen to change": {
			rule: placed(byName("s"), v1alpha1.Disabled, stateOf(byTier("gold"), v1alpha1.Enabled)),
			seen: Seen{Sources: []rule.Source{placed(byName("s"), "")}},
		},
		"a change that was not it": {rule: goldRule, seen: Seen{Sources: []rule.Source{placed(byTier("silver"), "")}}, want: true},
		"rule and label were seen to change": {
			rule: placed(byTier("bronze"), ""), seen: Seen{Sources: []rule.Source{goldRule}, Spokes: labeled(gold)},
		},
		"the spoke's former name was seen to go": {rule: goldRule, seen: Seen{Left: []rule.Cluster{{Name: "former", Labels: gold}}}},
		"another name was seen to go":            {rule: goldRule, seen: Seen{Left: []rule.Cluster{{Name: "former", Labels: silver}}}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := rule.Cluster{Name: "s", Created: lost}
			if is, err := rule.PlacedIn(tc.rule, c); is || err != nil {
				t.Fatalf("it is placed there: %v, %v", is, err)
			}
			made := tc.made
			if made.IsZero() {
				made = older
			}
			if got := Unplaced(made, tc.rule, c, tc.seen); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// Each of these templates does not match Deployment web in namespace shop of cluster s, which
// was made anew and has no labels.
func TestSuspectUnmatched(t *testing.T) {
	from := func(clusters v1alpha1.ClusterSelection) v1alpha1.AlertRuleTemplateSpec {
		return v1alpha1.AlertRuleTemplateSpec{Placement: &clusters}
	}
	overridden := func(state v1alpha1.State, overrides ...v1alpha1.TemplateOverride) v1alpha1.AlertRuleTemplateSpec {
		return v1alpha1.AlertRuleTemplateSpec{State: state, Overrides: overrides}
	}
	exceptGold := v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{}, Exclude: &v1alpha1.ClusterExclusion{Selector: byTier("gold").Selector}}
	goldSpec, disabled, elsewhere := from(byTier("gold")), from(byTier("gold")), from(byTier("gold"))
	disabled.State = v1alpha1.Disabled
	elsewhere.Namespaces = &v1alpha1.NamespaceSelection{Names: []v1alpha1.NamespaceName{"other"}}
	for name, tc := range map[string]struct {
		spec     v1alpha1.AlertRuleTemplateSpec
		builtIn  bool
		off      bool      // by an annotation of the Deployment
		template time.Time // when it was made; before all else where it is zero
		made     time.Time // older where it is zero
		seen     Seen
		want     bool
	}{
		"a label is missed":                        {spec: goldSpec, want: true},
		"and the AlertRule is as old":              {spec: goldSpec, made: lost, want: true},
		"and the AlertRule is younger":             {spec: goldSpec, made: lost.Add(time.Second)},
		"another one is named":                     {spec: from(byName("other"))},
		"disabled":                                 {spec: v1alpha1.AlertRuleTemplateSpec{State: v1alpha1.Disabled}},
		"disabled, and a label is missed":          {spec: disabled},
		"another namespace, and a label":           {spec: elsewhere},
		"the label was seen to go":                 {spec: goldSpec, seen: Seen{Spokes: labeled(gold)}},
		"another label was seen to go":             {spec: goldSpec, seen: Seen{Spokes: labeled(silver)}, want: true},
		"the template was seen to change":          {spec: goldSpec, seen: Seen{Templates: []*v1alpha1.AlertRuleTemplate{{}}}},
		"it was made anew":                         {spec: disabled, template: lost},
		"a built-in one was made anew, disabled":   {spec: disabled, builtIn: true, template: lost, want: true},
		"a built-in one that is as old":            {spec: disabled, builtIn: true, template: older, want: true},
		"a built-in one that was there before":     {spec: disabled, builtIn: true, template: older.Add(-time.Second)},
		"and the Deployment turns it off":          {builtIn: true, off: true, template: lost},
		"a built-in one was seen to be disabled":   {spec: disabled, builtIn: true, template: lost, seen: Seen{Templates: []*v1alpha1.AlertRuleTemplate{{}}}},
		"an override by another label enables it":  {spec: overridden(v1alpha1.Disabled, v1alpha1.TemplateOverride{ClusterSelection: byTier("gold"), State: v1alpha1.Enabled}), want: true},
		"and that label was seen to go":            {spec: overridden(v1alpha1.Disabled, v1alpha1.TemplateOverride{ClusterSelection: byTier("gold"), State: v1alpha1.Enabled}), seen: Seen{Spokes: labeled(gold)}},
		"an override for all but a label disables": {spec: overridden("", v1alpha1.TemplateOverride{ClusterSelection: exceptGold, State: v1alpha1.Disabled}), want: true},
		"an override by name disables":             {spec: overridden("", v1alpha1.TemplateOverride{ClusterSelection: byName("s"), State: v1alpha1.Disabled})},
		"an override by a label is for another namespace": {spec: v1alpha1.AlertRuleTemplateSpec{
			State: v1alpha1.Disabled, Namespaces: elsewhere.Namespaces,
			Overrides: []v1alpha1.TemplateOverride{{ClusterSelection: byTier("gold"), State: v1alpha1.Enabled}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := templating.Workload{Kind: v1alpha1.DeploymentKind, Cluster: rule.Cluster{Name: "s", Created: lost}, Namespace: "shop", Name: "web"}
			if tc.off {
				w.Annotations = map[string]string{v1alpha1.AdjustmentPrefix + string(v1alpha1.AdjustAlerts): "disabled"}
			}
			tpl := &v1alpha1.AlertRuleTemplate{Spec: tc.spec}
			if tc.builtIn {
				tpl.Annotations = map[string]string{v1alpha1.BuiltInAnnotation: "digest"}
			}
			if is, err := templating.Matches(tpl, w); is || err != nil {
				t.Fatalf("it matches: %v, %v", is, err)
			}
			made := tc.made
			if made.IsZero() {
				made = older
			}
			if got := Unmatched(made, tc.template, tpl, w, tc.seen); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// A spoke is asked for a Deployment where its labels, its annotations or its namespace's labels
// decide, and for nothing else.
func TestDecidedInSpoke(t *testing.T) {
	t.Parallel()
	made, builtIn := time.Unix(1e9, 0), map[string]string{v1alpha1.BuiltInAnnotation: "digest"}
	gold := &v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}}
	named := func(names ...v1alpha1.NamespaceName) *v1alpha1.NamespaceSelection {
		return &v1alpha1.NamespaceSelection{Names: names}
	}
	for name, tc := range map[string]struct {
		change func(t *v1alpha1.AlertRuleTemplate, w *templating.Workload)
		want   bool
	}{
		"all Deployments": {change: func(*v1alpha1.AlertRuleTemplate, *templating.Workload) {}, want: true},
		"disabled":        {change: func(t *v1alpha1.AlertRuleTemplate, _ *templating.Workload) { t.Spec.State = v1alpha1.Disabled }},
		"for another cluster": {change: func(t *v1alpha1.AlertRuleTemplate, _ *templating.Workload) {
			t.Spec.Placement = &v1alpha1.ClusterSelection{}
		}},
		"an invalid selector": {change: func(t *v1alpha1.AlertRuleTemplate, _ *templating.Workload) {
			t.Spec.Placement = &v1alpha1.ClusterSelection{Selector: ruletest.BadSelector}
		}, want: true},
		"the namespace's name": {change: func(t *v1alpha1.AlertRuleTemplate, _ *templating.Workload) { t.Spec.Namespaces = named("shop") }, want: true},
		"another namespace":    {change: func(t *v1alpha1.AlertRuleTemplate, _ *templating.Workload) { t.Spec.Namespaces = named("other") }},
		"a system namespace":   {change: func(_ *v1alpha1.AlertRuleTemplate, w *templating.Workload) { w.Namespace = "kube-system" }},
		"an excluded namespace": {change: func(t *v1alpha1.AlertRuleTemplate, _ *templating.Workload) {
			t.Spec.Namespaces = &v1alpha1.NamespaceSelection{Exclude: []v1alpha1.NamespaceName{"shop"}}
		}},
		"a namespace by its labels": {change: func(t *v1alpha1.AlertRuleTemplate, _ *templating.Workload) {
			t.Spec.Namespaces = named("other")
			t.Spec.Namespaces.Selector = &metav1.LabelSelector{}
		}, want: true},
		"disabled, and as old": {change: func(t *v1alpha1.AlertRuleTemplate, _ *templating.Workload) {
			t.Spec.State, t.CreationTimestamp = v1alpha1.Disabled, metav1.NewTime(made)
		}},
		"disabled, and the SpokeCluster is as old": {change: func(t *v1alpha1.AlertRuleTemplate, w *templating.Workload) {
			t.Spec.State, w.Cluster.Created = v1alpha1.Disabled, made
		}},
		"built in, disabled and older": {change: func(t *v1alpha1.AlertRuleTemplate, _ *templating.Workload) {
			t.Spec.State, t.Annotations, t.CreationTimestamp = v1alpha1.Disabled, builtIn, metav1.NewTime(made.Add(-time.Second))
		}},
		"built in, disabled and as old": {change: func(t *v1alpha1.AlertRuleTemplate, _ *templating.Workload) {
			t.Spec.State, t.Annotations, t.CreationTimestamp = v1alpha1.Disabled, builtIn, metav1.NewTime(made)
		}, want: true},
		"for clusters with another label, and the SpokeCluster is older": {change: func(t *v1alpha1.AlertRuleTemplate, w *templating.Workload) {
			t.Spec.Placement, w.Cluster.Created = gold, made.Add(-time.Second)
		}},
		"for clusters with another label, and the SpokeCluster is as old": {change: func(t *v1alpha1.AlertRuleTemplate, w *templating.Workload) {
			t.Spec.Placement, w.Cluster.Created = gold, made
		}, want: true},
		"an override by name disables": {change: func(t *v1alpha1.AlertRuleTemplate, w *templating.Workload) {
			t.Spec.Overrides = []v1alpha1.TemplateOverride{{ClusterSelection: byName("s"), State: v1alpha1.Disabled}}
			w.Cluster.Name = "s"
		}},
		"another label enables, and the SpokeCluster is as old": {change: func(t *v1alpha1.AlertRuleTemplate, w *templating.Workload) {
			t.Spec.State, w.Cluster.Created = v1alpha1.Disabled, made
			t.Spec.Overrides = []v1alpha1.TemplateOverride{{ClusterSelection: *gold, State: v1alpha1.Enabled}}
		}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tpl, w := &v1alpha1.AlertRuleTemplate{}, templating.Workload{Kind: v1alpha1.DeploymentKind, Namespace: "shop", Name: "web"}
			tc.change(tpl, &w)
			if got := templating.DecidedInSpoke(made, tpl.CreationTimestamp.Time, tpl, w); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// labeled returns former states of a SpokeCluster by their labels.
func labeled(all ...map[string]string) (out []FormerSpoke) {
	for _, labels := range all {
		out = append(out, FormerSpoke{Labels: labels})
	}
	return out
}
