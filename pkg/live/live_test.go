package live

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

var errNotFound = apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("alertrules").GroupResource(), "x")

// reader is an API server whose reads are answered by a function.
func reader(answer func(what string, o client.Object) error) client.Reader {
	return fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			return answer(strings.TrimSpace(fmt.Sprintf("%T %s", o, o.GetObjectKind().GroupVersionKind().Kind))+" "+key.String(), o)
		},
	}).Build()
}

// metadata is an object that is read as metadata.
func metadata(kind string) client.Object {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: kind})
	return o
}

// Each object is read at most once a second, whatever the result.
func TestLive(t *testing.T) {
	for name, answer := range map[string]error{"there": nil, "gone": errNotFound, "no answer": errors.New("no answer")} {
		t.Run(name, func(t *testing.T) {
			reads := map[string]int{}
			clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
			live := New(reader(func(what string, o client.Object) error {
				reads[what]++
				o.SetResourceVersion("7")
				return answer
			}), clock)
			get := func(o client.Object, name string) {
				t.Helper()
				err := live.Get(t.Context(), client.ObjectKey{Name: name}, o)
				if !errors.Is(err, answer) || (answer == nil && o.GetResourceVersion() != "7") {
					t.Errorf("got %+v, %v", o, err)
				}
			}
			for range 3 {
				get(&v1alpha1.AlertRule{}, "a")
				clock.Step(MaxAge/2 - time.Millisecond)
				get(&v1alpha1.AlertRule{}, "a")
				get(&v1alpha1.AlertRule{}, "b")
				get(&v1alpha1.SpokeCluster{}, "a")
				get(metadata("Deployment"), "a")
				get(metadata("Namespace"), "a")
				clock.Step(MaxAge)
			}
			for _, what := range []string{"*v1alpha1.AlertRule /a", "*v1alpha1.AlertRule /b", "*v1alpha1.SpokeCluster /a", "*v1.PartialObjectMetadata Deployment /a", "*v1.PartialObjectMetadata Namespace /a"} {
				if reads[what] != 3 {
					t.Errorf("%s was read %d times", what, reads[what])
				}
			}
		})
	}
}

// Concurrent callers share one read, which continues when the first of them gives up.
func TestLiveShares(t *testing.T) {
	const readers = 20
	reads := 0
	asked, answered := make(chan struct{}), make(chan struct{})
	live := New(fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			reads++
			close(asked)
			<-answered
			return ctx.Err()
		},
	}).Build(), clocktesting.NewFakeClock(time.Unix(1e9, 0)))
	key := client.ObjectKey{Name: "a"}
	first, giveUp := context.WithCancel(t.Context())
	gaveUp := make(chan struct{})
	go func() {
		defer close(gaveUp)
		if err := live.Get(first, key, &v1alpha1.AlertRule{}); !errors.Is(err, context.Canceled) {
			t.Errorf("the first got %v", err)
		}
	}()
	<-asked
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			if err := live.Get(t.Context(), key, &v1alpha1.AlertRule{}); err != nil {
				t.Error(err)
			}
		})
	}
	giveUp()
	<-gaveUp
	close(answered)
	wg.Wait()
	if reads != 1 {
		t.Errorf("it was read %d times", reads)
	}
}

// An object that was read before a decision began may be older than the cache.
func TestReading(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	live := New(reader(func(string, client.Object) error { return errNotFound }), clock)
	read := func(name string) *Reading {
		t.Helper()
		clock.Step(time.Millisecond)
		r := live.Reading()
		clock.Step(time.Millisecond)
		if err := r.Get(t.Context(), client.ObjectKey{Name: name}, &v1alpha1.AlertRule{}); !apierrors.IsNotFound(err) {
			t.Error(err)
		}
		return r
	}
	if r := read("a"); r.Old() || r.Again(0.1) != BehindRetry/10 {
		t.Errorf("what was read just now is old, or is to be read again after %v", r.Again(0.1))
	}
	r := read("a")
	if !r.Old() || r.Again(0.1) != MaxAge {
		t.Errorf("what was read before is not old, or is to be read again after %v", r.Again(0.1))
	}
	_ = r.Get(t.Context(), client.ObjectKey{Name: "b"}, &v1alpha1.AlertRule{})
	if !r.Old() {
		t.Error("a part of it is old")
	}
	clock.Step(MaxAge)
	if read("a").Old() {
		t.Error("it is old after a second")
	}
}
