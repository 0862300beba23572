package rule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

const (
	// listAll is up to how many rows are listed whatever they say.
	listAll = 100
	// listMax bounds the list in the API.
	listMax = 1000
)

// source is where a row comes from, in the order in which rows keep their place in a
// list that is full: what is known from the present status alone would be lost.
type source int

const (
	remembered source = iota // the present status has it, and nothing newer is known
	reported                 // a verdict; it will be there the next time too
	derived                  // nobody has reported anything
)

type row struct {
	v1alpha1.ClusterStatus
	source source
}

// rows returns one row for each spoke that the rule is placed on, by name.
func (in *StatusInput) rows() []row {
	spokes := in.placed()
	before := in.listedBefore()
	unlisted := in.unlistedBefore(spokes, before)
	out := make([]row, 0, len(spokes))
	for _, name := range slices.Sorted(maps.Keys(spokes)) {
		out = append(out, in.row(name, spokes[name], before, unlisted))
	}
	if len(out) > listAll {
		in.forget(out, spokes)
	}
	return out
}

// placed returns the spokes that the rule is placed on. Names that are not registered
// have no state.
func (in *StatusInput) placed() map[string]*SpokeState {
	out := map[string]*SpokeState{}
	placement := in.Rule.Spec.Placement
	selector, err := selectorOf(placement.Selector)
	if err != nil {
		return out // Validate refuses it
	}
	for _, name := range placement.Names {
		out[string(name)] = nil
	}
	for i := range in.Clusters {
		if s := &in.Clusters[i]; places(placement.Names, selector, s.Cluster) {
			out[s.Name] = s
		}
	}
	return out
}

func (in *StatusInput) listedBefore() map[string]*v1alpha1.ClusterStatus {
	out := map[string]*v1alpha1.ClusterStatus{}
	for i := range in.Rule.Status.Clusters {
		r := &in.Rule.Status.Clusters[i]
		out[string(r.Name)] = r
	}
	return out
}

// unlistedBefore tells whether spokes without a row were at the top when the present
// status was written. Where there are more of them than it left out, some are new,
// and which is not known.
func (in *StatusInput) unlistedBefore(spokes map[string]*SpokeState, before map[string]*v1alpha1.ClusterStatus) bool {
	summary := in.Rule.Status.Summary
	if summary == nil || summary.Desired <= listAll || len(before) >= listMax {
		return false
	}
	absent := 0
	for name := range spokes {
		if before[name] == nil {
			absent++
		}
	}
	return absent <= int(summary.Desired)-len(before)
}

// row returns what is known of one spoke: what was reported, else what is in the
// present status, else why nothing is known.
func (in *StatusInput) row(name string, spoke *SpokeState, before map[string]*v1alpha1.ClusterStatus, unlisted bool) row {
	last := before[name]
	if spoke == nil {
		return in.derive(name, nil, last)
	}
	if last == nil && unlisted {
		last = &v1alpha1.ClusterStatus{
			Name: v1alpha1.ClusterName(name), Phase: v1alpha1.PhaseApplied,
			ObservedGeneration: in.Rule.Status.ObservedGeneration, LastTransitionTime: in.Now,
		}
	}
	if verdict, ok := in.Verdicts[name]; ok {
		return row{in.since(last, in.overdue(spoke, in.fit(name, verdict))), reported}
	}
	// Only a report tells of a generation: without one, the row was derived.
	if last != nil && last.ObservedGeneration > 0 {
		return row{in.since(last, in.overdue(spoke, *last.DeepCopy())), remembered}
	}
	return in.derive(name, spoke, last)
}

// overdue says of a row of an older generation that the spoke can't be reached, where
// that is why. The rest of the row is what was last seen.
func (in *StatusInput) overdue(spoke *SpokeState, r v1alpha1.ClusterStatus) v1alpha1.ClusterStatus {
	if r.ObservedGeneration < in.Rule.Generation && spoke.Connected == metav1.ConditionFalse && spoke.Reason != "" {
		r.Reason, r.Message = spoke.Reason, spoke.Message
	}
	return in.fit(string(r.Name), r)
}

// derive returns the row of a spoke that nothing was reported of.
func (in *StatusInput) derive(name string, spoke *SpokeState, last *v1alpha1.ClusterStatus) row {
	r := v1alpha1.ClusterStatus{Name: v1alpha1.ClusterName(name), Phase: v1alpha1.PhasePending}
	switch {
	case spoke == nil:
		r.Reason, r.Message = v1alpha1.ReasonNotRegistered, "no SpokeCluster has this name"
	case spoke.Connected == metav1.ConditionFalse && spoke.Reason != "":
		r.Reason, r.Message = spoke.Reason, spoke.Message
	default:
		r.Reason, r.Message = v1alpha1.ReasonWaiting, "the rule was not tried on this spoke yet"
	}
	return row{in.since(last, in.fit(name, r)), derived}
}

// since gives a row its transition time.
func (in *StatusInput) since(last *v1alpha1.ClusterStatus, r v1alpha1.ClusterStatus) v1alpha1.ClusterStatus {
	r.LastTransitionTime = in.Now
	if last != nil && last.Phase == r.Phase && last.Reason == r.Reason && !last.LastTransitionTime.IsZero() {
		r.LastTransitionTime = last.LastTransitionTime
	}
	return r
}

// fit bounds a row as the API does, which would refuse the whole status otherwise.
func (in *StatusInput) fit(name string, r v1alpha1.ClusterStatus) v1alpha1.ClusterStatus {
	r.Name = v1alpha1.ClusterName(name)
	if r.Phase != v1alpha1.PhaseApplied {
		r.Phase = v1alpha1.PhasePending
	}
	r.Reason = bounded(r.Reason, 64)
	r.Message = bounded(r.Message, 1024)
	r.Rule = bounded(r.Rule, 317)
	r.AnswerDigest = bounded(r.AnswerDigest, 64)
	r.ObservedGeneration = max(r.ObservedGeneration, 0)
	return r
}

// list returns the rows that the status lists, by name.
func (in *StatusInput) list(rows []row) []v1alpha1.ClusterStatus {
	if len(rows) > listAll {
		rows = in.lagging(rows)
	}
	if len(rows) > listMax {
		rows = slices.Clone(rows)
		slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.source, b.source) })
		rows = rows[:listMax]
		slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.Name, b.Name) })
	}
	out := make([]v1alpha1.ClusterStatus, len(rows))
	for i := range rows {
		out[i] = rows[i].ClusterStatus
	}
	return out
}

func (in *StatusInput) lagging(rows []row) []row {
	return slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return atTop(&r.ClusterStatus, in.Rule.Generation) })
}

// forget gives up what a full list can't hold: then a spoke without a row is not
// known to be at the top, so what is remembered of those must not be told either.
func (in *StatusInput) forget(rows []row, spokes map[string]*SpokeState) {
	if len(in.lagging(rows)) < listMax {
		return
	}
	listed := map[v1alpha1.ClusterName]bool{}
	for _, r := range in.list(rows) {
		listed[r.Name] = true
	}
	for i, r := range rows {
		if r.source == remembered && !listed[r.Name] {
			rows[i] = in.derive(string(r.Name), spokes[string(r.Name)], nil)
		}
	}
}

// lastValid returns the rows and the summary of a rule that is invalid: what was
// known of its last valid version.
func (in *StatusInput) lastValid() ([]row, v1alpha1.RuleSummary, []v1alpha1.ClusterStatus) {
	was := in.Rule.Status
	if was.Summary != nil && was.Summary.Desired > listAll {
		// Those that are not listed are known by their number alone.
		return nil, noneReady(*was.Summary), slices.Clone(was.Clusters)
	}
	before := in.listedBefore()
	names := slices.Collect(maps.Keys(before))
	for name := range in.placed() {
		if _, ok := in.Verdicts[name]; ok && before[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	rows := make([]row, 0, len(names))
	for _, name := range names {
		if verdict, ok := in.Verdicts[name]; ok {
			rows = append(rows, row{in.since(before[name], in.fit(name, verdict)), reported})
			continue
		}
		rows = append(rows, row{*before[name].DeepCopy(), remembered})
	}
	return rows, noneReady(summarize(rows, in.Rule.Generation)), in.list(rows)
}

// noneReady is the summary of a spec that is nowhere.
func noneReady(s v1alpha1.RuleSummary) v1alpha1.RuleSummary {
	s.Ready = fmt.Sprintf("0/%d", s.Desired)
	return s
}
