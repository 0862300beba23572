package oracle

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// maxWrites is how many writes of an object in a minute are not too many. Each edit allows for one more.
const maxWrites = 12

// Budget bounds writes of objects and removals.
type Budget struct {
	// Edits is how many edits there were that may cause a write.
	Edits int
	// Hold is how long deletions above the limit are held.
	Hold time.Duration

	writes map[string][]time.Time // by object
	// unwanted is since when a managed object is not wanted.
	unwanted map[string]time.Time
	removals map[any]map[string]time.Time // by process: a new one knows of none
}

// NewBudget returns a Budget with nothing spent.
func NewBudget(hold time.Duration) *Budget {
	return &Budget{Hold: hold, writes: map[string][]time.Time{}, unwanted: map[string]time.Time{}, removals: map[any]map[string]time.Time{}}
}

// Write counts a write. It returns an error if an object is written again and again.
func (b *Budget) Write(name string, at time.Time) error {
	recent := slices.DeleteFunc(b.writes[name], func(other time.Time) bool { return at.Sub(other) >= time.Minute })
	b.writes[name] = append(recent, at)
	if n := len(b.writes[name]); n > maxWrites+b.Edits {
		return fmt.Errorf("%s is written %d times in a minute", name, n)
	}
	return nil
}

// Observe notes since when managed objects are not wanted. wanted has all managed objects. If one is wanted for a
// time that the leader does not notice, that does not prolong the hold: noticed is whether the leader knows everything.
func (b *Budget) Observe(wanted map[string]bool, noticed bool, at time.Time) {
	maps.DeleteFunc(b.unwanted, func(name string, _ time.Time) bool {
		is, exists := wanted[name]
		return !exists || is && noticed
	})
	for name, is := range wanted {
		if _, known := b.unwanted[name]; !known && !is {
			b.unwanted[name] = at
		}
	}
}

// Release notes that a person acknowledged, by a process, what is held because of its number.
func (b *Budget) Release(by any, at time.Time) {
	delete(b.removals, by)
	for name := range b.unwanted {
		b.unwanted[name] = at.Add(-b.Hold)
	}
}

// Remove counts a removal by a process. It returns an error if the process removes too many objects at once. An object
// that came back, and is removed once more, counts once. One that has not been wanted for as long as deletions are held
// does not count. holds is how many managed objects there are, with this one.
func (b *Budget) Remove(by any, name string, holds int, at time.Time) error {
	if since, known := b.unwanted[name]; known && at.Sub(since) >= b.Hold {
		return nil
	}
	recent := b.removals[by]
	if recent == nil {
		recent = map[string]time.Time{}
		b.removals[by] = recent
	}
	maps.DeleteFunc(recent, func(other string, then time.Time) bool { return at.Sub(then) >= b.Hold || other == name })
	n, all := len(recent)+1, holds+len(recent)
	recent[name] = at
	if n > 20 && n*4 > all {
		return fmt.Errorf("%s is the %dth object of %d that is removed within %v", name, n, all, b.Hold)
	}
	return nil
}
