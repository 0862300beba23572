// Package live reads objects from the API server, bypassing caches. A cache can be old, for example on a
// replica that has just become the leader, so a removal must be confirmed with the API server.
package live

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"golang.org/x/sync/singleflight"
	expiring "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/pkg/interval"
)

const (
	// MaxAge is how long an answer is reused.
	MaxAge = time.Second
	// Timeout bounds a read by default.
	Timeout = 5 * time.Second
	// BehindRetry is when to check again if a cache is behind its API server. The missing event triggers a
	// reconcile as well.
	BehindRetry = 30 * time.Second
)

// Reader reads objects, bypassing a cache: each at most once a second, for all callers. Use New to create one.
type Reader struct {
	reader  client.Reader
	bound   Bound
	clock   clock.Clock
	read    *expiring.Expiring
	flights singleflight.Group
}

// Bound returns a context for a single read.
type Bound func(ctx context.Context) (context.Context, context.CancelFunc)

// New returns a Reader that uses a client without a cache.
func New(reader client.Reader, c clock.Clock) *Reader {
	bound := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, Timeout)
	}
	return &Reader{reader: reader, bound: bound, clock: c, read: expiring.NewExpiringWithClock(c)}
}

// Within replaces Timeout by another bound. It returns the Reader.
func (r *Reader) Within(bound Bound) *Reader {
	r.bound = bound
	return r
}

// answer is an answer of the API server, and when it was requested.
type answer struct {
	object client.Object
	err    error
	asked  time.Time
}

// Get reads an object, which is shared with other callers and must not be changed. The given object must be
// empty, except for the kind of one that is read as metadata.
func (r *Reader) Get(ctx context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	_, err := r.get(ctx, key, o)
	return err
}

// get is Get, and returns when the API server was asked.
func (r *Reader) get(ctx context.Context, key client.ObjectKey, o client.Object) (time.Time, error) {
	name := fmt.Sprintf("%T %s %s", o, o.GetObjectKind().GroupVersionKind().GroupKind(), key)
	found, ok := r.read.Get(name)
	if !ok {
		object := o.DeepCopyObject().(client.Object)
		flight := r.flights.DoChan(name, func() (any, error) {
			if read, ok := r.read.Get(name); ok { // by an earlier call
				return read, nil
			}
			// Other callers may wait for it, so it does not end with the first caller.
			ctx, cancel := r.bound(context.WithoutCancel(ctx))
			defer cancel()
			a := &answer{object: object, asked: r.clock.Now()}
			a.err = r.reader.Get(ctx, key, a.object)
			r.read.Set(name, a, MaxAge)
			return a, nil
		})
		select {
		case result := <-flight:
			found = result.Val
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("reading %s %s: %w", kindOf(o), key, ctx.Err())
		}
	}
	a := found.(*answer)
	if a.err != nil {
		return a.asked, a.err
	}
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(a.object).Elem())
	return a.asked, nil
}

// kindOf returns the kind of an object for messages. An object that is read as metadata has it; for any other, it
// is the name of the type.
func kindOf(o client.Object) string {
	if kind := o.GetObjectKind().GroupVersionKind().Kind; kind != "" {
		return kind
	}
	return reflect.TypeOf(o).Elem().Name()
}

// Reading returns a Reading for one decision.
func (r *Reader) Reading() *Reading { return &Reading{reader: r, began: r.clock.Now()} }

// Reading reads objects for one decision.
type Reading struct {
	reader *Reader
	began  time.Time
	old    bool
}

// Get is Reader.Get.
func (r *Reading) Get(ctx context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	asked, err := r.reader.get(ctx, key, o)
	r.old = r.old || asked.Before(r.began)
	return err
}

// Old reports whether an object was read before the decision began, so that it may be older than the cache.
func (r *Reading) Old() bool { return r.old }

// Again returns when to check again if the cache differs from what was read.
func (r *Reading) Again(intervals interval.Scale) time.Duration {
	if r.old { // the cache may be right
		return MaxAge
	}
	return intervals.Of(BehindRetry)
}
