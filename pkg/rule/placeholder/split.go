package placeholder

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/parameter"
)

const knownPlaceholders = "$(cluster.name), $(cluster.labels.KEY), and in an AlertRuleTemplate $(workload.kind), $(workload.name), " +
	"$(workload.namespace), $(workload.labels.KEY), $(workload.annotations.KEY), $(params.NAME)"

// The placeholders. Those that end in a dot are followed by a key.
const (
	clusterName         = "cluster.name"
	clusterLabels       = "cluster.labels."
	workloadKind        = "workload.kind"
	workloadName        = "workload.name"
	workloadNamespace   = "workload.namespace"
	workloadLabels      = "workload.labels."
	workloadAnnotations = "workload.annotations."
	params              = "params."
)

// present and former are the beginnings of the placeholders of a workload. The former one is from the time when all
// workloads were Deployments.
const present, former = "workload.", "deployment."

// placeholder is the text between $( and ).
type placeholder struct {
	kind   string // one of the constants above
	key    string // of a label, an annotation or a parameter
	former bool   // it is written as $(deployment.…)
}

func (p placeholder) String() string {
	kind := p.kind
	if p.former {
		kind = former + strings.TrimPrefix(kind, present)
	}
	return "$(" + kind + p.key + ")"
}

// current returns the placeholder as it should be written.
func (p placeholder) current() placeholder {
	p.former = false
	return p
}

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
	p := placeholder{kind: inner}
	if rest, found := strings.CutPrefix(inner, former); found {
		p = placeholder{kind: present + rest, former: true}
	}
	switch p.kind {
	case clusterName, workloadName, workloadNamespace:
		return &p, nil
	case workloadKind:
		if !p.former { // there was no such placeholder
			return &p, nil
		}
	}
	for _, kind := range []string{clusterLabels, workloadLabels, workloadAnnotations, params} {
		key, found := strings.CutPrefix(p.kind, kind)
		if !found {
			continue
		}
		if err := checkKey(kind, key); err != nil {
			return nil, &rule.Fault{Pos: 0, Message: fmt.Sprintf("placeholder $(%s) has an invalid key: %v", clip.Excerpt(inner), err)}
		}
		p.kind, p.key = kind, key
		return &p, nil
	}
	return nil, &rule.Fault{Pos: 0, Message: fmt.Sprintf("unknown placeholder $(%s); available are %s; write $$( for a literal $(", clip.Excerpt(inner), knownPlaceholders)}
}

// checkKey checks the key of a label or an annotation, or the name of a parameter.
func checkKey(kind, key string) error {
	switch kind {
	case params:
		return parameter.CheckName(key) //nolint:wrapcheck // it says all
	case workloadAnnotations:
		key = strings.ToLower(key) // the prefix may have capitals; the rest of the grammar is that of labels
	}
	if errs := validation.IsQualifiedName(key); len(errs) > 0 {
		return errors.New(errs[0])
	}
	return nil
}

// Former returns the first placeholder of a text or an expression that has a former name, as it is written and as it
// should be.
func Former(s string) (written, now string, found bool) {
	pieces, _ := split(s)
	for _, p := range pieces {
		if p.placeholder != nil && p.placeholder.former {
			return p.placeholder.String(), p.placeholder.current().String(), true
		}
	}
	return "", "", false
}

// Parameters returns the names of the parameters that a text or an expression uses.
func Parameters(s string) []string {
	var names []string
	pieces, _ := split(s)
	for _, p := range pieces {
		if p.placeholder != nil && p.placeholder.kind == params {
			names = append(names, p.placeholder.key)
		}
	}
	return names
}
