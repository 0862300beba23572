// Package live reads objects past caches. A cache can be old, as that of a replica that leads
// since a moment ago: what would be removed by it has to be so by the API server's word, too.
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
	// MaxAge is for how long what was read is remembered.
	MaxAge = time.Second
	// Timeout bounds a read, where nothing else does.
	Timeout = 5 * time.Second
	// BehindRetry is when to look again where a cache is behind its API server. The event that it
	// lacks brings the key back.
	BehindRetry = 30 * time.Second
)

// Reader reads objects past a cache: each once a second at most, however many ask. New makes one.
type Reader struct {
	reader  client.Reader
	bound   Bound
	clock   clock.Clock
	read    *expiring.Expiring
	flights singleflight.Group
}

// Bound returns a context for a single read, which ends it.
type Bound func(ctx context.Context) (context.Context, context.CancelFunc)

// New returns a Reader that reads by a client without a cache.
func New(reader client.Reader, c clock.Clock) *Reader {
	bound := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, Timeout)
	}
	return &Reader{reader: reader, bound: bound, clock: c, read: expiring.NewExpiringWithClock(c)}
}

// Within sets what bounds a read, in place of Timeout. It returns the Reader.
func (r *Reader) Within(bound Bound) *Reader {
	r.bound = bound
	return r
}

// answer is what the API server said of an object, and when it was asked.
type answer struct {
	object client.Object
	err    error
	asked  time.Time
}

// Get reads an object, which is shared with other readers: it is not to be changed. What it is
// read into is empty, but for the kind of one that is read as metadata.
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
			if read, ok := r.read.Get(name); ok { // by the flight before
				return read, nil
			}
			// Others may wait for it, too: it does not end with the first who asked.
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
			return time.Time{}, fmt.Errorf("reading %T %s: %w", o, key, ctx.Err())
		}
	}
	a := found.(*answer)
	if a.err != nil {
		return a.asked, a.err
	}
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(a.object).Elem())
	return a.asked, nil
}

// Reading returns what a single decision reads by.
func (r *Reader) Reading() *Reading { return &Reading{reader: r, began: r.clock.Now()} }

// Reading is what a single decision reads past the cache.
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

// Old tells whether something was read before the decision began: it may be older than the
// cache.
func (r *Reading) Old() bool { return r.old }

// Again returns when to look again where the cache says something else than was read.
func (r *Reading) Again(intervals interval.Scale) time.Duration {
	if r.old { // the cache may be right
		return MaxAge
	}
	return intervals.Of(BehindRetry)
}
