package env

import (
	"slices"
	"strings"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
)

// Kind is a kind of objects on the hub, by the word that people write.
type Kind string

// The kinds.
const (
	KindRule     Kind = "alertrule"
	KindPack     Kind = "rulepack"
	KindTemplate Kind = "alertruletemplate"
	KindSpoke    Kind = "spoke"
)

var kindWords = map[Kind][]string{
	KindRule:     {"alertrule", "alertrules", "ar"},
	KindPack:     {"rulepack", "rulepacks", "rp"},
	KindTemplate: {"alertruletemplate", "alertruletemplates", "art"},
	KindSpoke:    {"spoke", "spokes", "spokecluster", "spokeclusters"},
}

// Ref names an object on the hub.
type Ref struct {
	Kind Kind
	Name string
}

// ParseRef reads KIND/NAME, or KIND NAME. A command that accepts only one kind also accepts NAME.
func ParseRef(args []string, kinds ...Kind) (Ref, error) {
	text := strings.Join(args, "/")
	word, name, ok := strings.Cut(text, "/")
	if _, isKind := kindOf(word); !ok && word != "" && !isKind && len(kinds) == 1 {
		return Ref{Kind: kinds[0], Name: word}, nil
	}
	if !ok || word == "" || name == "" || strings.Contains(name, "/") {
		return Ref{}, exit.New(exit.Usage, "", "%q is not an object; write it as KIND/NAME, such as %s/NAME", text, kinds[0])
	}
	kind, ok := kindOf(word)
	if !ok || !slices.Contains(kinds, kind) {
		names := make([]string, 0, len(kinds))
		for _, k := range kinds {
			names = append(names, string(k))
		}
		last := len(names) - 1
		list := names[last]
		if last > 0 {
			list = strings.Join(names[:last], ", ") + " or " + list
		}
		return Ref{}, exit.New(exit.Usage, "", "%q is not a kind that this command accepts; use %s", word, list)
	}
	return Ref{Kind: kind, Name: name}, nil
}

// kindOf reads the name of a kind, as kubectl does.
func kindOf(word string) (Kind, bool) {
	word = strings.TrimSuffix(strings.ToLower(word), "."+v1alpha1.Group)
	for kind, words := range kindWords {
		if slices.Contains(words, word) {
			return kind, true
		}
	}
	return "", false
}
