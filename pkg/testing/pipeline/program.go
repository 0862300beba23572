package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
)

const (
	loopback = "127.0.0.1"

	poll = 50 * time.Millisecond
	// patience allows for a busy machine: most programs are ready within two seconds.
	patience = 90 * time.Second
	// grace is how long a program may take to exit.
	grace = 5 * time.Second
	// askTimeout bounds each request to a program.
	askTimeout = 5 * time.Second

	tailLines = 30

	privateFile   = 0o600
	privateFolder = 0o700
)

// program is one of the processes. Its methods are safe for concurrent use.
type program struct {
	name, path, logPath string
	args                []string
	// readyURL answers 200 when the program is ready.
	readyURL string
	usage    *controlplane.Usage

	mu      sync.Mutex
	process *controlplane.Process
}

// start runs the program, and waits until it is ready. The program outlives ctx, which bounds only the start.
func (p *program) start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runs() {
		return fmt.Errorf("starting %s: it runs", p.name)
	}
	var err error
	p.process, err = controlplane.StartProcess(context.WithoutCancel(ctx), controlplane.ProcessOptions{
		Name: p.name, Path: p.path, Args: p.args, Dir: filepath.Dir(p.logPath), LogPath: p.logPath, Usage: p.usage,
	})
	if err != nil {
		return fmt.Errorf("%w (make pipeline builds it)", err)
	}
	if err := p.awaitReady(ctx); err != nil {
		return errors.Join(fmt.Errorf("waiting for %s: %w\n%s", p.name, err, controlplane.Tail(p.logPath, tailLines)), p.process.Kill())
	}
	return nil
}

func (p *program) awaitReady(ctx context.Context) error {
	return await(ctx, func(ctx context.Context) error {
		if !p.runs() {
			return terminal{fmt.Errorf("it has ended: %w", p.process.ExitErr())}
		}
		return ask(ctx, http.MethodGet, p.readyURL)
	})
}

// runs requires the lock.
func (p *program) runs() bool { return p.process != nil && p.process.Running() }

func (p *program) isRunning() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs()
}

// stop stops the program as Kubernetes would. It is no error if the program does not run.
func (p *program) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil {
		return nil
	}
	return p.process.Stop(grace)
}

// kill kills the program.
func (p *program) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil {
		return nil
	}
	return p.process.Kill()
}

// ask sends a request that must be answered with 200.
func ask(ctx context.Context, method, url string) error {
	return read(ctx, method, url, func(io.Reader) error { return nil })
}

// read sends a request, and has the body of an answer with status 200 read.
func read(ctx context.Context, method, url string, body func(io.Reader) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	return body(resp.Body)
}

// terminal is an error that ends await.
type terminal struct{ error }

func (e terminal) Unwrap() error { return e.error }

// await retries until there is no error, and returns the last one at the deadline.
func await(ctx context.Context, look func(context.Context) error) error {
	last := errors.New("not asked yet")
	err := wait.PollUntilContextTimeout(ctx, poll, patience, true, func(ctx context.Context) (bool, error) {
		err := look(ctx)
		if errors.As(err, &terminal{}) {
			return false, err
		}
		// The error of an attempt that the deadline interrupted is ignored.
		if err == nil || ctx.Err() == nil {
			last = err
		}
		return last == nil, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("%w: last: %w", err, last)
	}
	return err
}

// folder returns the work folder, and whether it is temporary.
func folder(dir string) (_ string, temporary bool, err error) {
	if dir == "" {
		if dir, err = os.MkdirTemp("", "rulefleet-pipeline-"); err != nil {
			return "", false, fmt.Errorf("creating the work folder: %w", err)
		}
		return dir, true, nil
	}
	// The programs run there, and get absolute file names.
	if dir, err = filepath.Abs(dir); err != nil {
		return "", false, fmt.Errorf("finding the work folder: %w", err)
	}
	if err := os.MkdirAll(dir, privateFolder); err != nil {
		return "", false, fmt.Errorf("creating the work folder: %w", err)
	}
	return dir, false, nil
}

// binary returns the path of a program, in a folder of bin in the module of the working directory.
func binary(folder, name string) (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the module root: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			path := filepath.Join(dir, "bin", folder, name)
			if _, err := os.Stat(path); err != nil {
				return "", fmt.Errorf("no %s: run make pipeline first: %w", name, err)
			}
			return path, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod in or above %s", start)
		}
	}
}
