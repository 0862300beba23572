package builtin

import (
	"slices"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rulefleet/rulefleet/pkg/rule/promql"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
)

// roundTrips tells whether a selector is one to the parser, and stays as it is.
func roundTrips(t *testing.T, s string) {
	t.Helper()
	parsed, err := promql.Stable.ParseExpr(s)
	if err != nil {
		t.Errorf("%s: %v", s, err)
		return
	}
	if _, ok := parsed.(*parser.VectorSelector); !ok {
		t.Errorf("%s is a %T", s, parsed)
	}
	if again := promql.Needs(s); !slices.EqualFunc(again, [][]string{{s}}, slices.Equal) {
		t.Errorf("%s becomes %q", s, again)
	}
}

// TestSelectorNeedsOfBuiltIns: each built-in takes either way to scrape
// kube-state-metrics, so each of its needs has a selector for both.
func TestSelectorNeedsOfBuiltIns(t *testing.T) {
	t.Parallel()
	for _, b := range Templates(Options{}) {
		generated, err := templating.Rule(b, workloadOf(b), "rulefleet-generated")
		if err != nil {
			t.Fatal(err)
		}
		found := promql.Needs(generated.Spec.Expr)
		if len(found) == 0 {
			t.Errorf("%s has none: %s", b.Name, generated.Spec.Expr)
		}
		for _, need := range found {
			if len(need) == 0 || len(need)%2 != 0 {
				t.Errorf("%s needs one of %q", b.Name, need)
			}
			for _, s := range need {
				roundTrips(t, s)
			}
		}
	}
}
