package rule

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/prometheus/promql/parser/posrange"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// maxMessage limits an Invalid's message, in bytes. The message quotes input, and has to fit into an
// Event (1024 bytes) together with the field.
const maxMessage = 900

// Invalid is an error in a spec or in data of a spoke. The operator does not try again until it is
// corrected.
//
//nolint:errname // it is primarily a verdict, and only an error for callers that return it
type Invalid struct {
	// Reason is ReasonInvalidExpr, ReasonInvalidSpec, ReasonNamespaceNotAllowed, ReasonLimitExceeded or
	// ReasonUnsupported.
	Reason string
	// Field is the path of the field, such as spec.annotations[summary].
	Field string
	// Message says what is wrong and what to change.
	Message string
}

// Error implements error.
func (i *Invalid) Error() string { return i.Field + ": " + i.Message }

func invalid(field, format string, args ...any) *Invalid {
	return &Invalid{
		Reason:  v1alpha1.ReasonInvalidSpec,
		Field:   field,
		Message: bounded(fmt.Sprintf(format, args...), maxMessage),
	}
}

// invalidExpr reports a fault in an expression, with its position.
func invalidExpr(expr string, f *fault) *Invalid { return invalidExprAt("spec.expr", expr, f) }

// invalidExprAt is invalidExpr for another field.
func invalidExprAt(field, expr string, f *fault) *Invalid {
	message := f.message
	if f.pos >= 0 {
		at := posrange.PositionRange{Start: posrange.Pos(f.pos)}.StartPosInput(expr, 0)
		message = at + ": " + bounded(message, maxMessage/2) + pointer(expr, f.pos)
	}
	bad := invalid(field, "%s", message)
	bad.Reason = v1alpha1.ReasonInvalidExpr
	return bad
}

// pointer returns the line that contains pos, with a caret below it.
func pointer(s string, pos int) string {
	const around = 60
	if pos > len(s) {
		return ""
	}
	start := strings.LastIndexByte(s[:pos], '\n') + 1
	before := s[start:pos]
	after, _, _ := strings.Cut(s[pos:], "\n")
	if len(before) > around {
		i := len(before) - around
		for !utf8.RuneStart(before[i]) {
			i++
		}
		before = "…" + before[i:]
	}
	if len(after) > around {
		after = cut(after, around) + "…"
	}
	indent := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, before)
	return "\n" + before + after + "\n" + indent + "^"
}
