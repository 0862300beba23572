package continuity

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// server is a kube-apiserver with one kind. It serves watches from memory, as the real one does.
type server struct {
	mu      sync.Mutex
	version int
	// since is the version from which on it remembers events.
	since   int
	objects map[string]*corev1.ConfigMap
	events  []watch.Event
	watches []*serverWatch

	down   bool
	plain  bool // can't stream a list
	lies   bool // answers lists without an object, and refuses watches
	opaque bool // has versions that can't be compared
	// empty is how many whole lists are still answered without an object, where watches are served.
	empty int
	// wait is how long it takes to open a watch.
	wait   time.Duration
	asked  []string
	uid    int
	backup *server
}

type serverWatch struct {
	events chan watch.Event
	from   int
	once   sync.Once
}

func (w *serverWatch) ResultChan() <-chan watch.Event { return w.events }
func (w *serverWatch) Stop()                          {}
func (w *serverWatch) end()                           { w.once.Do(func() { close(w.events) }) }

func newServer() *server {
	return &server{version: 100, since: 100, objects: map[string]*corev1.ConfigMap{}}
}

func (s *server) text(version int) string {
	if s.opaque {
		return fmt.Sprintf("v%d", version)
	}
	return strconv.Itoa(version)
}

// put creates or updates objects.
func (s *server) put(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		s.version++
		o, kind := s.objects[name], watch.Modified
		if o == nil {
			s.uid++
			o, kind = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(strconv.Itoa(s.uid))}}, watch.Added
		}
		o = o.DeepCopy()
		o.ResourceVersion = s.text(s.version)
		o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "test", Time: new(metav1.Now())}}
		s.objects[name] = o
		s.send(watch.Event{Type: kind, Object: o})
	}
}

// remove deletes an object.
func (s *server) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	o := s.objects[name].DeepCopy()
	o.ResourceVersion = s.text(s.version)
	delete(s.objects, name)
	s.send(watch.Event{Type: watch.Deleted, Object: o})
}

// others writes objects of other kinds.
func (s *server) others(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version += n
	for _, w := range s.watches {
		s.bookmark(w)
	}
}

func (s *server) bookmark(w *serverWatch) {
	if s.version > w.from {
		w.events <- watch.Event{Type: watch.Bookmark, Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: s.text(s.version)}}}
	}
}

func (s *server) send(e watch.Event) {
	s.events = append(s.events, e)
	for _, w := range s.watches {
		s.sendTo(w, e, s.version)
	}
}

// sendTo sends no event up to the version that the watch began at.
func (s *server) sendTo(w *serverWatch, e watch.Event, version int) {
	if version > w.from {
		w.events <- watch.Event{Type: e.Type, Object: e.Object.DeepCopyObject()}
	}
}

// save makes a backup.
func (s *server) save() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backup = &server{version: s.version, objects: maps.Clone(s.objects)}
}

// restore brings the backup back, and starts the server anew. What happens meanwhile is over before clients notice it.
func (s *server) restore(meanwhile ...func()) {
	s.mu.Lock()
	watches := s.watches
	s.version, s.objects, s.watches = s.backup.version, maps.Clone(s.backup.objects), nil
	s.startLocked()
	s.mu.Unlock()
	for _, do := range meanwhile {
		do()
	}
	for _, w := range watches {
		w.end()
	}
}

// restart starts the server anew: it remembers no event.
func (s *server) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startLocked()
}

func (s *server) startLocked() {
	s.since, s.events, s.down = s.version, nil, false
	s.cutLocked()
}

// stop refuses connections until the server is started anew.
func (s *server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	s.cutLocked()
}

// cut ends all watches, as a connection that is lost does.
func (s *server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutLocked()
}

func (s *server) cutLocked() {
	for _, w := range s.watches {
		w.end()
	}
	s.watches = nil
}

// requests returns what was asked for since the last call.
func (s *server) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func tooLarge() error {
	err := apierrors.NewTimeoutError("Too large resource version", 1)
	err.ErrStatus.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}}
	return err
}

// List implements toolscache.Lister.
func (s *server) List(metav1.ListOptions) (runtime.Object, error) { return nil, errors.New("not used") }

// Watch implements toolscache.Watcher.
func (s *server) Watch(metav1.ListOptions) (watch.Interface, error) {
	return nil, errors.New("not used")
}

// ListWithContext implements toolscache.ListerWithContext.
func (s *server) ListWithContext(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	verb := "list"
	if options.Limit == 1 {
		verb = "read"
	}
	s.asked = append(s.asked, verb)
	if s.down {
		return nil, syscall.ECONNREFUSED
	}
	if from, err := strconv.Atoi(options.ResourceVersion); err == nil && from > s.version {
		return nil, tooLarge()
	}
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: s.text(s.version)}}
	if s.lies {
		return list, nil
	}
	if s.empty > 0 && options.Limit != 1 {
		s.empty--
		return list, nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.objects)) {
		list.Items = append(list.Items, *s.objects[name])
	}
	if options.Limit == 1 && len(list.Items) > 1 {
		list.Items = list.Items[:1]
	}
	return list, nil
}

// WatchWithContext implements toolscache.WatcherWithContext.
func (s *server) WatchWithContext(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	wait := s.wait
	s.mu.Unlock()
	pass(wait)
	s.mu.Lock()
	defer s.mu.Unlock()
	listing := ptr.Deref(options.SendInitialEvents, false)
	verb := "watch"
	if listing {
		verb = "watch-list"
	}
	s.asked = append(s.asked, verb)
	from, err := strconv.Atoi(options.ResourceVersion)
	switch {
	case s.down:
		return nil, syscall.ECONNREFUSED
	case listing && (s.plain || s.lies):
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	case s.lies:
		return nil, apierrors.NewResourceExpired("too old resource version")
	case listing && err == nil && from > s.version:
		return nil, tooLarge()
	}
	w := &serverWatch{events: make(chan watch.Event, 1000), from: from}
	s.watches = append(s.watches, w)
	switch {
	case listing:
		w.from = 0
		for _, name := range slices.Sorted(maps.Keys(s.objects)) {
			s.sendTo(w, watch.Event{Type: watch.Added, Object: s.objects[name]}, s.version)
		}
		w.events <- watch.Event{Type: watch.Bookmark, Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: s.text(s.version), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}}}
		w.from = s.version
	case err == nil && from < s.since:
		w.events <- watch.Event{Type: watch.Error, Object: &apierrors.NewResourceExpired("too old resource version").ErrStatus}
		w.end()
		s.watches = s.watches[:len(s.watches)-1]
	default:
		for _, e := range s.events {
			if version, err := strconv.Atoi(e.Object.(*corev1.ConfigMap).ResourceVersion); err == nil {
				s.sendTo(w, e, version)
			}
		}
	}
	if options.TimeoutSeconds != nil {
		time.AfterFunc(time.Duration(*options.TimeoutSeconds)*time.Second, func() {
			s.set(func() {
				if i := slices.Index(s.watches, w); i >= 0 {
					s.watches = slices.Delete(s.watches, i, i+1)
					w.end()
				}
			})
		})
	}
	return w, nil
}

// state is what there is: names and versions.
func (s *server) state() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	for name, o := range s.objects {
		out[name] = o.ResourceVersion
	}
	return out
}
