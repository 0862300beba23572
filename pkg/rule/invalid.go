package rule

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/prometheus/promql/parser/posrange"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
)

// MaxMessage limits an Invalid's message, in bytes. The message quotes input, and has to fit into an
// Event (1024 bytes) together with the field.
const MaxMessage = 900

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

// NewInvalid returns an Invalid with ReasonInvalidSpec, and bounds its message.
func NewInvalid(field, format string, args ...any) *Invalid {
	return &Invalid{
		Reason:  v1alpha1.ReasonInvalidSpec,
		Field:   field,
		Message: clip.Marked(fmt.Sprintf(format, args...), MaxMessage),
	}
}

// InvalidExpr reports a fault in an expression, with its position.
func InvalidExpr(expr string, f *Fault) *Invalid { return InvalidExprAt("spec.expr", expr, f) }

// InvalidExprAt is InvalidExpr for another field.
func InvalidExprAt(field, expr string, f *Fault) *Invalid {
	message := f.Message
	if f.Pos >= 0 {
		at := posrange.PositionRange{Start: posrange.Pos(f.Pos)}.StartPosInput(expr, 0)
		message = at + ": " + clip.Marked(message, MaxMessage/2) + pointer(expr, f.Pos)
	}
	bad := NewInvalid(field, "%s", message)
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
		after = clip.Bytes(after, around) + "…"
	}
	indent := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, before)
	return "\n" + before + after + "\n" + indent + "^"
}

// Keyed returns the path of an entry of a map, as in Kubernetes' field paths.
func Keyed(field, key string) string { return field + "[" + clip.Excerpt(key) + "]" }

// Fault is an error at a position in a text.
//
//nolint:errname // it is primarily a place, and only an error for callers that return it
type Fault struct {
	Pos     int // in bytes; -1 when the place does not matter
	Message string
}

func (f *Fault) Error() string { return f.Message }
