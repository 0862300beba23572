package validation

import (
	"reflect"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

func TestValidatorRemembers(t *testing.T) {
	v := New(tenancy)
	asked := 0
	ask := func() int { asked++; return asked }
	for range 3 {
		remembered(v, "q", "uid", 1, ask)
	}
	if asked != 1 {
		t.Errorf("asked %d times for one generation", asked)
	}
	remembered(v, "q", "uid", 2, ask)
	remembered(v, "q", "other", 1, ask)
	remembered(v, "another", "uid", 1, ask)
	if asked != 4 {
		t.Errorf("asked %d times for four questions", asked)
	}
	remembered(v, "q", "", 1, ask)
	remembered(v, "q", "", 1, ask)
	if asked != 6 {
		t.Error("what no API server has seen is remembered")
	}

	asked = 0
	waiting, enough := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			remembered(v, "q", "slow", 1, func() int {
				asked++ // by one alone, or the race detector tells
				close(waiting)
				<-enough
				return 0
			})
		})
	}
	<-waiting
	close(enough)
	all.Wait()
	if asked != 1 {
		t.Errorf("asked %d times at once", asked)
	}
}

// A Validator says what the functions say, and of each object anew.
func TestValidatorAgrees(t *testing.T) {
	v := New(tenancy)
	for uid, expr := range map[string]string{"a": "up == 0", "b": "up ==", "c": "sum(up) by (job) > 0"} {
		t.Run(uid, func(t *testing.T) {
			for range 2 {
				r := ruletest.Rule(func(r *v1alpha1.AlertRule) { r.UID, r.Spec.Expr = types.UID("rule-"+uid), expr })
				if got, want := v.Validate(r), Rule(r, tenancy); !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %v, want %v", expr, got, want)
				}
				if got, want := v.Warnings(r), Warnings(r, tenancy); !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %v, want %v", expr, got, want)
				}
				template := ruletest.Template(func(t *v1alpha1.AlertRuleTemplate) {
					t.UID, t.Generation, t.Spec.Expr = types.UID("template-"+uid), 1, expr
				})
				if got, want := v.ValidateTemplate(template), Template(template, tenancy); !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %v, want %v", expr, got, want)
				}
				if got, want := v.TemplateWarnings(template), TemplateWarnings(template, tenancy); !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %v, want %v", expr, got, want)
				}
			}
		})
	}
}
