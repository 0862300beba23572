package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// lifelineEnv asks a child that understands it to exit when the pipe on its file
// descriptor 3 closes. The programs of e2e/controlplane do.
const lifelineEnv = "RULEFLEET_LIFELINE=3"

// ProcessOptions says which program StartProcess runs, and how.
type ProcessOptions struct {
	// Name names the process in errors. The default is Path.
	Name string

	// Path is the program.
	Path string

	// Args are its arguments, without the program's own name.
	Args []string

	// Env is added to the environment of this process, as KEY=VALUE.
	Env []string

	// Dir is the folder to run in. The default is that of this process.
	Dir string

	// LogPath is a file to which both outputs are appended. When it is empty,
	// Stdout and Stderr are used, and a nil one of them discards the output.
	LogPath string

	// Stdout receives the standard output when LogPath is empty.
	Stdout io.Writer

	// Stderr receives the standard error when LogPath is empty.
	Stderr io.Writer

	// Usage counts the process; nil for none.
	Usage *Usage

	// TimerSlack is by how much Linux may delay the timers of the process, so that it wakes up once for several of
	// them. Elsewhere, it has no effect.
	TimerSlack time.Duration

	// Lifeline hands the process a pipe on file descriptor 3, and the variable
	// RULEFLEET_LIFELINE=3 that asks it to exit when the pipe closes. Set it
	// for programs that understand it.
	Lifeline bool
}

// Process is a running child that does not outlive this process: on Linux the
// kernel kills it, elsewhere its lifeline ends it. Its methods are safe for
// concurrent use.
type Process struct {
	name     string
	cmd      *exec.Cmd
	lifeline *os.File // The write end: closing it ends the child.
	done     chan struct{}
	usage    *Usage
	exitErr  error // Valid once done is closed.
}

// StartProcess starts a program in a process group of its own. It is killed when
// ctx ends, as by exec.CommandContext.
func StartProcess(ctx context.Context, opts ProcessOptions) (*Process, error) {
	p := &Process{name: opts.Name, cmd: exec.CommandContext(ctx, opts.Path, opts.Args...), done: make(chan struct{}), usage: opts.Usage}
	if p.name == "" {
		p.name = opts.Path
	}
	p.cmd.Dir = opts.Dir
	p.cmd.Env = append(os.Environ(), opts.Env...)
	p.cmd.SysProcAttr = childAttributes()
	// A grandchild that holds an output pipe must not keep Done from closing.
	p.cmd.WaitDelay = time.Second

	closeInParent, err := p.connect(opts)
	defer closeAll(closeInParent)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", p.name, err)
	}
	if err := spawn(p.cmd, opts.TimerSlack); err != nil {
		if p.lifeline != nil {
			_ = p.lifeline.Close()
		}
		return nil, fmt.Errorf("starting %s: %w", p.name, err)
	}
	p.usage.add(filepath.Base(p.cmd.Path), 1, 0)
	go p.reap()
	return p, nil
}

// connect gives the command its outputs and its lifeline, and returns the files
// that this process need not keep once the child has them.
func (p *Process) connect(opts ProcessOptions) ([]io.Closer, error) {
	var files []io.Closer
	p.cmd.Stdout, p.cmd.Stderr = opts.Stdout, opts.Stderr
	if opts.LogPath != "" {
		log, err := os.OpenFile(opts.LogPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return files, err
		}
		files = append(files, log)
		p.cmd.Stdout, p.cmd.Stderr = log, log
	}
	if opts.Lifeline {
		// Both ends are close-on-exec, so no sibling inherits the write end:
		// it would keep this child alive after the parent's death.
		r, w, err := os.Pipe()
		if err != nil {
			return files, err
		}
		files = append(files, r)
		p.lifeline = w
		p.cmd.ExtraFiles = []*os.File{r} // The first of them is descriptor 3.
		p.cmd.Env = append(p.cmd.Env, lifelineEnv)
	}
	return files, nil
}

func closeAll(files []io.Closer) {
	for _, f := range files {
		_ = f.Close()
	}
}

// reap waits for the child. It also keeps the lifeline reachable: a write end
// that is garbage collected is closed, which would end the child.
func (p *Process) reap() {
	p.exitErr = p.cmd.Wait()
	p.usage.add(filepath.Base(p.cmd.Path), 0, p.cmd.ProcessState.UserTime()+p.cmd.ProcessState.SystemTime())
	if p.lifeline != nil {
		_ = p.lifeline.Close()
	}
	close(p.done)
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitErr returns nil while the process runs and when it ended with status 0;
// otherwise it returns how the process ended, usually an *exec.ExitError.
func (p *Process) ExitErr() error {
	if p.Running() {
		return nil
	}
	return p.exitErr
}

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// endedWith returns how an ended process ended, including a success.
func (p *Process) endedWith() error {
	if err := p.ExitErr(); err != nil {
		return err
	}
	return errors.New("exit status 0")
}

// Wait waits until the process has ended, and returns ExitErr, or until ctx
// ends, and returns its error.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.exitErr
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s: %w", p.name, ctx.Err())
	}
}

// Signal sends a signal to the process. It returns os.ErrProcessDone when the
// process has ended.
func (p *Process) Signal(signal os.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil {
		return fmt.Errorf("sending signal %q to %s: %w", signal, p.name, err)
	}
	return nil
}

// Kill sends SIGKILL and waits until the process has ended. A process that has
// already ended is no error.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

// Stop ends the process by SIGTERM, even if it is paused, and kills it after the grace period.
func (p *Process) Stop(grace time.Duration) error {
	// The order does not matter: a pending SIGTERM is delivered on SIGCONT.
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		if err := p.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return p.Kill()
	}
}

// Pause stops the process by SIGSTOP: it keeps its connections and does not answer. On Linux it has stopped
// when Pause returns.
func (p *Process) Pause() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return p.awaitStopped()
}

// Resume resumes a paused process.
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }

// spawnRequests are handled by the one thread that starts every child.
var spawnRequests = sync.OnceValue(func() chan<- spawnRequest {
	requests := make(chan spawnRequest)
	go func() {
		// The kernel delivers a child's parent-death signal when the thread
		// that forked it ends, not the process. This goroutine never ends, so
		// neither does the thread that it is locked to.
		runtime.LockOSThread()
		for request := range requests {
			// The process inherits the slack of this thread.
			setTimerSlack(request.slack)
			request.result <- request.cmd.Start()
		}
	}()
	return requests
})

type spawnRequest struct {
	cmd    *exec.Cmd
	slack  time.Duration
	result chan error
}

func spawn(cmd *exec.Cmd, slack time.Duration) error {
	request := spawnRequest{cmd: cmd, slack: slack, result: make(chan error, 1)}
	spawnRequests() <- request
	return <-request.result
}
