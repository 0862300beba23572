package spoke

import (
	"errors"
	"sync"
)

// errBusy ends a page that exceeds its share while the pages of all spokes together have reached their limit.
// The page is then requested with fewer objects.
var errBusy = errors.New("the lists of all spokes together have reached their memory limit")

// pageBudget bounds the total size of the pages of all spokes that are read concurrently, in bytes. Above it,
// each page gets an equal share, so that a slow spoke delays no other.
type pageBudget struct {
	most int64

	mu     sync.Mutex
	total  int64
	active int64 // pages
}

// share is the share of one page.
type share struct {
	of *pageBudget
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
	return &share{of: b}
}

// take adds bytes, or returns errBusy.
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

// end returns all bytes.
func (s *share) end() {
	if s == nil {
		return
	}
	b := s.of
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total, b.active = b.total-s.held, b.active-1
}
