package builtin

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

func TestFollowBuiltIn(t *testing.T) {
	const follows, stays, noted = "follows", "stays", "noted"
	older := func() *v1alpha1.AlertRuleTemplate {
		return Templates(Options{KubeStateMetrics: `job="older"`})[0]
	}
	due := func() *v1alpha1.AlertRuleTemplate { return Templates(Options{})[0] }
	edit := func(t *v1alpha1.AlertRuleTemplate) { t.Spec.For = "7m" }
	for name, c := range map[string]struct {
		present *v1alpha1.AlertRuleTemplate
		edit    func(*v1alpha1.AlertRuleTemplate)
		want    string
	}{
		"made by this version":           {due(), nil, stays},
		"made by another":                {older(), nil, follows},
		"disabled":                       {older(), func(t *v1alpha1.AlertRuleTemplate) { t.Spec.State = v1alpha1.Disabled }, follows},
		"disabled, made by this version": {due(), func(t *v1alpha1.AlertRuleTemplate) { t.Spec.State = v1alpha1.Disabled }, stays},
		"labeled":                        {older(), func(t *v1alpha1.AlertRuleTemplate) { t.Labels = map[string]string{"a": "b"} }, follows},
		"edited":                         {older(), edit, stays},
		"edited, made by this version":   {due(), edit, stays},
		"narrowed": {older(), func(t *v1alpha1.AlertRuleTemplate) {
			t.Spec.Placement = &v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"eu-1"}}
		}, stays},
		"without the annotation":            {older(), func(t *v1alpha1.AlertRuleTemplate) { t.Annotations = nil }, stays},
		"without the annotation, and equal": {due(), func(t *v1alpha1.AlertRuleTemplate) { t.Annotations = nil }, stays},
		"edited to what it is to become":    {older(), func(t *v1alpha1.AlertRuleTemplate) { t.Spec = due().Spec }, noted},
	} {
		t.Run(name, func(t *testing.T) {
			if c.edit != nil {
				c.edit(c.present)
			}
			c.present.ResourceVersion = "1"
			before, builtIn := c.present.DeepCopy(), due()
			got := Follow(c.present, builtIn)
			if !equality.Semantic.DeepEqual(before, c.present) || !equality.Semantic.DeepEqual(builtIn, due()) {
				t.Errorf("%s: its arguments are changed", name)
			}
			if got == nil {
				if c.want != stays {
					t.Errorf("%s: it stays", name)
				}
				return
			}
			did := noted
			if !equality.Semantic.DeepEqual(got.Spec, before.Spec) {
				did = follows
			}
			want := due().Spec
			want.State = before.Spec.State
			if did != c.want || !equality.Semantic.DeepEqual(got.Spec, want) {
				t.Errorf("%s: it %s, as %+v", name, did, got)
			}
			if again := Follow(got, builtIn); again != nil {
				t.Errorf("%s: it is changed a second time", name)
			}
			if got.ResourceVersion != "1" || len(got.Labels) != len(before.Labels) {
				t.Errorf("%s: the metadata is another: %+v", name, got)
			}
		})
	}
}

// The flags and people both set the state; what was said last counts.
func TestFollowBuiltInState(t *testing.T) {
	const name = "rollout-stuck"
	pick := func(enabled ...string) *v1alpha1.AlertRuleTemplate {
		for _, b := range Templates(Options{Enabled: append([]string{}, enabled...)}) {
			if b.Name == name {
				return b
			}
		}
		t.Fatal("there is no " + name)
		return nil
	}
	disabled, enabled := pick(), pick(name)
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
