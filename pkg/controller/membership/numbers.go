package membership

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// numbersInterval is the least time between two writes for numbers only. It is well below the minute within which a
// change must show.
const numbersInterval = 45 * time.Second

// numbersDiffer reports whether the numbers of workloads and rules differ between two statuses, and whether nothing else
// does.
func numbersDiffer(before, after v1alpha1.SpokeClusterStatus) (numbers, only bool) {
	numbers = !ptr.Equal(before.Deployments, after.Deployments) || !ptr.Equal(before.Rules, after.Rules) ||
		!slices.Equal(before.Workloads, after.Workloads) || !slices.Equal(before.Uncovered, after.Uncovered)
	after.Deployments, after.Rules, after.Workloads, after.Uncovered = before.Deployments, before.Rules, before.Workloads, before.Uncovered
	return numbers, equality.Semantic.DeepEqual(before, after)
}

// numbersWait returns how long to wait until numbers alone may be written to a SpokeCluster's status.
func (r *Reconciler) numbersWait(name string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, written := r.numbered[name]
	if !written {
		return 0
	}
	return last.Add(r.Intervals.Of(numbersInterval)).Sub(r.time())
}

// setNumbered records that the numbers in a SpokeCluster's status were written.
func (r *Reconciler) setNumbered(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.numbered == nil {
		r.numbered = map[string]time.Time{}
	}
	r.numbered[name] = r.time()
}
