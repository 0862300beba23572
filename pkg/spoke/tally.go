package spoke

import (
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

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

// tally counts the objects in a spoke by the events of its cache, and decides when to publish the numbers. The
// controller of the membership bounds how often they are written.
type tally struct {
	deploymentCount, ruleCount atomic.Int32

	published Counts
	engaged   time.Time
}

// deployments and rules return the handlers that count.
func (t *tally) deployments() toolscache.ResourceEventHandler {
	return counter(&t.deploymentCount, func(any) bool { return true })
}

func (t *tally) rules(of Options) toolscache.ResourceEventHandler {
	return counter(&t.ruleCount, func(in any) bool {
		o, ok := in.(metav1.Object)
		return ok && o.GetLabels()[v1alpha1.HubLabel] == of.HubID && (of.Stands == nil || of.Stands(o))
	})
}

func counter(n *atomic.Int32, counts func(any) bool) toolscache.ResourceEventHandler {
	add := func(in any, by int32) {
		if counts(in) {
			n.Add(by)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(in any) { add(in, 1) },
		UpdateFunc: func(before, after any) {
			switch was, is := counts(before), counts(after); {
			case was && !is:
				n.Add(-1)
			case is && !was:
				n.Add(1)
			}
		},
		DeleteFunc: func(in any) {
			if tombstone, ok := in.(toolscache.DeletedFinalStateUnknown); ok {
				in = tombstone.Obj
			}
			add(in, -1)
		},
	}
}

func (t *tally) now() Counts {
	return Counts{Deployments: t.deploymentCount.Load(), Rules: t.ruleCount.Load(), Known: true}
}

// first returns the counts when the spoke is engaged.
func (t *tally) first(now time.Time) Counts {
	t.published, t.engaged = t.now(), now
	t.published.First = true
	return t.published
}

// next is called at every beat of the probe. It returns the counts and whether to publish them.
func (t *tally) next(now time.Time, interval time.Duration) (Counts, bool) {
	counts := t.now()
	changed := counts.Deployments != t.published.Deployments || counts.Rules != t.published.Rules
	if !changed && (!t.published.First || now.Sub(t.engaged) < interval) {
		return Counts{}, false
	}
	t.published = counts
	return counts, true
}
