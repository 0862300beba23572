package evaluator

import (
	"context"
	"io"
)

// maxValue bounds each value in an answer, such as a string. The file of a PrometheusRule is smaller.
const maxValue = 1 << 20

// maxLevels bounds the levels of JSON in an answer. Those of Prometheus have less than 20.
const maxLevels = 256

// meter reads the body of an answer for a decoder that buffers its input, and ends it when a limit is
// exceeded.
type meter struct {
	ctx     context.Context // of the request
	from    io.Reader
	most    int64  // the limit of the whole call
	left    *int64 // of that
	nesting nesting
	read    int64        // so far
	decoded func() int64 // how much of that the decoder has consumed
	html    bool         // it does not begin like JSON
	err     error        // why it ended, other than io.EOF
}

// Read fills p as far as possible: with single bytes, a decoder would scan its buffer over and over.
func (m *meter) Read(p []byte) (int, error) {
	if m.read-m.decoded() > maxValue {
		return 0, m.fail(NewTooMuch("a value in the answer", m.read-m.decoded(), maxValue, "bytes", checkServer))
	}
	if *m.left < 0 {
		return 0, m.fail(NewTooMuch("the answer", m.most-*m.left, m.most, "bytes", "reduce the number of rules there"))
	}
	// One byte more than allowed shows whether there are more.
	p = p[:min(int64(len(p)), *m.left+1)]
	var (
		n   int
		err error
	)
	for n < len(p) && err == nil {
		var more int
		more, err = m.from.Read(p[n:])
		n += more
	}
	if m.read == 0 {
		m.html = isHTML(p[:n], "")
	}
	m.read += int64(n)
	*m.left -= int64(n)
	if levels := m.nesting.add(p[:n]); levels > maxLevels && !m.html {
		return 0, m.fail(NewTooMuch("the answer", int64(levels), maxLevels, "levels of JSON", checkServer))
	}
	if err != nil && err != io.EOF { //nolint:errorlint // an error that wraps it is different
		if m.ctx.Err() != nil {
			err = m.ctx.Err() // the error of the connection varies
		}
		err = m.fail(unreachable("the answer ended early", err))
	}
	return n, err
}

func (m *meter) fail(err error) error {
	m.err = err
	return err
}

// nesting counts the levels of JSON.
type nesting struct {
	depth           int
	quoted, escaped bool
}

// add counts input, and returns the deepest level in it.
func (l *nesting) add(p []byte) (deepest int) {
	for _, c := range p {
		switch {
		case l.escaped:
			l.escaped = false
		case l.quoted:
			l.escaped, l.quoted = c == '\\', c != '"'
		case c == '"':
			l.quoted = true
		case c == '{', c == '[':
			l.depth++
			deepest = max(deepest, l.depth)
		case c == '}', c == ']':
			l.depth = max(0, l.depth-1)
		}
	}
	return deepest
}
