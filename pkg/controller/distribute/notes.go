package distribute

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// hiddenTries is how many consecutive times a spoke may refuse to create an object that it does not list
// before that is reported.
const hiddenTries = 5

// note is what the Reconciler remembers about one source in one spoke.
type note struct {
	// answer is what the spoke made of the rule, if that differs from what was sent.
	answer string
	// hidden counts how often the spoke refused to create an object because it exists, while its list lacks
	// it. A cache that is behind recovers soon; otherwise the list is wrong.
	hidden int
	// leftover says why the spoke does not delete an object, so that the rule is not reported as removed.
	leftover *v1alpha1.ClusterStatus
}

// namespaceKey is a namespace in a spoke or, without a namespace, the spoke's SpokeCluster.
type namespaceKey struct {
	spoke, namespace string
}

// notes has the notes that are not empty. Use newNotes to create one.
type notes struct {
	mu sync.Mutex
	of map[queue.Request]note
	// waiting has the keys that wait for a namespace to be created, or for a SpokeCluster to change. It saves
	// going through all rules for each event of a namespace.
	waiting map[namespaceKey]sets.Set[queue.Request]
}

func newNotes() notes {
	return notes{of: map[queue.Request]note{}, waiting: map[namespaceKey]sets.Set[queue.Request]{}}
}

// get returns the note about a key.
func (n *notes) get(req queue.Request) note {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.of[req]
}

// edit changes the note about a key, and returns it.
func (n *notes) edit(req queue.Request, change func(*note)) note {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.of[req]
	change(&now)
	n.set(req, now)
	return now
}

// set keeps a note, if it is not empty. The caller holds the lock.
func (n *notes) set(req queue.Request, now note) {
	if now == (note{}) {
		delete(n.of, req)
		return
	}
	n.of[req] = now
}

// leftovers returns the keys of which something could not be deleted in a spoke.
func (n *notes) leftovers(spoke string) (keys []queue.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for req, is := range n.of {
		if req.ClusterName.String() == spoke && is.leftover != nil {
			keys = append(keys, req)
		}
	}
	return keys
}

// sweep changes all notes about a spoke.
func (n *notes) sweep(spoke string, change func(*note)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for req, now := range n.of {
		if req.ClusterName.String() != spoke {
			continue
		}
		change(&now)
		n.set(req, now)
	}
}

// forget drops what is remembered about a spoke.
func (n *notes) forget(spoke string) {
	n.sweep(spoke, func(is *note) { *is = note{} })
	n.mu.Lock()
	defer n.mu.Unlock()
	for k, keys := range n.waiting {
		maps.DeleteFunc(keys, func(req queue.Request, _ sets.Empty) bool { return req.ClusterName.String() == spoke })
		if len(keys) == 0 {
			delete(n.waiting, k)
		}
	}
}

// wait records that a key waits for a namespace.
func (n *notes) wait(k namespaceKey, req queue.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.waiting[k] == nil {
		n.waiting[k] = sets.New[queue.Request]()
	}
	n.waiting[k].Insert(req)
}

// unwait records that a key does not wait for a namespace any more.
func (n *notes) unwait(k namespaceKey, req queue.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting[k].Delete(req)
	if len(n.waiting[k]) == 0 {
		delete(n.waiting, k)
	}
}

// take removes and returns the keys that wait for a namespace.
func (n *notes) take(k namespaceKey) []queue.Request {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.waiting[k].UnsortedList()
	delete(n.waiting, k)
	return out
}

// Forget drops the state of a spoke that is no longer registered. Engaging it again restores what is needed.
func (r *Reconciler) Forget(name string) {
	r.writes.Forget(func(key objectKey) bool { return key.spoke == name })
	r.replays.Forget(name)
	for _, req := range r.notes.leftovers(name) {
		r.Reporter.Forget(hub.KeyOf(req), name)
	}
	r.notes.forget(name)
}

// saw records the SpokeCluster of a name, and drops the answers of a former one.
func (r *Reconciler) saw(name string, uid types.UID) {
	if r.lives.Saw(name, uid) {
		r.notes.sweep(name, func(n *note) { n.answer = "" })
	}
}

// answer returns what the spoke last made of the rule, from memory or, after a restart, from the status. It is "" if
// that is what was sent.
func (r *Reconciler) answer(o *observation) string {
	if answer := r.notes.get(o.req).answer; answer != "" || o.renewed {
		return answer
	}
	if row := o.row(); row != nil {
		return row.AnswerDigest
	}
	return ""
}

// remember records an answer that differs from what was sent; "" forgets it.
func (r *Reconciler) remember(o *observation, answer string) {
	o.answer = answer
	r.notes.edit(o.req, func(n *note) { n.answer = answer })
}
