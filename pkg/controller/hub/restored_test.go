package hub

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/pkg/leader"
)

// undone asks about objects in a spoke.
func (r *recorded) undone(k *Kinds, made ...time.Time) bool {
	r.t.Helper()
	var times []Times
	for _, t := range made {
		times = append(times, Times{t, t})
	}
	undone, err := k.Undone(r.t.Context(), times...)
	if err != nil {
		r.t.Fatal(err)
	}
	return undone
}

// Removals of older objects may follow from a recorded restore, for this process and later ones.
func TestRestoreIsRecorded(t *testing.T) {
	r := newRecorded(t, map[string]string{"id": "hub"})
	k := r.start()
	older, now := r.clock.Now().Add(-time.Hour), r.clock.Now()
	if r.undone(k, older) {
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
			"an older object":        r.undone(k, older),
			"one of the same second": r.undone(k, now),
			"one of several":         r.undone(k, now.Add(time.Hour), older),
			"none that is younger":   !r.undone(k, now.Add(time.Second)),
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

// An object from a time without a leader, according to the Lease, shows a restore, to this leader and to later ones.
func TestRestoreByTheLease(t *testing.T) {
	for name, tc := range map[string]struct {
		made          time.Time
		unknown, want bool
	}{
		"by the former leader":          {made: at(0)},
		"by the former leader, later":   {made: at(leader.RenewDeadline)},
		"by nobody":                     {made: at(leader.RenewDeadline + time.Second), want: true},
		"by nobody, shortly before":     {made: at(time.Hour - time.Second), want: true},
		"by this leader":                {made: at(time.Hour)},
		"there was no leader before it": {made: at(time.Minute), unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRecorded(t, nil)
			k := r.start()
			if r.undone(k, tc.made) {
				t.Error("without leader election")
			}
			k.former = func() (renewed, acquired time.Time) {
				if tc.unknown {
					return time.Time{}, time.Time{}
				}
				return at(0), at(time.Hour)
			}
			if got := r.undone(k, tc.made); got != tc.want {
				t.Errorf("got %v", got)
			}
			if got, err := k.Undone(t.Context(), Times{at(-time.Hour), tc.made}); err != nil || got != (tc.made.After(at(leader.RenewDeadline)) && !tc.unknown) {
				t.Errorf("of an object that may be older, it says %v, %v", got, err)
			}
			if err := k.recordGap(t.Context()); err != nil {
				t.Fatal(err)
			}
			later := r.start()
			later.former = func() (renewed, acquired time.Time) { return at(2 * time.Hour), at(2*time.Hour + time.Second) }
			if got := r.undone(later, tc.made); got != tc.want {
				t.Errorf("the next leader says %v", got)
			}
			before := r.writes
			if err := later.recordGap(t.Context()); err != nil || r.writes != before {
				t.Errorf("a short time without a leader made %d writes: %v", r.writes-before, err)
			}
		})
	}
}

// The record is bounded, and what can't be read does no harm.
func TestGaps(t *testing.T) {
	r := newRecorded(t, map[string]string{"without-leader": "x 1/2 2026-01-01T00:00:00Z/ 2026-01-01T00:00:00Z/2026-01-02T00:00:00Z"})
	if !r.undone(r.start(), time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)) {
		t.Error("the readable one is lost")
	}
	for n := range 2 * maxGaps {
		k := r.start()
		k.former = func() (renewed, acquired time.Time) {
			return at(time.Duration(n) * time.Hour), at(time.Duration(n)*time.Hour + time.Minute)
		}
		if err := k.recordGap(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	k := r.start()
	if got := strings.Fields(r.data()["without-leader"]); len(got) != maxGaps || !r.undone(k, at((2*maxGaps-1)*time.Hour+30*time.Second)) {
		t.Errorf("the record is %q", got)
	}
	if err := r.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: recordKey.Namespace, Name: recordKey.Name}}); err != nil {
		t.Fatal(err)
	}
	if err := r.start().RecordRestore(t.Context()); err != nil || r.undone(r.start(), at(0)) {
		t.Error(fmt.Errorf("without the ConfigMap: %w", err))
	}
}

// at returns a time after the last renewal by the former leader.
func at(d time.Duration) time.Time { return defined.Add(d) }
