package generate

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// quota keeps the AlertRules of a spoke's Deployments within SpokeCluster.spec.maxRules. It counts the events
// of the hub's cache and the writes in flight, so that concurrent workers do not exceed the limit together.
// The zero value is ready to use.
type quota struct {
	mu     sync.Mutex
	spokes map[string]*share
	// changed is called when the number of a spoke's refused workloads changes.
	changed func(spoke string)
}

// share is the quota of one spoke.
type share struct {
	// rules are its AlertRules: those on the hub and those being created.
	rules sets.Set[types.NamespacedName]
	// refused are the workloads that lack AlertRules, and woken are those of them that will be reconciled again.
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

// add counts an AlertRule on the hub.
func (q *quota) add(spoke string, rule types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shareLocked(spoke).rules.Insert(rule)
}

// drop stops counting an AlertRule, and returns a refused workload for which there is room now. Each call
// returns another one, so that the room of several deletions is shared.
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
			return workload, true // it is refused until it is reconciled
		}
	}
	if s.rules.Len() == 0 && s.refused.Len() == 0 {
		delete(q.spokes, spoke)
	}
	return workload, false
}

// take reserves room for a new AlertRule. It returns false if the limit is reached. A nil limit means no
// limit.
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

// settle records whether a workload lacks AlertRules.
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

// refusedOf returns the number of a spoke's workloads that lack AlertRules.
func (q *quota) refusedOf(spoke string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.spokes[spoke]; s != nil {
		return s.refused.Len()
	}
	return 0
}

// release releases a reservation: the AlertRule was not created.
func (q *quota) release(spoke string, rule types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.spokes[spoke]; s != nil {
		s.rules.Delete(rule)
	}
}

// forget drops the refused workloads of a spoke.
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

// waiting returns the refused workloads of a spoke.
func (q *quota) waiting(spoke string) []types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.spokes[spoke]; s != nil {
		return s.refused.UnsortedList()
	}
	return nil
}
