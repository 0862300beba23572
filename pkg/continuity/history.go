package continuity

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
)

// history is what an informer knows about the history of its kind. It ignores resourceVersions that can't be
// compared (KEP-5504).
type history struct {
	kind string

	mu sync.Mutex
	// highest is the highest resourceVersion of a consistent read, an event or a bookmark.
	highest string
	// last is the newest event of the kind or, after a list, the object that was written last.
	last moment
	// witnesses are the newest events, one per object, in order.
	witnesses []moment
	// empty means that there has been no object since the last list, and doubtful that there was one before it.
	empty, doubtful bool
	// expired means that the version at which a watch was to begin has expired, and there has been no list
	// since.
	expired bool
	// broken means that a watch broke, no later one is known to continue it, and the informer has no later list.
	broken bool
}

// These bound what is remembered of a kind: the number of events, and the bytes of a resourceVersion and of the namespace,
// name and UID of an object. A cluster may send what it wants, and a deleted object is in no cache that has bounds.
const maxWitnesses, maxVersion, maxIdentity = 32, 128, 1024

// moment is an event of an object, or its last write.
type moment struct {
	object
	version string
	// written is when the object was written, in seconds, according to its managedFields; 0 if they do not say it.
	written int64
	deleted bool
}

// object identifies an object, as opposed to another one of the same name.
type object struct {
	key types.NamespacedName
	uid types.UID
}

// String implements fmt.Stringer.
func (o object) String() string { return strings.TrimPrefix(o.key.String(), "/") }

// momentOf returns when an object was last written. It is zero if that is unknown.
func momentOf(o runtime.Object) moment {
	m, err := meta.Accessor(o)
	if err != nil || !ordered(m.GetResourceVersion()) || len(m.GetNamespace())+len(m.GetName())+len(m.GetUID()) > maxIdentity {
		return moment{}
	}
	is := moment{object: object{types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}, m.GetUID()}, version: m.GetResourceVersion()}
	for _, f := range m.GetManagedFields() {
		if f.Time != nil {
			is.written = max(is.written, f.Time.Unix())
		}
	}
	return is
}

// eventOf returns what happened by an event.
func eventOf(e watch.Event) moment {
	m := momentOf(e.Object)
	m.deleted = e.Type == watch.Deleted
	return m
}

// continues reports whether an event is the one with which a watch must begin. After a restore, the same object may be
// written or deleted again at the same resourceVersion, but later.
func (m moment) continues(expected moment) bool {
	known := m.written != 0 && expected.written != 0
	return m.object == expected.object && m.version == expected.version && m.deleted == expected.deleted &&
		(m.written == expected.written || !known)
}

// before returns the resourceVersion just before an event, or "".
func (m moment) before() string {
	v, err := strconv.ParseUint(m.version, 10, 64)
	if err != nil || v < 2 {
		return ""
	}
	return strconv.FormatUint(v-1, 10)
}

// newer returns the later of two moments.
func newer(a, b moment) moment {
	if a.version == "" || less(a.version, b.version) {
		return b
	}
	return a
}

func ordered(version string) bool {
	_, err := resourceversion.CompareResourceVersion(version, version)
	return err == nil && len(version) <= maxVersion
}

// less reports whether a is before b. It returns false if they can't be compared.
func less(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// floor is the minimum version of a consistent read that begins now.
func (h *history) floor() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.highest
}

// read records the version of a consistent read that began when floor was returned.
func (h *history) read(floor, version string) *RestoredError {
	if !less(version, floor) {
		h.raise(version)
		return nil
	}
	return &RestoredError{Why: fmt.Sprintf("the resourceVersion of kind %s went back from %s to %s", h.kind, floor, version)}
}

// seen returns when the objects of the newest events were written or deleted.
func (h *history) seen() map[object]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[object]string, len(h.witnesses))
	for _, w := range h.witnesses {
		out[w.object] = w.version
	}
	return out
}

// raise records a resourceVersion that the kind has reached.
func (h *history) raise(version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ordered(version) && (h.highest == "" || less(h.highest, version)) {
		h.highest = version
	}
}

// listed records a list of objects, of which newest was written last. page means that it is part of a longer
// list.
func (h *history) listed(newest moment, objects int, page bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if page {
		newest, objects = newer(h.last, newest), objects+1
	}
	h.doubtful = objects == 0 && (!h.empty || h.doubtful)
	h.last, h.empty, h.expired = newest, objects == 0, false
}

// delivered records that the informer gets all objects of a list.
func (h *history) delivered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken = false
}

// showed records an event that the informer has received.
func (h *history) showed(m moment) {
	h.raise(m.version)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.empty, h.doubtful = m, false, false
	if m.version == "" {
		return
	}
	h.witnesses = append(slices.DeleteFunc(h.witnesses, func(w moment) bool { return w.object == m.object }), m)
	if n := len(h.witnesses) - maxWitnesses; n > 0 {
		h.witnesses = slices.Delete(h.witnesses, 0, n)
	}
}

// survey collects the contents of a list while it is read.
type survey struct {
	history *history
	seen    map[object]string
	// newest is the object that was written last, of this number of objects.
	newest  moment
	objects int
	// back is an object whose last write the list lacks.
	back moment
}

func (h *history) survey() *survey { return &survey{history: h, seen: h.seen()} }

// add adds an object of the list.
func (s *survey) add(m moment) {
	s.newest, s.objects = newer(s.newest, m), s.objects+1
	if less(m.version, s.seen[m.object]) {
		s.back = m
	}
}

// end records the list. page means that it is part of a longer list.
func (s *survey) end(page bool) { s.history.listed(s.newest, s.objects, page) }

// restored returns an error if the list lacks something that was seen before.
func (s *survey) restored() *RestoredError {
	h := s.history
	if s.back.version == "" {
		return nil
	}
	return &RestoredError{Why: fmt.Sprintf("%s %s went back from resourceVersion %s to %s", h.kind, s.back.object, s.seen[s.back.object], s.back.version)}
}

// interrupted records that a watch broke or could not be opened.
func (h *history) interrupted() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken = true
}

// uncertain reports whether a watch broke and no later one has shown that it continues it. It is false if no
// watch could show that.
func (h *history) uncertain() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.broken && (h.empty || h.last.before() != "")
}

// endedBy records why the API server ended or refused a watch.
func (h *history) endedBy(why error) {
	if !apierrors.IsResourceExpired(why) && !apierrors.IsGone(why) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expired = true
}

func (h *history) hasExpired() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.expired
}

// continued records that the watch continues the known history.
func (h *history) continued() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken, h.doubtful = false, false
}

// resumption says how to open a watch.
type resumption struct {
	// version is where it begins.
	version string
	// expected is the event with which it must begin; zero if there is none.
	expected moment
	// confirm means that the kind must be read once more, because there were no objects.
	confirm bool
}

// resume decides how to open a watch that an informer requests at a version.
func (h *history) resume(version string) resumption {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch earlier := h.last.before(); {
	case h.empty && h.broken, h.doubtful:
		// There is no event to begin with, or a kind that had objects is said to have none, which may be false.
		return resumption{version: version, confirm: true}
	case h.broken && earlier != "" && !less(version, h.last.version):
		return resumption{version: earlier, expected: h.last}
	}
	return resumption{version: version}
}
