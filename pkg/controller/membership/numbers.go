package membership

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

const (
	// numbersInterval is the least time between two writes of a SpokeCluster's status for numbers only. A change shows
	// within a minute.
	numbersInterval = 25 * time.Second
	// numbersGather is how long such a write waits for other numbers. A new Deployment changes several, which are
	// counted at different times.
	numbersGather = 15 * time.Second
)

// numbers says when the status of a SpokeCluster is written for numbers only.
type numbers struct {
	// due is when it is written next. It is zero if no numbers differ.
	due time.Time
	// written is when it was last written.
	written time.Time
}

// onlyNumbersDiffer reports whether two statuses differ in nothing but the numbers of workloads and rules.
func onlyNumbersDiffer(before, after v1alpha1.SpokeClusterStatus) bool {
	after.Deployments, after.Rules, after.Workloads, after.Uncovered = before.Deployments, before.Rules, before.Workloads, before.Uncovered
	return equality.Semantic.DeepEqual(before, after)
}

// numbersWait returns how long to wait until a SpokeCluster's status is written for numbers only. It is not positive if
// that is due.
func (r *Reconciler) numbersWait(name string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, n := r.time(), r.numbers[name]
	if n.due.IsZero() {
		n.due = now.Add(r.Intervals.Of(numbersGather))
		if next := n.written.Add(r.Intervals.Of(numbersInterval)); next.After(n.due) {
			n.due = next
		}
		r.setNumbersLocked(name, n)
	}
	return n.due.Sub(now)
}

// numbersShown records that a SpokeCluster's status has the present numbers. written is true if it was written for them.
func (r *Reconciler) numbersShown(name string, written bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.numbers[name]
	if n.due.IsZero() && !written {
		return
	}
	n.due = time.Time{}
	if written {
		n.written = r.time()
	}
	r.setNumbersLocked(name, n)
}

func (r *Reconciler) setNumbersLocked(name string, n numbers) {
	if r.numbers == nil {
		r.numbers = map[string]numbers{}
	}
	r.numbers[name] = n
}
