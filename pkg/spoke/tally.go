package spoke

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// firstInterval is how long the first counts of an engagement do not replace those in the status if they do not change.
const firstInterval = time.Minute

// Counts are the numbers of objects in a spoke.
type Counts struct {
	// Deployments is the number of Deployments, and Rules that of this hub's PrometheusRules.
	Deployments, Rules int32
	// Known is false if nothing was counted.
	Known bool
	// First means that they were counted when the spoke was engaged. They do not replace counts in the status,
	// because a restart of the operator is not a change.
	First bool
}

// into writes the counts into a status.
func (c Counts) into(s *v1alpha1.SpokeClusterStatus) {
	if !c.Known || (c.First && s.Deployments != nil) {
		return
	}
	s.Deployments, s.Rules = &c.Deployments, &c.Rules
}

// tally decides when to publish the counts of a session. The controller of the membership bounds how often they are
// written.
type tally struct {
	published Counts
	engaged   time.Time
}

// first returns the counts when the spoke is engaged.
func (t *tally) first(counts Counts, now time.Time) Counts {
	t.published, t.engaged = counts, now
	t.published.First = true
	return t.published
}

// next is called at every beat of the probe. It returns the counts and whether to publish them.
func (t *tally) next(counts Counts, now time.Time, interval time.Duration) (Counts, bool) {
	changed := counts.Deployments != t.published.Deployments || counts.Rules != t.published.Rules
	if !changed && (!t.published.First || now.Sub(t.engaged) < interval) {
		return Counts{}, false
	}
	t.published = counts
	return counts, true
}

// ours reports whether an object is a PrometheusRule of this hub.
func (o Options) ours(in metav1.Object) bool {
	return in.GetLabels()[v1alpha1.HubLabel] == o.HubID && (o.Stands == nil || o.Stands(in))
}
