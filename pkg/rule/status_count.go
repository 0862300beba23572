package rule

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// ReasonUnlisted is the reason of rows for which a status has no room and which are not known after a
// restart, until they are reported again. No status has it.
const ReasonUnlisted = "Unlisted"

// RowCount is a number of spokes with the same phase and reason.
type RowCount struct {
	Phase  v1alpha1.Phase
	Reason string
	Spokes int
}

// CountRows counts the spokes on which a rule is placed by phase and reason. s and m are the results
// of Status.
func CountRows(s *v1alpha1.AlertRuleStatus, m *Memory) []RowCount {
	if s.Summary == nil || s.Summary.Desired == 0 {
		return nil
	}
	var out []RowCount
	left := int(s.Summary.Desired)
	add := func(phase v1alpha1.Phase, reason string, n int) {
		if n = min(n, left); n <= 0 {
			return
		}
		left -= n
		i := slices.IndexFunc(out, func(c RowCount) bool { return c.Phase == phase && c.Reason == reason })
		if i < 0 {
			out = append(out, RowCount{Phase: phase, Reason: reason, Spokes: n})
			return
		}
		out[i].Spokes += n
	}
	for i := range s.Clusters {
		add(s.Clusters[i].Phase, s.Clusters[i].Reason, 1)
	}
	if m != nil {
		for name := range m.rows {
			r := m.rows[name]
			add(r.Phase, r.Reason, 1)
		}
		add(v1alpha1.PhasePending, ReasonUnlisted, int(m.crowd.spokes-m.crowd.applied))
		add(v1alpha1.PhaseApplied, ReasonUnlisted, int(m.crowd.lagging-(m.crowd.spokes-m.crowd.applied)))
	}
	// They are not listed where there are many.
	for _, at := range []struct {
		phase  v1alpha1.Phase
		spokes int32
	}{{v1alpha1.PhaseEvaluating, s.Summary.Evaluating}, {v1alpha1.PhaseSelected, s.Summary.Selected}} {
		for _, c := range out {
			if slices.Index(phases, c.Phase) >= slices.Index(phases, at.phase) {
				at.spokes -= int32(c.Spokes) //nolint:gosec // the API server holds fewer objects
			}
		}
		add(at.phase, "", int(at.spokes))
	}
	add(v1alpha1.PhaseApplied, "", left)
	return out
}

// OnlyFiring reports whether two statuses differ only in the numbers of firing alerts.
func OnlyFiring(a, b *v1alpha1.AlertRuleStatus) bool {
	return equality.Semantic.DeepEqual(withoutFiring(a), withoutFiring(b))
}

func withoutFiring(s *v1alpha1.AlertRuleStatus) *v1alpha1.AlertRuleStatus {
	out := s.DeepCopy()
	if out.Summary != nil && out.Summary.Firing != nil {
		out.Summary.Firing = new(int32)
	}
	for i := range out.Clusters {
		out.Clusters[i].Firing = 0
	}
	if out.Summary != nil && out.Summary.Desired > listMax {
		// Some are listed for that alone.
		out.Clusters = slices.DeleteFunc(out.Clusters, func(r v1alpha1.ClusterStatus) bool { return !notable(&r, s.ObservedGeneration) })
	}
	return out
}
