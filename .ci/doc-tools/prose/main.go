// Command prose refuses phrases that make texts hard to read. It reads Markdown without its code, the
// strings of Go files, and all other files as text.
//
//	prose PHRASES FILE...
//
// PHRASES has a line for each phrase: a regular expression, " = " and what to write in its place.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	exitFound = 1
	exitUsage = 64
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: prose PHRASES FILE...")
		os.Exit(exitUsage)
	}
	found, err := run(os.Stdout, os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(exitFound)
	}
	if found > 0 {
		fmt.Fprintf(os.Stderr, "prose: %d refused phrases; write what the advice says, or see %s\n", found, os.Args[1])
		os.Exit(exitFound)
	}
}

// run writes the offences of all files, and returns their number.
func run(out io.Writer, phrases string, files []string) (found int, err error) {
	data, err := os.ReadFile(phrases)
	if err != nil {
		return 0, err
	}
	rules, err := parseRules(string(data))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", phrases, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return found, err
		}
		texts, err := texts(file, data)
		if err != nil {
			return found, err
		}
		for _, o := range check(rules, texts) {
			found++
			fmt.Fprintf(out, "%s:%d: %q: write %s\n", file, o.line, o.phrase, o.advice)
		}
	}
	return found, nil
}

// rule is a phrase that is refused.
type rule struct {
	expr   *regexp.Regexp
	advice string
}

func parseRules(data string) ([]rule, error) {
	var out []rule
	for i, line := range strings.Split(data, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		phrase, advice, ok := strings.Cut(line, " = ")
		if !ok || advice == "" {
			return nil, fmt.Errorf("line %d has no advice: PHRASE = ADVICE", i+1)
		}
		expr, err := regexp.Compile(`(?i)\b(?:` + strings.Join(strings.Fields(phrase), `\s+`) + `)\b`)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		out = append(out, rule{expr: expr, advice: advice})
	}
	if len(out) == 0 {
		return nil, errors.New("there is no phrase")
	}
	return out, nil
}

// text is a piece of prose, and the line that it begins at.
type text struct {
	line int
	text string
}

// offence is a refused phrase.
type offence struct {
	line           int
	phrase, advice string
}

func check(rules []rule, texts []text) []offence {
	var out []offence
	for _, t := range texts {
		for _, r := range rules {
			for _, at := range r.expr.FindAllStringIndex(t.text, -1) {
				out = append(out, offence{
					line:   t.line + strings.Count(t.text[:at[0]], "\n"),
					phrase: strings.Join(strings.Fields(t.text[at[0]:at[1]]), " "),
					advice: r.advice,
				})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b offence) int { return a.line - b.line })
	return out
}

// texts returns the prose of a file.
func texts(name string, data []byte) ([]text, error) {
	switch filepath.Ext(name) {
	case ".go":
		return literals(name, data)
	case ".md", ".gotmpl":
		return []text{{line: 1, text: withoutCode(string(data))}}, nil
	}
	if bytes.IndexByte(data, 0) >= 0 {
		return nil, fmt.Errorf("%s is not a text", name)
	}
	return []text{{line: 1, text: prefix.ReplaceAllString(string(data), "")}}, nil
}

// prefix is what begins the lines of comments and quotations, and may be in the middle of a phrase.
var prefix = regexp.MustCompile(`(?m)^[ \t]*(?:#+|//+|>|\*)[ \t]`)

// withoutCode blanks code in Markdown, and keeps the lines.
func withoutCode(s string) string {
	lines := strings.Split(s, "\n")
	fence := ""
	for i, line := range lines {
		trimmed := strings.TrimSpace(line)
		switch {
		case fence != "":
			if strings.HasPrefix(trimmed, fence) {
				fence = ""
			}
			lines[i] = ""
		case strings.HasPrefix(trimmed, "```"), strings.HasPrefix(trimmed, "~~~"):
			fence, lines[i] = trimmed[:3], ""
		default:
			lines[i] = prefix.ReplaceAllString(line, "")
		}
	}
	return inline.ReplaceAllStringFunc(strings.Join(lines, "\n"), func(code string) string {
		return "`" + strings.Repeat("\n", strings.Count(code, "\n")) + "`"
	})
}

// inline is code within a line or across two. A blank line ends a paragraph, and what is unclosed in it.
var inline = regexp.MustCompile("`[^`\n]+(?:\n[^`\n]+)?`")

// literals returns the strings of a Go file that have a space in them. Strings that are added up are one text.
func literals(name string, data []byte) ([]text, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, data, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var out []text
	add := func(n ast.Expr) bool {
		s, ok := joined(n)
		if ok && strings.Contains(s, " ") {
			out = append(out, text{line: set.Position(n.Pos()).Line, text: withoutCode(s)})
		}
		return !ok
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			return add(n)
		case *ast.BasicLit:
			return add(n)
		}
		return true
	})
	return out, nil
}

// joined returns the value of a string, or of strings that are added up. What else is added is a gap.
func joined(n ast.Expr) (string, bool) {
	switch n := n.(type) {
	case *ast.BasicLit:
		if n.Kind != token.STRING {
			return "", false
		}
		s, err := strconv.Unquote(n.Value)
		return s, err == nil
	case *ast.BinaryExpr:
		if n.Op != token.ADD {
			return "", false
		}
		a, okA := joined(n.X)
		b, okB := joined(n.Y)
		switch {
		case okA && okB:
			return a + b, true
		case okA && simple(n.Y):
			return a + "\x00", true
		case okB && simple(n.X):
			return "\x00" + b, true
		}
	}
	return "", false
}

// simple tells whether an expression has no strings of its own.
func simple(n ast.Expr) bool {
	switch n := n.(type) {
	case *ast.Ident:
		return true
	case *ast.SelectorExpr:
		return simple(n.X)
	}
	return false
}
