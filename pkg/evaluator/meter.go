package evaluator

import (
	"context"
	"fmt"
	"io"
)

// maxValue bounds each single value in an answer, such as a text. A rule file that
// comes from a PrometheusRule is smaller.
const maxValue = 1 << 20

// meter reads the body of an answer for a decoder that keeps in memory what it has not
// decoded yet, and ends it where a limit is passed.
type meter struct {
	ctx     context.Context // of the request
	from    io.Reader
	left    *int64       // of what the whole call may read
	read    int64        // so far
	decoded func() int64 // how much of that is done with
	html    bool         // it begins as no JSON does
	err     error        // why it ended, other than io.EOF
}

// Read fills p as far as it can: a decoder that is handed single bytes by an evaluator
// that means no good would look at the same ones over and over.
func (m *meter) Read(p []byte) (int, error) {
	if m.read-m.decoded() > maxValue {
		return 0, m.fail(&Error{Kind: TooMuch, Message: fmt.Sprintf("the answer has a value of more than %d bytes", maxValue)})
	}
	if *m.left < 0 {
		return 0, m.fail(&Error{Kind: TooMuch, Message: "the answer is larger than the limit"})
	}
	// One byte more than may be read tells whether there are more.
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
	if err != nil && err != io.EOF { //nolint:errorlint // an error that wraps it is another
		if m.ctx.Err() != nil {
			err = m.ctx.Err() // what the connection says of it differs
		}
		err = m.fail(unreachable("the answer of the evaluator broke off", err))
	}
	return n, err
}

func (m *meter) fail(err error) error {
	m.err = err
	return err
}
