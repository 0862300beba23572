package placeholder

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

const knownPlaceholders = "$(cluster.name), $(cluster.labels.KEY), and in an AlertRuleTemplate $(deployment.name), " +
	"$(deployment.namespace), $(deployment.labels.KEY), $(deployment.annotations.KEY)"

// The placeholders. Those that end in a dot are followed by a key.
const (
	workloadKind          = "workload.kind"
	workloadName          = "workload.name"
	workloadNamespace     = "workload.namespace"
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

// split cuts a text into literals and placeholders. The dollars before a "(" are read in pairs: each
// pair is one literal dollar, and a single remaining one starts a placeholder. So $$( is a literal $(,
// and $$$(cluster.name) is a dollar followed by a name. Every text can be written in this way, on
// which join relies.
func split(s string) ([]piece, *rule.Fault) {
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
			return nil, &rule.Fault{Pos: dollar, Message: fmt.Sprintf("placeholder %s is not closed; add a ), or write $$( for a literal $(", clip.Excerpt(s[dollar:]))}
		}
		p, f := parsePlaceholder(inner)
		if f != nil {
			f.Pos = dollar
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

// Escape returns a text that split reads as one literal.
func Escape(s string) string { return join([]piece{{literal: s}}) }

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

func parsePlaceholder(inner string) (*placeholder, *rule.Fault) {
	switch inner {
	case clusterName, deploymentName, deploymentNamespace, workloadKind, workloadName, workloadNamespace:
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
			return nil, &rule.Fault{Pos: 0, Message: fmt.Sprintf("placeholder $(%s) has an invalid key: %s", clip.Excerpt(inner), errs[0])}
		}
		return &placeholder{kind: kind, key: key}, nil
	}
	return nil, &rule.Fault{Pos: 0, Message: fmt.Sprintf("unknown placeholder $(%s); available are %s; write $$( for a literal $(", clip.Excerpt(inner), knownPlaceholders)}
}
