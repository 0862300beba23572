package rule

import (
	"strconv"
	"strings"
)

// Prometheus reads labels and annotations of an alert as Go templates. The values that placeholders
// insert are data, and Prometheus must render them unchanged.

// literalBrace is what Prometheus' templates render as "{".
const literalBrace = `{{"{"}}`

// text expands the text of a label or an annotation.
func (st stage) text(s string) (string, *fault) {
	if !hasPlaceholder(s) {
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
		if i > 0 && pieces[i-1].placeholder == nil && inAction(pieces[i-1].literal) {
			return "", &fault{pos: p.pos, message: p.placeholder.String() + " is inside {{ … }}, where a placeholder is not allowed; move it out of the template action"}
		}
		value, keep, err := st.resolve(*p.placeholder)
		if err != nil {
			return "", &fault{pos: p.pos, message: err.Error()}
		}
		if keep {
			continue
		}
		// A brace right before the value would pair with what follows.
		if i > 0 {
			if before, found := strings.CutSuffix(pieces[i-1].literal, "{"); found {
				pieces[i-1].literal = before + literalBrace
			}
		}
		*p = piece{pos: p.pos, literal: dataText(value)}
	}
	return st.finish(pieces), nil
}

// dataText writes a value so that Prometheus' templates render it unchanged. A value with a brace
// becomes one string in one action: the next brace may be in another value, and an action for each
// brace could result in a thousand actions.
func dataText(value string) string {
	value = cut(strings.ToValidUTF8(value, "\uFFFD"), maxValue)
	if !strings.Contains(value, "{") {
		return value
	}
	return "{{" + strconv.Quote(value) + "}}"
}

// inAction reports whether an action or a comment of a Go template is open at the end of s. It reads
// delimiters, comments and quotes as text/template does.
func inAction(s string) bool {
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
