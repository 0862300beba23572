package spoke

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// smallDecoding and largeDecoding bound the memory in which answers of all spokes are decoded, in bytes: those that take
	// up to largeCost, such as the pages of usual lists, and those that take more. Very large answers delay only other very
	// large answers. The largest page takes all of largeDecoding.
	smallDecoding, largeDecoding = 32 << 20, 128 << 20
	largeCost                    = 8 << 20
	// decodingTime is the longest time for which an answer keeps its part of this memory. Decoding takes less time. After
	// this time, the memory counts as free even if done was not called.
	decodingTime = 30 * time.Second
	// chargeStep is by how much a charge has to change to be counted, in bytes.
	chargeStep = 64 << 10
	// fleetFlag names the setting that raises the bound of a fleetMemory. The bound is two fifths of Go's memory limit,
	// which is nine tenths of the container's.
	fleetFlag = "36 % of chart value resources.limits.memory"
)

// fleetMemory bounds the memory of all spokes together: each of them is within its own bounds, but several hostile ones
// could exhaust the manager's memory. If they keep more than the bound, the session of the spoke that keeps the most ends.
// Its memory no longer counts, because it is about to be released. Large answers are decoded in turn.
type fleetMemory struct {
	// most bounds what is kept, in bytes; 0 means no bound.
	most int64
	// small and large are the memory in which answers are decoded.
	small, large *semaphore.Weighted

	mu sync.Mutex
	// accounts are those that count, and total is their sum.
	accounts map[*account]bool
	total    int64
}

// account is the memory that a connection keeps: its caches, the answers that are being read, and those of its evaluators.
// A nil account is not counted.
type account struct {
	fleet *fleetMemory
	// tell ends the session. It must not block: the caller may hold a lock.
	tell func(*TooLargeError)

	// The fleet's lock guards these. bytes is the sum of the charges. ending means that the session was ended, and closed
	// that the connection is no longer used. In both cases, the account does not count.
	bytes          int64
	ending, closed bool
}

// Charge is a part of the memory of a spoke. A nil Charge is not counted.
type Charge struct {
	of    *account
	bytes atomic.Int64 // written under the fleet's lock
	// closed is guarded by the fleet's lock.
	closed bool
}

// newFleetMemory returns the bounds of a process whose spokes may keep this many bytes together; 0 means no bound.
func newFleetMemory(most int64) *fleetMemory {
	return &fleetMemory{most: most, small: semaphore.NewWeighted(smallDecoding), large: semaphore.NewWeighted(largeDecoding), accounts: map[*account]bool{}}
}

// account returns a new account. Close it when the connection is no longer used.
func (f *fleetMemory) account(tell func(*TooLargeError)) *account {
	return &account{fleet: f, tell: tell}
}

// begin makes the account count when the next session begins.
func (a *account) begin() {
	if a != nil {
		a.change(func() { a.ending = false })
	}
}

// close makes the account not count any more.
func (a *account) close() {
	if a != nil {
		a.change(func() { a.closed = true })
	}
}

// change changes the account. If the spokes keep too much together afterwards, those that keep the most are told.
func (a *account) change(by func()) {
	f := a.fleet
	f.mu.Lock()
	f.countLocked(a, -1)
	by()
	f.countLocked(a, 1)
	told, excess := f.exceededLocked()
	f.mu.Unlock()
	for _, a := range told {
		a.tell(excess)
	}
}

// countLocked adds an account to the total, or takes it away.
func (f *fleetMemory) countLocked(a *account, sign int64) {
	if a.ending || a.closed {
		return
	}
	f.total += sign * a.bytes
	if sign > 0 && a.bytes > 0 {
		f.accounts[a] = true
	} else {
		delete(f.accounts, a)
	}
}

// exceededLocked returns the accounts whose sessions must end, the largest ones, and the reason.
func (f *fleetMemory) exceededLocked() (told []*account, excess *TooLargeError) {
	if f.most <= 0 || f.total <= f.most {
		return nil, nil
	}
	excess = &TooLargeError{What: "all spokes together use too much of the manager's memory, and this one uses the most", Value: f.total, Bound: f.most, Unit: "bytes", Flag: fleetFlag}
	for f.total > f.most {
		var largest *account
		for a := range f.accounts {
			if largest == nil || a.bytes > largest.bytes {
				largest = a
			}
		}
		f.countLocked(largest, -1)
		largest.ending = true
		told = append(told, largest)
	}
	return told, excess
}

// charge returns a new part of the account. Close it when nothing of it is kept any more.
func (a *account) charge() *Charge {
	if a == nil {
		return nil
	}
	return &Charge{of: a}
}

// Set sets the size of a charge, in bytes. Small changes are not counted.
func (c *Charge) Set(bytes int64) {
	if c == nil {
		return
	}
	if is := c.bytes.Load(); max(bytes, is)-min(bytes, is) < chargeStep {
		return
	}
	c.of.change(func() {
		if !c.closed {
			c.of.bytes += bytes - c.bytes.Swap(bytes)
		}
	})
}

// Close ends a charge. It may be called more than once.
func (c *Charge) Close() {
	if c == nil {
		return
	}
	c.of.change(func() {
		c.closed = true
		c.of.bytes -= c.bytes.Swap(0)
	})
}

// decode waits until there is memory to decode an answer. Calls are served in order. If ctx ends first, it returns its
// error. Call done when the answer is no longer needed; it may be called more than once.
func (a *account) decode(ctx context.Context, cost int64) (done func(), err error) {
	if a == nil {
		return func() {}, nil
	}
	from, cost := a.fleet.small, max(cost, 1)
	if cost > largeCost {
		from, cost = a.fleet.large, min(cost, largeDecoding)
	}
	if err := from.Acquire(ctx, cost); err != nil {
		return nil, err //nolint:wrapcheck // it is the context's
	}
	release := sync.OnceFunc(func() { from.Release(cost) })
	forgotten := time.AfterFunc(decodingTime, release)
	return func() { forgotten.Stop(); release() }, nil
}
