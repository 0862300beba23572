package compat

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
)

// release is a minor release of Prometheus.
type release struct{ major, minor int }

func (v release) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

func (v release) before(w release) bool {
	return cmp.Or(cmp.Compare(v.major, w.major), cmp.Compare(v.minor, w.minor)) < 0
}

// releasePattern matches releases, release candidates, and the variants of their images.
var releasePattern = regexp.MustCompile(`^v?([0-9]{1,4})\.([0-9]{1,4})(?:\.[0-9]{1,6})?(?:-(?:rc\.[0-9]+|distroless|busybox))?$`)

// releaseOf returns the evaluator's release, if it is a release of Prometheus 2 or later.
func releaseOf(e *rule.Evaluator) (release, bool) {
	v, known := versionOf(e)
	if !known || v.major < 2 {
		return release{}, false
	}
	return v, true
}

// versionOf returns the version of an evaluator, which can be a release of Thanos.
func versionOf(e *rule.Evaluator) (release, bool) {
	if e == nil {
		return release{}, false
	}
	parts := releasePattern.FindStringSubmatch(e.Version)
	if parts == nil {
		return release{}, false
	}
	major, _ := strconv.Atoi(parts[1])
	minor, _ := strconv.Atoi(parts[2])
	return release{major, minor}, true
}

// Parse returns the Evaluator for a version and a comma-separated list of features, or nil if
// both are empty. It returns an error if the version is not a release.
func Parse(version, features string) (*rule.Evaluator, error) {
	if version == "" && features == "" {
		return nil, nil
	}
	e := &rule.Evaluator{Version: version}
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

// Parser returns the parser for an alert's expression. If the release is known, demands report what it
// does not support, with better messages. If it is not known, syntax that needs a feature that is not
// listed is refused.
func Parser(e *rule.Evaluator) parser.Parser {
	if e == nil {
		return promql.Stable
	}
	if _, known := releaseOf(e); known {
		return promql.Any
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
func refuses(e *rule.Evaluator, d demand, who string) string {
	own, known := releaseOf(e)
	switch {
	case !known || !d.stable.before(release{1, 0}) && !own.before(d.stable):
		return ""
	case own.before(d.with):
		if d.with == d.stable || d.flag == "" {
			return fmt.Sprintf("Prometheus %s%s does not support %s; %s or later is required", own, who, d.what, d.with)
		}
		return fmt.Sprintf("Prometheus %s%s does not support %s; %s or later with --enable-feature=%s is required (%s)", own, who, d.what, d.with, d.flag, featuresOf(who))
	case d.flag != "" && !slices.Contains(e.Features, d.flag):
		return fmt.Sprintf("Prometheus %s%s supports %s only with --enable-feature=%s (%s)", own, who, d.what, d.flag, featuresOf(who))
	}
	return ""
}

// featuresOf says where a feature is enabled.
func featuresOf(who string) string {
	if who == OfFleet {
		return "enable it in every Prometheus, and add it to chart value prometheusFeatures"
	}
	return "spec.enableFeatures of the Prometheus"
}

// Descriptions of an evaluator in messages.
const (
	ofSpoke = " of the spoke"
	OfFleet = ", the oldest of the fleet (chart value prometheusVersion),"
)

// CheckChosen reports what one of a spoke's evaluators can't parse of an alert whose placeholders
// are replaced.
func CheckChosen(a v1alpha1.AlertSpec, c rule.Cluster) *rule.Invalid {
	for _, e := range c.Chosen() {
		if _, known := releaseOf(e); !known {
			continue
		}
		if bad := Check(e, "spec", a, ofSpoke); bad != nil {
			return bad
		}
	}
	return nil
}

// CheckGroup reports a field of a group of a RulePack, at a path, that one of a spoke's chosen evaluators does not know:
// prometheus-operator leaves it out for that evaluator (pkg/operator/rules.go, sanitizePrometheusRulesSpec).
func CheckGroup(g *monitoringv1.RuleGroup, path string, c rule.Cluster) *rule.Invalid {
	for _, e := range c.Chosen() {
		for _, d := range []struct {
			set              bool
			field            string
			with, withThanos release
		}{
			{g.Limit != nil, "limit", release{2, 31}, release{0, 24}},
			{g.QueryOffset != nil, "query_offset", release{2, 53}, release{0, 38}},
			{len(g.Labels) > 0, "labels", release{3, 0}, release{0, 39}},
			// Check does it for Prometheus.
			{slices.ContainsFunc(g.Rules, func(r monitoringv1.Rule) bool { return r.KeepFiringFor != nil }), "rules[].keep_firing_for", release{}, release{0, 34}},
		} {
			least, name := d.with, "Prometheus"
			if e.Kind == rule.KindThanosRuler {
				least, name = d.withThanos, "Thanos"
			}
			if own, known := versionOf(e); d.set && known && own.before(least) {
				return unsupported(path+"."+d.field, fmt.Sprintf("%s %s%s does not support the field; %s or later is required", name, own, ofSpoke, least))
			}
		}
		texts := make(map[string]v1alpha1.LabelText, len(g.Labels))
		for key, text := range g.Labels {
			texts[key] = v1alpha1.LabelText(text)
		}
		if bad := Check(e, path, v1alpha1.AlertSpec{Labels: texts}, ofSpoke); bad != nil {
			return bad
		}
	}
	return nil
}

// Check reports what an evaluator can't parse of an alert, whose fields are under a path.
func Check(e *rule.Evaluator, path string, a v1alpha1.AlertSpec, who string) *rule.Invalid {
	if _, known := releaseOf(e); !known {
		return nil
	}
	if a.Expr != "" {
		for _, d := range exprDemands(a.Expr) {
			if message := refuses(e, d, who); message != "" {
				bad := rule.InvalidExprAt(path+".expr", a.Expr, &rule.Fault{Pos: d.pos, Message: message})
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

func checkTextsFor(e *rule.Evaluator, field string, texts map[string]v1alpha1.LabelText, who string) *rule.Invalid {
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		for _, d := range textDemands(string(texts[key])) {
			if message := refuses(e, d, who); message != "" {
				return unsupported(rule.Keyed(field, key), message)
			}
		}
	}
	return nil
}

func unsupported(field, message string) *rule.Invalid {
	bad := rule.NewInvalid(field, "%s", message)
	bad.Reason = v1alpha1.ReasonUnsupported
	return bad
}
