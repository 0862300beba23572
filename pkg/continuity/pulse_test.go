package continuity

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// TestFollow restores a server that has passed all that the informer has seen before it is listed again, so that only a
// followed object shows the restore, or another object that went back. The informer must not show that an object is gone before the guard has told.
func TestFollow(t *testing.T) {
	const known = 150
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "manager")
	restore := func(s *server) { s.restore(func() { s.others(100); s.restart() }) }
	for name, tc := range map[string]struct {
		then    func(s *server)
		unknown bool // the followed object was never read before
		back    bool // another object goes back
		// version is that of the followed object afterwards, and err the error of a read, which ends if it passes.
		version  int
		err      error
		passes   bool
		restored bool
	}{
		"restored":                              {then: restore, version: known - 1, restored: true},
		"restored, and the server is busy":      {then: restore, version: known - 1, err: apierrors.NewTooManyRequests("busy", 1), passes: true, restored: true},
		"restored, and the server is down":      {then: restore, version: known - 1, err: errors.New("connection refused"), passes: true, restored: true},
		"restored, and there was no object":     {then: restore, err: gone},
		"restored, and another object shows it": {then: restore, unknown: true, back: true, restored: true},
		"restored, and it was not known":        {then: restore, unknown: true, version: known - 1},
		"the server is started anew":            {then: func(s *server) { s.remove("c"); s.restart() }, version: known},
		"and the object was written since":      {then: func(s *server) { s.remove("c"); s.restart() }, version: known + 1},
		"and somebody has deleted the object":   {then: func(s *server) { s.remove("c"); s.restart() }, err: gone},
		"a watch is lost":                       {then: func(s *server) { s.remove("c"); s.cut() }, version: known},
	} {
		for _, plain := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", without streams"}[plain], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var state func() map[string]string
					var told atomic.Int32
					has := func() bool { _, has := state()["c"]; return has }
					g, s := NewGuard(func() {
						told.Add(1)
						if !has() {
							t.Error("the informer has lost the object before the guard told")
						}
					}, nil), newServer()
					s.plain = plain
					var failure atomic.Pointer[error]
					failure.Store(&tc.err)
					reading := g.Follow("Lease", func(context.Context) (string, error) { return strconv.Itoa(tc.version), *failure.Load() })
					if !tc.unknown {
						reading()(strconv.Itoa(known))
					}
					var stop func()
					state, stop = runInformer(t, g, s)
					defer stop()
					synctest.Wait()
					s.put("a")
					s.save()
					s.put("c")
					if tc.back {
						s.put("a")
					}
					pass(time.Minute)
					if !has() {
						t.Fatal("the informer does not have the object")
					}
					tc.then(s)
					pass(10 * time.Second)
					if tc.passes {
						if asked := s.requests(); !plain && slices.Contains(asked, "list") {
							t.Errorf("all objects are listed at once: %v", asked)
						}
						if !has() || g.Err() != nil {
							t.Errorf("while the object can't be read, the informer has %v, and the guard says %v", state(), g.Err())
						}
						if err := g.Current(t.Context()); err == nil {
							t.Error("while the object can't be read, the caches are said to be current")
						}
						failure.Store(new(error))
					}
					pass(2 * time.Minute) // client-go's delays
					if has() {
						t.Error("the informer still has the object")
					}
					if got := told.Load() == 1; got != tc.restored || (g.Err() != nil) != got {
						t.Errorf("the guard says %v, and told %d times", g.Err(), told.Load())
					}
				})
			})
		}
	}
}

// client-go retries a list that can't be streamed for now without a word, so the log says it: once, until one was streamed.
func TestRefusedStreamsAreLogged(t *testing.T) {
	busy := apierrors.NewTooManyRequests("busy", 1)
	refused := func() (watch.Interface, error) { return nil, busy }
	sends := func(e watch.Event) func() (watch.Interface, error) {
		return func() (watch.Interface, error) {
			w := watch.NewFakeWithChanSize(1, false)
			w.Action(e.Type, e.Object)
			w.Stop()
			return w, nil
		}
	}
	ended := sends(watch.Event{Type: watch.Error, Object: &busy.ErrStatus})
	streamed := sends(watch.Event{Type: watch.Bookmark, Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "7", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}})
	for name, tc := range map[string]struct {
		answers []func() (watch.Interface, error)
		// unread means that the followed object can't be read. plain are watches that follow a list.
		unread, plain bool
		told          int
	}{
		"streamed":             {answers: []func() (watch.Interface, error){streamed, streamed}},
		"refused":              {answers: []func() (watch.Interface, error){refused, refused, streamed}, told: 1},
		"ended":                {answers: []func() (watch.Interface, error){ended, ended, refused}, told: 1},
		"refused again":        {answers: []func() (watch.Interface, error){refused, streamed, refused}, told: 2},
		"another error":        {answers: []func() (watch.Interface, error){func() (watch.Interface, error) { return nil, errors.New("down") }}},
		"unread":               {answers: []func() (watch.Interface, error){streamed, streamed}, unread: true, told: 1},
		"a watch, and no list": {answers: []func() (watch.Interface, error){refused, ended}, plain: true},
	} {
		t.Run(name, func(t *testing.T) {
			told := 0
			ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) {
				told++
				if !strings.Contains(args, "can't be streamed") || !strings.Contains(args, "ConfigMap") {
					t.Errorf("the log says %s", args)
				}
			}, funcr.Options{}))
			g := NewGuard(nil, nil)
			if tc.unread {
				g.Follow("Lease", func(context.Context) (string, error) { return "", busy })()("1")
			}
			var next func() (watch.Interface, error)
			lw := g.ListerWatcher(&toolscache.ListWatch{WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return next() }}, &corev1.ConfigMap{})
			for _, next = range tc.answers {
				options := metav1.ListOptions{SendInitialEvents: new(true)}
				if tc.unread {
					options.ResourceVersion = "5" // objects are known
				}
				if tc.plain {
					options = metav1.ListOptions{ResourceVersion: "0"}
				}
				if w, err := lw.WatchWithContext(ctx, options); err == nil {
					drain(w)
				}
			}
			if told != tc.told {
				t.Errorf("it is logged %d times", told)
			}
		})
	}
}

// What others read and write of the followed object is compared as well.
func TestFollowed(t *testing.T) {
	for name, tc := range map[string]struct {
		versions []string
		restored bool
	}{
		"newer":     {[]string{"7", "8"}, false},
		"the same":  {[]string{"7", "7"}, false},
		"older":     {[]string{"10", "9"}, true},
		"no number": {[]string{"7", "x"}, false},
		"none":      {[]string{"7", ""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewGuard(nil, nil)
			reading := g.Follow("Lease", nil)
			early := reading()
			for _, version := range tc.versions {
				reading()(version)
			}
			if got := g.Err() != nil; got != tc.restored {
				t.Errorf("the guard says %v", g.Err())
			}
			early("1")
			if !tc.restored && g.Err() != nil {
				t.Errorf("a read that began before: %v", g.Err())
			}
		})
	}
}
