package hub

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Lives tells which names of SpokeClusters have become another one's since the process started: what
// statuses of rules say of the name may be about the former one. The zero value is ready to use.
type Lives struct {
	mu      sync.Mutex
	uids    map[string]types.UID
	changed map[string]int64 // at which count
	count   int64
}

// Saw notes the SpokeCluster that has a name, and tells whether another one had it when it was
// last seen.
func (l *Lives) Saw(name string, uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.uids == nil {
		l.uids, l.changed = map[string]types.UID{}, map[string]int64{}
	}
	was, seen := l.uids[name]
	l.uids[name] = uid
	if !seen || was == uid {
		return false
	}
	l.change(name)
	return true
}

// Gone notes that the SpokeCluster of a name is gone: the next one is another.
func (l *Lives) Gone(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, seen := l.uids[name]; seen {
		delete(l.uids, name)
		l.change(name)
	}
}

func (l *Lives) change(name string) {
	l.count++
	l.changed[name] = l.count
}

// Count returns a number that grows with every change.
func (l *Lives) Count() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// ChangedSince tells whether a name has become another SpokeCluster's since Count returned a number.
func (l *Lives) ChangedSince(name string, count int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed[name] > count
}
