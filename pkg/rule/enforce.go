package rule

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"k8s.io/utils/lru"
)

// prom-label-proxy's injectproxy does the same for a proxy. It is not used, because it does not build with
// the parser of Prometheus 3.14, and omits the parameters of aggregations, as in topk(scalar(x), y).

// enforced caches the results of enforceNamespace by the digest of its input, because each rule is
// rendered for each spoke, and parsing an expression can take 150 ms. The results take at most 32 MiB.
var enforced = lru.New(512)

// enforcement is a result of enforceNamespace.
type enforcement struct {
	expr  string
	fault *enforcementError
}

// enforcementError says why an expression can't be restricted to a namespace.
type enforcementError struct {
	fault

	// contradiction is true if a selector asks for another namespace.
	contradiction bool
}

// Readable returns the expression of a PrometheusRule as far as the author of its AlertRule, in a namespace
// of the hub, may read its series. Anybody in the spoke may have changed it since it was written. It returns
// "" if it can't be restricted.
func (o RenderOptions) Readable(namespace, expr string) string {
	if !o.Tenancy.EnforceNamespace || !o.tenant(namespace) {
		return expr
	}
	out, _ := enforcedExpr(expr, namespace)
	return out
}

// enforcedExpr is enforceNamespace with a cache.
func enforcedExpr(expr, namespace string) (string, *enforcementError) {
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
func enforceNamespace(expr, namespace string) (string, *enforcementError) {
	tree, f := parsePromQL(expr, anyPromQL)
	if f != nil {
		return "", &enforcementError{fault: *f}
	}
	matcher := labels.MustNewMatcher(labels.MatchEqual, namespaceLabel, namespace)
	if f := eachSelector(tree, func(s *parser.VectorSelector) *enforcementError { return restrict(s, matcher) }); f != nil {
		return "", f
	}
	out := tree.String()
	again, f := parsePromQL(out, anyPromQL)
	if f != nil {
		return "", &enforcementError{fault: fault{pos: -1, message: fmt.Sprintf("it is not valid any more with namespace=%q in each selector (%s); shorten it", namespace, f.message)}}
	}
	open := eachSelector(again, func(s *parser.VectorSelector) *enforcementError {
		if slices.ContainsFunc(s.LabelMatchers, func(m *labels.Matcher) bool { return sameMatcher(m, matcher) }) {
			return nil
		}
		return &enforcementError{fault: fault{pos: -1, message: fmt.Sprintf("the selector %s can't be restricted to namespace %s", excerpt(s.String()), namespace)}}
	})
	if open != nil {
		return "", open
	}
	return out, nil
}

// restrict adds a matcher to a selector.
func restrict(s *parser.VectorSelector, matcher *labels.Matcher) *enforcementError {
	for _, m := range s.LabelMatchers {
		switch {
		case m.Name != matcher.Name:
		case sameMatcher(m, matcher):
			return nil
		case !m.Matches(matcher.Value):
			return &enforcementError{contradiction: true, fault: fault{pos: int(s.PosRange.Start), message: fmt.Sprintf(
				"the selector asks for %s, but an AlertRule in namespace %s can only read series with %s (--enforce-namespace); remove the matcher", excerpt(m.String()), matcher.Value, matcher)}}
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
func eachSelector(tree parser.Expr, do func(*parser.VectorSelector) *enforcementError) *enforcementError {
	var found *enforcementError
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		if found != nil {
			return nil //nolint:nilerr // it is returned below
		}
		switch n := node.(type) {
		case *parser.VectorSelector:
			found = do(n)
		case *parser.Call:
			if n.Func.Name == "info" {
				found = &enforcementError{fault: fault{pos: int(n.PosRange.Start), message: "the function info reads the series of all namespaces, which is not allowed here (--enforce-namespace); join the labels with * on (…) group_left (…)"}}
			}
		}
		return nil
	})
	return found
}
