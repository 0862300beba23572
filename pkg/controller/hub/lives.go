package hub

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
)

// maxLives bounds the names that are remembered; those that were asked for longest ago go first.
const maxLives = 10_000

// Lives tells which names of SpokeClusters have become another one's since the process started: what
// statuses of rules say of the name may be about the former one. The zero value is ready to use.
type Lives struct {
	mu    sync.Mutex
	names *lru.Cache // of life, by name
	count int64
	// forgotten is the count at which a name was last forgotten: what is not remembered may have
	// changed by then.
	forgotten int64
}

// life is what is known of a name.
type life struct {
	uid     types.UID // of the SpokeCluster that has it, or had it last
	gone    bool      // no SpokeCluster has it
	changed int64     // at which count
}

// Saw notes the SpokeCluster that has a name, and tells whether another one had it when it was
// last seen. It says so, too, of a name that may have been forgotten.
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

// Gone notes that the SpokeCluster of a name is gone: the next one is another.
func (l *Lives) Gone(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if was, seen := l.of(name); seen && !was.gone {
		l.count++
		l.keep(name, life{uid: was.uid, gone: true, changed: l.count})
	}
}

// of returns what is known of a name.
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

// ChangedSince tells whether a name has become another SpokeCluster's since Count returned a number.
// A name that was forgotten since then may have.
func (l *Lives) ChangedSince(name string, count int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	is, _ := l.of(name)
	return is.changed > count
}
