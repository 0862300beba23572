package placeholder

import (
	"fmt"
	"strings"

	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
)

// token is a parameter outside of string literals of an expression.
type token struct {
	start, end  int // in the expression
	placeholder placeholder
}

// Shape returns an expression with a number of the same length in place of each parameter outside of string literals
// and comments. Positions in it are those in the expression.
func Shape(expr string) string {
	shape, _, f := shapeOf(expr)
	if f != nil {
		return expr
	}
	return shape
}

// shapeOf is Shape. It also returns the parameters. As the number begins and ends with a digit, the lexer of PromQL joins
// it with everything with which it would join a value.
func shapeOf(expr string) (string, []token, *rule.Fault) {
	if !strings.Contains(expr, "$("+params) {
		return expr, nil, nil
	}
	var (
		out    strings.Builder
		tokens []token
		from   int
		quote  byte // of the string literal at i; '#' in a comment, 0 outside of both
	)
	for i := 0; i < len(expr); i++ {
		c := expr[i]
		switch {
		case quote == '#':
			if c == '\n' || c == '\r' {
				quote = 0
			}
		case quote != 0 && c == '\\' && quote != '`':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"', c == '\'', c == '`', c == '#':
			quote = c
		case strings.HasPrefix(expr[i:], "$("+params):
			t, f := tokenAt(expr, i)
			if f != nil {
				return "", nil, f
			}
			out.WriteString(expr[from:t.start])
			out.WriteString(strings.Repeat("0", t.end-t.start-1) + "1")
			tokens = append(tokens, t)
			from, i = t.end, t.end-1
		}
	}
	out.WriteString(expr[from:])
	return out.String(), tokens, nil
}

// tokenAt parses the placeholder at a position of an expression.
func tokenAt(expr string, pos int) (token, *rule.Fault) {
	inner, _, closed := strings.Cut(expr[pos+2:], ")")
	if !closed {
		return token{}, &rule.Fault{Pos: pos, Message: fmt.Sprintf("placeholder %s is not closed; add a )", clip.Excerpt(expr[pos:]))}
	}
	p, f := parsePlaceholder(inner)
	if f != nil {
		f.Pos = pos
		return token{}, f
	}
	return token{start: pos, end: pos + len("$()") + len(inner), placeholder: *p}, nil
}

// token returns the value of a parameter for its place in an expression, in which the lexer found a token from start to
// end that contains it. Whether it is refused does not depend on the value. The position of a fault is relative to start.
func (st Stage) token(t token, start, end int, at promql.Position) (string, *rule.Fault) {
	refuse := func(why string) (string, *rule.Fault) {
		return "", &rule.Fault{Pos: t.start - start, Message: t.placeholder.String() + " " + why}
	}
	if t.start != start || t.end != end {
		return refuse("is joined to the text beside it; put an operator between them, or use a parameter for the whole value")
	}
	v, err := st.parameter(t.placeholder)
	if err != nil {
		return "", &rule.Fault{Pos: 0, Message: err.Error()}
	}
	switch place := at.Place(); {
	case place == promql.AfterName:
		return refuse("stands after a name, where no number can be; put an operator between them")
	case place == promql.Timestamp:
		return refuse("stands after @, where a parameter is not allowed; write the time instead")
	case place == promql.Duration && v.IsDuration():
		return v.Duration(), nil
	case place == promql.Duration:
		return refuse("is used as a duration, but is not of type duration; use a parameter of that type")
	}
	return v.Number(), nil
}
