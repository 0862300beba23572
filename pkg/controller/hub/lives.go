package hub

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
)

// maxLives bounds the remembered names; the least recently used ones are dropped.
const maxLives = 10_000

// Lives records which names of SpokeClusters now belong to another object, so that statuses about the name may
// concern the former one. The zero value is ready to use.
type Lives struct {
	mu    sync.Mutex
	names *lru.Cache // of life, by name
	count int64
	// forgotten is the count at which a name was last dropped: an unknown name may have changed by then.
	forgotten int64
}

// life is the state of a name.
type life struct {
	uid     types.UID // of the present or last SpokeCluster
	gone    bool      // no SpokeCluster has it
	changed int64     // the count of the last change
}

// Saw records the SpokeCluster of a name, and reports whether another one had the name before. It returns true
// for a name that may have been dropped.
func (l *Lives) Saw(name string, uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, seen := l.of(name)
	switch {
	case seen && was.gone, !seen && l.forgotten == 0:
		l.keep(name, life{uid: uid, changed: was.changed})
		return false
	case seen && was.uid == uid:
		return false
	}
	l.count++
	l.keep(name, life{uid: uid, changed: l.count})
	return true
}

// Gone records that the SpokeCluster of a name is gone.
func (l *Lives) Gone(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if was, seen := l.of(name); seen && !was.gone {
		l.count++
		l.keep(name, life{uid: was.uid, gone: true, changed: l.count})
	}
}

// of returns the state of a name.
func (l *Lives) of(name string) (life, bool) {
	if l.names != nil {
		if found, ok := l.names.Get(name); ok {
			return found.(life), true
		}
	}
	return life{changed: l.forgotten}, false
}

func (l *Lives) keep(name string, is life) {
	if l.names == nil {
		l.names = lru.NewWithEvictionFunc(maxLives, func(lru.Key, any) {
			l.count++
			l.forgotten = l.count
		})
	}
	l.names.Add(name, is)
}

// Count returns a number that grows with every change.
func (l *Lives) Count() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// ChangedSince reports whether a name may belong to another SpokeCluster since Count returned a number.
func (l *Lives) ChangedSince(name string, count int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	is, _ := l.of(name)
	return is.changed > count
}
