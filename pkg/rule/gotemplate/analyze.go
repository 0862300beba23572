package gotemplate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template/parse"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/common/model"

	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// Limits of one text. A unit of cost is about a byte that is read or written. A typical text has a cost
// of some thousands.
const (
	maxBytes = 1 << 16 // before it is parsed
	maxParts = 2000    // the parser needs a stack of 2 KiB for each level
	maxDepth = 100
	maxCost  = 1 << 20
	nodeCost = 128
)

// Assumptions about data, which are true for the sample data: bytes of one value, of all labels, and of
// everything that Prometheus passes; and the entries over which a range iterates.
const (
	valueSize  = 128
	labelsSize = 2 << 10
	dataSize   = 3 * labelsSize
	entries    = 32
)

// preamble is the text that Prometheus puts before each template (rules/alerting.go).
const preamble = "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}"

// mainTemplate is the name of a text among the templates that it defines.
const mainTemplate = "__alert_text"

// What has no limit.
const (
	noTemplates   = "define, template and block cannot be used, because their cost has no limit; write the text where it is needed"
	noAssignments = "a loop cannot assign a variable again, because the value could grow without limit; declare another variable with :="
)

// kind is what is known of the type of a value.
type kind int

const (
	other       kind = iota
	data             // what Prometheus passes
	alertLabels      // the labels of the alert's series
	otherLabels
	text
	number // the value of the alert: a float64 or a native histogram
	result // of a query
)

// value is what is known of a value.
type value struct {
	kind    kind
	size    int               // the maximum number of bytes when it is printed
	literal *parse.StringNode // nil unless it is written in the text
}

// analysis is what is known of a text before it is rendered. The cost of a text without loops and
// templates that call each other is limited by its nodes and by the sizes of the values. Each node is
// evaluated at most once, in the order of the text, and a value only becomes larger by a known factor.
type analysis struct {
	text      string
	tree      *parse.Tree
	uses      map[string]bool // functions, and variables with their $
	labels    map[string]bool // labels of the alert's series
	words     map[string]bool // possible names of labels, as many as fit into labelsSize
	histogram bool            // the text reads fields of a native histogram
	cost      int

	vars  map[string]value // merged with former variables of that name
	at    parse.Node
	depth int
	times int // how often the present node is evaluated
	err   error
}

// analyze refuses texts whose cost is not limited, and texts that Prometheus cannot parse or that cannot
// be rendered with any data.
func analyze(text string) (*analysis, error) {
	if len(text) > maxBytes {
		return nil, fmt.Errorf("it has %d bytes; at most %d are allowed; shorten it", len(text), maxBytes)
	}
	if n := strings.Count(text, "{{") + strings.Count(text, "("); n > maxParts {
		return nil, fmt.Errorf("it has %d actions and opening parentheses; at most %d are allowed; shorten it", n, maxParts)
	}
	trees := map[string]*parse.Tree{}
	tree, err := parse.New(mainTemplate).Parse(preamble+text, "", "", trees, names)
	if err != nil {
		_, message, _ := strings.Cut(err.Error(), "template: "+mainTemplate+":")
		return nil, errors.New("line " + excerptLong(strings.ReplaceAll(message, mainTemplate+":", "line ")))
	}
	a := &analysis{
		text: text, tree: tree, uses: map[string]bool{}, labels: map[string]bool{}, words: map[string]bool{},
		vars: map[string]value{"$": {kind: data, size: dataSize}}, times: 1,
	}
	for _, name := range slices.Sorted(maps.Keys(trees)) {
		if name != mainTemplate {
			a.fail(trees[name].Root, noTemplates)
		}
	}
	a.list(tree.Root, a.vars["$"])
	return a, a.err
}

// Uses returns the functions that a text calls, and its variables with their $.
func Uses(text string) (map[string]bool, error) {
	a, err := analyze(text)
	if err != nil {
		return nil, err
	}
	return a.uses, nil
}

// Labels returns the labels of the alert's series to which a text refers, as $labels.x or .Labels.x,
// sorted. It leaves out references that may be to something else, such as a variable of that name that the
// text defines. It returns none for a text that is refused.
func Labels(text string) []string {
	a, err := analyze(text)
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(a.labels))
}

func (a *analysis) fail(at parse.Node, format string, args ...any) {
	if a.err == nil {
		location, context := a.tree.ErrorContext(at)
		line, _, _ := strings.Cut(strings.TrimPrefix(location, mainTemplate+":"), ":")
		a.err = fmt.Errorf("line %s: %s: %s", line, clip.Excerpt(context), excerptLong(fmt.Sprintf(format, args...)))
	}
}

// spend counts what happens at the present node, and returns it.
func (a *analysis) spend(cost int) int {
	cost = min(cost, 2*maxCost)
	if a.cost += cost * a.times; a.cost > maxCost {
		a.fail(a.at, "it can take too long to render, or the result can be too large; shorten it, and use fewer repetitions")
	}
	return cost
}

// enter counts a node, and reports whether to go on. The caller has to call leave.
func (a *analysis) enter(n parse.Node) bool {
	a.at = n
	a.spend(nodeCost)
	a.depth++
	if a.depth > maxDepth {
		a.fail(n, "it is nested more than %d levels deep; simplify it", maxDepth)
	}
	return a.err == nil
}

func (a *analysis) leave() { a.depth-- }

func (a *analysis) list(l *parse.ListNode, dot value) {
	if l == nil {
		return
	}
	for _, n := range l.Nodes {
		a.statement(n, dot)
	}
}

func (a *analysis) statement(n parse.Node, dot value) {
	defer a.leave()
	if !a.enter(n) {
		return
	}
	switch n := n.(type) {
	case *parse.TextNode:
		a.spend(len(n.Text))
	case *parse.ActionNode:
		a.spend(a.pipe(n.Pipe, dot).size)
	case *parse.IfNode:
		a.pipe(n.Pipe, dot)
		a.list(n.List, dot)
		a.list(n.ElseList, dot)
	case *parse.WithNode:
		a.list(n.List, a.pipe(n.Pipe, dot))
		a.list(n.ElseList, dot)
	case *parse.RangeNode:
		a.loop(n, dot)
	case *parse.BreakNode, *parse.ContinueNode:
	default:
		a.fail(n, noTemplates)
	}
}

// loop allows loops over what has few entries.
func (a *analysis) loop(n *parse.RangeNode, dot value) {
	key, entry := value{size: valueSize}, value{size: labelsSize}
	switch v := a.commands(n.Pipe, dot); {
	case n.Pipe.IsAssign:
		a.fail(n, noAssignments)
	case v.kind == result:
	case v.kind == alertLabels, v.kind == otherLabels:
		key.kind, entry = text, value{kind: text, size: valueSize}
	default:
		a.fail(n, "range can only be used with the result of query or with labels, because other loops can be endless; remove the loop")
	}
	if vars := n.Pipe.Decl; len(vars) > 1 {
		a.declare(vars[0], key)
		a.declare(vars[1], entry)
	} else if len(vars) > 0 {
		a.declare(vars[0], entry)
	}
	times := a.times
	a.times = min(times*entries, maxCost)
	a.list(n.List, entry)
	a.times = times
	a.list(n.ElseList, dot)
}

// declare sets a variable. If it has been set before, or another one of that name, it keeps what is true for
// both: the former value may be visible later.
func (a *analysis) declare(n *parse.VariableNode, v value) {
	if before, ok := a.vars[n.Ident[0]]; ok && before != v {
		v.size, v.literal = max(v.size, before.size), nil
		if v.kind != before.kind {
			v.kind = other
		}
	}
	a.vars[n.Ident[0]] = v
}

func (a *analysis) pipe(p *parse.PipeNode, dot value) value {
	v := a.commands(p, dot)
	if p.IsAssign && a.times > 1 {
		a.fail(p, noAssignments)
	}
	for _, n := range p.Decl {
		a.declare(n, v)
	}
	return v
}

func (a *analysis) commands(p *parse.PipeNode, dot value) value {
	defer a.leave()
	if !a.enter(p) {
		return value{}
	}
	var last []value // the value of the previous command, which is the last argument of the next one
	for _, c := range p.Cmds {
		last = []value{a.command(c, last, dot)}
	}
	return last[0]
}

func (a *analysis) command(c *parse.CommandNode, last []value, dot value) value {
	first := c.Args[0]
	function, isFunction := first.(*parse.IdentifierNode)
	var v value
	if !isFunction {
		v = a.operand(first, dot)
	}
	var args []value
	for _, n := range c.Args[1:] {
		args = append(args, a.operand(n, dot))
	}
	args = append(args, last...)
	switch {
	case isFunction:
		return a.call(function, args)
	case len(args) == 0:
		return v
	case v.kind != other:
		a.fail(first, "a value cannot have arguments; remove what follows it, or write | between the value and a function")
	}
	// The methods of times need the most for a year of 20 digits.
	return value{size: a.spend(20*sizes(args) + v.size)}
}

// operand returns the value of a word of a command.
func (a *analysis) operand(n parse.Node, dot value) value {
	a.at = n
	switch n := n.(type) {
	case *parse.PipeNode:
		return a.pipe(n, dot)
	case *parse.IdentifierNode:
		return a.call(n, nil)
	case *parse.DotNode:
		return dot
	case *parse.StringNode:
		a.word(n.Text)
		return value{kind: text, size: len(n.Text), literal: n}
	case *parse.FieldNode:
		return a.fields(n, dot, n.Ident)
	case *parse.VariableNode:
		a.uses[n.Ident[0]] = true
		return a.fields(n, a.vars[n.Ident[0]], n.Ident[1:])
	case *parse.ChainNode:
		return a.fields(n, a.operand(n.Node, dot), n.Field)
	default: // a boolean, a number or nil
		return value{size: valueSize}
	}
}

func (a *analysis) fields(n parse.Node, v value, names []string) value {
	for _, name := range names {
		v = a.field(n, v, name)
	}
	return v
}

// types are the names of the kinds in messages.
var types = map[kind]string{
	data: " in type struct { Labels, ExternalLabels, ExternalURL, Value }", text: " in type string", number: " in type float64",
	result: " in type queryResult, which is a list; use range or first",
	other:  "; use Labels and Value of a query's result, or a method that formats a time or a duration, such as Format",
}

// passed are the fields of what Prometheus passes.
var passed = map[string]value{
	"Labels": {kind: alertLabels, size: labelsSize}, "ExternalLabels": {kind: otherLabels, size: labelsSize},
	"ExternalURL": {kind: text, size: valueSize}, "Value": {kind: number, size: valueSize},
}

// field returns the value of a field, of an entry of a map, or of a method.
func (a *analysis) field(n parse.Node, v value, name string) value {
	initial, _ := utf8.DecodeRuneInString(name)
	switch field, isPassed := passed[name]; {
	case v.kind == alertLabels, v.kind == otherLabels:
		a.word(name)
		if v.kind == alertLabels {
			a.labels[name] = true
		}
		return value{kind: text, size: valueSize}
	case v.kind == data && isPassed:
		return field
	case v.kind == other && (name == "Labels" || name == "ExternalLabels"): // of a query's result, or of the data
		return value{kind: otherLabels, size: max(v.size, labelsSize)}
	case v.kind == other && (fields.Has(name) || !unicode.IsUpper(initial)): // a map may have any key
		return value{size: max(v.size, valueSize)}
	case v.kind == number && fields.Has(name):
		a.histogram = true
		return value{size: valueSize}
	}
	a.fail(n, "can't evaluate field %s%s", name, types[v.kind])
	return value{}
}

// word remembers a possible name of a label.
func (a *analysis) word(s string) {
	if len(s) <= 40 && len(a.words) < entries && model.LegacyValidation.IsValidLabelName(s) {
		a.words[s] = true
	}
}

func excerptLong(s string) string { return clip.Marked(s, rule.MaxMessage/2) }
