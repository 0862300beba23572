package generate

import (
	"cmp"
	"math"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/pkg/rule"
)

// DefaultNamespaceShare is the default of Options.NamespaceShare.
const DefaultNamespaceShare = 75

// quota keeps the AlertRules of a spoke's workloads within SpokeCluster.spec.maxRules, and those of one
// namespace of the spoke within a part of it. It counts the events of the hub's cache and the writes in flight,
// so that concurrent workers do not exceed the limits together. The zero value is ready to use.
type quota struct {
	// percent is how much of the limit the workloads of one namespace can use; 0 means all of it.
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
	// reserved are those being created, which the hub's cache has not shown yet.
	reserved map[types.NamespacedName]bool
	// limit is the last known limit; nil means none.
	limit *int32
	// namespaces are those of the spoke with AlertRules, or with workloads that lack them.
	namespaces map[string]*namespaceShare
	// lacking and woken are sums over the namespaces.
	lacking, woken int
}

// namespaceShare is the quota of one namespace of the spoke. Counts are kept by namespace, so that next looks at each
// namespace once, and at the workloads of one only. Other workers wait for the lock meanwhile.
type namespaceShare struct {
	rules int // AlertRules
	// lacking has the workloads that lack AlertRules. The value is true if the workload will be reconciled
	// again, and woken counts those.
	lacking map[rule.Key]bool
	woken   int
}

func (q *quota) shareLocked(spoke string) *share {
	s := q.spokes[spoke]
	if s == nil {
		s = &share{rules: map[types.NamespacedName]string{}, reserved: map[types.NamespacedName]bool{}, namespaces: map[string]*namespaceShare{}}
		if q.spokes == nil {
			q.spokes = map[string]*share{}
		}
		q.spokes[spoke] = s
	}
	return s
}

// in returns the share of a namespace. Call tidy after a change.
func (s *share) in(namespace string) *namespaceShare {
	n := s.namespaces[namespace]
	if n == nil {
		n = &namespaceShare{lacking: map[rule.Key]bool{}}
		s.namespaces[namespace] = n
	}
	return n
}

// tidy drops the share of a namespace if it is empty.
func (s *share) tidy(namespace string) {
	if n := s.namespaces[namespace]; n != nil && n.rules == 0 && len(n.lacking) == 0 {
		delete(s.namespaces, namespace)
	}
}

// count and uncount count an AlertRule of a namespace of the spoke.
func (s *share) count(made types.NamespacedName, namespace string) {
	if _, counted := s.rules[made]; !counted {
		s.rules[made] = namespace
		s.in(namespace).rules++
	}
}

func (s *share) uncount(made types.NamespacedName) {
	namespace, counted := s.rules[made]
	if !counted {
		return
	}
	delete(s.rules, made)
	delete(s.reserved, made)
	s.in(namespace).rules--
	s.tidy(namespace)
}

// lack records whether a workload lacks AlertRules. Either way, it is no longer about to be reconciled.
func (s *share) lack(workload rule.Key, lacks bool) {
	n := s.in(workload.Namespace)
	woken, lacked := n.lacking[workload]
	if woken {
		n.woken--
		s.woken--
	}
	switch {
	case lacks:
		n.lacking[workload] = false
		if !lacked {
			s.lacking++
		}
	case lacked:
		delete(n.lacking, workload)
		s.lacking--
	}
	s.tidy(workload.Namespace)
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
	used := 0
	if n := s.namespaces[namespace]; n != nil {
		used = n.rules
	}
	return min(limit-len(s.rules), own-used)
}

// add counts an AlertRule on the hub. namespace is that of its workload.
func (q *quota) add(spoke, namespace string, made types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.shareLocked(spoke)
	s.count(made, namespace)
	delete(s.reserved, made)
}

// drop stops counting an AlertRule, and returns a workload that lacks AlertRules and for which there
// is room now. Each call returns another one, so that the room of several deletions is shared.
func (q *quota) drop(spoke string, made types.NamespacedName) (workload rule.Key, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.spokes[spoke]
	if s == nil {
		return workload, false
	}
	s.uncount(made)
	if workload, ok = s.next(q.percent); ok {
		n := s.namespaces[workload.Namespace]
		n.lacking[workload] = true // it lacks AlertRules until it is reconciled
		n.woken++
		s.woken++
		return workload, true
	}
	if len(s.rules) == 0 && s.lacking == 0 {
		delete(q.spokes, spoke)
	}
	return workload, false
}

// next returns the workload to reconcile next that lacks AlertRules: of the namespaces with room, that with the fewest
// AlertRules is first. Workloads that are about to be reconciled count as well.
func (s *share) next(percent int) (workload rule.Key, ok bool) {
	if s.limit != nil && len(s.rules)+s.woken >= int(*s.limit) {
		return workload, false
	}
	var from *namespaceShare
	for namespace, n := range s.namespaces {
		if n.woken == len(n.lacking) || s.room(namespace, percent) <= n.woken {
			continue
		}
		if from == nil || cmp.Or(cmp.Compare(n.rules+n.woken, from.rules+from.woken), cmp.Compare(namespace, workload.Namespace)) < 0 {
			from, workload.Namespace = n, namespace
		}
	}
	if from == nil {
		return rule.Key{}, false
	}
	for key, woken := range from.lacking {
		if !woken && (!ok || cmp.Or(cmp.Compare(key.Name, workload.Name), cmp.Compare(key.Kind, workload.Kind)) < 0) {
			workload, ok = key, true
		}
	}
	return workload, ok
}

// take reserves room for a new AlertRule of a workload in a namespace of the spoke. It returns false if a limit
// is reached. A nil limit means no limit. AlertRules that exist keep their place.
func (q *quota) take(spoke string, limit *int32, namespace string, made types.NamespacedName) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.shareLocked(spoke)
	s.limit = limit
	if _, counted := s.rules[made]; counted {
		return true
	}
	if s.room(namespace, q.percent) <= 0 {
		return false
	}
	s.count(made, namespace)
	s.reserved[made] = true
	return true
}

// record records whether a workload lacks AlertRules.
func (q *quota) record(spoke string, workload rule.Key, lacking bool) {
	q.mu.Lock()
	s := q.spokes[spoke]
	if s == nil && !lacking {
		q.mu.Unlock()
		return
	}
	s = q.shareLocked(spoke)
	before := s.lacking
	s.lack(workload, lacking)
	news, changed := s.lacking != before, q.changed
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
		for name, of := range s.namespaces {
			if len(of.lacking) > 0 && s.room(name, q.percent) <= 0 && (namespace == "" || name < namespace) {
				namespace = name
			}
		}
	}
	return s.lacking, namespace
}

// release releases a reservation, because the creation of the AlertRule failed. One that the hub's cache has shown meanwhile
// was created nevertheless, and counts.
func (q *quota) release(spoke string, made types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.spokes[spoke]; s != nil && s.reserved[made] {
		s.uncount(made)
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
	news, changed := s.lacking > 0, q.changed
	for namespace, n := range s.namespaces {
		clear(n.lacking)
		n.woken = 0
		s.tidy(namespace)
	}
	s.lacking, s.woken = 0, 0
	if len(s.rules) == 0 {
		delete(q.spokes, spoke)
	}
	q.mu.Unlock()
	if news && changed != nil {
		changed(spoke)
	}
}

// waiting returns the workloads of a spoke that lack AlertRules.
func (q *quota) waiting(spoke string) (out []rule.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.spokes[spoke]
	if s == nil {
		return nil
	}
	for _, n := range s.namespaces {
		for key := range n.lacking {
			out = append(out, key)
		}
	}
	return out
}
