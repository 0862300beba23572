package generate

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// quota keeps the AlertRules of a spoke's Deployments within SpokeCluster.spec.maxRules. It
// counts by the events of the hub's cache and by what is on its way there, so that keys at
// work side by side don't pass the limit together. The zero value is ready to use.
type quota struct {
	mu     sync.Mutex
	spokes map[string]*share
	// changed is told when more or fewer workloads of a spoke are refused.
	changed func(spoke string)
}

// share is what one spoke has of its quota.
type share struct {
	// rules are its AlertRules: those on the hub, and those that are being made.
	rules sets.Set[types.NamespacedName]
	// refused are the workloads that did not get all of theirs, and woken are those of them
	// that are to be looked at again.
	refused, woken sets.Set[types.NamespacedName]
}

func (q *quota) shareLocked(spoke string) *share {
	s := q.spokes[spoke]
	if s == nil {
		s = &share{rules: sets.New[types.NamespacedName](), refused: sets.New[types.NamespacedName](), woken: sets.New[types.NamespacedName]()}
		if q.spokes == nil {
			q.spokes = map[string]*share{}
		}
		q.spokes[spoke] = s
	}
	return s
}

// add counts an AlertRule that is on the hub.
func (q *quota) add(spoke string, rule types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shareLocked(spoke).rules.Insert(rule)
}

// drop stops counting an AlertRule, and returns a workload that there is room for now:
// another one each time, or the room that several leave would be one's alone.
func (q *quota) drop(spoke string, rule types.NamespacedName) (workload types.NamespacedName, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.spokes[spoke]
	if s == nil {
		return workload, false
	}
	s.rules.Delete(rule)
	for workload := range s.refused {
		if !s.woken.Has(workload) {
			s.woken.Insert(workload)
			return workload, true // it is refused until it was looked at again
		}
	}
	if s.rules.Len() == 0 && s.refused.Len() == 0 {
		delete(q.spokes, spoke)
	}
	return workload, false
}

// take makes room for an AlertRule that is to be made. It tells false where the spoke has as
// many as it may. A limit of nil is none.
func (q *quota) take(spoke string, limit *int32, rule types.NamespacedName) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.shareLocked(spoke)
	if limit != nil && !s.rules.Has(rule) && s.rules.Len() >= int(*limit) {
		return false
	}
	s.rules.Insert(rule)
	return true
}

// settle notes whether a workload was refused any of its AlertRules.
func (q *quota) settle(spoke string, workload types.NamespacedName, refused bool) {
	q.mu.Lock()
	s := q.spokes[spoke]
	if s == nil && !refused {
		q.mu.Unlock()
		return
	}
	s = q.shareLocked(spoke)
	before := s.refused.Len()
	s.woken.Delete(workload)
	if refused {
		s.refused.Insert(workload)
	} else {
		s.refused.Delete(workload)
	}
	news, changed := s.refused.Len() != before, q.changed
	q.mu.Unlock()
	if news && changed != nil {
		changed(spoke)
	}
}

// refusedOf returns the number of workloads of a spoke that did not get all of their
// AlertRules.
func (q *quota) refusedOf(spoke string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.spokes[spoke]; s != nil {
		return s.refused.Len()
	}
	return 0
}

// release takes back what take made room for: the AlertRule was not made.
func (q *quota) release(spoke string, rule types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.spokes[spoke]; s != nil {
		s.rules.Delete(rule)
	}
}

// forget drops the workloads of a spoke that are refused.
func (q *quota) forget(spoke string) {
	q.mu.Lock()
	s := q.spokes[spoke]
	if s == nil {
		q.mu.Unlock()
		return
	}
	news, changed := s.refused.Len() > 0, q.changed
	s.refused.Clear()
	s.woken.Clear()
	if s.rules.Len() == 0 {
		delete(q.spokes, spoke)
	}
	q.mu.Unlock()
	if news && changed != nil {
		changed(spoke)
	}
}

// waiting returns the workloads of a spoke that are refused.
func (q *quota) waiting(spoke string) []types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.spokes[spoke]; s != nil {
		return s.refused.UnsortedList()
	}
	return nil
}
