package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// Dead is a loopback address that never answers.
type Dead struct {
	listener net.Listener

	mu    sync.Mutex
	conns []net.Conn
}

// URL is the address in the form of an API server's URL.
func (d *Dead) URL() string { return "https://" + d.listener.Addr().String() }

// Close stops listening.
func (d *Dead) Close() error {
	err := d.listener.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, conn := range d.conns {
		_ = conn.Close()
	}
	return err
}

func (d *Dead) keep(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns = append(d.conns, conn)
}

// Silent accepts connections and never sends anything.
func Silent() (*Dead, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	d := &Dead{listener: l}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			d.keep(conn)
			go func() { _, _ = io.Copy(io.Discard, conn) }()
		}
	}()
	return d, nil
}

// fillTimeout is how long to wait before a loopback connection counts as unanswered. fillAttempts exceeds the
// shortest backlog.
const (
	fillTimeout  = 300 * time.Millisecond
	fillAttempts = 16
)

// BlackHole accepts nothing: its backlog is full, so the kernel drops packets that open a connection, as a
// firewall does.
func BlackHole(ctx context.Context) (*Dead, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	d := &Dead{listener: l}
	if err := d.fill(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("filling the backlog: %w", err), d.Close())
	}
	return d, nil
}

// fill minimizes the backlog, and opens connections until one is not answered. Nobody accepts them.
func (d *Dead) fill(ctx context.Context) error {
	raw, err := d.listener.(*net.TCPListener).SyscallConn()
	if err != nil {
		return err
	}
	var shorten error
	if err := raw.Control(func(fd uintptr) { shorten = syscall.Listen(int(fd), 0) }); err != nil || shorten != nil {
		return errors.Join(err, shorten)
	}
	dialer := net.Dialer{Timeout: fillTimeout}
	for range fillAttempts {
		conn, err := dialer.DialContext(ctx, "tcp", d.listener.Addr().String())
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() && ctx.Err() == nil {
			return nil
		}
		if err != nil {
			return err
		}
		d.keep(conn)
	}
	return fmt.Errorf("%d connections were taken", fillAttempts)
}
