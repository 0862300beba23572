package spoke

import "sync"

// together bounds the answers of a spoke that are read at the same time, except for pages of lists, events and answers
// of evaluators, which have bounds of their own. Each answer alone may be within its bound, but up to 64 writes are in
// flight at once. A nil together has no bound.
type together struct {
	bounds

	mu   sync.Mutex
	held partOf
}

// partOf is a part of what is held.
type partOf struct{ bytes, values int64 }

// newTogether returns the bound of a connection.
func newTogether(l Limits) *together {
	return &together{bounds: bounds{bytes: 2 * l.memory() / 3, values: 3 * maxValues / 2}}
}

// add adds an amount, which is negative when an answer was read, and returns the bound that is exceeded, or nil.
func (t *together) add(a partOf) *TooLargeError {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held.bytes += a.bytes
	t.held.values += a.values
	e := &TooLargeError{What: "concurrent answers of the spoke"}
	switch {
	case a.bytes <= 0:
		return nil
	case t.held.bytes > t.bytes:
		e.Value, e.Bound, e.Unit, e.Flag = t.held.bytes, t.bytes, "bytes", "two thirds of "+memoryFlag
	case t.held.values > t.values:
		e.Value, e.Bound, e.Unit = t.held.values, t.values, "JSON values"
	default:
		return nil
	}
	return e
}
