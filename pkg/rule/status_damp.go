package rule

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Settle is how long a spoke has to be down before rules that are at the top there
// show it, and the least time between two changes of what they show.
const Settle = 5 * time.Minute

// Overlay says whether rows at the top phase show a spoke's outage.
type Overlay string

const (
	// OverlayKept leaves a row as the status has it. It is the zero value: a process
	// that has just started does not know what was shown, and the rows do.
	OverlayKept Overlay = ""
	// OverlayOn shows the outage.
	OverlayOn Overlay = "On"
	// OverlayOff does not.
	OverlayOff Overlay = "Off"
)

// Shown is what the rows of rules show of a spoke's outage. The spoke's own condition
// Connected follows at once; this follows late, since one spoke is in the rows of
// thousands of rules. The zero value is a spoke of which nothing is known yet.
type Shown struct {
	// Reason is that of the outage, as it was first.
	Reason string
	// Lagging tells whether rows that lag show it: at once, and until the spoke was up
	// for as long as Settle.
	Lagging bool
	// Top tells whether rows at the top phase show it too: once the spoke was down for
	// as long as Settle.
	Top Overlay
	// Flipped is when Top last changed between on and off in this process.
	Flipped time.Time
}

// Differs tells whether rows may read differently for the change.
func (s Shown) Differs(other Shown) bool {
	s.Flipped, other.Flipped = time.Time{}, time.Time{}
	return s != other
}

// Damp says what rows show of a spoke, given what they showed and its condition
// Connected, which may be nil. When that may change with no news of the spoke, it says
// after which time to ask again; else that is 0. Top changes at most once in Settle.
func Damp(was Shown, connected *metav1.Condition, now time.Time) (is Shown, recheck time.Duration) {
	is = was
	if connected == nil || connected.Status == metav1.ConditionUnknown {
		return is, 0 // that is no news
	}
	down := connected.Status == metav1.ConditionFalse
	settles := connected.LastTransitionTime.Add(Settle)
	settled := !now.Before(settles)
	switch {
	case down && !was.Lagging:
		is.Lagging = true
		if was.Top != OverlayOn {
			is.Reason = connected.Reason
		}
	case !down && settled:
		is.Lagging = false
	}
	target := OverlayOff
	if down {
		target = OverlayOn
	}
	// Off comes with the first sign of life, if it is known to be on; on needs an outage
	// that lasts. What was shown before this process started is left until that is clear.
	due := settles
	if !down && was.Top == OverlayOn {
		due = now
	}
	if next := was.Flipped.Add(Settle); !was.Flipped.IsZero() && next.After(due) {
		due = next
	}
	if was.Top != target {
		if now.Before(due) {
			recheck = due.Sub(now)
		} else {
			is.Top, is.Flipped = target, now
		}
	}
	if !down && !settled && is.Lagging {
		recheck = soonest(recheck, settles.Sub(now))
	}
	if !is.Lagging && is.Top == OverlayOff {
		is.Reason = ""
	}
	return is, recheck
}

// soonest returns the shorter of two durations, of which 0 is none.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// outageText begins the message of every row that shows an outage, and tells such a
// row from one that a spoke has answered. The spoke's own words are in its condition:
// here they would be a write to every rule when they change.
const outageText = "the spoke can't be reached; see the condition Connected of SpokeCluster "

func saysOutage(r *v1alpha1.ClusterStatus) bool {
	return r != nil && strings.HasPrefix(r.Message, outageText)
}

// withOutage returns a row that shows an outage; all else is what was last seen. The
// reason that was shown first stays for as long as it lasts.
func withOutage(r v1alpha1.ClusterStatus, last *v1alpha1.ClusterStatus, reason string) v1alpha1.ClusterStatus {
	if saysOutage(last) {
		reason = last.Reason
	}
	r.Reason, r.Message = reason, outageText+string(r.Name)
	return r
}

// outage lays a spoke's outage over a row of it, or takes it off. last is the row as
// the present status has it, or nil.
func (in *StatusInput) outage(spoke *SpokeState, last *v1alpha1.ClusterStatus, r v1alpha1.ClusterStatus) v1alpha1.ClusterStatus {
	if r.ObservedGeneration < in.Rule.Generation {
		// Once it says so, it does until there is a verdict on this generation.
		if spoke.Shown.Lagging || saysOutage(last) {
			return withOutage(r, last, spoke.Shown.Reason)
		}
		return r
	}
	if saysOutage(&r) {
		r.Reason, r.Message = "", "" // only rows at the top are covered
	}
	covered := spoke.Shown.Top == OverlayOn || (spoke.Shown.Top == OverlayKept && saysOutage(last) && last.ObservedGeneration == r.ObservedGeneration)
	if covered && atTop(&r, in.Rule.Generation) {
		return withOutage(r, last, spoke.Shown.Reason)
	}
	return r
}
