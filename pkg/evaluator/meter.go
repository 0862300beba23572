package evaluator

import (
	"context"
	"fmt"
	"io"
)

// maxValue bounds each value in an answer, such as a string. The file of a PrometheusRule is smaller.
const maxValue = 1 << 20

// meter reads the body of an answer for a decoder that buffers its input, and ends it when a limit is
// exceeded.
type meter struct {
	ctx     context.Context // of the request
	from    io.Reader
	left    *int64       // of the limit of the whole call
	read    int64        // so far
	decoded func() int64 // how much of that the decoder has consumed
	html    bool         // it does not begin like JSON
	err     error        // why it ended, other than io.EOF
}

// Read fills p as far as possible: with single bytes, a decoder would scan its buffer over and over.
func (m *meter) Read(p []byte) (int, error) {
	if m.read-m.decoded() > maxValue {
		return 0, m.fail(&Error{Kind: TooMuch, Message: fmt.Sprintf("the answer has a value of more than %d bytes", maxValue)})
	}
	if *m.left < 0 {
		return 0, m.fail(&Error{Kind: TooMuch, Message: "the answer is larger than 64 MiB, the maximum; reduce the number of rules there"})
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
