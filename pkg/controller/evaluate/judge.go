package evaluate

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/evaluator"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
)

// comparison is the result of comparing a PrometheusRule with the loaded one.
type comparison struct {
	raw      uint64 // see ruleState
	mismatch string
	// postponed means that the spoke's parsing budget is used up for now.
	postponed bool
}

// compare compares the rules that an evaluator has loaded with their PrometheusRules. Both come from the
// spoke, and parsing them takes time, so it holds no lock.
func (s *spokeState) compare(t *task, e *rule.Evaluator, rules map[types.UID][]*evaluator.Rule) map[types.UID]comparison {
	var known map[types.UID]*ruleState
	s.mu.Lock()
	if es := s.evaluators[e.String()]; es != nil {
		known = maps.Clone(es.rules)
	}
	s.mu.Unlock()
	out := make(map[types.UID]comparison, len(rules))
	for uid, loaded := range rules {
		o := t.objects[uid]
		is := comparison{raw: rawHash(loaded, evaluation.Confined(e, o))}
		switch was := known[uid]; {
		case was != nil && was.raw == is.raw && was.generation == o.Generation:
			is.mismatch = was.mismatch
		case s.mayParse(append(queries(loaded), evaluation.Exprs(o)...)...):
			is.mismatch = mismatch(o, e, loaded)
		default:
			is.postponed = true
		}
		out[uid] = is
	}
	return out
}

func queries(loaded []*evaluator.Rule) []string {
	out := make([]string, 0, 2*len(loaded))
	for _, r := range loaded {
		out = append(out, r.Query)
	}
	return out
}

// judge returns the state of a PrometheusRule, given what an evaluator has loaded of it.
func judge(was *ruleState, o *monitoringv1.PrometheusRule, loaded []*evaluator.Rule, compared comparison, now time.Time) *ruleState {
	is := unasked(o)
	is.Seen, is.raw, is.mismatch = true, compared.raw, compared.mismatch
	for _, r := range loaded {
		is.Firing, is.Pending = count(is.Firing, r.Firing), count(is.Pending, r.Pending)
	}
	pending := func(outcome evaluation.Outcome) {
		is.Outcome, is.since = outcome, now
		if was != nil && was.Outcome == outcome && was.generation == is.generation {
			is.since = was.since
		}
	}
	switch failed, message := failures(loaded); {
	case len(loaded) == 0 && len(evaluation.Contents(o)) > 0, is.mismatch != "":
		pending(evaluation.Absent)
		is.Late = now.Sub(is.since) > evaluation.LoadingTime
		if len(loaded) > 0 && is.key.Kind == v1alpha1.RulePackKind {
			is.Message = is.mismatch
		}
	case failed > 0:
		is.Outcome, is.Message = evaluation.Failed, message
	case slices.ContainsFunc(loaded, func(r *evaluator.Rule) bool { return r.Health != evaluator.HealthOK }):
		pending(evaluation.Waiting)
	default:
		is.Outcome = evaluation.Evaluates
	}
	return is
}

// count adds numbers of alerts, which are limited.
func count(to int32, n int) int32 { return int32(min(int64(to)+int64(n), 1<<30)) } //nolint:gosec // bounded

// failures counts the rules that can't be evaluated, and returns the error of the first one.
func failures(loaded []*evaluator.Rule) (n int, message string) {
	var first *evaluator.Rule
	for _, r := range loaded {
		if r.Health == evaluator.HealthErr {
			n++
			first = cmp.Or(first, r)
		}
	}
	switch {
	case n == 0:
		return 0, ""
	case len(loaded) == 1:
		return 1, first.LastError
	}
	return n, fmt.Sprintf("%d of %d rules fail; the first is %s of group %s: %s", n, len(loaded), clip.Marked(first.Name, maxNamed), clip.Marked(first.Group, maxNamed), first.LastError)
}

// maxNamed bounds the names of a rule and a group in a message, in bytes.
const maxNamed = 100

// mismatch returns how loaded rules differ from their PrometheusRule, or "".
func mismatch(o *monitoringv1.PrometheusRule, e *rule.Evaluator, all []*evaluator.Rule) string {
	slices.SortStableFunc(all, func(a, b *evaluator.Rule) int { return strings.Compare(a.Group, b.Group) })
	loaded := make([]evaluation.Loaded, 0, len(all))
	for _, r := range all {
		loaded = append(loaded, evaluation.Loaded{
			Group: r.Group, Interval: r.Interval, Recording: r.Recording, Name: r.Name, Query: r.Query, For: r.For, KeepFiringFor: r.KeepFiringFor,
			Labels: r.Labels, Annotations: r.Annotations,
		})
	}
	return evaluation.Mismatch(o, e, loaded)
}

var seed = maphash.MakeSeed()

// rawHash hashes loaded rules and the label to which they are confined.
func rawHash(rules []*evaluator.Rule, confined string) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	write := func(text string) { _, _ = h.WriteString(strconv.Itoa(len(text)) + ":" + text) }
	write(confined)
	for _, r := range rules {
		write(r.Group + r.Interval.String())
		write(strconv.FormatBool(r.Recording))
		write(r.Name)
		write(r.Query)
		write(r.For.String() + r.KeepFiringFor.String())
		for _, texts := range []map[string]string{r.Labels, r.Annotations} {
			for _, key := range slices.Sorted(maps.Keys(texts)) {
				write(key)
				write(texts[key])
			}
			write("")
		}
	}
	return h.Sum64()
}
