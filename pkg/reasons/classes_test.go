package reasons

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestEveryReasonHasAClass compares the rows of classes with the constants of the API.
func TestEveryReasonHasAClass(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "../../api/v1alpha1/conditions.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
			return true
		}
		lit, ok := spec.Values[0].(*ast.BasicLit)
		if !ok {
			t.Fatalf("%s is not a literal", spec.Names[0].Name)
		}
		reason, err := strconv.Unquote(lit.Value)
		if err != nil {
			t.Fatal(err)
		}
		constants[reason] = true
		if !Known(reason) {
			t.Errorf("%s has no row in classes", spec.Names[0].Name)
		}
		return true
	})
	if len(constants) < 40 {
		t.Errorf("only %d reasons were found", len(constants))
	}
	for reason := range classes {
		if !constants[reason] {
			t.Errorf("classes has a row for %s, which is no constant of the API", reason)
		}
	}
}

// TestClassesAgreeWithThePage compares classes with the tables for people: a reason of a row sets Stalled if the page
// says so, and what stalls is also failing.
func TestClassesAgreeWithThePage(t *testing.T) {
	for _, r := range ofRules {
		if slices.Contains(r.On, row) && Is(r.Name, Stalling) != slices.Contains(r.On, stalled) {
			t.Errorf("%s: classes has Stalling: %t; the row of ofRules is on %v", r.Name, Is(r.Name, Stalling), r.On)
		}
	}
	for reason, class := range classes {
		if class&Stalling != 0 && class&Failing == 0 {
			t.Errorf("%s sets Stalled, but is not counted as failing", reason)
		}
		if class&Unreachable != 0 && class&Outage == 0 {
			t.Errorf("%s is counted as unreachable, but is no reason of an outage", reason)
		}
	}
}
