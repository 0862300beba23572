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

// Evaluator is a Prometheus or ThanosRuler that evaluates rules. One rule that it can't parse makes
// the reload of all of its rules fail.
type Evaluator struct {
	// Kind, Namespace and Name identify its object in the spoke.
	Kind, Namespace, Name string
	// Chosen is true if it is chosen to evaluate the rules. See ChooseEvaluators and Choose.
	Chosen bool
	// Missing is true if it was chosen and has disappeared. The other fields have their last known
	// values.
	Missing bool
	// RuleSelector and RuleNamespaceSelector select its PrometheusRules. As in prometheus-operator, a
	// nil RuleSelector selects none and an empty one selects all; a nil RuleNamespaceSelector selects
	// its own namespace, and an empty one selects all namespaces.
	RuleSelector, RuleNamespaceSelector *metav1.LabelSelector
	// EnforcedNamespaceLabel is the label that restricts PrometheusRules to their own namespace, except
	// those that ExcludedFromEnforcement lists, as namespace/name or namespace/*.
	EnforcedNamespaceLabel  string
	ExcludedFromEnforcement []string
	// Namespaces are the namespaces from which prometheus-operator reads PrometheusRules, or nil for
	// all. DeniedNamespaces are those from which it does not, whatever RuleNamespaceSelector selects.
	Namespaces, DeniedNamespaces []string
	// ClusterLabel is its external label cluster, or empty.
	ClusterLabel string
	// Version is the version of Prometheus, such as v2.53.1. Versions that are not a release of
	// Prometheus are not checked. Leave it empty for a ThanosRuler, which has versions of Thanos.
	Version string
	// Features are the names in --enable-feature.
	Features []string
}

// release is a minor release of Prometheus.
type release struct{ major, minor int }

func (v release) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

func (v release) before(w release) bool {
	return cmp.Or(cmp.Compare(v.major, w.major), cmp.Compare(v.minor, w.minor)) < 0
}

// releasePattern matches releases, release candidates, and the variants of their images.
var releasePattern = regexp.MustCompile(`^v?([0-9]{1,4})\.([0-9]{1,4})(?:\.[0-9]{1,6})?(?:-(?:rc\.[0-9]+|distroless|busybox))?$`)

// releaseOf returns the evaluator's release, if it is a release of Prometheus 2 or later.
func releaseOf(e *Evaluator) (release, bool) {
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

// ParseEvaluator returns the Evaluator for a version and a comma-separated list of features, or nil if
// both are empty. It returns an error if the version is not a release.
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
	if _, known := releaseOf(e); !known && version != "" {
		return nil, fmt.Errorf("%q is not a Prometheus release; use a form such as 2.53.1", version)
	}
	return e, nil
}

// parserFor returns the parser for an alert's expression. If the release is known, demands report what it
// does not support, with better messages. If it is not known, syntax that needs a feature that is not
// listed is refused.
func parserFor(e *Evaluator) parser.Parser {
	if e == nil {
		return promQL
	}
	if _, known := releaseOf(e); known {
		return anyPromQL
	}
	return parser.NewParser(parser.Options{
		EnableExperimentalFunctions:  slices.Contains(e.Features, experimentalFunctions),
		ExperimentalDurationExpr:     slices.Contains(e.Features, durationExpr),
		EnableExtendedRangeSelectors: slices.Contains(e.Features, extendedSelectors),
		EnableBinopFillModifiers:     slices.Contains(e.Features, fillModifiers),
	})
}

// demand is a syntax element that not every Prometheus can parse.
type demand struct {
	pos  int
	what string // such as: function "acos"
	came
}

// refuses explains why the evaluator can't parse a demand, or returns "". who describes the evaluator
// after its version.
func refuses(e *Evaluator, d demand, who string) string {
	own, known := releaseOf(e)
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

// Descriptions of an evaluator in messages.
const (
	ofSpoke = " of the spoke"
	ofFleet = ", the fleet's oldest (--prometheus-version),"
)

// checkEvaluators reports what one of a spoke's evaluators can't parse of an alert whose placeholders
// are replaced.
func checkEvaluators(a v1alpha1.AlertSpec, c Cluster) *Invalid {
	for _, e := range c.Chosen() {
		if _, known := releaseOf(e); !known {
			continue
		}
		if bad := checkRelease(e, "spec", a, ofSpoke); bad != nil {
			return bad
		}
	}
	return nil
}

// checkRelease reports what an evaluator can't parse of an alert, whose fields are under a path.
func checkRelease(e *Evaluator, path string, a v1alpha1.AlertSpec, who string) *Invalid {
	if _, known := releaseOf(e); !known {
		return nil
	}
	if a.Expr != "" {
		for _, d := range exprDemands(a.Expr) {
			if message := refuses(e, d, who); message != "" {
				bad := invalidExprAt(path+".expr", a.Expr, &fault{pos: d.pos, message: message})
				bad.Reason = v1alpha1.ReasonUnsupported
				return bad
			}
		}
	}
	if a.KeepFiringFor != "" {
		if message := refuses(e, demand{what: "keep_firing_for", came: keepFiringForCame}, who); message != "" {
			return unsupported(path+".keepFiringFor", message)
		}
	}
	if bad := checkTextsFor(e, path+".labels", a.Labels, who); bad != nil {
		return bad
	}
	return checkTextsFor(e, path+".annotations", a.Annotations, who)
}

func checkTextsFor(e *Evaluator, field string, texts map[string]v1alpha1.LabelText, who string) *Invalid {
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		for _, d := range textDemands(string(texts[key])) {
			if message := refuses(e, d, who); message != "" {
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
