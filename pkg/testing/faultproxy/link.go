package faultproxy

import (
	"context"
	"net"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// segment is the number of bytes that a link carries at a time.
const segment = 1460

// link carries all connections of a proxy at a shared rate. Each direction has its own rate, as on a
// full-duplex line. Nothing is buffered, so a writer waits.
type link struct {
	up, down       *rate.Limiter
	received, sent atomic.Int64
}

func newLink() *link {
	return &link{up: rate.NewLimiter(rate.Inf, segment), down: rate.NewLimiter(rate.Inf, segment)}
}

// listener accepts connections over a link.
type listener struct {
	net.Listener
	link *link
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &linked{Conn: conn, link: l.link, ctx: ctx, cancel: cancel}, nil
}

// linked is a connection over a link.
type linked struct {
	net.Conn
	link   *link
	ctx    context.Context
	cancel context.CancelFunc
}

// Read implements net.Conn.
func (c *linked) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b[:min(len(b), segment)])
	if n > 0 && c.link.up.WaitN(c.ctx, n) != nil {
		return 0, net.ErrClosed
	}
	c.link.received.Add(int64(n))
	return n, err
}

// Write implements net.Conn.
func (c *linked) Write(b []byte) (written int, err error) {
	for len(b) > 0 && err == nil {
		var n int
		part := b[:min(len(b), segment)]
		if c.link.down.WaitN(c.ctx, len(part)) != nil {
			return written, net.ErrClosed
		}
		n, err = c.Conn.Write(part)
		c.link.sent.Add(int64(n))
		written, b = written+n, b[n:]
	}
	return written, err
}

// Close implements net.Conn.
func (c *linked) Close() error {
	c.cancel()
	return c.Conn.Close()
}

// Limit limits the rate of all connections together, in each direction. 0 means no limit.
func (p *Proxy) Limit(bytesPerSecond int) {
	limit := rate.Limit(bytesPerSecond)
	if bytesPerSecond == 0 {
		limit = rate.Inf
	}
	p.link.up.SetLimit(limit)
	p.link.down.SetLimit(limit)
}

// Bytes returns the number of bytes that the proxy has sent to and received from its clients, as on the wire.
func (p *Proxy) Bytes() (sent, received int64) { return p.link.sent.Load(), p.link.received.Load() }
