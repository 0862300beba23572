package hub

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
	// liveFor is for how long what was read past the cache is remembered.
	liveFor = time.Second
	// liveTimeout bounds such a read.
	liveTimeout = 5 * time.Second
)

// BehindRetry is when to look again where the hub's cache is behind its API server. The
// event that it lacks brings the key back.
const BehindRetry = 30 * time.Second

// Getter reads one object.
type Getter interface {
	Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error
}

// Live reads objects past the cache: each once a second at most, however many ask. A cache
// can be old, as that of a replica that leads since a moment ago: what is removed by it
// has to be so by the API server's word, too (DESIGN §3.11). NewLive makes one.
type Live struct {
	reader  client.Reader
	clock   clock.Clock
	read    *expiring.Expiring
	flights singleflight.Group
}

// NewLive returns a Live that reads by a client without a cache.
func NewLive(reader client.Reader, c clock.Clock) *Live {
	return &Live{reader: reader, clock: c, read: expiring.NewExpiringWithClock(c)}
}

// answer is what the API server said of an object, and when it was asked.
type answer struct {
	object client.Object
	err    error
	asked  time.Time
}

// Get reads an object, which is shared with other readers: it is not to be changed.
func (l *Live) Get(ctx context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	_, err := l.get(ctx, key, o)
	return err
}

// get is Get, and returns when the API server was asked.
func (l *Live) get(ctx context.Context, key client.ObjectKey, o client.Object) (time.Time, error) {
	name := fmt.Sprintf("%T %s", o, key)
	found, ok := l.read.Get(name)
	if !ok {
		flight := l.flights.DoChan(name, func() (any, error) {
			if read, ok := l.read.Get(name); ok { // by the flight before
				return read, nil
			}
			// Others may wait for it, too: it does not end with the first who asked.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), liveTimeout)
			defer cancel()
			a := &answer{object: reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object), asked: l.clock.Now()}
			a.err = l.reader.Get(ctx, key, a.object)
			l.read.Set(name, a, liveFor)
			return a, nil
		})
		select {
		case result := <-flight:
			found = result.Val
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("reading %s: %w", name, ctx.Err())
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
func (l *Live) Reading() *Reading { return &Reading{live: l, began: l.clock.Now()} }

// Reading is what a single decision reads past the cache.
type Reading struct {
	live  *Live
	began time.Time
	old   bool
}

// Get implements Getter.
func (r *Reading) Get(ctx context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	asked, err := r.live.get(ctx, key, o)
	r.old = r.old || asked.Before(r.began)
	return err
}

// Old tells whether something was read before the decision began: it may be older than the
// cache.
func (r *Reading) Old() bool { return r.old }

// Again returns when to look again where the cache says something else than was read.
func (r *Reading) Again(intervals interval.Scale) time.Duration {
	if r.old { // the cache may be right
		return liveFor
	}
	return intervals.Of(BehindRetry)
}
