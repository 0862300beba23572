package spoke

import (
	"errors"
	"sync"
)

// errBusy ends a page of a list that is larger than its share while the pages of all spokes
// together take as much memory as they may. Fewer objects are asked for then.
var errBusy = errors.New("the lists of all spokes together have reached their memory limit")

// pageBudget bounds the sum of the pages of all spokes that are read at a time, in bytes. Beyond it,
// no page gets more than an equal share: a spoke that sends its page slowly keeps no other one waiting.
type pageBudget struct {
	most int64

	mu     sync.Mutex
	total  int64
	active int64 // pages
}

// share is what one page takes.
type share struct {
	of *pageBudget
	// held is guarded by the budget's lock.
	held int64
}

// join returns the share of another page, which has to be ended. A nil budget has none.
func (b *pageBudget) join() *share {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active++
	return &share{of: b}
}

// take takes some more bytes, or returns errBusy.
func (s *share) take(n int64) error {
	if s == nil {
		return nil
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

// end gives all back.
func (s *share) end() {
	if s == nil {
		return
	}
	b := s.of
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total, b.active = b.total-s.held, b.active-1
}
