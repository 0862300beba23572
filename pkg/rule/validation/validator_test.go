package validation

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

func TestValidatorRemembers(t *testing.T) {
	v := New(tenancy)
	asked := 0
	ask := func(r *result) { asked++; r.warnings = []string{fmt.Sprint(asked)} }
	for range 3 {
		if got := v.about("uid", 1, suspicion, ask).warnings; !slices.Equal(got, []string{"1"}) {
			t.Errorf("got %v", got)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times for one generation", asked)
	}
	v.about("uid", 1, validity, ask)
	v.about("uid", 1, suspicion, ask)
	v.about("uid", 2, suspicion, ask)
	v.about("uid", 2, validity, ask)
	v.about("uid", 2, suspicion, ask)
	v.about("other", 1, validity, ask)
	if asked != 5 {
		t.Errorf("asked %d times for five questions", asked)
	}
	v.about("", 1, validity, ask)
	v.about("", 1, validity, ask)
	if asked != 7 {
		t.Error("what no API server has seen is remembered")
	}

	asked = 0
	waiting, enough := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			v.about("slow", 1, validity, func(*result) {
				asked++ // by one alone, or the race detector tells
				close(waiting)
				<-enough
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

// The objects that were asked for last are remembered, and a bounded number of others.
func TestValidatorForgets(t *testing.T) {
	v := New(tenancy)
	asked := 0
	round := func(from, n int) {
		for i := range n {
			v.about(types.UID(fmt.Sprint(from+i)), 1, validity, func(*result) { asked++ })
		}
	}
	for range 3 { // all rules of a hub, again and again
		round(0, maxRemembered)
	}
	if asked != maxRemembered {
		t.Errorf("asked %d times for %d objects", asked, maxRemembered)
	}
	round(maxRemembered, 2*maxRemembered)
	if n := len(v.results.now) + len(v.results.before); n > 2*maxRemembered {
		t.Errorf("%d are remembered", n)
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
