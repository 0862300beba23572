package generate

import (
	"cmp"
	"math"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// DefaultNamespaceShare is the default of Options.NamespaceShare.
const DefaultNamespaceShare = 75

// quota keeps the AlertRules of a spoke's Deployments within SpokeCluster.spec.maxRules, and those of one
// namespace of the spoke within a part of it. It counts the events of the hub's cache and the writes in flight,
// so that concurrent workers do not exceed the limits together. The zero value is ready to use.
type quota struct {
	// percent is how much of the limit the Deployments of one namespace can use; 0 means all of it.
	percent int

	mu     sync.Mutex
	spokes map[string]*share
	// changed is called when the number of a spoke's workloads that lack AlertRules changes.
	changed func(spoke string)
}

// share is the quota of one spoke.
type share struct {
	// rules are its AlertRules, with the namespaces of their workloads: those on the hub and those being created.
	rules map[types.NamespacedName]string
	// counts has the number of AlertRules of each namespace of the spoke.
	counts map[string]int
	// limit is the last known limit; nil means none.
	limit *int32
	// lacking are the workloads that lack AlertRules, and woken are those of them that will be reconciled again.
	lacking, woken sets.Set[types.NamespacedName]
}

func (q *quota) shareLocked(spoke string) *share {
	s := q.spokes[spoke]
	if s == nil {
		s = &share{rules: map[types.NamespacedName]string{}, counts: map[string]int{}, lacking: sets.New[types.NamespacedName](), woken: sets.New[types.NamespacedName]()}
		if q.spokes == nil {
			q.spokes = map[string]*share{}
		}
		q.spokes[spoke] = s
	}
	return s
}

// count and uncount count an AlertRule of a namespace of the spoke.
func (s *share) count(rule types.NamespacedName, namespace string) {
	if _, counted := s.rules[rule]; !counted {
		s.rules[rule] = namespace
		s.counts[namespace]++
	}
}

func (s *share) uncount(rule types.NamespacedName) {
	namespace, counted := s.rules[rule]
	if !counted {
		return
	}
	delete(s.rules, rule)
	s.counts[namespace]--
	if s.counts[namespace] == 0 {
		delete(s.counts, namespace)
	}
}

// room returns how many more AlertRules a namespace of the spoke can have. The part of the limit that no single
// namespace can use is rounded down, so that a limit of 1 leaves room for one.
func (s *share) room(namespace string, percent int) int {
	if s.limit == nil {
		return math.MaxInt
	}
	limit := int(*s.limit)
	own := limit
	if percent > 0 {
		own -= limit * (100 - percent) / 100
	}
	return min(limit-len(s.rules), own-s.counts[namespace])
}

// add counts an AlertRule on the hub. namespace is that of its workload.
func (q *quota) add(spoke, namespace string, rule types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shareLocked(spoke).count(rule, namespace)
}

// drop stops counting an AlertRule, and returns a workload that lacks AlertRules and for which there
// is room now. Each call returns another one, so that the room of several deletions is shared.
func (q *quota) drop(spoke string, rule types.NamespacedName) (workload types.NamespacedName, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.spokes[spoke]
	if s == nil {
		return workload, false
	}
	s.uncount(rule)
	if workload, ok = s.next(q.percent); ok {
		s.woken.Insert(workload) // it lacks AlertRules until it is reconciled
		return workload, true
	}
	if len(s.rules) == 0 && s.lacking.Len() == 0 {
		delete(q.spokes, spoke)
	}
	return workload, false
}

// next returns the workload to reconcile next that lacks AlertRules: of the namespaces with room, that with the fewest
// AlertRules is first. Workloads that are about to be reconciled count as well.
func (s *share) next(percent int) (workload types.NamespacedName, ok bool) {
	if s.limit != nil && len(s.rules)+s.woken.Len() >= int(*s.limit) {
		return workload, false
	}
	about := map[string]int{}
	for workload := range s.woken {
		about[workload.Namespace]++
	}
	order := func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(s.counts[a.Namespace]+about[a.Namespace], s.counts[b.Namespace]+about[b.Namespace]), cmp.Compare(a.String(), b.String()))
	}
	for w := range s.lacking {
		if !s.woken.Has(w) && s.room(w.Namespace, percent) > about[w.Namespace] && (!ok || order(w, workload) < 0) {
			workload, ok = w, true
		}
	}
	return workload, ok
}

// take reserves room for a new AlertRule of a workload in a namespace of the spoke. It returns false if a limit
// is reached. A nil limit means no limit. AlertRules that exist keep their place.
func (q *quota) take(spoke string, limit *int32, namespace string, rule types.NamespacedName) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.shareLocked(spoke)
	s.limit = limit
	if _, counted := s.rules[rule]; !counted && s.room(namespace, q.percent) <= 0 {
		return false
	}
	s.count(rule, namespace)
	return true
}

// record records whether a workload lacks AlertRules.
func (q *quota) record(spoke string, workload types.NamespacedName, lacking bool) {
	q.mu.Lock()
	s := q.spokes[spoke]
	if s == nil && !lacking {
		q.mu.Unlock()
		return
	}
	s = q.shareLocked(spoke)
	before := s.lacking.Len()
	s.woken.Delete(workload)
	if lacking {
		s.lacking.Insert(workload)
	} else {
		s.lacking.Delete(workload)
	}
	news, changed := s.lacking.Len() != before, q.changed
	q.mu.Unlock()
	if news && changed != nil {
		changed(spoke)
	}
}

// lackingOf returns the number of a spoke's workloads that lack AlertRules. If there is room for other
// namespaces, it also returns the first namespace that lacks them.
func (q *quota) lackingOf(spoke string) (n int, namespace string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.spokes[spoke]
	if s == nil {
		return 0, ""
	}
	if s.limit != nil && len(s.rules) < int(*s.limit) {
		for w := range s.lacking {
			if s.room(w.Namespace, q.percent) <= 0 && (namespace == "" || w.Namespace < namespace) {
				namespace = w.Namespace
			}
		}
	}
	return s.lacking.Len(), namespace
}

// release releases a reservation: the AlertRule was not created.
func (q *quota) release(spoke string, rule types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.spokes[spoke]; s != nil {
		s.uncount(rule)
	}
}

// forget drops the workloads of a spoke that lack AlertRules.
func (q *quota) forget(spoke string) {
	q.mu.Lock()
	s := q.spokes[spoke]
	if s == nil {
		q.mu.Unlock()
		return
	}
	news, changed := s.lacking.Len() > 0, q.changed
	s.lacking.Clear()
	s.woken.Clear()
	if len(s.rules) == 0 {
		delete(q.spokes, spoke)
	}
	q.mu.Unlock()
	if news && changed != nil {
		changed(spoke)
	}
}

// waiting returns the workloads of a spoke that lack AlertRules.
func (q *quota) waiting(spoke string) []types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.spokes[spoke]; s != nil {
		return s.lacking.UnsortedList()
	}
	return nil
}
