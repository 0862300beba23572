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
)

// docs/reference/reasons.md explains every reason that a condition, a row or an Event can have.
func TestReferenceExplainsEveryReason(t *testing.T) {
	doc, err := os.ReadFile("../../docs/reference/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	explained := map[string]bool{}
	for line := range strings.Lines(string(doc)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue // no row of a table
		}
		for i, word := range strings.Split(cells[1], "`") {
			if i%2 == 1 {
				explained[word] = true
			}
		}
	}
	reasons := constants(t, "../../api/v1alpha1/conditions.go")
	for reason := range eventReasons(t, "../../pkg") {
		reasons[reason] = true
	}
	if len(reasons) < 40 {
		t.Errorf("only %d reasons were found", len(reasons))
	}
	for reason := range reasons {
		if !explained[reason] {
			t.Errorf("docs/reference/reasons.md has no row for %s", reason)
		}
	}
}

// constants returns the values of a file's constants.
func constants(t *testing.T, file string) map[string]bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			for _, v := range spec.Values {
				addString(out, v)
			}
		}
		return true
	})
	return out
}

// eventReasons returns what stands for a reason in calls of Eventf and of event.
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
