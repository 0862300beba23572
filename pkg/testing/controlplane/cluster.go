package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

// starts limits how many clusters of this process start at the same time. A start keeps a core busy for seconds. Many at
// once would end no sooner, and an API server gives up if etcd has not answered for 20 s.
var starts = make(chan struct{}, max(2, runtime.NumCPU()))

// etcdGrace is how long Stop waits for etcd before it kills it.
const etcdGrace = 5 * time.Second

// Cluster is a control plane that Start has brought up. Its methods are safe for
// concurrent use.
type Cluster struct {
	opts      Options
	dir       string
	temporary bool
	lock      *os.File // Held while the cluster uses dir.
	ca        *authority
	admin     keyPair
	audit     *AuditCursor

	// Set while the cluster starts, and fixed from then on.
	sown            bool // it began with the data of the seed
	port            int
	adminKubeconfig []byte

	mu                sync.Mutex
	etcd              *Process
	apiServer         *Process
	controllerManager *Process
	stopped           bool
}

// Start starts a control plane and returns when it is ready: the API server reports so, the namespaces default
// and kube-system exist, and, with a controller manager, namespace default has its ServiceAccount. The end of
// ctx aborts the start; a started cluster runs until Stop.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	select {
	case starts <- struct{}{}:
		defer func() { <-starts }()
	case <-ctx.Done():
		return nil, fmt.Errorf("starting cluster %q: %w", opts.Name, ctx.Err())
	}
	begin := time.Now()
	c := &Cluster{opts: opts}
	if err := c.start(ctx); err != nil {
		err = fmt.Errorf("starting cluster %q: %w%s", opts.Name, err, c.lastWords())
		return nil, errors.Join(err, c.Stop())
	}
	c.progress("ready at %s after %.1fs", c.URL(), time.Since(begin).Seconds())
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.prepareDir(); err != nil {
		return err
	}
	if err := c.writePKI(); err != nil {
		return err
	}
	if err := c.sow(); err != nil {
		return err
	}
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	if err := c.startAPIServerOnFreePort(ctx); err != nil {
		return err
	}
	if c.opts.ControllerManager {
		if err := c.startControllerManager(ctx); err != nil {
			return err
		}
	}
	if c.opts.Audit {
		var err error
		if c.audit, err = NewAuditCursor(c.AuditLog()); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends every process of the cluster at once, and removes a temporary work
// folder unless Options.KeepLogs is set. Further calls do nothing.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	c.stopped = true
	var errs []error
	// An orderly end of these two waits for watches for up to a minute, and all their state is in etcd.
	for _, p := range []*Process{c.controllerManager, c.apiServer} {
		if p != nil {
			errs = append(errs, p.Kill())
		}
	}
	if c.etcd != nil {
		errs = append(errs, c.etcd.Stop(etcdGrace))
	}
	if c.port != 0 && c.opts.Port == 0 {
		ReleasePort(c.port)
	}
	if c.lock != nil {
		errs = append(errs, c.lock.Close())
	}
	if c.temporary && !c.opts.KeepLogs {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stopping cluster %q: %w", c.Name(), err)
	}
	c.progress("stopped")
	return nil
}

// Name returns the cluster's name.
func (c *Cluster) Name() string { return c.opts.Name }

// Usage returns the counter of the cluster's processes, or nil.
func (c *Cluster) Usage() *Usage { return c.opts.Usage }

// Dir returns the work folder.
func (c *Cluster) Dir() string { return c.dir }

// URL returns the address of the API server.
func (c *Cluster) URL() string { return fmt.Sprintf("https://%s:%d", loopback, c.port) }

// AuditLog returns the path of the audit log. The file exists when Options.Audit
// is set.
func (c *Cluster) AuditLog() string { return c.path(auditLogFile) }

// Audit returns the one cursor over the cluster's audit log, which begins when
// Start returns. It is nil unless Options.Audit is set. For a second,
// independent cursor use NewAuditCursor.
func (c *Cluster) Audit() *AuditCursor { return c.audit }

// Pids returns the process ids of the programs that run now, by program name.
func (c *Cluster) Pids() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	pids := map[string]int{}
	for name, p := range map[string]*Process{
		etcdName: c.etcd, apiServerName: c.apiServer, controllerManagerName: c.controllerManager,
	} {
		if p != nil && p.Running() {
			pids[name] = p.Pid()
		}
	}
	return pids
}

func (c *Cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.dir}, elem...)...)
}

func (c *Cluster) progress(format string, args ...any) {
	_, _ = fmt.Fprintf(c.opts.Output, "cluster %s: %s\n", c.Name(), fmt.Sprintf(format, args...))
}
