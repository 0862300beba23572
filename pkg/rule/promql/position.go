package promql

import (
	"slices"

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

// Place is what PromQL expects at a position.
type Place int

// The places of a number.
const (
	Scalar    Place = iota // a number, or a duration that becomes a number of seconds
	Duration               // in [ ], and after offset
	Timestamp              // after @
	AfterName              // after the name of a function or a metric
)

// Position follows the tokens of an expression, to find a literal's role.
type Position struct {
	last, before parser.Item // the last two tokens
	stack        []call
}

// call is an open bracket of any kind. function is empty if it is not a call.
type call struct {
	function string
	argument int
	// duration is true in [ ], and in the parentheses of arithmetic with durations.
	duration bool
}

// Next takes the token that was just read, except comments.
func (p *Position) Next(item parser.Item) {
	switch item.Typ {
	case parser.LEFT_PAREN:
		p.stack = append(p.stack, p.opened())
	case parser.LEFT_BRACE, parser.LEFT_BRACKET:
		p.stack = append(p.stack, call{duration: item.Typ == parser.LEFT_BRACKET})
	case parser.RIGHT_PAREN, parser.RIGHT_BRACE, parser.RIGHT_BRACKET:
		if n := len(p.stack); n > 0 {
			p.stack = p.stack[:n-1]
		}
	case parser.COMMA:
		if n := len(p.stack); n > 0 {
			p.stack[n-1].argument++
		}
	}
	p.before, p.last = p.last, item
}

// opened returns the call that a parenthesis after the last token opens. Around an argument, it opens
// nothing new: ("x") is "x".
func (p *Position) opened() call {
	switch {
	case p.last.Typ == parser.IDENTIFIER:
		return call{function: p.last.Val}
	case p.follows(parser.OFFSET), p.last.Typ == parser.MIN_OF, p.last.Typ == parser.MAX_OF:
		return call{duration: true}
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

// Place returns the place of a number that comes next.
func (p *Position) Place() Place {
	switch {
	case p.follows(parser.AT):
		return Timestamp
	case p.last.Typ == parser.IDENTIFIER, p.last.Typ == parser.METRIC_IDENTIFIER:
		return AfterName
	case p.follows(parser.OFFSET), slices.ContainsFunc(p.stack, func(open call) bool { return open.duration }):
		return Duration
	}
	return Scalar
}

// follows reports whether a number that comes next belongs to a token before it, with or without a sign between them.
func (p *Position) follows(typ parser.ItemType) bool {
	signed := p.last.Typ == parser.SUB || p.last.Typ == parser.ADD
	return p.last.Typ == typ || signed && p.before.Typ == typ
}
