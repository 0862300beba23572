package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Save makes a backup of the cluster's data, which replaces an earlier one. The cluster keeps running: etcd is
// paused while its files are copied, so the copy is like that after a crash.
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

// Restore restores the data of the last Save. It kills the API server and etcd, and starts them again on the
// same port. Writes since Save are lost.
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
