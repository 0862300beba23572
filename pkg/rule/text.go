package rule

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
)

// maxValue limits the value of one placeholder, in bytes.
const maxValue = 1024

const knownPlaceholders = "$(cluster.name), $(cluster.labels.KEY), and in an AlertRuleTemplate $(deployment.name), " +
	"$(deployment.namespace), $(deployment.labels.KEY), $(deployment.annotations.KEY)"

// The placeholders. Those that end in a dot are followed by a key.
const (
	clusterName           = "cluster.name"
	clusterLabels         = "cluster.labels."
	deploymentName        = "deployment.name"
	deploymentNamespace   = "deployment.namespace"
	deploymentLabels      = "deployment.labels."
	deploymentAnnotations = "deployment.annotations."
)

// placeholder is the text between $( and ).
type placeholder struct {
	kind string // one of the constants above
	key  string // of a label or an annotation
}

func (p placeholder) String() string { return "$(" + p.kind + p.key + ")" }

// piece is a part of a text: a placeholder, or literal text without escapes.
type piece struct {
	pos         int // where it begins in the text, in bytes
	literal     string
	placeholder *placeholder
}

// fault is an error at a position in a text.
type fault struct {
	pos     int // in bytes; -1 when the place does not matter
	message string
}

func (f *fault) Error() string { return f.message }

// split cuts a text into literals and placeholders. The dollars before a "(" are read in pairs: each
// pair is one literal dollar, and a single remaining one starts a placeholder. So $$( is a literal $(,
// and $$$(cluster.name) is a dollar followed by a name. Every text can be written in this way, on
// which join relies.
func split(s string) ([]piece, *fault) {
	var out []piece
	literal := func(pos int, text string) {
		if text == "" {
			return
		}
		if n := len(out); n > 0 && out[n-1].placeholder == nil {
			out[n-1].literal += text
			return
		}
		out = append(out, piece{pos: pos, literal: text})
	}
	pos := 0
	for {
		dollar := strings.Index(s[pos:], "$(")
		if dollar < 0 {
			literal(pos, s[pos:])
			return out, nil
		}
		dollar += pos
		text := strings.TrimRight(s[pos:dollar+1], "$")
		dollars := dollar + 1 - pos - len(text)
		literal(pos, text+strings.Repeat("$", dollars/2))
		if dollars%2 == 0 {
			literal(dollar+1, "(")
			pos = dollar + 2
			continue
		}
		inner, _, closed := strings.Cut(s[dollar+2:], ")")
		if !closed {
			return nil, &fault{pos: dollar, message: fmt.Sprintf("placeholder %s is not closed; add a ), or write $$( for a literal $(", excerpt(s[dollar:]))}
		}
		p, f := parsePlaceholder(inner)
		if f != nil {
			f.pos = dollar
			return nil, f
		}
		out = append(out, piece{pos: dollar, placeholder: p})
		pos = dollar + 2 + len(inner) + 1
	}
}

// join writes pieces as a text that split reads as the same pieces, with adjacent literals merged. No
// literal can become a placeholder, whatever it contains and whatever follows it.
func join(pieces []piece) string {
	var b, literal strings.Builder
	flush := func(beforePlaceholder bool) {
		writeLiteral(&b, literal.String(), beforePlaceholder)
		literal.Reset()
	}
	for _, p := range pieces {
		if p.placeholder == nil {
			literal.WriteString(p.literal)
			continue
		}
		flush(true)
		b.WriteString(p.placeholder.String())
	}
	flush(false)
	return b.String()
}

// escaped returns a text that split reads as one literal.
func escaped(s string) string { return join([]piece{{literal: s}}) }

// writeLiteral doubles the dollars before a "(".
func writeLiteral(b *strings.Builder, s string, beforePlaceholder bool) {
	for s != "" {
		text, _, found := strings.Cut(s, "$")
		b.WriteString(text)
		if !found {
			return
		}
		s = s[len(text):]
		rest := strings.TrimLeft(s, "$")
		dollars := len(s) - len(rest)
		if strings.HasPrefix(rest, "(") || rest == "" && beforePlaceholder {
			dollars *= 2
		}
		b.WriteString(strings.Repeat("$", dollars))
		s = rest
	}
}

// literally concatenates pieces without escapes.
func literally(pieces []piece) string {
	var b strings.Builder
	for _, p := range pieces {
		b.WriteString(p.literal)
	}
	return b.String()
}

func parsePlaceholder(inner string) (*placeholder, *fault) {
	switch inner {
	case clusterName, deploymentName, deploymentNamespace:
		return &placeholder{kind: inner}, nil
	}
	for _, kind := range []string{clusterLabels, deploymentLabels, deploymentAnnotations} {
		key, found := strings.CutPrefix(inner, kind)
		if !found {
			continue
		}
		// Annotations may have capitals in the prefix; the rest of the grammar is that of labels.
		checked := key
		if kind == deploymentAnnotations {
			checked = strings.ToLower(key)
		}
		if errs := validation.IsQualifiedName(checked); len(errs) > 0 {
			return nil, &fault{pos: 0, message: fmt.Sprintf("placeholder $(%s) has an invalid key: %s", excerpt(inner), errs[0])}
		}
		return &placeholder{kind: kind, key: key}, nil
	}
	return nil, &fault{pos: 0, message: fmt.Sprintf("unknown placeholder $(%s); available are %s; write $$( for a literal $(", excerpt(inner), knownPlaceholders)}
}

// excerpt shortens a quoted text for a message.
func excerpt(s string) string {
	const limit = 80
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	return cut(s, limit) + "…"
}

// cut shortens s to at most limit bytes, on a rune boundary.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// bounded is cut with a mark for the missing part.
func bounded(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	return cut(s, limit-len("…")) + "…"
}
