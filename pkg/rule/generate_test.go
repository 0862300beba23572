package rule

import (
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

func TestGenerate(t *testing.T) {
	nasty := map[string]string{
		"quotes": "\"'`\\\nnew line", "braces": "{{ .Labels }}", "open": "{", "placeholder": "$(cluster.name)", "dollar": "$", "emoji": "🚀",
	}
	longName := strings.Repeat("w", 253)
	for name, c := range map[string]struct {
		template *v1alpha1.AlertRuleTemplate
		workload Workload
	}{
		"deployment-down": {BuiltIns(BuiltInOptions{})[0], newWorkload()},
		"nasty": {newTemplate(func(t *v1alpha1.AlertRuleTemplate) {
			t.Spec.Expr = "a{a=\"$(deployment.annotations.quotes)\", b='$(deployment.annotations.placeholder)', c=`$(deployment.annotations.quotes)`," +
				` d=~"$(deployment.annotations.dollar)($(cluster.name))"}`
			t.Spec.Labels = map[string]v1alpha1.LabelText{
				"emoji": "$(deployment.annotations.emoji)", "namespace": "a-lie", "deployment": "a-lie", "kept": "$(cluster.labels.region) $$(x)",
			}
			t.Spec.Annotations = map[string]v1alpha1.LabelText{
				"braces":      "{$(deployment.annotations.open)$(deployment.annotations.open){ $(deployment.annotations.braces)",
				"placeholder": "$(deployment.annotations.dollar)(cluster.name) $(deployment.annotations.placeholder) $(deployment.annotations.dollar)$(cluster.name)",
				"action":      "{{ $value }} of $(deployment.labels.app)",
			}
		}), newWorkload(func(w *Workload) { w.Annotations, w.Labels = nasty, map[string]string{"app": "web"} })},
		"long-names": {
			newTemplate(func(t *v1alpha1.AlertRuleTemplate) { t.Name = strings.Repeat("t", 63) }),
			newWorkload(func(w *Workload) { w.Cluster.Name, w.Namespace, w.Name = longName, strings.Repeat("n", 63), longName }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if bad := ValidateTemplate(c.template, ValidateOptions{}); bad != nil {
				t.Errorf("%s: the test's template is not valid: %v", name, bad)
			}
			r, err := Generate(c.template, c.workload, "rulefleet-generated")
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			golden(t, "generate/"+name, r)
			checkName(t, name, r.Name)
			if len(r.OwnerReferences) > 0 {
				t.Errorf("%s: an owner reference: garbage collection would bypass the breaker", name)
			}
			if bad := Validate(r, ValidateOptions{GeneratedNamespace: "rulefleet-generated"}); bad != nil {
				t.Errorf("%s: what was generated is not valid: %v", name, bad)
			}
			c.workload.Cluster.Labels = map[string]string{"region": "eu"}
			p, err := Render(r, c.workload.Cluster, options)
			if err != nil {
				t.Errorf("%s: rendering: %v", name, err)
				return
			}
			if p.Namespace != c.workload.Namespace {
				t.Errorf("%s: it goes to namespace %s", name, p.Namespace)
			}
			loads(t, p)
			golden(t, "generate/"+name+"-rendered", p.Spec)
		})
	}
}

// A template is one object for all workloads: nothing of one may stay in it.
func TestGenerateLeavesTheTemplateAlone(t *testing.T) {
	template := newTemplate(func(t *v1alpha1.AlertRuleTemplate) {
		t.Spec.Labels = map[string]v1alpha1.LabelText{"a": "$(deployment.name)"}
		t.Spec.Annotations = map[string]v1alpha1.LabelText{"a": "$(deployment.name)"}
	})
	for _, name := range []string{"one", "two"} {
		r, err := Generate(template, newWorkload(func(w *Workload) { w.Name = name }), "generated")
		if err != nil || string(r.Spec.Labels["a"]) != name || string(r.Spec.Annotations["a"]) != name {
			t.Errorf("%s: got %v, %v", name, r, err)
		}
		rendered, err := Render(r, eu, options)
		if err != nil {
			t.Fatal(err)
		}
		rendered.Spec.Groups[0].Rules[0].Labels["a"] = "changed"
		if r.Spec.Labels["a"] == "changed" {
			t.Error("what is rendered shares memory with its AlertRule")
		}
	}
	if len(template.Spec.Labels) != 1 {
		t.Errorf("the template has labels %v", template.Spec.Labels)
	}
}

func TestSound(t *testing.T) {
	for name, c := range map[string]struct {
		w    Workload
		want bool
	}{
		"plain":           {newWorkload(), true},
		"others' notes":   {annotated("example.com/x", "y"), true},
		"adjusted":        {annotated(v1alpha1.AdjustmentPrefix+"labels", "a=b"), false},
		"a large text":    {newWorkload(func(w *Workload) { w.Annotations = map[string]string{"x": long("{", 1024)} }), true},
		"five large ones": {newWorkload(func(w *Workload) { w.Annotations = map[string]string{"x": long("v", 1024)}; w.Name = "five" }), false},
	} {
		t.Run(name, func(t *testing.T) {
			texts := texts{"a": "$(deployment.annotations.x)"}
			switch name {
			case "plain", "adjusted", "others' notes":
				texts = nil
			case "five large ones":
				texts["a"] = "$(deployment.annotations.x)$(deployment.annotations.x)$(deployment.annotations.x)$(deployment.annotations.x)$(deployment.annotations.x)"
			}
			r, err := Generate(newTemplate(func(t *v1alpha1.AlertRuleTemplate) { t.Spec.Annotations = texts }), c.w, "generated")
			if err != nil {
				t.Fatal(name, err)
			}
			if got := Sound(r, c.w); got != c.want {
				t.Errorf("%s: %v", name, got)
			}
		})
	}
}

// What is sound is valid, whatever a Deployment's data are.
func TestSoundIsValid(t *testing.T) {
	t.Parallel()
	rnd := random()
	sound := 0
	template := newTemplate(func(t *v1alpha1.AlertRuleTemplate) {
		t.Spec.Expr = `up{a="$(deployment.annotations.x)",b=~"$(deployment.annotations.y)+"} == 0`
		t.Spec.Labels = texts{"x": "$(deployment.annotations.x)", "y": "{$(deployment.annotations.y){{ $value }}"}
		t.Spec.Annotations = texts{"both": "$(deployment.annotations.x)$(deployment.annotations.y) {{ $labels.a }}"}
	})
	for range 25 {
		w := newWorkload(func(w *Workload) { w.Annotations = map[string]string{"x": nasty(rnd), "y": nasty(rnd)} })
		r, err := Generate(template, w, "generated")
		if err != nil {
			t.Fatal(err)
		}
		if !Sound(r, w) {
			continue
		}
		sound++
		if bad := Validate(r, ValidateOptions{GeneratedNamespace: "generated"}); bad != nil {
			t.Errorf("%q: %v", w.Annotations, bad)
		}
	}
	if sound == 0 {
		t.Error("nothing is sound")
	}
}
