package continuity

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

const (
	// readTimeout bounds a read of one object by default.
	readTimeout = 5 * time.Second
	// silence is how long to wait for the event with which a watch must begin, before the kind's resourceVersion
	// is read.
	silence = 2 * time.Second
	// patience is how long to wait after that before the kind is listed again. The event is sent before the
	// answer to that read.
	patience = 20 * time.Second
	// early is how much earlier than its timeout a watch that broke ends.
	early = 5 * time.Second
)

// kind is the ListerWatcher of one kind.
type kind struct {
	guard   *Guard
	inner   toolscache.ListerWatcherWithContext
	history history
	// refused means that the log says that a list can't be streamed.
	refused atomic.Bool
}

// list implements toolscache.ListerWithContext.
func (k *kind) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	floor := k.history.floor()
	list, err := k.inner.ListWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	k.noteList(list, floor, options)
	if l, err := meta.ListAccessor(list); err == nil && l.GetContinue() != "" {
		return list, nil // no page is passed on before the last one
	}
	if err := k.feel(ctx, floor); err != nil {
		return nil, err
	}
	k.history.delivered()
	return list, nil
}

// feel checks the followed object before a list is passed on, unless no version of the kind is known yet: only a later
// list can lack objects that were seen before. floor is the highest known version before the list or its last page.
func (k *kind) feel(ctx context.Context, floor string) error {
	if floor == "" {
		return nil
	}
	return k.guard.feel(ctx)
}

func (k *kind) noteList(list runtime.Object, floor string, options metav1.ListOptions) {
	l, err := meta.ListAccessor(list)
	if err != nil {
		return
	}
	survey := k.history.survey()
	_ = meta.EachListItem(list, func(o runtime.Object) error { // an object that is not a list has no items
		survey.add(momentOf(o))
		return nil
	})
	survey.end(options.Continue != "")
	if options.ResourceVersion == "0" {
		return // any version is allowed
	}
	k.guard.found(survey.restored())
	switch {
	case options.Continue != "": // it has the version of the first page
	case options.ResourceVersion == "":
		k.guard.found(k.history.read(floor, l.GetResourceVersion()))
	default:
		k.history.raise(l.GetResourceVersion())
	}
}

// watch implements toolscache.WatcherWithContext.
func (k *kind) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	s := &stream{kind: k, out: make(chan watch.Event), done: make(chan struct{}), floor: k.history.floor()}
	s.lasts = time.Duration(ptr.Deref(options.TimeoutSeconds, 0)) * time.Second
	if ptr.Deref(options.SendInitialEvents, false) {
		s.listing = k.history.survey()
	}
	s.consistent = options.ResourceVersion == ""
	resumed := resumption{version: options.ResourceVersion}
	if s.listing == nil && options.ResourceVersion != "" && options.ResourceVersion != "0" {
		resumed = k.history.resume(options.ResourceVersion)
	}
	options.ResourceVersion, s.expected = resumed.version, resumed.expected
	if len(options.ResourceVersion) > maxVersion {
		return nil, expired("the resourceVersion is longer than any that an API server gives") // it is not sent back, nor logged
	}
	w, err := k.inner.WatchWithContext(ctx, options)
	k.history.endedBy(err)
	if s.listing != nil {
		k.tell(ctx, err)
	}
	if err == nil && resumed.confirm {
		if err = k.confirmEmpty(ctx, resumed.version); err != nil {
			w.Stop()
			go drain(w)
		}
	}
	if err != nil {
		k.history.interrupted()
		return nil, err
	}
	s.inner, s.began = w, time.Now() // the call may have waited
	go s.run(ctx)
	return s, nil
}

// tell logs once that the API server refuses to stream a list for now (429). client-go tries again without a word.
func (k *kind) tell(ctx context.Context, err error) {
	if apierrors.IsTooManyRequests(err) && !k.refused.Swap(true) {
		klog.FromContext(ctx).Error(err, "the list can't be streamed; trying again", "kind", k.history.kind)
	}
}

// confirmEmpty confirms that a kind without objects had none up to a version.
func (k *kind) confirmEmpty(ctx context.Context, version string) error {
	list, restored, err := k.readOne(ctx)
	if err != nil {
		return err
	}
	if restored {
		return expired("the cluster was restored")
	}
	missed := false
	err = meta.EachListItem(list, func(o runtime.Object) error {
		m := momentOf(o)
		missed = missed || (m.version != "" && ordered(version) && !less(version, m.version))
		return nil
	})
	if err != nil || missed {
		return expired("the cluster has objects that the last list did not have")
	}
	k.history.continued()
	return nil
}

// readOne reads one object consistently, and reports whether the cluster was restored.
func (k *kind) readOne(ctx context.Context) (list runtime.Object, restored bool, err error) {
	ctx, cancel := k.guard.bound(ctx)
	defer cancel()
	floor := k.history.floor()
	if list, err = k.inner.ListWithContext(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return nil, false, err
	}
	l, err := meta.ListAccessor(list)
	if err != nil {
		return nil, false, fmt.Errorf("reading a list of kind %s: %w", k.history.kind, err)
	}
	found := k.history.read(floor, l.GetResourceVersion())
	k.guard.found(found)
	return list, found != nil, nil
}

// expired makes a reflector list again.
func expired(why string) *apierrors.StatusError {
	return apierrors.NewResourceExpired("the watch needs a new list: " + why)
}

// stream is a watch whose events are recorded.
type stream struct {
	kind  *kind
	inner watch.Interface
	out   chan watch.Event
	done  chan struct{}
	stop  sync.Once

	// began is when the watch was opened, and lasts its duration; zero means unlimited.
	began time.Time
	lasts time.Duration
	// listing collects all objects while the watch begins with them. consistent means that they are not older
	// than floor.
	listing    *survey
	consistent bool
	floor      string
	// expected is the event with which the watch must begin.
	expected moment
}

// ResultChan implements watch.Interface.
func (s *stream) ResultChan() <-chan watch.Event { return s.out }

// Stop implements watch.Interface.
func (s *stream) Stop() {
	s.stop.Do(func() {
		close(s.done)
		s.inner.Stop()
	})
}

// drain reads the remaining events of a stopped watch.
func drain(w watch.Interface) {
	for range w.ResultChan() {
	}
}

// run passes events on until the watch ends.
func (s *stream) run(ctx context.Context) {
	defer close(s.out)
	defer drain(s.inner) // it may be sending an event when it is stopped
	defer s.ended()
	if s.expected.version != "" {
		if err := s.begin(ctx); err != nil {
			s.pass(watch.Event{Type: watch.Error, Object: &err.ErrStatus})
			s.inner.Stop()
			return
		}
	}
	for e := range s.inner.ResultChan() {
		if e.Type == watch.Error {
			err := apierrors.FromObject(e.Object)
			s.kind.history.endedBy(err)
			if s.listing != nil {
				s.kind.tell(ctx, err)
			}
		}
		if s.listing != nil && initialEventsEnd(e) {
			if err := s.compare(ctx, momentOf(e.Object).version); err != nil {
				// After another error, client-go would list all objects in one answer.
				again := apierrors.NewTooManyRequests(err.Error(), 0)
				s.kind.tell(ctx, again)
				s.pass(watch.Event{Type: watch.Error, Object: &again.ErrStatus})
				s.inner.Stop()
				return
			}
			s.kind.refused.Store(false)
		}
		if !s.pass(e) {
			return
		}
	}
}

// compare checks a list before its end is passed on, because the reader uses it at once.
func (s *stream) compare(ctx context.Context, version string) error {
	guard, history := s.kind.guard, &s.kind.history
	guard.found(s.listing.restored())
	if s.consistent {
		guard.found(history.read(s.floor, version))
	} else {
		history.raise(version)
	}
	return s.kind.feel(ctx, s.floor)
}

// ended records a watch that ended before its timeout.
func (s *stream) ended() {
	if s.lasts == 0 || time.Since(s.began) < s.lasts-early {
		s.kind.history.interrupted()
	}
}

// pass passes an event on and records it. It returns false if there is no reader.
func (s *stream) pass(e watch.Event) bool {
	if e.Type == watch.Error {
		s.kind.history.interrupted()
	}
	m, end := eventOf(e), initialEventsEnd(e) // the reader may change the object
	select {
	case s.out <- e:
	case <-s.done:
		return false
	}
	history := &s.kind.history
	switch {
	case e.Type == watch.Error:
	case s.listing != nil && end:
		s.listing.end(false)
		history.delivered()
		s.listing = nil
	case s.listing != nil:
		s.listing.add(m)
	case e.Type == watch.Bookmark:
		history.raise(m.version)
	default:
		history.showed(m)
	}
	return true
}

func initialEventsEnd(e watch.Event) bool {
	if e.Type != watch.Bookmark {
		return false
	}
	m, err := meta.Accessor(e.Object)
	return err == nil && m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// begin reads the event with which the watch must begin, which the reader already has. The error makes the
// reader list again.
func (s *stream) begin(ctx context.Context) *apierrors.StatusError {
	ask := time.NewTimer(silence)
	defer ask.Stop()
	var giveUp <-chan time.Time
	for {
		select {
		case <-s.done:
			return nil
		case e, ok := <-s.inner.ResultChan():
			if !ok {
				return nil
			}
			return s.first(e)
		case <-ask.C:
			// A restored etcd may not have reached the version yet. Without an answer, only the watch can show it.
			if _, restored, _ := s.kind.readOne(ctx); restored {
				return expired("the cluster was restored")
			}
			giveUp = time.After(patience)
		case <-giveUp:
			return expired(fmt.Sprintf("the API server did not repeat the last known event (resourceVersion %s)", s.expected.version))
		}
	}
}

// first checks the event with which the watch begins.
func (s *stream) first(e watch.Event) *apierrors.StatusError {
	is := eventOf(e)
	switch {
	case e.Type == watch.Error:
		if status, ok := e.Object.(*metav1.Status); ok {
			s.kind.history.endedBy(apierrors.FromObject(status))
			return &apierrors.StatusError{ErrStatus: *status}
		}
	case e.Type == watch.Bookmark: // the server no longer has such an event, and did not say so
	case is.continues(s.expected) && is.deleted: // it has no time, so it may be another deletion after a restore
	case is.continues(s.expected):
		s.kind.history.continued()
		return nil
	case is.version != "":
		s.kind.guard.found(&RestoredError{Why: fmt.Sprintf(
			"its history no longer has the write of %s %s at resourceVersion %s", s.kind.history.kind, s.expected.object, s.expected.version)})
	}
	return expired(fmt.Sprintf("the API server did not repeat the last known event (resourceVersion %s)", s.expected.version))
}
