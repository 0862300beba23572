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
)

// history is what one informer knows of the past of its kind. Resource versions that can't
// be compared (KEP-5504) are left out of it.
type history struct {
	kind string

	mu sync.Mutex
	// highest is the highest resource version of a consistent read, an event or a bookmark.
	highest string
	// last is the newest event of the kind; of what was listed, the object that was written last.
	last moment
	// witnesses are the newest events, each of another object, in their order.
	witnesses []moment
	// empty tells that there was no object since the last list, and doubtful that there was one
	// before it.
	empty, doubtful bool
	// expired tells that the API server had no longer the version at which a watch was to begin, and
	// there was no list since then.
	expired bool
	// broken tells that a watch did not end in the ordinary way, and none was opened since
	// that is known to continue it.
	broken bool
}

// maxWitnesses bounds how many events of a kind are remembered.
const maxWitnesses = 32

// moment is an event of an object, or its last write.
type moment struct {
	object
	version string
}

// object is one object, and not another one of the same name.
type object struct {
	key types.NamespacedName
	uid types.UID
}

// String implements fmt.Stringer.
func (o object) String() string { return strings.TrimPrefix(o.key.String(), "/") }

// momentOf reads when an object was last written. It is zero where that can't be told.
func momentOf(o runtime.Object) moment {
	m, err := meta.Accessor(o)
	if err != nil || !ordered(m.GetResourceVersion()) {
		return moment{}
	}
	return moment{object{types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}, m.GetUID()}, m.GetResourceVersion()}
}

// before returns the resource version just before an event, or "" where there is none.
func (m moment) before() string {
	v, err := strconv.ParseUint(m.version, 10, 64)
	if err != nil || v < 2 {
		return ""
	}
	return strconv.FormatUint(v-1, 10)
}

// newer returns the later one of two moments.
func newer(a, b moment) moment {
	if a.version == "" || less(a.version, b.version) {
		return b
	}
	return a
}

func ordered(version string) bool {
	_, err := resourceversion.CompareResourceVersion(version, version)
	return err == nil
}

// less tells whether a is before b. What can't be compared is not.
func less(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// floor is what a consistent read that begins now can't be older than.
func (h *history) floor() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.highest
}

// read notes the resource version of a consistent read that began when floor was returned.
func (h *history) read(floor, version string) *RestoredError {
	if !less(version, floor) {
		h.raise(version)
		return nil
	}
	h.reset(version)
	return &RestoredError{Why: fmt.Sprintf("the resourceVersion of kind %s went back from %s to %s", h.kind, floor, version)}
}

// reset notes that another history begins, which has reached a resource version.
func (h *history) reset(version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.highest, h.witnesses = version, nil
}

// seen returns when the objects of the newest events were written, or deleted.
func (h *history) seen() map[object]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[object]string, len(h.witnesses))
	for _, w := range h.witnesses {
		out[w.object] = w.version
	}
	return out
}

// raise notes a resource version that the kind has reached.
func (h *history) raise(version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ordered(version) && (h.highest == "" || less(h.highest, version)) {
		h.highest = version
	}
}

// listed notes a list of objects, of which newest was written last. A page is a part of a list
// that has begun.
func (h *history) listed(newest moment, objects int, page bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if page {
		newest, objects = newer(h.last, newest), objects+1
	}
	h.doubtful = objects == 0 && (!h.empty || h.doubtful)
	h.last, h.empty, h.broken, h.expired = newest, objects == 0, false, false
}

// showed notes an event that the informer has taken.
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

// survey is what a list shows while it is read.
type survey struct {
	history *history
	seen    map[object]string
	// newest is the object that was written last, of this many.
	newest  moment
	objects int
	// back is an object whose last write the list does not have.
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

// end notes the list. A page is a part of a list that has begun.
func (s *survey) end(page bool) { s.history.listed(s.newest, s.objects, page) }

// restored returns an error when the list, which has to have all that was seen, does not.
func (s *survey) restored() *RestoredError {
	h := s.history
	if s.back.version == "" {
		return nil
	}
	h.reset(h.floor())
	return &RestoredError{Why: fmt.Sprintf("%s %s went back from resourceVersion %s to %s", h.kind, s.back.object, s.seen[s.back.object], s.back.version)}
}

// interrupted notes that a watch did not end in the ordinary way, or that none could be opened.
func (h *history) interrupted() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken = true
}

// uncertain tells whether a watch broke, and the next one has yet to show that it continues it.
// Where no watch could show that, nothing is uncertain.
func (h *history) uncertain() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.broken && (h.empty || h.last.before() != "")
}

// refused notes why the API server ended a watch, or opened none.
func (h *history) refused(why error) {
	if !apierrors.IsResourceExpired(why) && !apierrors.IsGone(why) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expired = true
}

func (h *history) wasRefused() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.expired
}

// continued notes that the watch continues what was known before.
func (h *history) continued() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken, h.doubtful = false, false
}

// resumption is how a watch is opened.
type resumption struct {
	// version is where it begins.
	version string
	// expected is the event that it has to begin with; zero where there is none.
	expected moment
	// confirm tells that the kind is to be read once more, because there were no objects.
	confirm bool
}

// resume decides how to open a watch that an informer wants to begin at a version.
func (h *history) resume(version string) resumption {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch earlier := h.last.before(); {
	case h.empty && h.broken, h.doubtful:
		// There is no event to begin with; or a kind that had objects is said to have none,
		// perhaps by something that lies.
		return resumption{version: version, confirm: true}
	case h.broken && earlier != "" && !less(version, h.last.version):
		return resumption{version: earlier, expected: h.last}
	}
	return resumption{version: version}
}
