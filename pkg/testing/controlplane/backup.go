package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Save makes a backup of the cluster's data, in place of an earlier one. The cluster goes on:
// etcd is paused while its files are copied, which are then as after a crash.
func (c *Cluster) Save() error {
	c.mu.Lock()
	etcd := c.etcd
	c.mu.Unlock()
	if err := os.RemoveAll(c.path(backupDir)); err != nil {
		return fmt.Errorf("removing the former backup of cluster %q: %w", c.Name(), err)
	}
	if err := etcd.Pause(); err != nil {
		return fmt.Errorf("saving cluster %q: %w", c.Name(), err)
	}
	err := os.CopyFS(c.path(backupDir), os.DirFS(c.path(dataDir)))
	if err := errors.Join(err, etcd.Resume()); err != nil {
		return fmt.Errorf("saving cluster %q: %w", c.Name(), err)
	}
	return nil
}

// Restore brings the data of the last Save back. The API server and etcd are killed for it, and
// started again on the same port. What was written since Save is lost.
func (c *Cluster) Restore(ctx context.Context) error {
	if c.isStopped() {
		return fmt.Errorf("restoring cluster %q: %w", c.Name(), errStopped)
	}
	if err := c.Kill(); err != nil && !errors.Is(err, errNotRunning) {
		return err
	}
	c.mu.Lock()
	etcd := c.etcd
	c.mu.Unlock()
	if err := etcd.Kill(); err != nil {
		return err
	}
	err := os.RemoveAll(c.path(dataDir))
	if err == nil {
		err = os.CopyFS(c.path(dataDir), os.DirFS(c.path(backupDir)))
	}
	if err != nil {
		return fmt.Errorf("restoring cluster %q: %w", c.Name(), err)
	}
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	return c.Restart(ctx)
}
