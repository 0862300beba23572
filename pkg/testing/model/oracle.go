package model

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// Hold is how long the brakes of processes hold deletions.
	Hold = 10 * time.Minute
	// Crowd is a number of objects that the brakes count.
	Crowd = 40
	// maxWrites is how many writes of an object in a minute are not too many. Each edit allows for one more.
	maxWrites = 12
)

// oracle knows what must hold in each schedule.
type oracle struct {
	// Edits is how many edits there were that may cause a write.
	Edits int

	writes map[string][]time.Time // by object
	// unwanted is since when a managed object is not wanted.
	unwanted map[string]time.Time
	removals map[*Process]map[string]time.Time // a new process knows of none
}

func newOracle() oracle {
	return oracle{writes: map[string][]time.Time{}, unwanted: map[string]time.Time{}, removals: map[*Process]map[string]time.Time{}}
}

// Many returns the key of one of Crowd objects.
func Many(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: fmt.Sprintf("many-%02d", i)}
}

// CountWrite checks that an object is not written again and again.
func (s *Schedule) CountWrite(name string) {
	recent := slices.DeleteFunc(s.writes[name], func(at time.Time) bool { return time.Since(at) >= time.Minute })
	s.writes[name] = append(recent, time.Now())
	if n := len(s.writes[name]); n > maxWrites+s.Edits {
		s.Violation("%s is written %d times in a minute", name, n)
	}
}

// Observe notes since when managed objects are not wanted. wanted has all managed objects. If one is wanted for a
// time that the leader does not notice, that does not prolong the hold.
func (s *Schedule) Observe(wanted map[string]bool) {
	maps.DeleteFunc(s.unwanted, func(name string, _ time.Time) bool {
		is, exists := wanted[name]
		return !exists || is && s.UpToDate()
	})
	for name, is := range wanted {
		if _, known := s.unwanted[name]; !known && !is {
			s.unwanted[name] = time.Now()
		}
	}
}

// CountRemoval checks that a process does not remove too many objects at once. id distinguishes removals, and holds
// is how many managed objects there are, with this one.
func (s *Schedule) CountRemoval(p *Process, id, name string, holds int) {
	now := time.Now()
	recent := s.removals[p]
	if recent == nil {
		recent = map[string]time.Time{}
		s.removals[p] = recent
	}
	maps.DeleteFunc(recent, func(other string, at time.Time) bool { return now.Sub(at) >= Hold || other == id })
	if n := len(recent) + 1; n > 20 && n*4 > holds+len(recent) && now.Sub(s.unwanted[name]) < Hold {
		s.Violation("%s is the %dth object of %d that is removed within %v", name, n, holds+len(recent), Hold)
	}
	recent[id] = now
}
