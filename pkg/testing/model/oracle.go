package model

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// Hold is how long the brakes of processes hold deletions.
	Hold = 10 * time.Minute
	// Crowd is a number of objects that the brakes count.
	Crowd = 40
)

// Many returns the key of one of Crowd objects.
func Many(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: fmt.Sprintf("many-%02d", i)}
}

// CountWrite checks that an object is not written again and again.
func (s *Schedule) CountWrite(name string) { s.must(s.Budget.Write(name, time.Now())) }

// Observe notes since when managed objects are not wanted. wanted has all managed objects.
func (s *Schedule) Observe(wanted map[string]bool) {
	s.Budget.Observe(wanted, s.UpToDate(), time.Now())
}

// CountRemoval checks that a process does not remove too many objects at once. holds
// is how many managed objects there are, with this one.
func (s *Schedule) CountRemoval(p *Process, name string, holds int) {
	s.must(s.Budget.Remove(p, name, holds, time.Now()))
}

func (s *Schedule) must(err error) {
	if err != nil {
		s.Violation("%v", err)
	}
}
