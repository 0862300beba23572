package spoke

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/continuity"
)

// forgetful is an API server with one kind and slow pages. It keeps events for 75 s. All objects change
// continuously.
type forgetful struct {
	objects int
	each    time.Duration // of a page
	began   time.Time
	refuses bool // watches that are opened while a list is read
	cuts    bool // watches after a while

	mu      sync.Mutex
	reading bool
	lists   int
	watches []string
}

const forgets = 75 * time.Second

// version is the present resource version: it grows by one in a second.
func (f *forgetful) version() int { return 1000 + int(time.Since(f.began)/time.Second) }

func (f *forgetful) object(i, version int) *metav1.PartialObjectMetadata {
	o := WorkloadMetadata(v1alpha1.DeploymentKind)
	o.Namespace, o.Name, o.UID, o.ResourceVersion = "default", fmt.Sprint(i), types.UID(fmt.Sprint(i)), fmt.Sprint(version)
	return o
}

// list answers a page: the continue token has the version that the list began with.
func (f *forgetful) list(ctx context.Context, o metav1.ListOptions) (kruntime.Object, error) {
	from, version := 0, f.version()
	if o.Continue != "" {
		_, _ = fmt.Sscanf(o.Continue, "%d/%d", &from, &version)
	}
	f.mu.Lock()
	f.reading = true
	if from == 0 {
		f.lists++
	}
	f.mu.Unlock()
	if page, ok := ctx.Value(inflowKey{}).(*inflow); ok {
		page.began.Store(true)
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(f.each):
	}
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(version)}}
	to := min(f.objects, from+int(o.Limit))
	for i := from; i < to; i++ {
		list.Items = append(list.Items, *f.object(i, version))
	}
	if to < f.objects {
		list.Continue = fmt.Sprintf("%d/%d", to, version)
	} else {
		f.mu.Lock()
		f.reading = false
		f.mu.Unlock()
	}
	return list, nil
}

// watch sends an event in a second, each of the next object.
func (f *forgetful) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	from, _ := strconv.Atoi(o.ResourceVersion)
	f.mu.Lock()
	defer f.mu.Unlock()
	when := "after"
	if f.reading {
		when = "during"
	}
	f.watches = append(f.watches, when)
	w := watch.NewRaceFreeFake()
	if f.version()-from > int(forgets/time.Second) || (f.refuses && f.reading) {
		w.Error(&apierrors.NewResourceExpired("too old resource version").ErrStatus)
		w.Stop()
		return w, nil
	}
	go func() {
		defer w.Stop()
		for last := from; ; {
			for ; last < f.version(); last++ {
				w.Modify(f.object((last+1)%f.objects, last+1))
			}
			if f.cuts && last-from > 290 {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
			}
		}
	}()
	return w, nil
}

// A list that takes longer than the API server keeps events still completes, because its watch is opened
// before its end. If that is impossible, it starts again, and the status says so.
func TestListsThatTakeLong(t *testing.T) {
	for name, tc := range map[string]struct {
		each     time.Duration
		refuses  bool
		cuts     bool
		lists    int // by the end of the time
		watches  []string
		shown    string
		complete bool
	}{
		"a short list":          {each: time.Second, lists: 1, watches: []string{"after"}, complete: true},
		"one that takes longer": {each: 30 * time.Second, lists: 1, watches: []string{"during"}, complete: true},
		"and its watch is cut":  {each: 30 * time.Second, cuts: true, lists: 1, complete: true},
		"and can't have its watch": {
			each: 30 * time.Second, refuses: true, lists: 2,
			shown: "Deployments are being listed again: the resourceVersion has expired (410 Gone), because the list took too long or the watch was interrupted. If this repeats, look for a proxy that ends long requests",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &forgetful{objects: 1000, each: tc.each, refuses: tc.refuses, cuts: tc.cuts, began: time.Now()}
				rs := newReadings()
				informerOf := rs.informer(&connection{cfg: &rest.Config{}, received: &atomic.Int64{}}, continuity.NewGuard(nil, nil), trimListed(""))
				informer := informerOf(&toolscache.ListWatch{ListWithContextFunc: f.list, WatchFuncWithContext: f.watch}, WorkloadMetadata(v1alpha1.DeploymentKind), 0, toolscache.Indexers{})
				ctx, cancel := context.WithCancel(t.Context())
				done := newDone(func() { informer.RunWithContext(ctx) })
				if !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
					t.Fatal("the first list does not end")
				}
				if text := rs.again() + rs.progress(); strings.Contains(text, "again") {
					t.Errorf("at first, it shows %q", text)
				}
				time.Sleep(5 * time.Minute) //nolint:forbidigo // of the bubble's clock
				synctest.Wait()
				f.mu.Lock()
				lists, watches := f.lists, slices.Clone(f.watches)
				f.mu.Unlock()
				if lists != tc.lists || (tc.watches != nil && !slices.Equal(watches, tc.watches)) {
					t.Errorf("there were %d lists, and watches %q", lists, watches)
				}
				if got := rs.again(); got != tc.shown {
					t.Errorf("it shows %q, want %q", got, tc.shown)
				}
				if text := rs.progress(); strings.Contains(text, "the list started again: the resourceVersion has expired") != (tc.shown != "") {
					t.Errorf("while it is connected, it shows %q", text)
				}
				newest := 0
				for _, o := range informer.GetStore().List() {
					if m, err := meta.Accessor(o); err == nil {
						version, _ := strconv.Atoi(m.GetResourceVersion())
						newest = max(newest, version)
					}
				}
				if n := len(informer.GetStore().List()); n != f.objects || (newest >= f.version()-1) != tc.complete {
					t.Errorf("it has %d objects, and the newest is of version %d, while the server has reached %d", n, newest, f.version())
				}
				cancel()
				<-done
				synctest.Wait()
			})
		})
	}
}

// newDone runs a function, and returns a channel that is closed at its end.
func newDone(fn func()) <-chan struct{} {
	done := make(chan struct{})
	go func() { fn(); close(done) }()
	return done
}

// Of each object, the last event waits, in the order of arrival.
func TestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch.NewFake()
		b := newBacklog("5", w, (&earlyWatch{}).keeps, nil)
		f := &forgetful{}
		bookmark := func(version string) {
			o := WorkloadMetadata(v1alpha1.DeploymentKind)
			o.ResourceVersion = version
			w.Action(watch.Bookmark, o)
		}
		w.Add(f.object(1, 6))
		w.Add(f.object(2, 7))
		bookmark("8")
		w.Modify(f.object(1, 9))
		w.Add(f.object(3, 10))
		w.Delete(f.object(3, 11))
		bookmark("12")
		w.Modify(f.object(2, 13))
		w.Error(&metav1.Status{})
		synctest.Wait()
		if !w.IsStopped() {
			t.Error("it is read after an error, which a hostile spoke can repeat")
		}
		var got []string
		for e := range b.ResultChan() {
			version := ""
			if m, err := meta.Accessor(e.Object); err == nil {
				version = m.GetResourceVersion()
			}
			got = append(got, string(e.Type)+version)
		}
		if want := []string{"MODIFIED9", "DELETED11", "BOOKMARK12", "MODIFIED13", "ERROR"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}

		// An object of another kind would take more memory than is counted.
		w = watch.NewFake()
		b = newBacklog("5", w, (&earlyWatch{trim: trimListed("hub")}).keeps, nil)
		w.Add(&corev1.ConfigMap{Data: map[string]string{"key": strings.Repeat("x", 1<<20)}})
		if _, ok := <-b.ResultChan(); ok || !w.IsStopped() {
			t.Error("an object of another kind waits")
		}

		// Nobody reads it, and it ends with what it has.
		w = watch.NewFake()
		b = newBacklog("5", w, (&earlyWatch{}).keeps, nil)
		w.Add(f.object(1, 6))
		b.Stop()
		b.Stop()
		synctest.Wait()
		if _, ok := <-b.ResultChan(); ok {
			t.Error("it goes on")
		}
	})
}

// Events are trimmed before they wait. If there are too many, the watch ends, and nothing of it is read.
func TestBacklogIsBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		limits Limits
		events int
		over   bool
	}{
		"as many as are allowed": {limits: Limits{Objects: 300, Memory: 2 << 20}, events: 300},
		"too many objects":       {limits: Limits{Objects: 300, Memory: 2 << 20}, events: 301, over: true},
		"too many bytes":         {limits: Limits{Objects: 3000, Memory: waitingPart * 20 * objectSize}, events: 21, over: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, f := watch.NewFake(), &forgetful{}
				a := &earlyWatch{bounds: &listBounds{holdings: &holdings{limits: tc.limits}}, trim: trimListed("hub")}
				b := newBacklog("5", w, a.keeps, nil)
				for i := range tc.events {
					for version := range 3 { // one object counts once
						o := f.object(i, 3*i+version)
						o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: strings.Repeat("x", 1<<20)}})
						synctest.Wait()
						if !w.IsStopped() {
							w.Modify(o)
						}
					}
				}
				synctest.Wait()
				if w.IsStopped() != tc.over {
					t.Fatalf("it has ended: %v", w.IsStopped())
				}
				w.Stop()
				n := 0
				for e := range b.ResultChan() {
					n++
					if o, err := meta.Accessor(e.Object); err != nil || len(o.GetManagedFields()) > 0 {
						t.Fatalf("it is not trimmed: %+v", e.Object)
					}
				}
				if want := map[bool]int{false: tc.events}[tc.over]; n != want {
					t.Errorf("there are %d events, want %d", n, want)
				}
			})
		})
	}
}

// An early watch is used only for its own list, and stops with a failed one.
func TestEarlyWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opened []*watch.FakeWatcher
		var fail error
		e := &earlyWatch{inner: &toolscache.ListWatch{WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if o.ResourceVersion != "5" && o.ResourceVersion != "6" {
				t.Errorf("it is opened at %q", o.ResourceVersion)
			}
			if fail != nil {
				return nil, fail
			}
			opened = append(opened, watch.NewFake())
			return opened[len(opened)-1], nil
		}}}
		get := func(version string) watch.Interface {
			w, err := e.watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		ended := make(chan struct{})
		e.open(t.Context(), "5", ended)
		if w, ok := get("5").(*backlog); !ok || len(opened) != 1 {
			t.Error("it is not handed over")
		} else {
			w.Stop()
		}
		e.open(t.Context(), "5", ended)
		if _, ok := get("6").(*backlog); ok || !opened[1].IsStopped() {
			t.Error("it is handed over for another version")
		}
		e.open(t.Context(), "5", ended)
		e.drop()
		if _, ok := get("5").(*backlog); ok || !opened[3].IsStopped() {
			t.Error("it is handed over though its list failed")
		}
		fail = errors.New("refused")
		e.open(t.Context(), "5", ended)
		close(ended)
		fail = nil
		e.open(t.Context(), "5", ended)
		if n := len(opened); n != 5 || e.waiting != nil {
			t.Errorf("%d were opened", n)
		}
		get("5").Stop()
	})
}

// The lists and watches of an informer are marked, so that they wait while the circuit is open.
func TestInformersAreMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &forgetful{objects: 10, began: time.Now()}
		var marked, others []string
		note := func(ctx context.Context, verb string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if ctx.Value(informerKey{}) != nil {
				marked = append(marked, verb)
			} else {
				others = append(others, verb)
			}
		}
		lw := &toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (kruntime.Object, error) {
				note(ctx, "list")
				return f.list(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				note(ctx, "watch")
				return f.watch(ctx, o)
			},
		}
		informer := newReadings().informer(&connection{cfg: &rest.Config{}, received: &atomic.Int64{}}, continuity.NewGuard(nil, nil), trimListed(""))(lw, WorkloadMetadata(v1alpha1.DeploymentKind), 0, toolscache.Indexers{})
		ctx, cancel := context.WithCancel(t.Context())
		done := newDone(func() { informer.RunWithContext(ctx) })
		synctest.Wait()
		time.Sleep(time.Minute) //nolint:forbidigo // of the bubble's clock
		f.mu.Lock()
		if len(others) > 0 || !slices.Contains(marked, "list") || !slices.Contains(marked, "watch") {
			t.Errorf("marked are %q, and not %q", marked, others)
		}
		f.mu.Unlock()
		cancel()
		<-done
		synctest.Wait()
	})
}
