package generate

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
)

// DefaultWrites is how many AlertRules per second a spoke may cause to be rewritten.
const DefaultWrites = 10

const (
	// paceBurst is the burst of a spoke, in seconds.
	paceBurst = 10
	// paceMemory is how long the input of a workload's AlertRules is remembered. A spoke may have 20,000
	// workloads of a kind, so fewer than DefaultWrites of them are forgotten per second.
	paceMemory = time.Hour
	// A workload may cause keyBurst rewrites at once, and then one per keyEvery.
	keyBurst, keyEvery = 3, 10 * time.Second
)

// pace limits how often a spoke causes rewrites of AlertRules by changing its workloads back and forth. The
// first write for a workload, and changes on the hub, do not wait. Nothing is queued: the workload is read
// again when its turn comes. The zero value is ready to use.
type pace struct {
	// writes is the rate per second; 0 means DefaultWrites.
	writes int

	mu     sync.Mutex
	spokes map[string]*pacedSpoke
}

type pacedSpoke struct {
	bucket *rate.Limiter
	// written are the workloads whose AlertRules were written recently, and swept is when older ones were last
	// dropped.
	written map[rule.Key]*pacedKey
	swept   time.Time
}

type pacedKey struct {
	// digest is that of the input of the last write, and at is when it was.
	digest uint64
	at     time.Time
	// turn is when the next rewrite is allowed; zero if none waits.
	turn time.Time
	own  *rate.Limiter // nil before the first rewrite
}

func (p *pace) spokeLocked(name string) *pacedSpoke {
	s := p.spokes[name]
	if s == nil {
		limit := p.writes
		if limit == 0 {
			limit = DefaultWrites
		}
		s = &pacedSpoke{bucket: rate.NewLimiter(rate.Limit(limit), paceBurst*limit), written: map[rule.Key]*pacedKey{}}
		if p.spokes == nil {
			p.spokes = map[string]*pacedSpoke{}
		}
		p.spokes[name] = s
	}
	return s
}

// seed is that of all digests of this process.
var seed = maphash.MakeSeed()

// digest is a digest of everything that a spoke contributes to a workload's AlertRules.
func digest(w *templating.Workload) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	if w != nil {
		_, _ = fmt.Fprintf(&h, "%q%q%q", w.Labels, w.Annotations, w.NamespaceLabels)
	}
	return h.Sum64()
}

// wait returns how long to delay the writes for a workload, given the digest of their input.
func (p *pace) wait(spoke string, key rule.Key, digest uint64) time.Duration {
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

// wrote records writes for a workload and their input. Those of a first write do not count.
func (p *pace) wrote(spoke string, key rule.Key, digest uint64, writes int) {
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
	if !k.turn.IsZero() && writes > 1 { // one is already reserved
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

// forget drops the state of a spoke.
func (p *pace) forget(spoke string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.spokes, spoke)
}

// writesKey is the context key of the number of writes to the hub.
type writesKey struct{}

// counting returns a context that counts writes to the hub.
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
