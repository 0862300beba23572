package spoke

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
)

// together bounds the answers of a spoke that are read at the same time, except for pages of lists, events and answers
// of evaluators, which have bounds of their own. Each answer alone may be within its bound, but up to 64 writes are in
// flight at once. An answer that does not fit beside the others waits for them. That is no reason to end the session:
// anyone who can write objects in the spoke can make them large. The answer that began first never waits, so one is
// always read. Nor does a small one wait, such as that of a probe: otherwise, the spoke would seem to be away. A nil
// together has no bound.
type together struct {
	// others bounds all answers but the first one, which has its own bounds, in bytes.
	others int64

	mu sync.Mutex
	// parts are those of the answers that are being read, in the order in which they began.
	parts []*partOf
	// freed is closed when an answer was read; nil if none waits.
	freed chan struct{}
}

// maxSmall is the size of an answer that does not wait, in bytes. As many as writes are in flight have a quarter of a
// mebibyte.
const maxSmall = 4 << 10

// partOf is a part of what is held.
type partOf struct {
	bytes int64
	// over means that the answer is not read any more.
	over bool
}

// newTogether returns the bound of a connection: half of its memory, of which one answer can have a twenty-fourth.
func newTogether(l Limits) *together {
	return &together{others: 11 * l.memory() / 24}
}

// take adds bytes to the part of an answer. It waits until they fit.
func (t *together) take(ctx context.Context, part *partOf, bytes int64) error {
	if t == nil {
		return nil
	}
	for {
		freed, err := t.try(part, bytes)
		if freed == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err() //nolint:wrapcheck // it is the context's
		case <-freed:
		}
	}
}

// await waits for the turn to decode what has arrived, but not for longer than a time. Nothing of the spoke is missing
// any more, and nothing is read until the turn has ended.
func (t *together) await(ctx context.Context, part *partOf, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	_ = t.take(ctx, part, maxSmall+1) // if it fails, nobody reads the answer, or it has waited for long enough
}

// try is take, but returns a channel that is closed when it should be tried again.
func (t *together) try(part *partOf, bytes int64) (<-chan struct{}, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if part.over {
		return nil, http.ErrBodyReadAfterClose
	}
	if !slices.Contains(t.parts, part) {
		t.parts = append(t.parts, part)
	}
	if part != t.parts[0] && part.bytes+bytes > maxSmall && !t.fits(bytes) {
		if t.freed == nil {
			t.freed = make(chan struct{})
		}
		return t.freed, nil
	}
	part.bytes += bytes
	return nil, nil
}

// fits reports whether bytes fit beside those of all answers but the first one.
func (t *together) fits(bytes int64) bool {
	for _, part := range t.parts[1:] {
		bytes += part.bytes
	}
	return bytes <= t.others
}

// end takes away the part of an answer, of which no more is read.
func (t *together) end(part *partOf) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	part.over = true
	t.drop(part)
}

// release takes away the part of an answer, of which more may be read.
func (t *together) release(part *partOf) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(part)
}

func (t *together) drop(part *partOf) {
	part.bytes = 0
	i := slices.Index(t.parts, part)
	if i < 0 {
		return
	}
	t.parts = slices.Delete(t.parts, i, i+1)
	if t.freed != nil {
		close(t.freed)
		t.freed = nil
	}
}
