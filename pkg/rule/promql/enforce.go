package promql

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"k8s.io/utils/lru"

	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// prom-label-proxy's injectproxy does the same for a proxy. It is not used, because it does not build with
// the parser of Prometheus 3.14, and omits the parameters of aggregations, as in topk(scalar(x), y).

// enforced caches the results of enforceNamespace by the digest of its input, because each rule is
// rendered for each spoke, and parsing an expression can take 150 ms. The results take at most 32 MiB.
var enforced = lru.New(512)

// enforcement is a result of enforceNamespace.
type enforcement struct {
	expr  string
	fault *EnforceError
}

// EnforceError says why an expression can't be restricted to a namespace.
type EnforceError struct {
	rule.Fault

	// Contradiction is true if a selector asks for another namespace.
	Contradiction bool
}

// Enforce is enforceNamespace with a cache.
func Enforce(expr, namespace string) (string, *EnforceError) {
	key := sha256.Sum256([]byte(namespace + "/" + expr))
	if found, ok := enforced.Get(key); ok {
		return found.(enforcement).expr, found.(enforcement).fault
	}
	out, f := enforceNamespace(expr, namespace)
	enforced.Add(key, enforcement{out, f})
	return out, f
}

// enforceNamespace returns an expression in which every selector has the matcher namespace="…". The result
// is written as Prometheus' parser writes it, without comments. It is parsed again: what is sent to a spoke
// is what was checked.
func enforceNamespace(expr, namespace string) (string, *EnforceError) {
	tree, f := Parse(expr, Any)
	if f != nil {
		return "", &EnforceError{Fault: *f}
	}
	matcher := labels.MustNewMatcher(labels.MatchEqual, rule.NamespaceLabel, namespace)
	if f := eachSelector(tree, func(s *parser.VectorSelector) *EnforceError { return restrict(s, matcher) }); f != nil {
		return "", f
	}
	out := tree.String()
	again, f := Parse(out, Any)
	if f != nil {
		return "", &EnforceError{Fault: rule.Fault{Pos: -1, Message: fmt.Sprintf("with namespace=%q in each selector (chart value tenants.enforceNamespace), the expression is not valid: %s", namespace, f.Message)}}
	}
	open := eachSelector(again, func(s *parser.VectorSelector) *EnforceError {
		if slices.ContainsFunc(s.LabelMatchers, func(m *labels.Matcher) bool { return sameMatcher(m, matcher) }) {
			return nil
		}
		return &EnforceError{Fault: rule.Fault{Pos: -1, Message: fmt.Sprintf("Rulefleet cannot add namespace=%q to the selector %s (chart value tenants.enforceNamespace); rewrite the selector", namespace, clip.Excerpt(s.String()))}}
	})
	if open != nil {
		return "", open
	}
	return out, nil
}

// restrict adds a matcher to a selector.
func restrict(s *parser.VectorSelector, matcher *labels.Matcher) *EnforceError {
	for _, m := range s.LabelMatchers {
		switch {
		case m.Name != matcher.Name:
		case sameMatcher(m, matcher):
			return nil
		case !m.Matches(matcher.Value):
			return &EnforceError{Contradiction: true, Fault: rule.Fault{Pos: int(s.PosRange.Start), Message: fmt.Sprintf(
				"the matcher %s is not allowed: a rule of namespace %s can only read series with %s (chart value tenants.enforceNamespace); remove the matcher", clip.Excerpt(m.String()), matcher.Value, matcher)}}
		}
	}
	s.LabelMatchers = append(s.LabelMatchers, matcher)
	return nil
}

func sameMatcher(a, b *labels.Matcher) bool {
	return a.Name == b.Name && a.Type == b.Type && a.Value == b.Value
}

// eachSelector calls a function for each selector of an expression until it returns a fault. It returns one
// for the function info, which reads series that no selector names.
func eachSelector(tree parser.Expr, do func(*parser.VectorSelector) *EnforceError) *EnforceError {
	var found *EnforceError
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		if found != nil {
			return nil //nolint:nilerr // it is returned below
		}
		switch n := node.(type) {
		case *parser.VectorSelector:
			found = do(n)
		case *parser.Call:
			if n.Func.Name == "info" {
				found = &EnforceError{Fault: rule.Fault{Pos: int(n.PosRange.Start), Message: "the function info reads the series of all namespaces, which is not allowed here (chart value tenants.enforceNamespace); join the labels with * on (…) group_left (…)"}}
			}
		}
		return nil
	})
	return found
}
