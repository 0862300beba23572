package placeholder

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/parameter"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
)

// expr expands a PromQL expression. Placeholders are only allowed in string literals, and only as
// written text: "\x24(" is not a placeholder. Parameters are also allowed as numbers and durations. Everything else
// stays unchanged.
func (st Stage) expr(s string) (string, *rule.Fault) {
	if !In(s) {
		return s, nil
	}
	shape, tokens, f := shapeOf(s)
	if f != nil {
		return "", f
	}
	var (
		out  strings.Builder
		from int
		at   promql.Position
		item parser.Item
	)
	lexer := parser.Lex(shape)
	for {
		lexer.NextItem(&item)
		start := int(item.Pos)
		end := start + len(item.Val)
		switch item.Typ {
		case parser.ERROR:
			if start < len(s) && In(leadingDollars(s[start:])) {
				return "", misplaced(start)
			}
			return "", &rule.Fault{Pos: start, Message: item.Val}
		case parser.EOF:
			out.WriteString(s[from:])
			return out.String(), nil
		case parser.COMMENT:
			if i := strings.Index(item.Val, "$("); i >= 0 {
				return "", misplaced(start + i)
			}
			continue // a comment between =~ and its string changes nothing
		}
		value, found := "", false
		switch {
		case len(tokens) > 0 && tokens[0].start < end:
			value, f = st.token(tokens[0], start, end, at)
			found, tokens = true, tokens[1:]
		case item.Typ == parser.STRING:
			value, f = st.literal(item.Val, at.Role())
			found = true
		}
		if f != nil {
			f.Pos += start
			return "", f
		}
		if found {
			out.WriteString(s[from:start])
			out.WriteString(value)
			from = end
		}
		at.Next(item)
	}
}

func misplaced(pos int) *rule.Fault {
	return &rule.Fault{Pos: pos, Message: `a placeholder is only allowed in a string literal, as in {cluster="$(cluster.name)"}. Only a parameter of a template is also allowed elsewhere, as a number or a duration, as in > $(params.threshold)`}
}

// leadingDollars returns the dollars at the start of s, and the following character.
func leadingDollars(s string) string {
	rest := strings.TrimLeft(s, "$")
	return s[:min(len(s), len(s)-len(rest)+1)]
}

// literal expands one string literal, including its quotes.
func (st Stage) literal(quoted string, as promql.Role) (string, *rule.Fault) {
	if !In(quoted) {
		return quoted, nil
	}
	quote, inner := quoted[0], quoted[1:len(quoted)-1]
	pieces, f := split(inner)
	if f != nil {
		f.Pos++
		return "", f
	}
	var group []bool
	if as == promql.Regex {
		if group, f = checkRegex(quote, pieces); f != nil {
			return "", f
		}
	}
	values := make([]*string, len(pieces))
	for i, p := range pieces {
		if p.placeholder == nil {
			continue
		}
		value, keep, f := st.literalValue(*p.placeholder, as)
		if f != nil {
			f.Pos = p.pos + 1
			return "", f
		}
		if keep {
			continue
		}
		if as == promql.Regex && group[i] {
			value = "(?:" + value + ")"
		}
		values[i] = &value
	}
	quote = requote(quote, pieces, values)
	for i, value := range values {
		if value != nil {
			pieces[i] = piece{pos: pieces[i].pos, literal: escape(*value, quote)}
		}
	}
	return string(quote) + st.finish(pieces) + string(quote), nil
}

// literalValue returns a placeholder's value in the grammar of a literal's role.
func (st Stage) literalValue(p placeholder, as promql.Role) (string, bool, *rule.Fault) {
	value, keep, err := st.value(p, parameter.Value.Quoted)
	switch {
	case err != nil:
		return "", false, &rule.Fault{Pos: 0, Message: err.Error()}
	case keep:
		return "", true, nil
	case len(value) > rule.MaxValue:
		// A value that is cut off would match something else.
		return "", false, &rule.Fault{Pos: 0, Message: fmt.Sprintf("the value of %s has %d bytes; at most %d are allowed in an expression", p, len(value), rule.MaxValue)}
	}
	value = strings.ToValidUTF8(value, "\uFFFD")
	switch as {
	case promql.Regex:
		return regexp.QuoteMeta(value), false, nil
	case promql.Replacement:
		return strings.ReplaceAll(value, "$", "$$"), false, nil
	}
	return value, false, nil
}

// requote turns a raw literal, which has no escapes, into a double-quoted one if a value can't be
// written in a raw literal.
func requote(quote byte, pieces []piece, values []*string) byte {
	if quote != '`' {
		return quote
	}
	if !slices.ContainsFunc(values, func(v *string) bool { return v != nil && !rawSafe(*v) }) {
		return quote
	}
	for i := range pieces {
		pieces[i].literal = escape(pieces[i].literal, '"')
	}
	return '"'
}

// rawSafe reports whether a value can be written between backquotes.
func rawSafe(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r == '`' || r == utf8.RuneError || !unicode.IsPrint(r) })
}

// escape writes a value into a literal with the given quotes. strconv.Quote can't be used: PromQL has
// no \' in double quotes, and its lexer reports a replacement character (U+FFFD) that is not escaped
// as broken UTF-8.
func escape(s string, quote byte) string {
	if quote == '`' {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == rune(quote), r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == utf8.RuneError:
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				fmt.Fprintf(&b, `\x%02x`, s[i])
				continue
			}
			b.WriteString(`\ufffd`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			escaped := strconv.QuoteRuneToASCII(r)
			b.WriteString(escaped[1 : len(escaped)-1])
		}
	}
	return b.String()
}
