package rule_test

import (
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/builtin"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
)

func TestGenerate(t *testing.T) {
	nasty := map[string]string{
		"quotes": "\"'`\\\nnew line", "braces": "{{ .Labels }}", "open": "{", "placeholder": "$(cluster.name)", "dollar": "$", "emoji": "🚀",
	}
	longName := strings.Repeat("w", 253)
	for name, c := range map[string]struct {
		template *v1alpha1.AlertRuleTemplate
		workload templating.Workload
	}{
		"deployment-down": {builtin.Templates(builtin.Options{})[0], newWorkload()},
		"nasty": {ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) {
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
		}), newWorkload(func(w *templating.Workload) { w.Annotations, w.Labels = nasty, map[string]string{"app": "web"} })},
		"long-names": {
			ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) { t.Name = strings.Repeat("t", 63) }),
			newWorkload(func(w *templating.Workload) {
				w.Cluster.Name, w.Namespace, w.Name = longName, strings.Repeat("n", 63), longName
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if bad := validation.Template(c.template, validation.Options{}); bad != nil {
				t.Errorf("%s: the test's template is not valid: %v", name, bad)
			}
			r, err := templating.Rule(c.template, c.workload, "rulefleet-generated")
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			ruletest.Golden(t, "generate/"+name, r)
			checkName(t, name, r.Name)
			if len(r.OwnerReferences) > 0 {
				t.Errorf("%s: an owner reference: garbage collection would bypass the breaker", name)
			}
			if bad := validation.Rule(r, validation.Options{GeneratedNamespace: "rulefleet-generated"}); bad != nil {
				t.Errorf("%s: what was generated is not valid: %v", name, bad)
			}
			c.workload.Cluster.Labels = map[string]string{"region": "eu"}
			p, err := delivery.Render(r, c.workload.Cluster, options)
			if err != nil {
				t.Errorf("%s: rendering: %v", name, err)
				return
			}
			if p.Namespace != c.workload.Namespace {
				t.Errorf("%s: it goes to namespace %s", name, p.Namespace)
			}
			ruletest.Loads(t, p)
			ruletest.Golden(t, "generate/"+name+"-rendered", p.Spec)
		})
	}
}

// A template is one object for all workloads: nothing of one may stay in it.
func TestGenerateLeavesTheTemplateAlone(t *testing.T) {
	template := ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) {
		t.Spec.Labels = map[string]v1alpha1.LabelText{"a": "$(deployment.name)"}
		t.Spec.Annotations = map[string]v1alpha1.LabelText{"a": "$(deployment.name)"}
	})
	for _, name := range []string{"one", "two"} {
		r, err := templating.Rule(template, newWorkload(func(w *templating.Workload) { w.Name = name }), "generated")
		if err != nil || string(r.Spec.Labels["a"]) != name || string(r.Spec.Annotations["a"]) != name {
			t.Errorf("%s: got %v, %v", name, r, err)
		}
		rendered, err := delivery.Render(r, eu, options)
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

// What is sound is valid, whatever a Deployment's data are.
func TestSoundIsValid(t *testing.T) {
	t.Parallel()
	rnd := ruletest.Random()
	sound := 0
	template := ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) {
		t.Spec.Expr = `up{a="$(deployment.annotations.x)",b=~"$(deployment.annotations.y)+"} == 0`
		t.Spec.Labels = ruletest.Texts{"x": "$(deployment.annotations.x)", "y": "{$(deployment.annotations.y){{ $value }}"}
		t.Spec.Annotations = ruletest.Texts{"both": "$(deployment.annotations.x)$(deployment.annotations.y) {{ $labels.a }}"}
	})
	for range 25 {
		w := newWorkload(func(w *templating.Workload) {
			w.Annotations = map[string]string{"x": ruletest.Nasty(rnd), "y": ruletest.Nasty(rnd)}
		})
		r, err := templating.Rule(template, w, "generated")
		if err != nil {
			t.Fatal(err)
		}
		if !templating.Sound(r, w) {
			continue
		}
		sound++
		if bad := validation.Rule(r, validation.Options{GeneratedNamespace: "generated"}); bad != nil {
			t.Errorf("%q: %v", w.Annotations, bad)
		}
	}
	if sound == 0 {
		t.Error("nothing is sound")
	}
}
