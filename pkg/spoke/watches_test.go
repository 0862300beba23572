package spoke

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/rulefleet/rulefleet/pkg/continuity"
	"github.com/rulefleet/rulefleet/pkg/lean"
)

// runInformer runs an informer of newInformer over watches that are opened by open. lists
// returns how often it listed.
func runInformer(t *testing.T, open func() (watch.Interface, error)) (lists func() int32, stop func()) {
	t.Helper()
	var listed atomic.Int32
	o := &metav1.PartialObjectMetadata{}
	lw := continuity.NewGuard(nil, nil).ListerWatcher(&toolscache.ListWatch{
		ListWithContextFunc: func(_ context.Context, options metav1.ListOptions) (kruntime.Object, error) {
			if options.Limit != 1 { // that reads the version
				listed.Add(1)
			}
			return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return open() },
	}, o)
	informer := newInformer(lean.Unstreamed(lw), o, 0, toolscache.Indexers{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { informer.RunWithContext(ctx); close(done) }()
	return listed.Load, func() { cancel(); <-done }
}

func TestRefusedWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watches := 0
		_, stop := runInformer(t, func() (watch.Interface, error) {
			watches++
			return nil, apierrors.NewResourceExpired("too old")
		})
		time.Sleep(10 * time.Minute) //nolint:forbidigo // of the bubble's clock
		stop()
		if limit := int(10*60*watchesPerSecond) + watchesAtOnce + 1; watches < 2 || watches > limit {
			t.Errorf("there were %d watches, of at most %d", watches, limit)
		}
	})
}

// A watch that the API server refuses continues where it was. The kind is not listed again.
func TestForbiddenWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const refused = 5 * time.Minute
		began, attempts, opened := time.Now(), 0, time.Duration(0)
		lists, stop := runInformer(t, func() (watch.Interface, error) {
			attempts++
			if time.Since(began) < refused {
				return nil, apierrors.NewForbidden(rulesResource, "", nil)
			}
			opened = time.Since(began)
			return watch.NewFake(), nil
		})
		time.Sleep(2 * refused) //nolint:forbidigo // of the bubble's clock
		stop()
		if late := opened - refused; opened == 0 || late > refusedRetry*12/10 || lists() != 1 {
			t.Errorf("it was watched again %v after it was allowed, and listed %d times", late, lists())
		}
		if most := int(refused/refusedRetry)*13/10 + 10; attempts > most {
			t.Errorf("there were %d attempts, at most %d are expected", attempts, most)
		}
	})
}

// parting is a watch that has something in hand when it is stopped.
type parting struct {
	events chan watch.Event
	once   sync.Once
}

func (p *parting) ResultChan() <-chan watch.Event { return p.events }

func (p *parting) Stop() {
	p.once.Do(func() {
		go func() {
			p.events <- watch.Event{Type: watch.Error, Object: &metav1.Status{}}
			close(p.events)
		}()
	})
}

func TestStoppedWatchLeavesNothing(t *testing.T) {
	opened := make(chan bool, 10)
	_, stop := runInformer(t, func() (watch.Interface, error) {
		w := watch.Filter(&parting{events: make(chan watch.Event)}, func(in watch.Event) (watch.Event, bool) { return in, true })
		opened <- true
		return w, nil
	})
	<-opened
	stop()
	// The watch's own goroutine ends though nobody reads what it had in hand.
	for deadline := time.Now().Add(5 * time.Second); ; runtime.Gosched() {
		stacks := make([]byte, 1<<20)
		left := strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "filteredWatch")
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines of watches are left", left)
		}
	}
}
