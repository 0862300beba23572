package spoke

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// fleetDecoding bounds the memory in which large answers of all spokes are decoded, in bytes. One of the largest page
	// takes all of it.
	fleetDecoding = 192 << 20
	// decodingTime is the longest time for which a decoded answer keeps its part. It takes less; the bound ends a wait for
	// something that was forgotten.
	decodingTime = 5 * time.Second
	// chargeStep is by how much a charge has to change to be counted, in bytes, so that usual answers take no lock.
	chargeStep = 64 << 10
	// fleetFlag is where the bound of a fleetMemory comes from: it is a third of Go's memory limit, which is nine tenths of
	// the container's.
	fleetFlag = "three tenths of chart value resources.limits.memory"
)

// fleetMemory bounds the memory of all spokes together: each of them is within its own bounds, but several hostile ones
// could exhaust the manager. If they keep more than the bound, the session of the spoke that keeps the most ends. Its memory
// no longer counts, because it is about to be released. Large answers are decoded in turn. A nil fleetMemory has no bounds.
type fleetMemory struct {
	// most bounds what is kept, in bytes; 0 means no bound.
	most     int64
	decoding *semaphore.Weighted

	mu sync.Mutex
	// accounts are those that count, and total is their sum.
	accounts map[*account]bool
	total    int64
}

// account is the memory that a connection keeps: its caches, the answers that are being read, and those of its evaluators.
// A nil account is not counted.
type account struct {
	fleet *fleetMemory
	// tell ends the session. It must not wait for anything.
	tell func(*TooLargeError)

	// The fleet's lock guards these. bytes is the sum of the charges. ending means that the session was ended, and closed
	// that the connection is no longer used; neither counts.
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
	return &fleetMemory{most: most, decoding: semaphore.NewWeighted(fleetDecoding), accounts: map[*account]bool{}}
}

// account returns a new account. Close it when the connection is no longer used.
func (f *fleetMemory) account(tell func(*TooLargeError)) *account {
	return &account{fleet: f, tell: tell}
}

// fleetOf returns the memory of all spokes, or nil.
func (a *account) fleetOf() *fleetMemory {
	if a == nil {
		return nil
	}
	return a.fleet
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
	excess = &TooLargeError{What: "the spokes together use too much memory of the manager, and this one uses the most", Value: f.total, Bound: f.most, Unit: "bytes", Flag: fleetFlag}
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

// decode waits until there is memory for decoding an answer, in the order of the calls, or returns the error of ctx. End
// the decoding when the answer was used.
func (f *fleetMemory) decode(ctx context.Context, cost int64) (*decoding, error) {
	if f == nil {
		return nil, nil
	}
	cost = min(cost, fleetDecoding)
	if err := f.decoding.Acquire(ctx, cost); err != nil {
		return nil, err //nolint:wrapcheck // it is the context's
	}
	d := &decoding{release: sync.OnceFunc(func() { f.decoding.Release(cost) })}
	d.timer = time.AfterFunc(decodingTime, d.release)
	return d, nil
}

// decoding is an answer that is being decoded. A nil decoding has no memory.
type decoding struct {
	release func()
	timer   *time.Timer
}

// end returns the memory. It may be called more than once.
func (d *decoding) end() {
	if d != nil {
		d.timer.Stop()
		d.release()
	}
}
