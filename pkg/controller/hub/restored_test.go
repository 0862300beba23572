package hub

import (
	"testing"
	"time"

	"github.com/rulefleet/rulefleet/pkg/leader"
)

// undone asks about objects in a spoke.
func (r *recorded) undone(k *Kinds, decided time.Time, made ...time.Time) bool {
	r.t.Helper()
	undone, err := k.Undone(r.t.Context(), decided, made...)
	if err != nil {
		r.t.Fatal(err)
	}
	return undone
}

// Removals of older objects may follow from a recorded restore, for this process and later ones. Only a later
// decision explains them.
func TestRestoreIsRecorded(t *testing.T) {
	r := newRecorded(t, map[string]string{"id": "hub"})
	k, never := r.start(), time.Time{}
	older, now := r.clock.Now().Add(-time.Hour), r.clock.Now()
	if r.undone(k, never, older) {
		t.Error("without a restore")
	}
	if err := k.RecordRestore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := r.data(); r.writes != 1 || got["id"] != "hub" || got["restored"] != now.UTC().Format(time.RFC3339) {
		t.Errorf("%d writes, and the record is %v", r.writes, got)
	}
	for name, k := range map[string]*Kinds{"this process": k, "a later one": r.start()} {
		for what, got := range map[string]bool{
			"an older object":                           r.undone(k, never, older),
			"one of the same second":                    r.undone(k, never, now),
			"one of several":                            r.undone(k, never, now.Add(time.Hour), older),
			"an older decision":                         r.undone(k, older, older),
			"a decision of the same second":             r.undone(k, now, older),
			"none that is younger":                      !r.undone(k, never, now.Add(time.Second)),
			"none with a decision made after the event": !r.undone(k, now.Add(time.Second), older),
		} {
			if !got {
				t.Errorf("%s: %s", name, what)
			}
		}
	}
	if r.writes != 1 {
		t.Errorf("%d writes", r.writes)
	}
}

// An object from a time in which no known leader wrote proves a restore, which is then recorded.
func TestRestoreByTheLease(t *testing.T) {
	never := time.Time{}
	for name, tc := range map[string]struct {
		made, decided time.Time
		unknown, want bool
	}{
		"by the former leader":          {made: at(0)},
		"by the former leader, later":   {made: at(leader.RenewDeadline)},
		"by nobody":                     {made: at(leader.RenewDeadline + time.Second), want: true},
		"by nobody, shortly before":     {made: at(time.Hour - time.Second), want: true},
		"by this leader":                {made: at(time.Hour)},
		"decided by this hub":           {made: at(time.Minute), decided: at(2 * time.Minute)},
		"decided before":                {made: at(time.Minute), decided: at(-time.Minute), want: true},
		"there was no leader before it": {made: at(time.Minute), unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRecorded(t, nil)
			k := r.start()
			if r.undone(k, tc.decided, tc.made) {
				t.Error("without leader election")
			}
			k.Former = func() (renewed, acquired time.Time) {
				if tc.unknown {
					return never, never
				}
				return at(0), at(time.Hour)
			}
			if got := r.undone(k, tc.decided, tc.made); got != tc.want {
				t.Errorf("got %v", got)
			}
			if recorded := r.data()["restored"] != ""; recorded != tc.want {
				t.Errorf("recorded: %v", recorded)
			}
			if got := r.undone(r.start(), tc.decided, tc.made); got != tc.want {
				t.Errorf("a later process says %v", got)
			}
		})
	}
}

// at returns a time after the last renewal by the former leader.
func at(d time.Duration) time.Time { return defined.Add(d) }
