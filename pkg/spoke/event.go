package spoke

import (
	"context"
	"net/http"
	"time"
)

// eventBody is the body of a watch. It bounds each event, and how fast they are read.
type eventBody struct {
	*meteredBody
	pace *eventPace
	// large means that a large event has ended since the last read. cost is the highest cost of these events, and decoded
	// returns the memory for it; nil for none.
	large   bool
	cost    int64
	decoded func()
	// largest is the size of the largest event, in bytes.
	largest int64
	// next is when the next read may begin. ctx ends when the body is closed.
	next  time.Time
	ctx   context.Context
	close context.CancelFunc
}

// eventBuffers is how many times the size of the largest event client-go's buffers have until the watch ends: there are two
// of them, and each doubles while it grows.
const eventBuffers = 4

func newEventBody(req *http.Request, body *meteredBody, ps *paces, account *account) *eventBody {
	b := &eventBody{meteredBody: body, pace: ps.of(req.URL.Path)}
	b.charge = account.charge()
	if ps != nil {
		b.turn = &ps.turn
	}
	b.ctx, b.close = context.WithCancel(req.Context())
	return b
}

// Read implements io.Reader.
func (b *eventBody) Read(p []byte) (int, error) { return untilKept(b.read, p) }

func (b *eventBody) read(p []byte) (int, error) {
	if b.over != nil {
		return 0, b.over
	}
	if b.large { // it is decoded, or would not be read further
		b.turn.release(&b.held)
		if b.decoded != nil {
			b.decoded()
		}
		b.large, b.cost, b.decoded = false, 0, nil
	}
	if err := pause(b.ctx, b.next); err != nil {
		return 0, b.slow.why(err)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), eventStep)])
	b.slow.add(n)
	kept, events, values, excess := b.add(p[:n])
	if excess != nil {
		return 0, b.end(excess)
	}
	if b.largest > largeEvent {
		b.charge.Set(eventBuffers * b.largest)
	}
	b.next = b.pace.read(time.Now(), events, int64(n), values)
	if events > 0 {
		b.slow.stop()
	}
	if b.large {
		b.turn.await(b.ctx, &b.held, eventTime)
		if done, err := b.account.decode(b.ctx, b.cost); err == nil { // otherwise the watch has ended
			stop := context.AfterFunc(b.ctx, done)
			b.decoded = func() { stop(); done() }
		}
	}
	if b.meter.depth > 0 {
		b.slow.start()
	}
	return kept, b.slow.why(err)
}

// add counts bytes that were read. It returns how many of them are kept, and the number of events that ended with
// them, and of JSON values.
func (b *eventBody) add(p []byte) (kept int, events, values int64, excess *TooLargeError) {
	for at := 0; at < len(p); {
		before := b.meter.values
		used, has, ended, excess := b.meter.add(p[at:])
		if excess != nil {
			return 0, 0, 0, excess
		}
		kept += move(p, kept, at, at+has)
		at += used
		values += b.meter.values - before
		b.largest = max(b.largest, b.meter.decoded)
		if ended {
			events++
			if b.meter.largeEvent() {
				b.large, b.cost = true, max(b.cost, b.meter.cost())
			}
			b.meter.next()
		}
	}
	return kept, events, values, nil
}

// Close implements io.Closer. It may be called while a read waits, and more than once.
func (b *eventBody) Close() error {
	b.close()
	b.slow.stop()
	b.turn.end(&b.held)
	b.charge.Close()
	return b.ReadCloser.Close() //nolint:wrapcheck // a body is transparent
}
