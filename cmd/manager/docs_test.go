package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/pkg/reasons"
)

// TestEveryReasonIsExplained compares the table of reasons with the reasons that the code has.
func TestEveryReasonIsExplained(t *testing.T) {
	explained := map[string]bool{}
	for _, table := range reasons.Tables() {
		for _, r := range table.Reasons {
			explained[r.Name] = true
			if len(r.On) == 0 || r.Meaning == "" || r.Remedy == "" {
				t.Errorf("%s: the row of %s is not complete: %+v", table.Heading, r.Name, r)
			}
		}
	}
	known := constants(t, "../../api/v1alpha1/conditions.go", "Reason")
	for reason := range eventReasons(t, "../../pkg") {
		known[reason] = true
	}
	if len(known) < 40 {
		t.Errorf("only %d reasons were found", len(known))
	}
	for reason := range known {
		if !explained[reason] {
			t.Errorf("pkg/reasons has no row for %s", reason)
		}
	}
	for reason := range explained {
		if !known[reason] {
			t.Errorf("pkg/reasons has a row for %s, which no condition and no Event has", reason)
		}
	}
}

// TestReasonsPage compares docs/reference/reasons.md, which make generate writes, with the table.
func TestReasonsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != reasons.Markdown() {
		t.Error("docs/reference/reasons.md is stale: run make generate")
	}
}

// constants returns the values of a file's constants whose names have a prefix.
func constants(t *testing.T, file, prefix string) map[string]bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, prefix) {
			for _, v := range spec.Values {
				addString(out, v)
			}
		}
		return true
	})
	return out
}

// eventReasons returns the literal reasons in calls of Eventf and event.
func eventReasons(t *testing.T, dir string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 4 {
				return true
			}
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && (sel.Sel.Name == "Eventf" || strings.HasPrefix(sel.Sel.Name, "event")) {
				addString(out, call.Args[3])
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func addString(to map[string]bool, e ast.Expr) {
	if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		if s, err := strconv.Unquote(lit.Value); err == nil {
			to[s] = true
		}
	}
}
