package generate

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/pkg/rule"
)

// DefaultWrites is how many AlertRules a second a spoke may have rewritten.
const DefaultWrites = 10

const (
	// paceBurst is for how many seconds a spoke may save up what it may have rewritten.
	paceBurst = 10
	// paceMemory is for how long it is remembered from what a Deployment's AlertRules were written.
	// A spoke may hold 20,000 Deployments: less than DefaultWrites of them are forgotten in a second.
	paceMemory = time.Hour
	// A Deployment may have its AlertRules rewritten keyBurst times at once, and then once in keyEvery.
	keyBurst, keyEvery = 3, 10 * time.Second
)

// pace bounds how often a spoke has AlertRules rewritten by changing its Deployments back and forth.
// The first write for a Deployment waits for nothing, and neither does what follows from a change on
// the hub. Nothing is queued: a Deployment whose turn comes later is read again then. The zero value
// is ready to use.
type pace struct {
	// writes is how many a second; 0 is DefaultWrites.
	writes int

	mu     sync.Mutex
	spokes map[string]*pacedSpoke
	seed   maphash.Seed
}

type pacedSpoke struct {
	bucket *rate.Limiter
	// written are the Deployments whose AlertRules were written lately, and swept is when those
	// that are older were dropped.
	written map[types.NamespacedName]*pacedKey
	swept   time.Time
}

type pacedKey struct {
	// digest is that of what the AlertRules were last written from, and at is when.
	digest uint64
	at     time.Time
	// turn is when they may be rewritten; zero while nothing waits.
	turn time.Time
	own  *rate.Limiter // nil before the first time
}

func (p *pace) spokeLocked(name string) *pacedSpoke {
	s := p.spokes[name]
	if s == nil {
		limit := p.writes
		if limit == 0 {
			limit = DefaultWrites
		}
		s = &pacedSpoke{bucket: rate.NewLimiter(rate.Limit(limit), paceBurst*limit), written: map[types.NamespacedName]*pacedKey{}}
		if p.spokes == nil {
			p.spokes = map[string]*pacedSpoke{}
		}
		p.spokes[name] = s
	}
	return s
}

// digest is that of all that a spoke says of a Deployment.
func (p *pace) digest(w *rule.Workload) uint64 {
	p.mu.Lock()
	if p.seed == (maphash.Seed{}) {
		p.seed = maphash.MakeSeed()
	}
	var h maphash.Hash
	h.SetSeed(p.seed)
	p.mu.Unlock()
	if w != nil {
		_, _ = fmt.Fprintf(&h, "%q%q%q", w.Labels, w.Annotations, w.NamespaceLabels)
	}
	return h.Sum64()
}

// wait returns for how long the AlertRules of a Deployment are not to be written yet, given the digest
// of what they would be written from.
func (p *pace) wait(spoke string, key types.NamespacedName, digest uint64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.spokes[spoke]
	if s == nil {
		return 0
	}
	k, now := s.written[key], time.Now()
	if k == nil || k.digest == digest || now.Sub(k.at) > paceMemory {
		return 0
	}
	if k.turn.IsZero() {
		if k.own == nil {
			k.own = rate.NewLimiter(rate.Every(keyEvery), keyBurst)
		}
		k.turn = now.Add(max(k.own.ReserveN(now, 1).DelayFrom(now), s.bucket.ReserveN(now, 1).DelayFrom(now)))
	}
	return max(0, k.turn.Sub(now))
}

// wrote notes that AlertRules of a Deployment were written, and from what. Those of a first write are
// not counted.
func (p *pace) wrote(spoke string, key types.NamespacedName, digest uint64, writes int) {
	if writes == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s, now := p.spokeLocked(spoke), time.Now()
	k := s.written[key]
	if k == nil {
		k = &pacedKey{}
		s.written[key] = k
	}
	if !k.turn.IsZero() && writes > 1 { // one was reserved
		s.bucket.ReserveN(now, min(writes-1, s.bucket.Burst()))
	}
	k.digest, k.at, k.turn = digest, now, time.Time{}
	if now.Sub(s.swept) > paceMemory {
		s.swept = now
		for key, k := range s.written {
			if now.Sub(k.at) > paceMemory {
				delete(s.written, key)
			}
		}
	}
}

// forget drops what is remembered of a spoke.
func (p *pace) forget(spoke string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.spokes, spoke)
}

// writesKey is where the context of a reconcile has the number of its writes to the hub.
type writesKey struct{}

// counting returns a context whose writes to the hub are counted.
func counting(ctx context.Context) (counted context.Context, writes *int) {
	writes = new(int)
	return context.WithValue(ctx, writesKey{}, writes), writes
}

// count counts a write to the hub.
func count(ctx context.Context) {
	if writes, ok := ctx.Value(writesKey{}).(*int); ok {
		*writes++
	}
}
