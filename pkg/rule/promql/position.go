package promql

import (
	"github.com/prometheus/prometheus/promql/parser"
)

// Role is the way in which PromQL interprets a string literal.
type Role int

// The roles of a string literal.
const (
	Plain       Role = iota
	Regex            // after =~ and !~, and label_replace's pattern
	Replacement      // label_replace's replacement, where $1 is a group
)

// Position follows the tokens of an expression, to find a literal's role.
type Position struct {
	last  parser.Item
	stack []call
}

// call is an open bracket of any kind. function is empty if it is not a call.
type call struct {
	function string
	argument int
}

// Next takes the token that was just read, except comments.
func (p *Position) Next(item parser.Item) {
	switch item.Typ {
	case parser.LEFT_PAREN:
		p.stack = append(p.stack, p.opened())
	case parser.LEFT_BRACE, parser.LEFT_BRACKET:
		p.stack = append(p.stack, call{})
	case parser.RIGHT_PAREN, parser.RIGHT_BRACE, parser.RIGHT_BRACKET:
		if n := len(p.stack); n > 0 {
			p.stack = p.stack[:n-1]
		}
	case parser.COMMA:
		if n := len(p.stack); n > 0 {
			p.stack[n-1].argument++
		}
	}
	p.last = item
}

// opened returns the call that a parenthesis after the last token opens. Around an argument, it opens
// nothing new: ("x") is "x".
func (p *Position) opened() call {
	if p.last.Typ == parser.IDENTIFIER {
		return call{function: p.last.Val}
	}
	if n := len(p.stack); n > 0 && (p.last.Typ == parser.LEFT_PAREN || p.last.Typ == parser.COMMA) {
		return p.stack[n-1]
	}
	return call{}
}

// Role returns the role of a string literal that comes next.
func (p *Position) Role() Role {
	if p.last.Typ == parser.EQL_REGEX || p.last.Typ == parser.NEQ_REGEX {
		return Regex
	}
	if n := len(p.stack); n > 0 && p.stack[n-1].function == "label_replace" {
		switch p.stack[n-1].argument {
		case 2:
			return Replacement
		case 4:
			return Regex
		}
	}
	return Plain
}
