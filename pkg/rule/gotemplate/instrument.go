package gotemplate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"

	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// Limits of a text's template, before it is run.
const (
	maxTemplateNodes = 2000
	maxTemplateDepth = 100
)

// The functions that instrument adds to a template. A text that names one is refused
// before: Prometheus does not have them.
const (
	stepFunc = "_step" // position and bytes of text: counts a step
	passFunc = "_pass" // value: counts its size, and passes it on
)

// mainTemplate is the name of a text among the templates that it defines.
const mainTemplate = "__alert_text"

// goTemplate is the parsed text of a label or an annotation.
type goTemplate struct {
	text  string // the original text
	trees map[string]*parse.Tree
	nodes int
	words map[string]bool // possible names of labels
	uses  map[string]bool // functions, and variables with their $
}

// parseGoTemplate parses a text after Prometheus' own preamble. It does not check whether functions
// exist.
func parseGoTemplate(text string) (*goTemplate, error) {
	tree := parse.New(mainTemplate)
	tree.Mode = parse.SkipFuncCheck
	t := &goTemplate{text: text, trees: map[string]*parse.Tree{}, words: map[string]bool{}, uses: map[string]bool{}}
	if _, err := tree.Parse(goTemplatePreamble+text, "", "", t.trees); err != nil {
		return nil, fmt.Errorf("parsing a template: %w", err)
	}
	t.trees[mainTemplate] = tree // tree.Parse leaves out an empty one
	return t, nil
}

// Uses returns the functions that a text calls, and its variables with their $.
func Uses(text string) (map[string]bool, error) {
	t, err := parseGoTemplate(text)
	if err != nil {
		return nil, err
	}
	if _, err := t.instrument(); err != nil {
		return nil, err
	}
	return t.uses, nil
}

// instrument returns the template with added calls that count its work: a step before every action and
// at the start of every body, and the size of every value that is printed, assigned or passed to a
// function. The rendered result is the same. An error reports a limit that is exceeded.
func (t *goTemplate) instrument() (string, error) {
	w := &instrumenter{t: t}
	for _, name := range slices.Sorted(maps.Keys(t.trees)) {
		root := t.trees[name].Root
		if name == mainTemplate {
			continue
		}
		w.write("{{define ", strconv.Quote(name), "}}")
		w.list(root, 0)
		w.write("{{end}}")
	}
	w.list(t.trees[mainTemplate].Root, 0)
	return w.out.String(), w.err
}

type instrumenter struct {
	t   *goTemplate
	out strings.Builder
	err error
}

func (w *instrumenter) write(parts ...string) {
	for _, p := range parts {
		w.out.WriteString(p)
	}
}

// node counts a node, and tells whether to go on.
func (w *instrumenter) node(depth int) bool {
	w.t.nodes++
	switch {
	case w.err != nil:
	case w.t.nodes > maxTemplateNodes:
		w.err = fmt.Errorf("it has more than %d nodes; shorten it", maxTemplateNodes)
	case depth > maxTemplateDepth:
		w.err = fmt.Errorf("it is nested more than %d levels deep; simplify it", maxTemplateDepth)
	}
	return w.err == nil
}

func (w *instrumenter) step(pos parse.Pos, bytes int) {
	at := max(int(pos)-len(goTemplatePreamble), 0)
	w.write("{{", stepFunc, " ", strconv.Itoa(at), " ", strconv.Itoa(bytes), "}}")
}

func (w *instrumenter) list(l *parse.ListNode, depth int) {
	if l == nil || !w.node(depth) {
		return
	}
	bytes := 0
	for _, n := range l.Nodes {
		if text, ok := n.(*parse.TextNode); ok {
			bytes += len(text.Text)
		}
	}
	w.step(l.Pos, bytes)
	for _, n := range l.Nodes {
		w.statement(n, depth+1)
	}
}

func (w *instrumenter) statement(n parse.Node, depth int) {
	if !w.node(depth) {
		return
	}
	if text, ok := n.(*parse.TextNode); ok {
		w.write(strings.ReplaceAll(string(text.Text), "{", LiteralBrace))
		return
	}
	w.step(n.Position(), 0)
	switch n := n.(type) {
	case *parse.ActionNode:
		w.write("{{")
		w.pipe(n.Pipe, depth)
		w.write("}}")
	case *parse.IfNode:
		w.branch("if", &n.BranchNode, depth)
	case *parse.RangeNode:
		w.branch("range", &n.BranchNode, depth)
	case *parse.WithNode:
		w.branch("with", &n.BranchNode, depth)
	case *parse.TemplateNode:
		w.write("{{template ", strconv.Quote(n.Name))
		if n.Pipe != nil {
			w.write(" ")
			w.pipe(n.Pipe, depth)
		}
		w.write("}}")
	case *parse.BreakNode:
		w.write("{{break}}")
	case *parse.ContinueNode:
		w.write("{{continue}}")
	default:
		w.err = errors.New("it contains an unsupported part: " + clip.Excerpt(n.String()))
	}
}

func (w *instrumenter) branch(keyword string, n *parse.BranchNode, depth int) {
	w.write("{{", keyword, " ")
	w.pipe(n.Pipe, depth)
	w.write("}}")
	w.list(n.List, depth)
	if n.ElseList != nil {
		w.write("{{else}}")
		w.list(n.ElseList, depth)
	}
	w.write("{{end}}")
}

func (w *instrumenter) pipe(p *parse.PipeNode, depth int) {
	if !w.node(depth) {
		return
	}
	for i, v := range p.Decl {
		if i > 0 {
			w.write(", ")
		}
		w.write(v.String())
	}
	switch {
	case len(p.Decl) == 0:
	case p.IsAssign:
		w.write(" = ")
	default:
		w.write(" := ")
	}
	for i, c := range p.Cmds {
		if i > 0 {
			w.write(" | ")
		}
		for j, arg := range c.Args {
			if j > 0 {
				w.write(" ")
			}
			w.operand(arg, j > 0, depth+1)
		}
		w.write(" | ", passFunc)
	}
}

// operand writes a word of a command. Arguments are passed to a function and therefore counted. The
// first word is the function itself.
func (w *instrumenter) operand(n parse.Node, argument bool, depth int) {
	if !w.node(depth) {
		return
	}
	w.mention(n)
	switch n := n.(type) {
	case *parse.PipeNode:
		w.write("(")
		w.pipe(n, depth+1)
		w.write(")")
		return
	case *parse.BoolNode, *parse.NumberNode, *parse.StringNode, *parse.NilNode:
		w.write(n.String())
		return
	}
	if argument {
		w.write("(")
	}
	if chain, ok := n.(*parse.ChainNode); ok {
		w.operand(chain.Node, false, depth+1)
		for _, field := range chain.Field {
			w.write(".", field)
		}
	} else {
		w.write(n.String())
	}
	if argument {
		w.write(" | ", passFunc, ")")
	}
}

// mention records possible names of labels, and the functions and variables of Prometheus.
func (w *instrumenter) mention(n parse.Node) {
	if int(n.Position()) < len(goTemplatePreamble) {
		return
	}
	var words []string
	switch n := n.(type) {
	case *parse.FieldNode:
		words = n.Ident
	case *parse.VariableNode:
		w.t.uses[n.Ident[0]] = true
		words = n.Ident[1:]
	case *parse.ChainNode:
		words = n.Field
	case *parse.StringNode:
		words = []string{n.Text}
	case *parse.IdentifierNode:
		w.t.uses[n.Ident] = true
	}
	for _, word := range words {
		if len(word) <= rule.MaxLabelName {
			w.t.words[word] = true
		}
	}
}
