package rollup

import (
	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/reasons"
)

// crowd counts spokes whose rows are not known individually: the status had no room for all rows that
// lag behind, so that after a restart, until they are reported again, any spoke that it does not list
// may be one of them. Only their totals are known.
type crowd struct {
	spokes, applied, selected, evaluating, failing, unreachable, lagging int32
	// asked is the number of spokes whose evaluators were queried, and firing the number of alerts
	// there.
	asked, firing int32
}

// add adds a row to the crowd n times. -1 removes it.
func (c *crowd) add(r *v1alpha1.ClusterStatus, generation int64, n int32) {
	c.spokes += n
	if reached(r, v1alpha1.PhaseApplied) {
		c.applied += n
	}
	if reached(r, v1alpha1.PhaseSelected) {
		c.selected += n
	}
	if reached(r, v1alpha1.PhaseEvaluating) {
		c.evaluating += n
	}
	if asked(r) || r.Firing > 0 {
		c.asked += n
	}
	c.firing += n * r.Firing
	if reasons.Is(r.Reason, reasons.Failing) {
		c.failing += n
	}
	if reasons.Is(r.Reason, reasons.Unreachable) {
		c.unreachable += n
	}
	if !AtTop(r, generation) {
		c.lagging += n
	}
}

// crowdBefore counts the spokes that the present status does not list.
func (in *Input) crowdBefore() crowd {
	was := &in.Rule.Status
	if was.Summary == nil {
		return crowd{}
	}
	c := crowd{
		spokes: was.Summary.Desired, applied: was.Summary.Applied, selected: was.Summary.Selected, evaluating: was.Summary.Evaluating,
		failing: was.Summary.Failing, unreachable: was.Summary.Unreachable,
	}
	if was.Summary.Firing != nil {
		c.firing, c.asked = *was.Summary.Firing, was.Summary.Desired
	}
	for i := range was.Clusters {
		c.add(&was.Clusters[i], in.Rule.Generation, -1)
	}
	c.lagging = was.UnlistedClusters
	return c
}

// crowd counts the spokes that are not known. known are the rows of spokes that were in the crowd and
// are known now.
//
// The numbers are kept as long as nothing else is known: spokes that become known are subtracted, and
// the rest belongs to the others.
func (in *Input) crowd(unknown map[string]*Spoke, known []v1alpha1.ClusterStatus) crowd {
	if len(unknown) == 0 {
		return crowd{}
	}
	c := in.crowdBefore()
	if in.Memory != nil {
		c = in.Memory.crowd
	}
	for i := range known {
		c.add(&known[i], in.Rule.Generation, -1)
	}
	c.spokes = int32(len(unknown)) //nolint:gosec // the API server holds fewer objects
	c.applied = within(c.applied, 0, c.spokes)
	c.selected = within(c.selected, 0, c.applied)
	c.evaluating = within(c.evaluating, 0, c.selected)
	c.failing = within(c.failing, 0, c.spokes)
	c.asked, c.firing = within(c.asked, 0, c.spokes), max(c.firing, 0)
	c.unreachable = within(c.unreachable, 0, c.spokes)
	atLeast := c.spokes - c.applied
	if in.generationBefore() != in.Rule.Generation {
		atLeast = c.spokes
	}
	down := int32(0) // and shown as such, so that none of them is at the top
	for _, s := range unknown {
		if s.Shown.Top == OverlayOn {
			down++
		}
	}
	c.lagging = within(c.lagging, max(atLeast, down), c.spokes)
	return c
}

func within(n, low, high int32) int32 { return min(max(n, low), high) }
