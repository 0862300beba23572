package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// seedDir is the folder in Options.BinDir with the data that new clusters begin with.
const seedDir = "seed"

// logPage is the number of bytes that etcd writes to its log at once, or a multiple of it.
const logPage = 4096

// MakeSeed starts a cluster with the programs in binDir, and keeps its data there. A cluster that Start starts with these
// programs then has the roles and other objects that an API server creates when it starts for the first time, which takes
// a third of the CPU time of a start. The namespace kube-system, whose UID identifies a cluster, is not among them. A seed
// that is there already is replaced.
func MakeSeed(ctx context.Context, binDir string) (err error) {
	made := filepath.Join(binDir, seedDir)
	if err := os.RemoveAll(made); err != nil {
		return fmt.Errorf("removing the former seed: %w", err)
	}
	c, err := Start(ctx, Options{Name: seedDir, BinDir: binDir, seeding: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if err := c.removeIdentity(ctx); err != nil {
		return err
	}
	if err := c.Save(); err != nil {
		return err
	}
	// Other programs see all of the seed or nothing.
	partial := fmt.Sprintf("%s.%d", made, os.Getpid())
	err = copySeed(partial, c.path(backupDir))
	if err == nil {
		err = os.Rename(partial, made)
	}
	if err != nil {
		return fmt.Errorf("writing the seed: %w", errors.Join(err, os.RemoveAll(partial)))
	}
	return nil
}

// removeIdentity deletes the namespace kube-system, which an API server creates again when it starts. One that runs does
// so at most once a minute.
func (c *Cluster) removeIdentity(ctx context.Context) error {
	client, err := c.probeClient()
	if err != nil {
		return err
	}
	namespaces := client.CoreV1().Namespaces()
	err = namespaces.Delete(ctx, metav1.NamespaceSystem, metav1.DeleteOptions{})
	if err == nil {
		_, err = namespaces.Finalize(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("deleting the namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return nil
}

// copySeed copies the files of etcd without the space that etcd has reserved in its log, which is 64 MB for each file.
func copySeed(to, from string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		switch {
		case entry.IsDir():
			return os.MkdirAll(target, privateFolder)
		case filepath.Ext(path) == ".tmp": // nothing is written there yet
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if filepath.Ext(path) == ".wal" {
			data = data[:min(len(data), (len(bytes.TrimRight(data, "\x00"))/logPage+1)*logPage)]
		}
		return os.WriteFile(target, data, privateFile)
	})
}

// sow gives a new cluster the data of the seed, if there is one, and it is not replaced at this time.
func (c *Cluster) sow() error {
	err := os.CopyFS(c.path(dataDir), os.DirFS(filepath.Join(c.opts.BinDir, seedDir)))
	c.sown = err == nil
	if errors.Is(err, fs.ErrNotExist) {
		err = os.RemoveAll(c.path(dataDir))
	}
	if err != nil {
		return fmt.Errorf("copying the seed: %w", err)
	}
	return nil
}
