package spoke

import (
	"context"
	"errors"
	"sync"
)

// errBusy ends a page that exceeds its share while the pages of a spoke, or of all spokes, have reached their limit.
// The page is then requested with fewer objects.
var errBusy = errors.New("the lists that are being read have reached their memory limit")

// pageBudget bounds the total size of the pages of a spoke, or of all spokes, that are read concurrently, in bytes. Above it,
// each page gets an equal share, so that a slow spoke delays no other.
type pageBudget struct {
	most int64
	// within is the budget of more spokes, or nil.
	within *pageBudget

	mu     sync.Mutex
	total  int64
	active int64 // pages
}

// share is the share of one page.
type share struct {
	of *pageBudget
	// outer is its share of the budget of more spokes, and turn lets one large page of a spoke be decoded at a time. Both may
	// be nil.
	outer *share
	turn  *together
	part  partOf
	// decoded returns the memory in which it is decoded; nil for none.
	decoded func()
	// held is guarded by the budget's lock.
	held int64
}

// join returns the share of another page. End it afterwards. A nil budget has no limit.
func (b *pageBudget) join() *share {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active++
	return &share{of: b, outer: b.within.join()}
}

// take adds bytes, or returns errBusy.
func (s *share) take(n int64) error {
	if s == nil {
		return nil
	}
	if busy := s.outer.take(n); busy != nil {
		return busy
	}
	b := s.of
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total, s.held = b.total+n, s.held+n
	if b.total > b.most && s.held > b.most/b.active {
		return errBusy
	}
	return nil
}

// pageTurn is how long a page waits for its turn. It is shorter than the time after which a page that is not complete ends
// the session (pageStuck).
const pageTurn = pageStuck / 3

// arrived waits until no other large page or event of the spoke is being decoded, and until there is memory for it. It
// returns errBusy if that takes too long.
func (s *share) arrived(ctx context.Context, of *account, cost int64) error {
	if s == nil {
		return nil
	}
	s.turn.await(ctx, &s.part, pageTurn)
	ctx, cancel := context.WithTimeout(ctx, pageTurn)
	defer cancel()
	var err error
	if s.decoded, err = of.decode(ctx, cost); err != nil {
		return errBusy
	}
	return nil
}

// end returns all bytes.
func (s *share) end() {
	if s == nil {
		return
	}
	s.turn.end(&s.part)
	if s.decoded != nil {
		s.decoded()
	}
	s.outer.end()
	b := s.of
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total, b.active = b.total-s.held, b.active-1
}
