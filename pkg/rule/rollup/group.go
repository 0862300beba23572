package rollup

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"unique"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

const (
	// maxGroups bounds the groups in the API.
	maxGroups = 256
	// maxCounted is how many spokes of the groups of a status are believed: another client may write it, too.
	maxCounted = 10_000
)

// Row is what stays in memory of the state of a rule in a spoke, because metrics count all spokes and a
// status may list only a part. Rules on many spokes share the values, since most of them are equally far
// in a spoke.
type Row struct {
	// Cluster is the spoke, or "" where only the number of spokes is known.
	Cluster string
	// State is a group, with a count of 0.
	State v1alpha1.ClusterGroup
	// Presumed is true for a spoke that has not reported since the process started, and that the status
	// counts in a group: the state is that of some spoke, but not necessarily of this one.
	Presumed bool
}

// Rows returns the rows of a status. Spokes that it does not list have no names.
func Rows(s *v1alpha1.RuleStatus) []unique.Handle[Row] {
	out := make([]unique.Handle[Row], 0, len(s.Clusters))
	for i := range s.Clusters {
		out = append(out, unique.Make(Row{Cluster: string(s.Clusters[i].Name), State: stateOf(&s.Clusters[i])}))
	}
	for _, r := range expand(s.Groups) {
		out = append(out, unique.Make(Row{State: stateOf(&r)}))
	}
	return out
}

// stateOf returns the group of a row, with a count of 0.
func stateOf(r *v1alpha1.ClusterStatus) v1alpha1.ClusterGroup {
	return v1alpha1.ClusterGroup{Phase: r.Phase, Reason: r.Reason, Outage: r.Outage, ObservedGeneration: r.ObservedGeneration}
}

// rowIn returns a row with the state of a group.
func rowIn(name string, g *v1alpha1.ClusterGroup) v1alpha1.ClusterStatus {
	return v1alpha1.ClusterStatus{
		Name: v1alpha1.ClusterName(name), Phase: g.Phase, Reason: g.Reason, Outage: g.Outage, ObservedGeneration: g.ObservedGeneration,
	}
}

// expand returns a row without a name for each spoke that groups count.
func expand(groups []v1alpha1.ClusterGroup) []v1alpha1.ClusterStatus {
	var out []v1alpha1.ClusterStatus
	for i := range groups {
		n := max(0, min(int(groups[i].Count), maxCounted-len(out)))
		out = append(out, slices.Repeat([]v1alpha1.ClusterStatus{rowIn("", &groups[i])}, n)...)
	}
	return out
}

// group counts rows by their state, the worst first.
func group(rows []v1alpha1.ClusterStatus) []v1alpha1.ClusterGroup {
	counts := map[v1alpha1.ClusterGroup]int32{}
	for i := range rows {
		counts[stateOf(&rows[i])]++
	}
	rank := func(g *v1alpha1.ClusterGroup) int {
		r := rowIn("", g)
		return Rank(&r)
	}
	out := slices.SortedFunc(maps.Keys(counts), func(a, b v1alpha1.ClusterGroup) int {
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), cmp.Compare(b.ObservedGeneration, a.ObservedGeneration),
			cmp.Compare(slices.Index(phases, a.Phase), slices.Index(phases, b.Phase)), cmp.Compare(a.Reason, b.Reason), outageFirst(&a, &b))
	})
	for i := range out {
		out[i].Count = counts[out[i]]
	}
	return out[:min(len(out), maxGroups)]
}

func outageFirst(a, b *v1alpha1.ClusterGroup) int { return compareBools(b.Outage, a.Outage) }

// compareBools orders false before true.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// Lagging counts the spokes in groups of a status in which the rule is not ready.
func Lagging(s *v1alpha1.RuleStatus) (n int32) {
	for i := range s.Groups {
		if r := rowIn("", &s.Groups[i]); !AtTop(&r, s.ObservedGeneration) {
			n += s.Groups[i].Count
		}
	}
	return n
}

// groupsBefore returns the groups of the present status. A former version wrote none, but its summary has
// the phases and the number of spokes that are ready.
func (in *Input) groupsBefore() []v1alpha1.ClusterGroup {
	was := in.Rule.GetStatus()
	if len(was.Groups) > 0 || was.Summary == nil || int(was.Summary.Desired) <= len(was.Clusters) {
		return was.Groups
	}
	left := map[v1alpha1.Phase]int32{
		v1alpha1.PhaseEvaluating: was.Summary.Evaluating, v1alpha1.PhaseSelected: was.Summary.Selected - was.Summary.Evaluating,
		v1alpha1.PhaseApplied: was.Summary.Applied - was.Summary.Selected, v1alpha1.PhasePending: was.Summary.Desired - was.Summary.Applied,
	}
	var ready int32
	_, _ = fmt.Sscanf(was.Summary.Ready, "%d/", &ready)
	for i := range was.Clusters {
		left[was.Clusters[i].Phase]--
		if AtTop(&was.Clusters[i], was.ObservedGeneration) {
			ready--
		}
	}
	var out []v1alpha1.ClusterGroup
	for _, phase := range slices.Backward(phases) {
		top := max(0, min(ready, left[phase]))
		if phase == v1alpha1.PhasePending {
			top = 0
		}
		ready -= top
		out = append(out,
			v1alpha1.ClusterGroup{Phase: phase, ObservedGeneration: was.ObservedGeneration, Count: top},
			v1alpha1.ClusterGroup{Phase: phase, Reason: v1alpha1.ReasonProgressing, ObservedGeneration: was.ObservedGeneration, Count: max(0, left[phase]-top)})
	}
	slices.Reverse(out)
	return slices.DeleteFunc(out, func(g v1alpha1.ClusterGroup) bool { return g.Count == 0 })
}

// presume gives spokes that have not reported since the process started the states that the present status
// counts in groups, without those that other spokes have. known are the rows of these. Only the totals are
// right: it is not known which spoke has which state.
func (in *Input) presume(silent []*Spoke, known []v1alpha1.ClusterStatus) map[string]*v1alpha1.ClusterStatus {
	if len(silent) == 0 {
		return nil
	}
	groups := slices.Clone(in.groupsBefore())
	take := func(same func(g, r *v1alpha1.ClusterStatus) bool) {
		known = slices.DeleteFunc(known, func(r v1alpha1.ClusterStatus) bool {
			i := slices.IndexFunc(groups, func(g v1alpha1.ClusterGroup) bool {
				is := rowIn("", &g)
				return g.Count > 0 && same(&is, &r)
			})
			if i >= 0 {
				groups[i].Count--
			}
			return i >= 0
		})
	}
	take(func(g, r *v1alpha1.ClusterStatus) bool { return stateOf(g) == stateOf(r) })
	take(func(g, r *v1alpha1.ClusterStatus) bool {
		return g.Phase == r.Phase && AtTop(g, in.Rule.GetGeneration()) == AtTop(r, in.Rule.GetGeneration())
	})
	order := []Overlay{OverlayOn, OverlayKept, OverlayOff}
	slices.SortStableFunc(silent, func(a, b *Spoke) int {
		return cmp.Compare(slices.Index(order, a.Shown.Top), slices.Index(order, b.Shown.Top))
	})
	// The spokes that are down have the states that show it.
	slices.SortStableFunc(groups, func(a, b v1alpha1.ClusterGroup) int { return outageFirst(&a, &b) })
	states, out := expand(groups), map[string]*v1alpha1.ClusterStatus{}
	for i, s := range silent[:max(0, min(len(silent), len(states)-len(known)))] {
		states[i].Name = v1alpha1.ClusterName(s.Name)
		out[s.Name] = &states[i]
	}
	return out
}
