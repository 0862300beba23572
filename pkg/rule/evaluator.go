package rule

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Evaluator is a Prometheus or ThanosRuler that evaluates rules. One rule that it can't
// parse fails the reload of all of its rules.
type Evaluator struct {
	// Kind, Namespace and Name are those of its object in the spoke.
	Kind, Namespace, Name string
	// Chosen tells whether it is to evaluate the rules. See ChooseEvaluators and Choose.
	Chosen bool
	// Missing tells that it was chosen, and is gone. It is what it was when it was last seen.
	Missing bool
	// RuleSelector and RuleNamespaceSelector are which PrometheusRules it takes. As in
	// prometheus-operator, no RuleSelector takes none, an empty one all of them, no
	// RuleNamespaceSelector those of its own namespace, and an empty one those of all.
	RuleSelector, RuleNamespaceSelector *metav1.LabelSelector
	// EnforcedNamespaceLabel is the label by which PrometheusRules are confined to their own
	// namespace, but for those that ExcludedFromEnforcement lists, as namespace/name or
	// namespace/*.
	EnforcedNamespaceLabel  string
	ExcludedFromEnforcement []string
	// Namespaces are those that prometheus-operator takes PrometheusRules from, none for all, and
	// DeniedNamespaces those that it does not, whatever RuleNamespaceSelector says.
	Namespaces, DeniedNamespaces []string
	// ClusterLabel is its external label cluster, or empty.
	ClusterLabel string
	// Version is Prometheus' version, such as v2.53.1. Nothing is checked for one that
	// is no release of Prometheus: leave it empty for a ThanosRuler, whose versions
	// are Thanos' own.
	Version string
	// Features are the names given with --enable-feature.
	Features []string
}

// release is a minor release of Prometheus.
type release struct{ major, minor int }

func (v release) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

func (v release) before(w release) bool {
	return cmp.Or(cmp.Compare(v.major, w.major), cmp.Compare(v.minor, w.minor)) < 0
}

// releasePattern takes releases and their candidates, and the variants of their images.
var releasePattern = regexp.MustCompile(`^v?([0-9]{1,4})\.([0-9]{1,4})(?:\.[0-9]{1,6})?(?:-(?:rc\.[0-9]+|distroless|busybox))?$`)

// release returns the evaluator's release, if it is one of Prometheus: 2 and later.
func (e *Evaluator) release() (release, bool) {
	if e == nil {
		return release{}, false
	}
	parts := releasePattern.FindStringSubmatch(e.Version)
	if parts == nil {
		return release{}, false
	}
	major, _ := strconv.Atoi(parts[1])
	minor, _ := strconv.Atoi(parts[2])
	return release{major, minor}, major >= 2
}

// ParseEvaluator returns the Evaluator of a version and a list of features with commas
// between them, or nil for an empty version. An error is a version that is no release.
func ParseEvaluator(version, features string) (*Evaluator, error) {
	if version == "" && features == "" {
		return nil, nil
	}
	e := &Evaluator{Version: version}
	for feature := range strings.SplitSeq(features, ",") {
		if feature = strings.TrimSpace(feature); feature != "" {
			e.Features = append(e.Features, feature)
		}
	}
	if _, known := e.release(); !known && version != "" {
		return nil, fmt.Errorf("%q is not a Prometheus release; use a form such as 2.53.1", version)
	}
	return e, nil
}

// parser returns the parser for an alert's expression. What a known Prometheus does
// not take is left to demands, whose message is better; when nothing is known,
// what needs a feature that is not named is refused.
func (e *Evaluator) parser() parser.Parser {
	if e == nil {
		return promQL
	}
	if _, known := e.release(); known {
		return anyPromQL
	}
	return parser.NewParser(parser.Options{
		EnableExperimentalFunctions:  slices.Contains(e.Features, experimentalFunctions),
		ExperimentalDurationExpr:     slices.Contains(e.Features, durationExpr),
		EnableExtendedRangeSelectors: slices.Contains(e.Features, extendedSelectors),
		EnableBinopFillModifiers:     slices.Contains(e.Features, fillModifiers),
	})
}

// demand is something that not every Prometheus can parse.
type demand struct {
	pos  int
	what string // such as: function "acos"
	came
}

// refuses says why the evaluator can't parse it, or nothing. Who is what the
// evaluator is called after its version.
func (e *Evaluator) refuses(d demand, who string) string {
	own, known := e.release()
	switch {
	case !known || !d.stable.before(release{1, 0}) && !own.before(d.stable):
		return ""
	case own.before(d.with):
		if d.with == d.stable || d.flag == "" {
			return fmt.Sprintf("Prometheus %s%s does not support %s; %s or later is required", own, who, d.what, d.with)
		}
		return fmt.Sprintf("Prometheus %s%s does not support %s; %s or later with --enable-feature=%s is required", own, who, d.what, d.with, d.flag)
	case d.flag != "" && !slices.Contains(e.Features, d.flag):
		return fmt.Sprintf("Prometheus %s%s supports %s only with --enable-feature=%s", own, who, d.what, d.flag)
	}
	return ""
}

// Who an evaluator is, in messages.
const (
	ofSpoke = " of the spoke"
	ofFleet = ", the fleet's oldest (--prometheus-version),"
)

// checkEvaluators tells what one of a spoke's evaluators can't parse of an alert whose
// placeholders are replaced.
func checkEvaluators(a v1alpha1.AlertSpec, c Cluster) *Invalid {
	for _, e := range c.Chosen() {
		if _, known := e.release(); !known {
			continue
		}
		if bad := e.check("spec", a, ofSpoke); bad != nil {
			return bad
		}
	}
	return nil
}

// check tells what an evaluator can't parse of an alert, whose fields are under a path.
func (e *Evaluator) check(path string, a v1alpha1.AlertSpec, who string) *Invalid {
	if _, known := e.release(); !known {
		return nil
	}
	if a.Expr != "" {
		for _, d := range exprDemands(a.Expr) {
			if message := e.refuses(d, who); message != "" {
				bad := invalidExprAt(path+".expr", a.Expr, &fault{d.pos, message})
				bad.Reason = v1alpha1.ReasonUnsupported
				return bad
			}
		}
	}
	if a.KeepFiringFor != "" {
		if message := e.refuses(demand{what: "keep_firing_for", came: keepFiringForCame}, who); message != "" {
			return unsupported(path+".keepFiringFor", message)
		}
	}
	if bad := e.checkTexts(path+".labels", a.Labels, who); bad != nil {
		return bad
	}
	return e.checkTexts(path+".annotations", a.Annotations, who)
}

func (e *Evaluator) checkTexts(field string, texts map[string]v1alpha1.LabelText, who string) *Invalid {
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		for _, d := range textDemands(string(texts[key])) {
			if message := e.refuses(d, who); message != "" {
				return unsupported(keyed(field, key), message)
			}
		}
	}
	return nil
}

func unsupported(field, message string) *Invalid {
	bad := invalid(field, "%s", message)
	bad.Reason = v1alpha1.ReasonUnsupported
	return bad
}
