package hub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var (
	recordKey = client.ObjectKey{Namespace: "operator", Name: "rulefleet-hub"}
	leaseKey  = client.ObjectKey{Namespace: "operator", Name: "rulefleet-manager"}
)

// recorded is a hub with a CustomResourceDefinition and its record.
type recorded struct {
	client.Client

	t     *testing.T
	clock *clocktesting.FakeClock
	mu    sync.Mutex // of what a read uses
	// crd is the definition, and writes and refuse are the writes of the record.
	crd    metav1.ObjectMeta
	writes int
	refuse error
	// gone means that the definition does not exist, and reads is how often it was read.
	gone  bool
	reads int
}

func newRecorded(t *testing.T, data map[string]string) *recorded {
	t.Helper()
	r := &recorded{t: t, clock: clocktesting.NewFakeClock(defined.Add(time.Hour))}
	r.crd = metav1.ObjectMeta{UID: "first", ResourceVersion: "10", CreationTimestamp: metav1.NewTime(defined)}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	r.Client = fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: recordKey.Namespace, Name: recordKey.Name}, Data: data}).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				crd, ok := o.(*metav1.PartialObjectMetadata)
				if !ok {
					return c.Get(ctx, key, o, opts...)
				}
				r.mu.Lock()
				defer r.mu.Unlock()
				r.reads++
				if r.gone {
					return notFound("customresourcedefinitions")
				}
				crd.ObjectMeta = r.crd
				return nil
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
				r.writes++
				if r.refuse != nil {
					return r.refuse
				}
				return c.Patch(ctx, o, patch, opts...)
			},
		}).Build()
	return r
}

// set changes what is read while Kinds work.
func (r *recorded) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// start returns Kinds without state, as after a restart.
func (r *recorded) start() *Kinds {
	return NewKinds(r, r, RecordKeys{recordKey, leaseKey}, r.clock, nil)
}

func (r *recorded) defined(k *Kinds) Defined {
	r.t.Helper()
	d, served, err := k.Defined(r.t.Context(), AlertRules)
	if err != nil || !served {
		r.t.Fatalf("got %v, %v", served, err)
	}
	return d
}

func (r *recorded) data() map[string]string {
	r.t.Helper()
	cm := &corev1.ConfigMap{}
	if err := r.Get(r.t.Context(), recordKey, cm); err != nil {
		r.t.Fatal(err)
	}
	return cm.Data
}

// remake defines the kind again, with a clock that was set back.
func (r *recorded) remake() {
	r.crd = metav1.ObjectMeta{UID: "second", ResourceVersion: "20", CreationTimestamp: metav1.NewTime(defined.Add(-time.Hour))}
}

// The first definition is recorded, and another one is recognized whatever the times say, by this process and
// later ones.
func TestKinds(t *testing.T) {
	r := newRecorded(t, map[string]string{"id": "hub"})
	k := r.start()
	for range 2 {
		if d := r.defined(k); d.Anew || !d.Since.Equal(defined) {
			t.Errorf("got %+v", d)
		}
		k = r.start()
	}
	if got := r.data(); r.writes != 1 || got["id"] != "hub" || got["alertrules.rulefleet.io"] != "first" {
		t.Errorf("%d writes, and the record is %v", r.writes, got)
	}

	r.remake()
	found := r.clock.Now()
	for range 2 {
		for _, k := range []*Kinds{k, r.start()} {
			if d := r.defined(k); !d.Anew || !d.Since.Equal(found) || !d.created.Equal(defined.Add(-time.Hour)) {
				t.Errorf("got %+v", d)
			}
		}
		r.clock.Step(time.Hour)
	}
	if got := r.data(); r.writes != 2 || got["alertrules.rulefleet.io"] != "second 2001-09-09T02:46:40Z" {
		t.Errorf("%d writes, and the record is %v", r.writes, got)
	}
}

// A definition that can't be recorded is not known.
func TestKindsRefused(t *testing.T) {
	r := newRecorded(t, map[string]string{"alertrules.rulefleet.io": "former"})
	r.refuse = errors.New("no answer")
	k := r.start()
	if _, served, err := k.Defined(t.Context(), AlertRules); served || !errors.Is(err, r.refuse) {
		t.Errorf("got %v, %v", served, err)
	}
	r.refuse = nil
	if d := r.defined(k); !d.Anew {
		t.Errorf("got %+v", d)
	}
}

// Without the record, the state of the process counts, and then the times.
func TestKindsWithoutARecord(t *testing.T) {
	r := newRecorded(t, nil)
	k := r.start()
	r.defined(k)
	if err := r.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: recordKey.Namespace, Name: recordKey.Name}}); err != nil {
		t.Fatal(err)
	}
	r.remake()
	if d := r.defined(k); !d.Anew {
		t.Errorf("got %+v", d)
	}
	if d := r.defined(r.start()); d.Anew || !d.Since.Equal(defined.Add(-time.Hour)) {
		t.Errorf("after a restart: %+v", d)
	}
}

// steppedClock is a clock that was set back since a process started.
type steppedClock struct {
	clock.PassiveClock

	back time.Duration
}

func (c *steppedClock) Now() time.Time { return c.PassiveClock.Now().Add(-c.back) }

// A clock that was set back does not determine what is older than the kind.
func TestKindsByAClockThatWasSetBack(t *testing.T) {
	for name, fn := range map[string]func(r *recorded) *Kinds{
		"while the process runs": func(r *recorded) *Kinds {
			c := &steppedClock{PassiveClock: r.clock}
			k := NewKinds(r, r, RecordKeys{recordKey, leaseKey}, c, nil)
			r.defined(k)
			r.clock.Step(time.Hour)
			c.back = 3 * time.Hour
			return k
		},
		"before it was started": func(r *recorded) *Kinds {
			r.defined(r.start())
			renewed := metav1.NewMicroTime(defined.Add(2 * time.Hour))
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: leaseKey.Namespace, Name: leaseKey.Name}}
			lease.Spec.RenewTime = &renewed
			if err := r.Create(r.t.Context(), lease); err != nil {
				r.t.Fatal(err)
			}
			r.clock.SetTime(defined.Add(-time.Hour))
			return r.start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRecorded(t, nil)
			k := fn(r)
			r.remake()
			if d := r.defined(k); !d.Anew || !d.Since.Equal(defined.Add(2*time.Hour)) {
				t.Errorf("got %+v", d)
			}
			if d := r.defined(r.start()); !d.Anew || !d.Since.Equal(defined.Add(2*time.Hour)) {
				t.Errorf("after a restart: %+v", d)
			}
		})
	}
}

// A new definition is detected soon even if nothing asks for it.
func TestKindsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorded(t, nil)
		k := r.start()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- k.Start(ctx) }()
		synctest.Wait()
		if got := r.data()["alertrules.rulefleet.io"]; got != "first" {
			t.Errorf("recorded is %q", got)
		}
		r.set(func() { r.gone = true })
		if _, served, err := k.Defined(t.Context(), AlertRules); served || err != nil {
			t.Errorf("got %v, %v", served, err)
		}
		<-time.After(10 * lostRetry) // by the clock of the test's bubble
		r.set(func() { r.gone = false; r.remake() })
		<-time.After(lostRetry)
		synctest.Wait()
		if got := r.data()["alertrules.rulefleet.io"]; !strings.HasPrefix(got, "second ") {
			t.Errorf("recorded is %q", got)
		}
		var reads, later int
		r.set(func() { reads = r.reads })
		<-time.After(100 * lostRetry)
		r.set(func() { later = r.reads })
		if later > reads+len(kinds) {
			t.Errorf("it reads on: %d times", later-reads)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestLearn(t *testing.T) {
	r := newRecorded(t, nil)
	if all, err := r.start().Learn(t.Context()); err != nil || !all {
		t.Fatal(all, err)
	}
	for _, key := range []string{"alertrules.rulefleet.io", "alertruletemplates.rulefleet.io", "spokeclusters.rulefleet.io"} {
		if r.data()[key] != "first" {
			t.Errorf("%s is %q", key, r.data()[key])
		}
	}
}

// Callers during a read share the next one.
func TestKindsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const askers = 20
		var reads atomic.Int32
		answer := make(chan struct{})
		k := NewKinds(reader(func(_ string, o client.Object) error {
			n := reads.Add(1)
			o.SetUID(types.UID(fmt.Sprint(n)))
			if n == 1 {
				<-answer
			}
			return nil
		}), nil, RecordKeys{}, clocktesting.NewFakeClock(defined), nil)
		var wg sync.WaitGroup
		ask := func(anew bool) {
			wg.Go(func() {
				if d, served, err := k.Defined(t.Context(), AlertRules); err != nil || !served || d.Anew != anew {
					t.Errorf("got %+v, %v, %v", d, served, err)
				}
			})
		}
		ask(false)
		synctest.Wait()
		gaveUp, giveUp := context.WithCancel(t.Context())
		giveUp()
		if _, _, err := k.Defined(gaveUp, AlertRules); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		for range askers {
			ask(true) // what the first one reads is older than their question
		}
		synctest.Wait()
		close(answer)
		wg.Wait()
		if n := reads.Load(); n != 2 {
			t.Errorf("it was read %d times for %d askers", n, askers)
		}
	})
}

func TestHas(t *testing.T) {
	d := Defined{created: defined, version: "100"}
	for name, tc := range map[string]struct {
		made    time.Time
		version string
		want    bool
	}{
		"made and deleted after it":                     {made: defined, version: "101", want: true},
		"deleted before it, though it is younger":       {made: defined.Add(time.Hour), version: "99"},
		"older, though it has a later version":          {made: defined.Add(-time.Second), version: "101"},
		"made in the same second, with no number":       {made: defined, version: "x", want: true},
		"older, with no number":                         {made: defined.Add(-time.Second), version: "x"},
		"it has more digits, and is later all the same": {made: defined, version: "1000", want: true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := d.Has(tc.made, tc.version); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
