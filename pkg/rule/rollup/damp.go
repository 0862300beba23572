package rollup

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// OutageDelay is the time for which a spoke has to be down before rules at the top phase show it, and the
// minimum time between two changes of what they show.
const OutageDelay = 5 * time.Minute

// Overlay defines whether rows at the top phase show a spoke's outage.
type Overlay string

const (
	// OverlayKept leaves a row as it is in the status. It is the zero value: a process that has just
	// started does not know what was shown, but the rows do.
	OverlayKept Overlay = ""
	// OverlayOn shows the outage.
	OverlayOn Overlay = "On"
	// OverlayOff does not show the outage.
	OverlayOff Overlay = "Off"
)

// Shown is the part of a spoke's outage that the rows of rules show. Condition Connected of the
// SpokeCluster follows immediately. Rows follow later, because one spoke is in the rows of thousands
// of rules. The zero value means that nothing is known of the spoke yet.
type Shown struct {
	// Reason is the first reason of the outage.
	Reason string
	// Lagging is true if rows that lag behind show the outage: immediately, and until the spoke has
	// been up for OutageDelay.
	Lagging bool
	// Top defines whether rows at the top phase show it, too: as soon as the spoke has been down for
	// OutageDelay.
	Top Overlay
	// Flipped is the time of the last change of Top between on and off in this process.
	Flipped time.Time
	// Ahead is the time of a transition that was in the future when this process first saw it, at Seen:
	// the clock of the process that wrote it was ahead, or has been set back since.
	Ahead, Seen time.Time
}

// Differs reports whether the change may change rows.
func (s Shown) Differs(other Shown) bool {
	return s.Reason != other.Reason || s.Lagging != other.Lagging || s.Top != other.Top
}

// since returns the time since which a spoke has its state, but never a time in the future.
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

// Damp returns what rows show of a spoke, given what they showed and its condition Connected, which
// may be nil. recheck is the time after which the result may change without news of the spoke, or 0.
// Top changes at most once in OutageDelay.
func Damp(was Shown, connected *metav1.Condition, now time.Time) (is Shown, recheck time.Duration) {
	if connected == nil || connected.Status == metav1.ConditionUnknown {
		return was, 0 // nothing has changed
	}
	down := connected.Status == metav1.ConditionFalse
	is = was
	left := is.since(connected, now).Add(OutageDelay).Sub(now)
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

// flip changes what rows at the top phase show, if it is due, or else returns the time until it is.
// lasts is the time for which the spoke still has to keep its state until that is shown.
//
// On needs a lasting outage. Off follows the first successful contact if it is known to be on: what
// was shown before this process started stays until the spoke has kept its state for OutageDelay.
func (s *Shown) flip(down bool, lasts time.Duration, now time.Time) time.Duration {
	target := OverlayOff
	if down {
		target = OverlayOn
	}
	if s.Top == target {
		return 0
	}
	left := lasts
	if s.Top == OverlayOn {
		left = 0
	}
	if !s.Flipped.IsZero() {
		left = max(left, s.Flipped.Add(OutageDelay).Sub(now))
	}
	if left > 0 {
		return left
	}
	s.Top, s.Flipped = target, now
	return 0
}

// outageText begins the message of every row that shows an outage. The cause is only in the spoke's condition: in the
// rows, each change of it would be a write to every rule.
const outageText = "the spoke can't be reached; see the condition Connected of SpokeCluster "

func showsOutage(r *v1alpha1.ClusterStatus) bool { return r != nil && r.Outage }

// withOutage returns a row that shows an outage. All other fields keep their last known values. The
// reason that was shown first stays as long as the outage lasts.
func withOutage(r v1alpha1.ClusterStatus, last *v1alpha1.ClusterStatus, reason string) v1alpha1.ClusterStatus {
	if showsOutage(last) {
		reason = last.Reason
	}
	r.Reason, r.Message, r.Outage = reason, outageText+string(r.Name), true
	return r
}

// outage adds a spoke's outage to a row of it, or removes it. last is the row in the present status,
// or nil.
func (in *Input) outage(spoke *Spoke, last *v1alpha1.ClusterStatus, r v1alpha1.ClusterStatus) v1alpha1.ClusterStatus {
	if r.ObservedGeneration < in.Rule.GetGeneration() {
		// Once shown, the outage stays until there is a verdict on this generation.
		if spoke.Shown.Lagging || showsOutage(last) {
			return withOutage(r, last, spoke.Shown.Reason)
		}
		return r
	}
	if showsOutage(&r) {
		r.Reason, r.Message, r.Outage = "", "", false // only rows at the top are covered
	}
	covered := spoke.Shown.Top == OverlayOn || (spoke.Shown.Top == OverlayKept && showsOutage(last) && last.ObservedGeneration == r.ObservedGeneration)
	if covered && AtTop(&r, in.Rule.GetGeneration()) {
		return withOutage(r, last, spoke.Shown.Reason)
	}
	return r
}
