package spoke

import (
	"context"
	"net/http"
	"slices"
	"sync"
)

// together bounds the answers of a spoke that are read at the same time, except for pages of lists, events and answers
// of evaluators, which have bounds of their own. Each answer alone may be within its bound, but up to 64 writes are in
// flight at once. An answer that does not fit beside the others waits for them. That is no reason to end the session:
// anyone who can write objects in the spoke can make them large. The answer that began first never waits, so one is
// always read. Nor does a small one wait, such as that of a probe: otherwise, the spoke would seem to be away. A nil
// together has no bound.
type together struct {
	// others bounds all answers but the first one, which has its own bounds.
	others bounds

	mu   sync.Mutex
	held partOf
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
	bytes, values int64
	// over means that the answer is not read any more.
	over bool
}

// newTogether returns the bound of a connection: two thirds of its memory, of which one answer can have a quarter.
func newTogether(l Limits) *together {
	return &together{others: bounds{bytes: 5 * l.memory() / 12, values: maxValues / 2}}
}

// take adds bytes and values to the part of an answer. It waits until they fit.
func (t *together) take(ctx context.Context, part *partOf, bytes, values int64) error {
	if t == nil {
		return nil
	}
	for {
		freed, err := t.try(part, bytes, values)
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

// try is take, but returns a channel that is closed when it should be tried again.
func (t *together) try(part *partOf, bytes, values int64) (<-chan struct{}, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if part.over {
		return nil, http.ErrBodyReadAfterClose
	}
	if !slices.Contains(t.parts, part) {
		t.parts = append(t.parts, part)
	}
	first := t.parts[0]
	large := part.bytes+bytes > maxSmall
	if part != first && large && (t.held.bytes-first.bytes+bytes > t.others.bytes || t.held.values-first.values+values > t.others.values) {
		if t.freed == nil {
			t.freed = make(chan struct{})
		}
		return t.freed, nil
	}
	part.bytes += bytes
	part.values += values
	t.held.bytes += bytes
	t.held.values += values
	return nil, nil
}

// end takes away the part of an answer.
func (t *together) end(part *partOf) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	part.over = true
	i := slices.Index(t.parts, part)
	if i < 0 {
		return
	}
	t.parts = slices.Delete(t.parts, i, i+1)
	t.held.bytes -= part.bytes
	t.held.values -= part.values
	if t.freed != nil {
		close(t.freed)
		t.freed = nil
	}
}
