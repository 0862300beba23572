package spoke

import (
	"bytes"
	"slices"
)

// meter counts JSON while it is read. It does not parse, and takes the same time for any input. It counts what
// determines the memory of the decoded objects, and leaves out what is nested deeper than keptNesting and, of metadata,
// what is in the lists unusedLists.
type meter struct {
	bounds
	what string
	// part means that a request for fewer objects is possible. dense means that the caller can do without an object that
	// has too many values. metadata means that the answer only has the metadata of objects.
	part, dense, metadata bool

	// decoded is how many bytes are not left out.
	read, decoded, values, items int64
	depth, deepest               int
	quoted, escaped              bool
	// last is the beginning of the last text, with its quote at the end. named means that only a colon has followed it.
	last  []byte
	named bool
	// unused is the depth of a list of unusedLists that is being read, or 0.
	unused int
}

// largeEvent and largeEventValues are the size of an event or a page that is decoded alone, in bytes and JSON values.
// largeAnswer and largeValues are that of another such answer, of which up to 64 may be decoded at once: usual ones have
// a few kilobytes.
const largeEvent, largeEventValues, largeAnswer, largeValues = 256 << 10, 1 << 14, 64 << 10, 2048

// unusedLists are lists in the metadata of objects that nobody uses. They can be much larger than what is used.
var unusedLists = []string{`ownerReferences"`, `managedFields"`}

// add counts input up to the end of a top-level value. It returns the number of bytes counted, and whether the
// value has ended. It moves the bytes that are kept to the front of p, and returns their number.
func (m *meter) add(p []byte) (n, kept int, ended bool, err *TooLargeError) {
	for n < len(p) && !ended {
		from, depth := n, m.depth
		switch {
		case m.escaped:
			m.escaped = false
			n++
		case m.quoted:
			n += m.text(p[n:])
			m.note(p[from:n])
		default:
			ended = m.mark(p[n])
			n++
		}
		if m.bounds.values == 0 || min(depth, m.depth) <= m.keeps() { // otherwise it is not decoded, or shallow enough
			kept += move(p, kept, from, n)
		}
	}
	m.read += int64(n)
	m.decoded += int64(kept)
	return n, kept, ended, m.exceeded()
}

// move moves p[from:end] to p[to:], and returns its length.
func move(p []byte, to, from, end int) int {
	if to < from {
		copy(p[to:], p[from:end])
	}
	return end - from
}

// text counts part of a string and returns its length.
func (m *meter) text(p []byte) int {
	p = p[:min(len(p), 512)] // the loop goes over it twice
	end := bytes.IndexByte(p, '"')
	if end >= 0 {
		p = p[:end]
	}
	if i := bytes.IndexByte(p, '\\'); i >= 0 {
		m.escaped = true
		return i + 1
	}
	if end >= 0 {
		m.quoted = false
		return end + 1
	}
	return len(p)
}

// keeps returns the depth of JSON that is kept.
func (m *meter) keeps() int {
	if m.unused > 0 {
		return min(m.unused, keptNesting)
	}
	return keptNesting
}

// note notes part of a string.
func (m *meter) note(p []byte) {
	if m.metadata && len(m.last) < 20 {
		m.last = append(m.last, p[:min(len(p), 20)]...)
	}
}

// names notes a byte outside strings, before it is counted.
func (m *meter) names(c byte) {
	switch c {
	case '"':
		m.last, m.named = m.last[:0], false
	case ':':
		m.named = true
	case ' ', '\t', '\r', '\n':
	case '[':
		if m.named && m.unused == 0 && slices.Contains(unusedLists, string(m.last)) {
			m.unused = m.depth
		}
		m.named = false
	default:
		m.named = false
	}
}

// mark counts a byte outside strings. It reports whether a top-level value ends with it.
func (m *meter) mark(c byte) (ended bool) {
	if m.metadata {
		m.names(c)
	}
	switch c {
	case '"':
		m.quoted = true
	case ',':
		m.values++
		if m.depth == 2 {
			m.items++
		}
	case '{', '[':
		m.values++
		m.depth++
		m.deepest = max(m.deepest, m.depth)
	case '}', ']':
		if m.depth > 0 {
			m.depth--
			if m.depth == m.unused {
				m.unused = 0
			}
			return m.depth == 0
		}
	}
	return false
}

// exceeded returns the bound that is exceeded, or nil.
func (m *meter) exceeded() *TooLargeError {
	e := &TooLargeError{What: m.what, part: m.part}
	switch {
	case m.bytes > 0 && m.read > m.bytes:
		e.Value, e.Bound, e.Unit, e.Flag = m.read, m.bytes, "bytes", m.flag
	case m.bounds.decoded > 0 && m.decoded > m.bounds.decoded:
		e.Value, e.Bound, e.Unit, e.Flag = m.decoded, m.bounds.decoded, "bytes", decodedFlag
	case m.bounds.values > 0 && m.values > m.bounds.values:
		e.Value, e.Bound, e.Unit, e.part = m.values, m.bounds.values, "JSON values", m.part || m.dense
	case m.bounds.items > 0 && m.items > m.bounds.items:
		e.Value, e.Bound, e.Unit = m.items, m.bounds.items, "objects"
		if e.Bound != maxShort {
			e.Flag = objectsFlag
		} else {
			e.part = false // the limit was ignored
		}
	case m.bounds.values > 0 && m.deepest > maxNesting: // if it is decoded as JSON
		e.Value, e.Bound, e.Unit, e.part = int64(m.deepest), maxNesting, "levels of JSON", false
	default:
		return nil
	}
	return e
}

// large reports whether an answer takes much memory while it is decoded.
func (m *meter) large() bool { return m.decoded > largeAnswer || m.values > largeValues }

// largeEvent is like large, for an event or a page. Fewer of them are decoded at the same time, so the threshold is higher.
func (m *meter) largeEvent() bool { return m.decoded > largeEvent || m.values > largeEventValues }

// cost estimates the memory that an answer takes while it is decoded, in bytes: the answer, its texts in the objects, and
// what values become, which is at most a map or a small struct each.
func (m *meter) cost() int64 { return 3*m.decoded + 200*m.values }

// next starts the next value.
func (m *meter) next() {
	*m = meter{bounds: m.bounds, what: m.what, part: m.part, dense: m.dense, metadata: m.metadata, last: m.last[:0]}
}

const typeJSON = "application/json"
