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
func (c *Cluster) Kill() error { return c.onAPIServer((*Process).Kill) }

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
func (c *Cluster) Pause() error { return c.onAPIServer((*Process).Pause) }

// Resume resumes a paused API server.
func (c *Cluster) Resume() error { return c.onAPIServer((*Process).Resume) }

func (c *Cluster) onAPIServer(do func(*Process) error) error {
	c.mu.Lock()
	p := c.apiServer
	c.mu.Unlock()
	if p == nil || !p.Running() {
		return fmt.Errorf("cluster %q: %w", c.Name(), errNotRunning)
	}
	return do(p)
}

func (c *Cluster) isStopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped
}
