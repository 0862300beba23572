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
		if bad := ValidateTemplate(c.template, ValidateOptions{}); bad != nil {
			t.Errorf("%s: the test's template is not valid: %v", name, bad)
		}
		r, err := Generate(c.template, c.workload, "rulefleet-generated")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
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
			continue
		}
		if p.Namespace != c.workload.Namespace {
			t.Errorf("%s: it goes to namespace %s", name, p.Namespace)
		}
		loads(t, p)
		golden(t, "generate/"+name+"-rendered", p.Spec)
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
