package coverage

import (
	"fmt"
	"slices"
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

const (
	generatedIn = "rulefleet-generated"
	adminIn     = "rulefleet-system"
)

func deployment(name string) rule.Key {
	return rule.Key{Kind: "Deployment", Namespace: "shop", Name: name}
}

// named returns an AlertRule that names a workload, with its phase in the spoke, or "".
func named(in string, w rule.Key, phase v1alpha1.Phase) *v1alpha1.AlertRule {
	ar := &v1alpha1.AlertRule{}
	ar.Namespace, ar.Name = in, "for-"+w.Name
	ar.Spec.State = v1alpha1.Enabled
	ar.Spec.WorkloadRef = &v1alpha1.WorkloadReference{
		Cluster: "eu", Kind: v1alpha1.WorkloadKind(w.Kind), Namespace: v1alpha1.NamespaceName(w.Namespace), Name: w.Name,
	}
	ar.Status.Clusters = []v1alpha1.ClusterStatus{{Name: "us", Phase: v1alpha1.PhaseEvaluating}}
	if phase != "" {
		ar.Status.Clusters = append(ar.Status.Clusters, v1alpha1.ClusterStatus{Name: "eu", Phase: phase})
	}
	return ar
}

// TestReason has one workload with each outcome and each AlertRule that decide.
func TestReason(t *testing.T) {
	web := deployment("web")
	change := func(ar *v1alpha1.AlertRule, fn func(*v1alpha1.AlertRule)) *v1alpha1.AlertRule {
		fn(ar)
		return ar
	}
	evaluating := named(generatedIn, web, v1alpha1.PhaseEvaluating)
	off := change(named(generatedIn, web, ""), func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled })
	for name, tc := range map[string]struct {
		rules    []*v1alpha1.AlertRule
		outcomes Outcomes
		want     v1alpha1.UncoveredReason // "" if it is covered
	}{
		"generated and evaluated":    {rules: []*v1alpha1.AlertRule{evaluating}, outcomes: Outcomes{"down": Generated}},
		"one of two is evaluated":    {rules: []*v1alpha1.AlertRule{named(generatedIn, web, v1alpha1.PhaseSelected), evaluating}},
		"the first is evaluated":     {rules: []*v1alpha1.AlertRule{evaluating, named(adminIn, web, v1alpha1.PhaseSelected)}},
		"written by a person":        {rules: []*v1alpha1.AlertRule{named(adminIn, web, v1alpha1.PhaseEvaluating)}},
		"written by the tenant":      {rules: []*v1alpha1.AlertRule{named("shop", web, v1alpha1.PhaseEvaluating)}},
		"written by another tenant":  {rules: []*v1alpha1.AlertRule{named("bank", web, v1alpha1.PhaseEvaluating)}, want: "NoTemplate"},
		"no template":                {want: "NoTemplate"},
		"not evaluated":              {rules: []*v1alpha1.AlertRule{named(generatedIn, web, v1alpha1.PhaseSelected)}, outcomes: Outcomes{"down": Generated, "slow": Refused}, want: "NotEvaluating"},
		"not there yet":              {rules: []*v1alpha1.AlertRule{named(generatedIn, web, "")}, want: "NotEvaluating"},
		"just generated":             {outcomes: Outcomes{"down": Generated}, want: "NotEvaluating"},
		"disabled by annotations":    {outcomes: Outcomes{"down": Disabled}, want: "Disabled"},
		"disabled by an edit":        {rules: []*v1alpha1.AlertRule{off}, outcomes: Outcomes{"down": Generated}, want: "Disabled"},
		"disabled for this spoke":    {rules: []*v1alpha1.AlertRule{change(named(adminIn, web, v1alpha1.PhaseEvaluating), disableIn("eu"))}, want: "Disabled"},
		"disabled for another spoke": {rules: []*v1alpha1.AlertRule{change(named(adminIn, web, v1alpha1.PhaseEvaluating), disableIn("us"))}},
		"no room":                    {outcomes: Outcomes{"down": Refused, "slow": Failed, "off": Disabled}, want: "Refused"},
		"failed":                     {outcomes: Outcomes{"slow": Failed, "off": Disabled}, want: "Failed"},
		"of another spoke":           {rules: []*v1alpha1.AlertRule{change(named(adminIn, web, v1alpha1.PhaseEvaluating), func(ar *v1alpha1.AlertRule) { ar.Spec.WorkloadRef.Cluster = "us" })}, want: "NoTemplate"},
		"of another kind":            {rules: []*v1alpha1.AlertRule{named(adminIn, rule.Key{Kind: "StatefulSet", Namespace: "shop", Name: "web"}, v1alpha1.PhaseEvaluating)}, want: "NoTemplate"},
		"of another namespace":       {rules: []*v1alpha1.AlertRule{named(adminIn, rule.Key{Kind: "Deployment", Namespace: "bank", Name: "web"}, v1alpha1.PhaseEvaluating)}, want: "NoTemplate"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.outcomes == nil {
				tc.outcomes = Outcomes{}
			}
			in := &Input{
				Cluster: rule.Cluster{Name: "eu"}, Trusted: []string{generatedIn, adminIn},
				Kinds:    []Kind{{Kind: v1alpha1.DeploymentKind, Workloads: []rule.Key{web}, Known: true}},
				Outcomes: func(rule.Key) Outcomes { return tc.outcomes },
			}
			for _, ar := range tc.rules {
				in.Rules = append(in.Rules, *ar)
			}
			got := Of(in)
			is := v1alpha1.UncoveredReason("")
			if len(got.Uncovered) > 0 {
				is = got.Uncovered[0].Reason
			}
			if is != tc.want || got.Workloads[0].Total != 1 || (got.Workloads[0].Covered == 1) != (tc.want == "") {
				t.Errorf("got %+v, want reason %q", got, tc.want)
			}
		})
	}
}

func disableIn(cluster v1alpha1.ClusterName) func(*v1alpha1.AlertRule) {
	return func(ar *v1alpha1.AlertRule) {
		ar.Spec.Overrides = []v1alpha1.Override{{ClusterSelection: v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{cluster}}, State: v1alpha1.Disabled}}
	}
}

// TestOf counts several kinds, of which one has no informer, and lists the first workloads whatever their order is.
func TestOf(t *testing.T) {
	var deployments []rule.Key
	var rules []v1alpha1.AlertRule
	for i := range 100 {
		w := deployment(fmt.Sprintf("web-%02d", i))
		deployments = append(deployments, w)
		if i%4 == 0 {
			rules = append(rules, *named(generatedIn, w, v1alpha1.PhaseEvaluating))
		}
	}
	first := rule.Key{Kind: "StatefulSet", Namespace: "bank", Name: "db"}
	job := rule.Key{Kind: "CronJob", Namespace: "shop", Name: "report"}
	rules = append(rules, *named(adminIn, job, v1alpha1.PhaseEvaluating))
	in := &Input{
		Cluster: rule.Cluster{Name: "eu"}, Trusted: []string{generatedIn, adminIn}, Rules: rules,
		Outcomes: func(rule.Key) Outcomes { return Outcomes{} },
		Kinds: []Kind{
			{Kind: v1alpha1.DeploymentKind, Workloads: deployments, Known: true},
			{Kind: v1alpha1.StatefulSetKind, Workloads: []rule.Key{first}, Known: true},
			{Kind: v1alpha1.CronJobKind, Total: 7},
		},
	}
	got := Of(in)
	want := []v1alpha1.WorkloadCount{
		{Kind: v1alpha1.DeploymentKind, Total: 100, Covered: 25}, {Kind: v1alpha1.StatefulSetKind, Total: 1}, {Kind: v1alpha1.CronJobKind, Total: 7, Covered: 1},
	}
	if !slices.Equal(got.Workloads, want) {
		t.Errorf("got %+v, want %+v", got.Workloads, want)
	}
	if len(got.Uncovered) != maxUncovered || got.Uncovered[0].Name != "db" || got.Uncovered[1].Name != "web-01" || got.Uncovered[3].Name != "web-03" || got.Uncovered[4].Name != "web-05" {
		t.Errorf("got %d: %+v", len(got.Uncovered), got.Uncovered)
	}
	in.Outcomes = func(w rule.Key) Outcomes {
		if w == first {
			return nil
		}
		return Outcomes{}
	}
	if is := Of(in); !slices.Equal(is.Workloads, want) || is.Uncovered[0].Name != "web-01" {
		t.Errorf("while one is not processed yet, got %+v", is)
	}
	in.Outcomes = func(rule.Key) Outcomes { return nil }
	in.Rules = append(in.Rules, *named(generatedIn, deployments[1], v1alpha1.PhaseSelected))
	if is := Of(in); len(is.Uncovered) != 1 || is.Uncovered[0].Name != "web-01" || is.Uncovered[0].Reason != v1alpha1.UncoveredNotEvaluating {
		t.Errorf("while none is processed yet, got %+v", is.Uncovered)
	}
	in.Outcomes, in.Rules = func(rule.Key) Outcomes { return Outcomes{} }, rules
	slices.Reverse(deployments)
	if again := Of(in); !slices.Equal(again.Uncovered, got.Uncovered) {
		t.Error("the list depends on the order of the workloads")
	}
}
