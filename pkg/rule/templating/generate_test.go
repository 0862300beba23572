package templating

import (
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

func TestSound(t *testing.T) {
	for name, c := range map[string]struct {
		w    Workload
		want bool
	}{
		"plain":           {newWorkload(), true},
		"others' notes":   {annotated("example.com/x", "y"), true},
		"adjusted":        {annotated(v1alpha1.AdjustmentPrefix+"labels", "a=b"), false},
		"an empty value":  {annotated("example.com/x", ""), false},
		"a large text":    {newWorkload(func(w *Workload) { w.Annotations = map[string]string{"x": ruletest.Long("{", 1024)} }), true},
		"five large ones": {newWorkload(func(w *Workload) { w.Annotations = map[string]string{"x": ruletest.Long("v", 1024)}; w.Name = "five" }), false},
	} {
		t.Run(name, func(t *testing.T) {
			texts := ruletest.Texts{"a": "$(deployment.annotations.x)"}
			switch name {
			case "plain", "adjusted", "others' notes", "an empty value":
				texts = nil
			case "five large ones":
				texts["a"] = "$(deployment.annotations.x)$(deployment.annotations.x)$(deployment.annotations.x)$(deployment.annotations.x)$(deployment.annotations.x)"
			}
			r, err := Rule(ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) { t.Spec.Annotations = texts }), c.w, "generated")
			if err != nil {
				t.Fatal(name, err)
			}
			if got := Sound(r, c.w); got != c.want {
				t.Errorf("%s: %v", name, got)
			}
		})
	}
}
