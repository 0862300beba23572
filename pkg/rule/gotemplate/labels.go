package gotemplate

import (
	"maps"
	"slices"
	"text/template/parse"
)

// Labels returns the labels of the alert's series to which a text refers, as $labels.x or
// .Labels.x, sorted. It leaves out references that may be to something else, such as a variable of that
// name that the text defines. It returns none for a text that does not parse.
func Labels(text string) []string {
	t, err := parseGoTemplate(text)
	if err != nil {
		return nil
	}
	m := &mentions{out: map[string]bool{}}
	m.list(t.trees[mainTemplate].Root, true)
	if m.redefined {
		return nil
	}
	return slices.Sorted(maps.Keys(m.out))
}

type mentions struct {
	out       map[string]bool
	redefined bool // the text defines its own $labels
}

// list reads statements. root is true if the dot is the data that Prometheus passes.
func (m *mentions) list(l *parse.ListNode, root bool) {
	if l == nil {
		return
	}
	for _, n := range l.Nodes {
		switch n := n.(type) {
		case *parse.ActionNode:
			m.pipe(n.Pipe, root)
		case *parse.IfNode:
			m.pipe(n.Pipe, root)
			m.list(n.List, root)
			m.list(n.ElseList, root)
		case *parse.RangeNode:
			m.pipe(n.Pipe, root)
			m.list(n.List, false)
			m.list(n.ElseList, root)
		case *parse.WithNode:
			m.pipe(n.Pipe, root)
			m.list(n.List, false)
			m.list(n.ElseList, root)
		case *parse.TemplateNode:
			m.pipe(n.Pipe, root)
		}
	}
}

func (m *mentions) pipe(p *parse.PipeNode, root bool) {
	if p == nil {
		return
	}
	for _, v := range p.Decl {
		if v.Ident[0] == "$labels" && int(v.Pos) >= len(goTemplatePreamble) {
			m.redefined = true
		}
	}
	for _, c := range p.Cmds {
		for _, arg := range c.Args {
			m.operand(arg, root)
		}
	}
}

func (m *mentions) operand(n parse.Node, root bool) {
	switch n := n.(type) {
	case *parse.PipeNode:
		m.pipe(n, root)
	case *parse.ChainNode:
		m.operand(n.Node, root)
	case *parse.VariableNode:
		switch {
		case n.Ident[0] == "$labels" && len(n.Ident) > 1:
			m.out[n.Ident[1]] = true
		case n.Ident[0] == "$" && len(n.Ident) > 2 && n.Ident[1] == "Labels":
			m.out[n.Ident[2]] = true
		}
	case *parse.FieldNode:
		if root && len(n.Ident) > 1 && n.Ident[0] == "Labels" {
			m.out[n.Ident[1]] = true
		}
	}
}
