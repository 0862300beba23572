package builtin

import (
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// TestFollowBuiltIn has a row for each way in which a template on the hub can differ from the one of this version: what
// a person changed stays, and the rest moves on.
func TestFollowBuiltIn(t *testing.T) {
	due := func() *v1alpha1.AlertRuleTemplate { return pick(t, Options{}, "replicas-mismatch") }
	// older differs in its expression, its name of the alert, and in an annotation and a label that only it has.
	older := func(edit ...func(*v1alpha1.AlertRuleTemplateSpec)) *v1alpha1.AlertRuleTemplate {
		old := pick(t, Options{KubeStateMetrics: `job="older"`}, "replicas-mismatch")
		old.Spec.Alert, old.Spec.Annotations["runbook"], old.Spec.Labels = "Older", "older", map[string]v1alpha1.LabelText{"older": "yes"}
		old.Spec.KeepFiringFor = "1m"
		old.Annotations[v1alpha1.BuiltInAnnotation] = fieldsOf(old.Spec).record()
		for _, f := range edit {
			f(&old.Spec)
		}
		return old
	}
	former := func(edit ...func(*v1alpha1.AlertRuleTemplateSpec)) *v1alpha1.AlertRuleTemplate {
		old := formerTemplate(t, "replicas-mismatch")
		for _, f := range edit {
			f(&old.Spec)
		}
		return old
	}
	made := func(edit func(*v1alpha1.AlertRuleTemplate)) *v1alpha1.AlertRuleTemplate {
		m := due()
		edit(m)
		return m
	}
	type spec = v1alpha1.AlertRuleTemplateSpec
	stays := func(*spec) *spec { return nil }
	follows := func(due *spec) *spec { return due }
	with := func(edit func(*spec)) func(*spec) *spec {
		return func(due *spec) *spec { edit(due); return due }
	}
	longer := func(s *spec) { s.For = "7m" }
	forever := func(s *spec) { s.KeepFiringFor = "9m" }
	placed := func(s *spec) { s.Placement = &v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"eu-1"}} }
	unlabeled := func(s *spec) { s.Labels = nil }
	withTeam := func(s *spec) {
		if s.Labels == nil {
			s.Labels = map[string]v1alpha1.LabelText{}
		}
		s.Labels["team"] = "shop"
	}
	described := func(s *spec) { s.Annotations["description"] = "mine" }
	undescribed := func(s *spec) { delete(s.Annotations, "description") }
	all := func(s *spec) { s.Allow = []v1alpha1.Adjustment{} }
	own := func(s *spec) { s.Expr = "vector(1)" }
	parameters := func(s *spec) {
		s.Parameters = []v1alpha1.Parameter{{Name: "a", Type: v1alpha1.NumberParameter, Default: "1"}}
		s.Overrides = []v1alpha1.TemplateOverride{{ClusterSelection: v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"eu-1"}}, For: "30m"}}
		s.Namespaces = &v1alpha1.NamespaceSelection{Exclude: []v1alpha1.NamespaceName{"batch"}}
		s.Workloads = &v1alpha1.WorkloadSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "critical"}}}
		s.Suspend = new(true)
		s.RuleNamespace = v1alpha1.InOperatorNamespace
	}
	for name, c := range map[string]struct {
		present *v1alpha1.AlertRuleTemplate
		want    func(due *spec) *spec // nil is no update
	}{
		"made by this version":                       {due(), stays},
		"made by another":                            {older(), follows},
		"disabled":                                   {older(func(s *spec) { s.State = v1alpha1.Disabled }), with(func(s *spec) { s.State = v1alpha1.Disabled })},
		"disabled, made by this version":             {made(func(t *v1alpha1.AlertRuleTemplate) { t.Spec.State = v1alpha1.Disabled }), stays},
		"edited, made by this version":               {made(func(t *v1alpha1.AlertRuleTemplate) { longer(&t.Spec) }), stays},
		"without the annotation":                     {made(func(t *v1alpha1.AlertRuleTemplate) { t.Annotations = nil; t.Spec.Expr = "up" }), stays},
		"the duration":                               {older(longer), with(longer)},
		"the expression":                             {older(own), with(own)},
		"a field that this version has no more":      {older(forever), with(forever)},
		"a label more":                               {older(withTeam), with(withTeam)},
		"the labels removed":                         {older(unlabeled), follows},
		"an annotation":                              {older(described), with(described)},
		"an annotation removed":                      {older(undescribed), with(undescribed)},
		"narrowed":                                   {older(placed), with(placed)},
		"no adjustments":                             {older(all), with(all)},
		"all that it did not have":                   {older(parameters), with(parameters)},
		"edited to what it is to become":             {older(func(s *spec) { *s = due().Spec }), follows},
		"with one digest":                            {former(), follows},
		"with one digest, and the duration":          {former(longer), with(longer)},
		"with one digest, and an annotation":         {former(described), with(described)},
		"with one digest, and an annotation removed": {former(undescribed), with(undescribed)},
		"with one digest, and narrowed":              {former(placed, withTeam), with(func(s *spec) { placed(s); withTeam(s) })},
		"with the former placement":                  {former(func(s *spec) { s.Clusters = &v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"eu-1"}} }), stays},
		"with the former labels of workloads": {older(func(s *spec) {
			s.Workloads = &v1alpha1.WorkloadSelection{MatchLabels: map[string]v1alpha1.RuleLabelValue{"a": "b"}}
		}), stays},
		"with the former expressions of workloads": {older(func(s *spec) {
			s.Workloads = &v1alpha1.WorkloadSelection{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpExists}}}
		}), stays},
	} {
		t.Run(name, func(t *testing.T) {
			c.present.ResourceVersion, c.present.Labels = "1", map[string]string{"a": "b"}
			before, builtIn := c.present.DeepCopy(), due()
			got := Follow(c.present, builtIn)
			if !equality.Semantic.DeepEqual(before, c.present) || !equality.Semantic.DeepEqual(builtIn, due()) {
				t.Error("its arguments are changed")
			}
			want := c.want(&due().Spec)
			if got == nil || want == nil {
				if got != nil || want != nil {
					t.Errorf("got %+v, want %+v", got, want)
				}
				return
			}
			if want.State != v1alpha1.Disabled {
				want.State = before.Spec.State
			}
			if !equality.Semantic.DeepEqual(got.Spec, *want) {
				t.Errorf("got\n%+v, want\n%+v", got.Spec, *want)
			}
			if again := Follow(got, builtIn); again != nil {
				t.Errorf("it is changed a second time: %+v", again)
			}
			if got.ResourceVersion != "1" || got.Labels["a"] != "b" {
				t.Errorf("the metadata is another: %+v", got)
			}
			// A later version leaves alone what is edited, too.
			later := pick(t, Options{KubeStateMetrics: `job="later"`}, "replicas-mismatch")
			next := Follow(got, later)
			if want.Expr == due().Spec.Expr {
				want.Expr = later.Spec.Expr
			}
			if next == nil || !equality.Semantic.DeepEqual(next.Spec, *want) {
				t.Errorf("later, got\n%+v, want\n%+v", next, *want)
			}
		})
	}
}

// TestFollowFormer: a template of the version with one digest that nobody edited follows as a whole, however it was made.
func TestFollowFormer(t *testing.T) {
	due := pick(t, Options{KubeStateMetrics: `job="another"`}, "replicas-mismatch")
	if got := Follow(formerTemplate(t, "replicas-mismatch"), due); got == nil || !equality.Semantic.DeepEqual(got.Spec, due.Spec) {
		t.Errorf("got %+v", got)
	}
}

// TestRecordIsSmall bounds the annotation, which every template carries.
func TestRecordIsSmall(t *testing.T) {
	for _, template := range Templates(Options{KubeStateMetrics: `job="x"`}) {
		if got := template.Annotations[v1alpha1.BuiltInAnnotation]; len(got) > 1024 || got == "" {
			t.Errorf("%s: %d bytes: %s", template.Name, len(got), got)
		}
	}
}

// TestFields: a spec is the same after it was taken apart.
func TestFields(t *testing.T) {
	for _, template := range Templates(Options{}) {
		want := template.Spec.DeepCopy()
		want.State = ""
		if got := fieldsOf(template.Spec).spec(); !equality.Semantic.DeepEqual(got, *want) {
			t.Errorf("%s: got %+v", template.Name, got)
		}
	}
}

func pick(t *testing.T, o Options, name string) *v1alpha1.AlertRuleTemplate {
	t.Helper()
	for _, b := range Templates(o) {
		if b.Name == name {
			return b
		}
	}
	t.Fatal("there is no " + name)
	return nil
}

// formerTemplate returns a template as a version made it whose annotation has one digest.
func formerTemplate(t *testing.T, name string) *v1alpha1.AlertRuleTemplate {
	t.Helper()
	data, err := os.ReadFile("testdata/former/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	out := &v1alpha1.AlertRuleTemplate{}
	if err := yaml.UnmarshalStrict(data, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// The flags and people both set the state; what was said last counts.
func TestFollowBuiltInState(t *testing.T) {
	const name = "rollout-stuck"
	set := func(enabled ...string) *v1alpha1.AlertRuleTemplate {
		return pick(t, Options{Enabled: append([]string{}, enabled...)}, name)
	}
	disabled, enabled := set(), set(name)
	byPerson := disabled.DeepCopy()
	byPerson.Spec.State = v1alpha1.Enabled
	edited := disabled.DeepCopy()
	edited.Spec.For = "7m"
	for what, c := range map[string]struct {
		present, flags *v1alpha1.AlertRuleTemplate
		want           v1alpha1.State // "" is no change
	}{
		"nothing changed":                           {disabled, disabled, ""},
		"a flag enables it":                         {disabled, enabled, v1alpha1.Enabled},
		"a flag disables it":                        {enabled, disabled, v1alpha1.Disabled},
		"a person enabled it":                       {byPerson, disabled, ""},
		"a person enabled it, and then a flag":      {byPerson, enabled, v1alpha1.Enabled},
		"a person edited it, and a flag enables it": {edited, enabled, v1alpha1.Enabled},
	} {
		t.Run(what, func(t *testing.T) {
			got := Follow(c.present, c.flags)
			if (got == nil) != (c.want == "") || got != nil && got.Spec.State != c.want {
				t.Errorf("%s: got %+v, want %q", what, got, c.want)
			}
			if got == nil {
				return
			}
			if got.Spec.For != c.present.Spec.For {
				t.Errorf("%s: the spec is another: %+v", what, got.Spec)
			}
			if again := Follow(got, c.flags); again != nil {
				t.Errorf("%s: it is changed a second time: %+v", what, again)
			}
		})
	}
}
