package gotemplate

import (
	"strconv"
	"strings"

	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// Prometheus reads labels and annotations of an alert as Go templates. The values that placeholders
// insert are data, and Prometheus must render them unchanged.

// LiteralBrace is what Prometheus' templates render as "{".
const LiteralBrace = `{{"{"}}`

// Literal writes a value so that Prometheus' templates render it unchanged. A value with a brace
// becomes one string in one action: the next brace may be in another value, and an action for each
// brace could result in a thousand actions.
func Literal(value string) string {
	value = clip.Bytes(strings.ToValidUTF8(value, "\uFFFD"), rule.MaxValue)
	if !strings.Contains(value, "{") {
		return value
	}
	return "{{" + strconv.Quote(value) + "}}"
}

// InAction reports whether an action or a comment of a Go template is open at the end of s. It reads
// delimiters, comments and quotes as text/template does.
func InAction(s string) bool {
	for {
		_, rest, found := strings.Cut(s, "{{")
		if !found {
			return false
		}
		if len(rest) > 1 && rest[0] == '-' && strings.IndexByte(" \t\r\n", rest[1]) >= 0 {
			rest = rest[2:]
		}
		if comment, isComment := strings.CutPrefix(rest, "/*"); isComment {
			if _, rest, found = strings.Cut(comment, "*/"); !found {
				return true
			}
		}
		end := actionEnd(rest)
		if end < 0 {
			return true
		}
		s = rest[end:]
	}
}

// actionEnd returns the end of the action at the start of s, or -1.
func actionEnd(s string) int {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '}':
			if strings.HasPrefix(s[i:], "}}") {
				return i + len("}}")
			}
		case '`':
			length := strings.IndexByte(s[i+1:], '`')
			if length < 0 {
				return -1
			}
			i += length + 1
		case '"', '\'':
			for i++; i < len(s) && s[i] != c; i++ {
				if s[i] == '\\' {
					i++
				}
			}
		}
	}
	return -1
}
