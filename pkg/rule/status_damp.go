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
	// Ahead is the time of a transition that was in the future when this process first saw it, which
	// was at Seen: the clock of the process that wrote it was ahead, or was set back since.
	Ahead, Seen time.Time
}

// Differs tells whether rows may read differently for the change.
func (s Shown) Differs(other Shown) bool {
	return s.Reason != other.Reason || s.Lagging != other.Lagging || s.Top != other.Top
}

// since returns since when a spoke is as it is: not since a time in the future.
func (s *Shown) since(connected *metav1.Condition, now time.Time) time.Time {
	at := connected.LastTransitionTime.Time
	if !s.Ahead.Equal(at) {
		s.Ahead, s.Seen = time.Time{}, time.Time{}
		if !at.After(now) {
			return at
		}
		s.Ahead, s.Seen = at, now
	}
	return s.Seen
}

// Damp says what rows show of a spoke, given what they showed and its condition
// Connected, which may be nil. When that may change with no news of the spoke, it says
// after which time to ask again; else that is 0. Top changes at most once in Settle.
func Damp(was Shown, connected *metav1.Condition, now time.Time) (is Shown, recheck time.Duration) {
	if connected == nil || connected.Status == metav1.ConditionUnknown {
		return was, 0 // that is no news
	}
	down := connected.Status == metav1.ConditionFalse
	is = was
	left := is.since(connected, now).Add(Settle).Sub(now)
	switch {
	case down && !was.Lagging:
		is.Lagging = true
		if was.Top != OverlayOn {
			is.Reason = connected.Reason
		}
	case !down && left <= 0:
		is.Lagging = false
	case !down && was.Lagging:
		recheck = left
	}
	if left = is.flip(down, left, now); left > 0 && (recheck == 0 || left < recheck) {
		recheck = left
	}
	if !is.Lagging && is.Top == OverlayOff {
		is.Reason = ""
	}
	return is, recheck
}

// flip changes what rows at the top show, if that is due, or else returns in how long
// it is. settles is how long the spoke has to stay as it is to count as settled.
//
// On needs an outage that lasts. Off comes with the first sign of life, if it is known
// to be on: what was shown before this process started stays until all is clear.
func (s *Shown) flip(down bool, settles time.Duration, now time.Time) time.Duration {
	target := OverlayOff
	if down {
		target = OverlayOn
	}
	if s.Top == target {
		return 0
	}
	left := settles
	if s.Top == OverlayOn {
		left = 0
	}
	if !s.Flipped.IsZero() {
		left = max(left, s.Flipped.Add(Settle).Sub(now))
	}
	if left > 0 {
		return left
	}
	s.Top, s.Flipped = target, now
	return 0
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
