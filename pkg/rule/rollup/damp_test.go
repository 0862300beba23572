package rollup

import (
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

func TestDamp(t *testing.T) {
	type news struct {
		at      time.Duration // of the news; a look without news has no status
		status  metav1.ConditionStatus
		reason  string
		want    Shown // Flipped is left out
		recheck time.Duration
	}
	const (
		yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
		m                = time.Minute
	)
	var (
		nothing = Shown{}
		up      = Shown{Top: OverlayOff}
		lagging = Shown{Reason: "Unreachable", Lagging: true, Top: OverlayOff}
		all     = Shown{Reason: "Unreachable", Lagging: true, Top: OverlayOn}
		kept    = Shown{Reason: "Unreachable", Lagging: true}
	)
	for name, steps := range map[string][]news{
		"nothing known":     {{0, "", "", nothing, 0}, {m, unknown, "Connecting", nothing, 0}},
		"just started, up":  {{-time.Hour, yes, "Connected", nothing, 5 * m}, {0, "", "", up, 0}},
		"just connected":    {{0, yes, "Connected", nothing, 5 * m}, {5 * m, "", "", up, 0}},
		"started in a flap": {{0, no, "Unreachable", kept, 5 * m}, {m, yes, "Connected", kept, 5 * m}, {6 * m, "", "", up, 0}},
		"started in an outage": {
			{0, no, "Unreachable", kept, 5 * m}, {4 * m, "", "", kept, m}, {5 * m, "", "", all, 0},
		},
		"an outage": {
			{-time.Hour, yes, "Connected", nothing, 5 * m}, {0, "", "", up, 0},
			{10 * m, no, "Unreachable", lagging, 5 * m}, {11 * m, no, "AuthFailed", lagging, 4 * m}, {15 * m, "", "", all, 0},
			{16 * m, no, "AuthFailed", all, 0}, {17 * m, unknown, "Connecting", all, 0},
			{18 * m, yes, "Connected", all, 2 * m}, {20 * m, "", "", lagging, 3 * m}, {23 * m, "", "", up, 0},
		},
		"a long outage ends at once": {
			{-time.Hour, yes, "Connected", nothing, 5 * m}, {0, "", "", up, 0},
			{10 * m, no, "Unreachable", lagging, 5 * m}, {15 * m, "", "", all, 0}, {60 * m, yes, "Connected", lagging, 5 * m}, {65 * m, "", "", up, 0},
		},
		"6 min down, 1 min up": {
			{-time.Hour, yes, "Connected", nothing, 5 * m}, {0, "", "", up, 0},
			{10 * m, no, "Unreachable", lagging, 5 * m}, {15 * m, "", "", all, 0}, {16 * m, yes, "Connected", all, 4 * m},
			{17 * m, no, "AuthFailed", all, 0}, {20 * m, "", "", all, 0}, {23 * m, yes, "Connected", lagging, 5 * m},
			{24 * m, no, "AuthFailed", lagging, 5 * m}, {29 * m, "", "", all, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Unix(1e9, 0)
			var shown Shown
			var connected *metav1.Condition
			for i, s := range steps {
				now := begin.Add(s.at)
				if s.status != "" {
					c := &metav1.Condition{Status: s.status, Reason: s.reason, LastTransitionTime: metav1.NewTime(now)}
					if connected != nil && connected.Status == s.status {
						c.LastTransitionTime = connected.LastTransitionTime
					}
					connected = c
				}
				got, recheck := Damp(shown, connected, now)
				if s.want.Differs(got) || recheck != s.recheck {
					t.Fatalf("step %d, %v: shown is %+v, ask again in %v; want %+v, %v", i, s.at, got, recheck, s.want, s.recheck)
				}
				if again, same := Damp(got, connected, now); again != got || same != recheck {
					t.Fatalf("step %d, asked again: %+v, %v; want %+v, %v", i, again, same, got, recheck)
				}
				shown = got
			}
		})
	}
}

// Transitions in the future, of a process whose clock was ahead, are damped as those of now.
func TestDampClockAhead(t *testing.T) {
	const m = time.Minute
	begin := time.Unix(1e9, 0)
	down, up := metav1.Condition{Status: metav1.ConditionFalse, Reason: "Unreachable"}, metav1.Condition{Status: metav1.ConditionTrue, Reason: "Connected"}
	type look struct {
		at      time.Duration // by the clock, which may be set
		of      metav1.Condition
		since   time.Duration // its transition, by the clock that is ahead
		lagging bool
		top     Overlay
		recheck time.Duration
	}
	for name, looks := range map[string][]look{
		"an outage": {
			{0, down, 3 * time.Hour, true, OverlayKept, 5 * m}, {4 * m, down, 3 * time.Hour, true, OverlayKept, m}, {5 * m, down, 3 * time.Hour, true, OverlayOn, 0},
			{6 * m, up, 4 * time.Hour, true, OverlayOn, 4 * m}, {10 * m, up, 4 * time.Hour, true, OverlayOff, m}, {11 * m, up, 4 * time.Hour, false, OverlayOff, 0},
			{4*time.Hour + m, up, 4 * time.Hour, false, OverlayOff, 0},
		},
		"the time comes meanwhile": {{0, down, 2 * m, true, OverlayKept, 5 * m}, {3 * m, down, 2 * m, true, OverlayKept, 2 * m}, {5 * m, down, 2 * m, true, OverlayOn, 0}},
		"two in the future": {
			{0, up, 3 * time.Hour, false, OverlayKept, 5 * m}, {4 * m, down, 2 * time.Hour, true, OverlayKept, 5 * m}, {9 * m, down, 2 * time.Hour, true, OverlayOn, 0},
		},
		"the clock is set back meanwhile": {
			{0, down, 0, true, OverlayKept, 5 * m}, {-time.Hour, down, 0, true, OverlayKept, 5 * m}, {5*m - time.Hour, down, 0, true, OverlayOn, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var shown Shown
			for i, l := range looks {
				c, now := l.of, begin.Add(l.at)
				c.LastTransitionTime = metav1.NewTime(begin.Add(l.since))
				got, recheck := Damp(shown, &c, now)
				if got.Lagging != l.lagging || got.Top != l.top || recheck != l.recheck {
					t.Fatalf("look %d: shown is %+v, ask again in %v; want %v, %q, %v", i, got, recheck, l.lagging, l.top, l.recheck)
				}
				if again, same := Damp(got, &c, now); again != got || same != recheck {
					t.Fatalf("look %d, asked again: %+v, %v; want %+v, %v", i, again, same, got, recheck)
				}
				shown = got
			}
		})
	}
}

// Whether a row shows an outage does not depend on its message: after a restart, a row with another text is still one, and a
// verdict with the same reason and text is none.
func TestOutageDoesNotDependOnTheMessage(t *testing.T) {
	restarted := &Spoke{} // nothing is known of it yet
	last := rowOf("a", v1alpha1.PhaseApplied, "Forbidden", 2, 10)
	last.Message, last.Outage = "in the words of another version", true
	in := &Input{}
	in.Rule = ruletest.Rule(func(r *v1alpha1.AlertRule) { r.Generation = 2 })
	if is := in.outage(restarted, &last, *last.DeepCopy()); !is.Outage || is.Reason != "Forbidden" {
		t.Errorf("the outage is not shown any more: %+v", is)
	}
	verdict := rowOf("a", v1alpha1.PhasePending, "Forbidden", 2, 10)
	verdict.Message = outageText + "a"
	if is := in.outage(restarted, &last, *verdict.DeepCopy()); !reflect.DeepEqual(is, verdict) {
		t.Errorf("the verdict was replaced by %+v", is)
	}
	ruleOf(in.Rule).Generation = 3
	if is := in.outage(restarted, &verdict, *verdict.DeepCopy()); !reflect.DeepEqual(is, verdict) {
		t.Errorf("an outage is shown that never was: %+v", is)
	}
}
