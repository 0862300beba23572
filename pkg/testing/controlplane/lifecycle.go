package controlplane

import (
	"context"
	"errors"
	"fmt"
)

// errNotRunning says that the API server was killed or never came up.
var errNotRunning = errors.New("the API server is not running")

// Kill ends the API server by SIGKILL, even if it is paused. The data stays for Restart; until then the port
// refuses connections.
func (c *Cluster) Kill() error {
	p, err := c.runningAPIServer()
	if err != nil {
		return err
	}
	return p.Kill()
}

// Restart starts the API server again, on the same port and with the same data,
// and waits until it is ready. One that still runs is killed first.
func (c *Cluster) Restart(ctx context.Context) error {
	if c.isStopped() {
		return fmt.Errorf("restarting cluster %q: %w", c.Name(), errStopped)
	}
	if err := c.Kill(); err != nil && !errors.Is(err, errNotRunning) {
		return err
	}
	if err := c.startAPIServer(ctx); err != nil {
		return fmt.Errorf("restarting cluster %q: %w%s", c.Name(), err, c.lastWords())
	}
	return nil
}

// Pause stops the API server by SIGSTOP: the kernel still accepts connections, but no request is answered.
func (c *Cluster) Pause() error {
	p, err := c.runningAPIServer()
	if err != nil {
		return err
	}
	return p.Pause()
}

// Resume resumes a paused API server.
func (c *Cluster) Resume() error {
	p, err := c.runningAPIServer()
	if err != nil {
		return err
	}
	return p.Resume()
}

func (c *Cluster) runningAPIServer() (*Process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.apiServer == nil || !c.apiServer.running() {
		return nil, fmt.Errorf("cluster %q: %w", c.Name(), errNotRunning)
	}
	return c.apiServer, nil
}

func (c *Cluster) isStopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped
}
