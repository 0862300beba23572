package evaluation

import (
	"maps"
	"slices"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/gotemplate"
)

// MissingGrace is the time for which a chosen evaluator stays chosen after it has disappeared. Without
// it, a reinstallation of prometheus-operator would relabel and move all rules twice.
const MissingGrace = 5 * time.Minute

// Choice is the input for choosing the evaluators of a spoke.
type Choice struct {
	// Seen are the candidates: the Prometheus and ThanosRuler objects of the spoke in the namespaces
	// that the operator trusts, and those that Refs names. More is true if there may be others.
	Seen []v1alpha1.Evaluator
	More bool
	// Refs are spec.evaluatorRefs.
	Refs []v1alpha1.EvaluatorReference
	// Record contains the evaluators that were chosen before, with their last known settings.
	Record []v1alpha1.Evaluator
	// Open is true if it was decided before that none is chosen. Otherwise, an empty Record means that
	// the spoke is new or that the record was lost.
	Open bool
	// Pushed returns the objects of this hub in the spoke. It is called only if Record is lost.
	Pushed func() []Held
	// Cluster is the spoke. ClusterLabel is the label of alerts that identifies the cluster, or empty.
	Cluster      *rule.Cluster
	ClusterLabel string
	// Now is the current time. Grace is MissingGrace, scaled.
	Now   time.Time
	Grace time.Duration
}

// Held is a PrometheusRule in a spoke, and its namespace.
type Held struct {
	Rule      *monitoringv1.PrometheusRule
	Namespace Namespace
}

// Choose decides which evaluators of a spoke evaluate its rules. It returns Seen with the
// chosen ones marked, followed by chosen ones that have disappeared.
//
// A recorded choice stays, whatever other evaluators the spoke has. A new choice is made only if
// nothing is recorded, or if the recorded evaluators have been missing for Grace.
func Choose(in *Choice) []v1alpha1.Evaluator {
	out := slices.Clone(in.Seen)
	for i := range out {
		out[i].Chosen, out[i].MissingTime = false, metav1.Time{}
	}
	record := slices.DeleteFunc(slices.Clone(in.Record), func(e v1alpha1.Evaluator) bool { return !IsRecorded(e) })
	if len(in.Refs) > 0 {
		unnamed := func(e v1alpha1.Evaluator) bool { return !IsNamed(in.Refs, &e) }
		gone := in.goneOf(slices.DeleteFunc(slices.Clone(record), unnamed))
		gone = slices.DeleteFunc(gone, func(e v1alpha1.Evaluator) bool { return !e.Chosen })
		for i := range out {
			out[i].Chosen = !unnamed(out[i])
		}
		if len(gone) > 0 || anyChosen(out) {
			return append(out, gone...)
		}
		// None of them exists, maybe because of a typing error, so the previous choice is kept.
	}
	gone := in.goneOf(record)
	for i := range out {
		out[i].Chosen = slices.ContainsFunc(record, func(e v1alpha1.Evaluator) bool { return same(&e, &out[i]) })
	}
	if anyChosen(out) || anyChosen(gone) {
		return append(out, slices.DeleteFunc(gone, func(e v1alpha1.Evaluator) bool { return !e.Chosen })...)
	}
	if e := in.fresh(out, len(record) == 0); e != nil {
		e.Chosen = true
		return out
	}
	return append(out, gone...)
}

// fresh returns the evaluator to choose if none is chosen: the only one. If there are several and the
// record is lost, it returns the one that selects the objects of this hub.
func (in *Choice) fresh(out []v1alpha1.Evaluator, unrecorded bool) *v1alpha1.Evaluator {
	var candidates []*v1alpha1.Evaluator
	for i := range out {
		if out[i].RuleSelector != nil {
			candidates = append(candidates, &out[i])
		}
	}
	switch {
	case len(candidates) == 1 && !in.More:
		return candidates[0]
	case len(candidates) > 0 && unrecorded && !in.Open && in.Pushed != nil:
		return in.serving(candidates)
	}
	return nil
}

// serving returns the one candidate that selects the objects of this hub, preferably the one for which
// they were written. Another evaluator in the spoke may select everything, or some of it.
func (in *Choice) serving(candidates []*v1alpha1.Evaluator) *v1alpha1.Evaluator {
	held := in.Pushed()
	var selecting, served []*v1alpha1.Evaluator
	for _, candidate := range candidates {
		e := rule.EvaluatorOf(candidate)
		e.Chosen = true
		selects := slices.DeleteFunc(slices.Clone(held), func(h Held) bool {
			return skips(&e, h.Rule, h.Namespace, rule.Cluster{Name: in.Cluster.Name, RuleLabels: in.Cluster.RuleLabels}, nil) != ""
		})
		if len(selects) > 0 {
			selecting = append(selecting, candidate)
		}
		if slices.ContainsFunc(selects, func(h Held) bool { return in.isFor(h.Rule, &e) }) {
			served = append(served, candidate)
		}
	}
	switch {
	case len(served) == 1:
		return served[0]
	case len(served) == 0 && len(selecting) == 1:
		return selecting[0]
	}
	return nil
}

// isFor reports whether a PrometheusRule has the labels, and its alert the cluster label, that it gets
// if an evaluator is the chosen one.
func (in *Choice) isFor(o *monitoringv1.PrometheusRule, e *rule.Evaluator) bool {
	alone := rule.Cluster{Name: in.Cluster.Name, RuleLabels: in.Cluster.RuleLabels, Evaluators: []rule.Evaluator{*e}}
	want := rule.WithKeys(maps.Clone(alone.RuleLabels), o.Labels, rule.OwnLabels)
	needed, _ := demandedLabels(&alone, WithOwn(want))
	maps.Copy(want, needed)
	extra := rule.WithKeys(nil, o.Labels, slices.Concat(rule.ExtraLabels(o), rule.OwnLabels))
	mark, marked := MarkOf(o, in.ClusterLabel)
	return maps.Equal(want, extra) && (in.ClusterLabel == "" || !marked || mark == gotemplate.Literal(LabelValue(&alone)))
}

// goneOf returns the evaluators of a record that have disappeared, and marks those that have been
// missing for less than Grace.
func (in *Choice) goneOf(record []v1alpha1.Evaluator) []v1alpha1.Evaluator {
	var out []v1alpha1.Evaluator
	for i := range record {
		e := record[i]
		if slices.ContainsFunc(in.Seen, func(s v1alpha1.Evaluator) bool { return same(&e, &s) }) {
			continue
		}
		if e.MissingTime.IsZero() || e.MissingTime.After(in.Now) { // the clock of another process was ahead
			e.MissingTime = metav1.NewTime(in.Now.Truncate(time.Second)) // the precision of the API
		}
		e.Chosen = e.Chosen && in.Now.Sub(e.MissingTime.Time) < in.Grace
		out = append(out, e)
	}
	return out
}

func anyChosen(list []v1alpha1.Evaluator) bool {
	return slices.ContainsFunc(list, func(e v1alpha1.Evaluator) bool { return e.Chosen })
}

// ReferenceTo returns the entry of spec.evaluatorRefs that names an evaluator.
func ReferenceTo(e *v1alpha1.Evaluator) v1alpha1.EvaluatorReference {
	return v1alpha1.EvaluatorReference{Kind: e.Kind, Namespace: v1alpha1.NamespaceName(e.Namespace), Name: e.Name}
}

// IsRecorded reports whether an evaluator is chosen, or was chosen until it disappeared.
func IsRecorded(e v1alpha1.Evaluator) bool { return e.Chosen || !e.MissingTime.IsZero() }

// IsNamed reports whether one of the references names an evaluator.
func IsNamed(refs []v1alpha1.EvaluatorReference, e *v1alpha1.Evaluator) bool {
	own := ReferenceTo(e)
	return slices.ContainsFunc(refs, func(r v1alpha1.EvaluatorReference) bool { return sameObject(r, own) })
}

func same(a, b *v1alpha1.Evaluator) bool { return ReferenceTo(a) == ReferenceTo(b) }

// SameChoice reports whether the same evaluators are chosen in two lists.
func SameChoice(a, b []v1alpha1.Evaluator) bool {
	within := func(a, b []v1alpha1.Evaluator) bool {
		return !slices.ContainsFunc(a, func(e v1alpha1.Evaluator) bool {
			return e.Chosen && !slices.ContainsFunc(b, func(o v1alpha1.Evaluator) bool { return o.Chosen && same(&e, &o) })
		})
	}
	return within(a, b) && within(b, a)
}

// MarkOf returns the value that a label has in most alerts of a PrometheusRule, because somebody in the spoke may have
// changed some of them. marked is false if it has no alerts.
func MarkOf(o *monitoringv1.PrometheusRule, label string) (value string, marked bool) {
	counts, most := map[string]int{}, 0
	for _, c := range Contents(o) {
		if c.Rule.Alert == "" {
			continue
		}
		is := c.Rule.Labels[label]
		counts[is]++
		if counts[is] > most {
			value, most = is, counts[is]
		}
	}
	return value, most > 0
}
