package placeholder

import (
	"strings"

	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/gotemplate"
	"github.com/rulefleet/rulefleet/pkg/rule/parameter"
)

// text expands the text of a label or an annotation.
func (st Stage) text(s string) (string, *rule.Fault) {
	if !In(s) {
		return s, nil
	}
	pieces, f := split(s)
	if f != nil {
		return "", f
	}
	for i := range pieces {
		p := &pieces[i]
		if p.placeholder == nil {
			continue
		}
		if i > 0 && pieces[i-1].placeholder == nil && gotemplate.InAction(pieces[i-1].literal) {
			return "", &rule.Fault{Pos: p.pos, Message: p.placeholder.String() + " is inside {{ … }}, where a placeholder is not allowed; move it out of the template action"}
		}
		value, keep, err := st.value(*p.placeholder, parameter.Value.Text)
		if err != nil {
			return "", &rule.Fault{Pos: p.pos, Message: err.Error()}
		}
		if keep {
			continue
		}
		// A brace right before the value would pair with what follows.
		if i > 0 {
			if before, found := strings.CutSuffix(pieces[i-1].literal, "{"); found {
				pieces[i-1].literal = before + gotemplate.LiteralBrace
			}
		}
		*p = piece{pos: p.pos, literal: gotemplate.Literal(value)}
	}
	return st.finish(pieces), nil
}
