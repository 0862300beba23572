package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// The defaults of GOGC and GOMAXPROCS of the cluster's programs. A control plane that lives for a minute needs a quarter less
// CPU time with this GOGC, and about 100 MiB more memory. With one thread, it needs a tenth less, as idle threads do not
// look for work; tests run many control planes at a time.
const (
	collectRarely = "300"
	oneThread     = "1"
)

// timerSlack is that of the cluster's programs. An idle API server has about 100 timers each second, most of which wake it up
// for nothing: with this slack, it needs half the CPU time. Timers of retries are delayed as well.
const timerSlack = 50 * time.Millisecond

const (
	privateFile   = 0o600
	privateFolder = 0o700
	startAttempts = 5
)

// errPortInUse says that another process has taken the port that was free when
// it was chosen.
var errPortInUse = errors.New("the port is in use")

// errStopped says that Stop was called first.
var errStopped = errors.New("the cluster is stopped")

// prepareDir makes the work folder, and clears what an earlier cluster left in
// it, so that a folder of a fixed name can be used again after a crash.
func (c *Cluster) prepareDir() error {
	dir := c.opts.Dir
	if dir == "" {
		made, err := os.MkdirTemp("", "rulefleet-"+c.Name()+"-")
		if err != nil {
			return fmt.Errorf("creating the work folder: %w", err)
		}
		dir, c.temporary = made, true
	}
	var err error
	if c.dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("resolving the work folder: %w", err)
	}
	if err := os.MkdirAll(c.dir, privateFolder); err != nil {
		return fmt.Errorf("creating the work folder: %w", err)
	}
	if c.lock, err = lockFile(c.path(lockName)); err != nil {
		return fmt.Errorf("the work folder %s serves another cluster: %w", c.dir, err)
	}
	for _, name := range []string{
		dataDir, backupDir, pkiDir, logsDir, cacheDir, kubeconfigFile, controllerFile,
		auditLogFile, auditPolicyFile, etcdSocket, etcdPeerSocket,
	} {
		if err := os.RemoveAll(c.path(name)); err != nil {
			return fmt.Errorf("clearing the work folder: %w", err)
		}
	}
	for _, name := range []string{pkiDir, logsDir} {
		if err := os.MkdirAll(c.path(name), privateFolder); err != nil {
			return fmt.Errorf("creating the work folder: %w", err)
		}
	}
	return nil
}

// writePKI makes the certificates and keys, and writes those that programs read
// from files.
func (c *Cluster) writePKI() error {
	var err error
	if c.ca, err = newAuthority(c.Name()); err != nil {
		return err
	}
	if c.admin, err = c.ca.client(adminUser, adminGroup); err != nil {
		return err
	}
	serving, err := c.ca.server()
	if err != nil {
		return err
	}
	tokens, err := newKey()
	if err != nil {
		return err
	}
	tokenKey, err := encodeKey(tokens)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		filepath.Join(pkiDir, caFile):            c.ca.cert,
		filepath.Join(pkiDir, servingCertFile):   serving.cert,
		filepath.Join(pkiDir, servingKeyFile):    serving.key,
		filepath.Join(pkiDir, serviceAccountKey): tokenKey,
		auditPolicyFile:                          []byte(auditPolicy),
	} {
		if err := c.writeFile(name, content); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) writeFile(name string, content []byte) error {
	if err := os.WriteFile(c.path(name), content, privateFile); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// run starts one of the cluster's programs. It outlives ctx, which only bounds
// the start of the cluster.
func (c *Cluster) run(ctx context.Context, program string, args []string, env ...string) (*Process, error) {
	return StartProcess(context.WithoutCancel(ctx), ProcessOptions{
		Name:       program,
		Path:       filepath.Join(c.opts.BinDir, program),
		Args:       args,
		Dir:        c.dir,
		LogPath:    c.logPath(program),
		Env:        append(env, "GOGC="+cmp.Or(os.Getenv("GOGC"), collectRarely), "GOMAXPROCS="+cmp.Or(os.Getenv("GOMAXPROCS"), oneThread)),
		TimerSlack: timerSlack,
		Lifeline:   true,
		Usage:      c.opts.Usage,
	})
}

func (c *Cluster) startEtcd(ctx context.Context) error {
	p, err := c.run(ctx, etcdName, etcdArgs())
	if err != nil {
		return err
	}
	return c.adopt(&c.etcd, p)
}

// adopt registers a started process, so that Stop ends it.
func (c *Cluster) adopt(slot **Process, p *Process) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return errors.Join(errStopped, p.Kill())
	}
	*slot = p
	return nil
}

// startAPIServerOnFreePort tries other ports when the one that was free is taken
// by another process before the API server binds it.
func (c *Cluster) startAPIServerOnFreePort(ctx context.Context) error {
	if c.opts.Port != 0 {
		return c.startAPIServerOn(ctx, c.opts.Port)
	}
	var err error
	for range startAttempts {
		var port int
		if port, err = TakePort(loopback); err != nil {
			return err
		}
		if err = c.startAPIServerOn(ctx, port); !errors.Is(err, errPortInUse) {
			return err
		}
		ReleasePort(port)
	}
	return err
}

func (c *Cluster) startAPIServerOn(ctx context.Context, port int) error {
	c.port = port
	var err error
	if c.adminKubeconfig, err = c.kubeconfigFor(adminUser, c.admin); err != nil {
		return err
	}
	if err := c.writeFile(kubeconfigFile, c.adminKubeconfig); err != nil {
		return err
	}
	return c.startAPIServer(ctx)
}

// startAPIServer starts the API server on the port already chosen, and waits
// until it is ready.
func (c *Cluster) startAPIServer(ctx context.Context) error {
	var env []string // see e2e/controlplane/kube-apiserver
	if !c.opts.OpenAPI {
		env = append(env, "RULEFLEET_OPENAPI=none")
	}
	if c.sown {
		env = append(env, "RULEFLEET_ROLES=present")
	}
	p, err := c.run(ctx, apiServerName, apiServerArgs(c.port, c.opts), env...)
	if err != nil {
		return err
	}
	if err := c.adopt(&c.apiServer, p); err != nil {
		return err
	}
	err = c.awaitReady(ctx, p)
	if err != nil && !p.Running() && strings.Contains(Tail(c.logPath(apiServerName), tailLines), "address already in use") {
		return fmt.Errorf("%w: %s", errPortInUse, net.JoinHostPort(loopback, fmt.Sprint(c.port)))
	}
	return err
}

func (c *Cluster) startControllerManager(ctx context.Context) error {
	pair, err := c.ca.client(controllerManagerUser)
	if err != nil {
		return err
	}
	kubeconfig, err := c.kubeconfigFor(controllerManagerUser, pair)
	if err != nil {
		return err
	}
	if err := c.writeFile(controllerFile, kubeconfig); err != nil {
		return err
	}
	p, err := c.run(ctx, controllerManagerName, controllerManagerArgs())
	if err != nil {
		return err
	}
	if err := c.adopt(&c.controllerManager, p); err != nil {
		return err
	}
	return c.awaitControllers(ctx, p)
}

// lockFile takes a lock that ends with the returned file, or with this process.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, privateFile)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), f.Close())
	}
	return f, nil
}
