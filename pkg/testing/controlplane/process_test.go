package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// crashTimeout is how long an orphan may live.
const crashTimeout = 5 * time.Second

// TestNothingOutlivesItsParent kills a process that runs a cluster, as hard as
// can be, and looks for orphans.
func TestNothingOutlivesItsParent(t *testing.T) {
	for _, mode := range []string{modeRunning, modePaused} {
		t.Run(mode, func(t *testing.T) {
			helper, pids := startHelper(t, mode)
			if len(pids) != 3 {
				t.Fatalf("the helper runs %v, want 3 programs", pids)
			}
			for name, pid := range pids {
				if !alive(pid) {
					t.Fatalf("%s is not alive before the crash", name)
				}
			}
			crash(t, helper)
			awaitGone(t, pids)
		})
	}
}

func crash(t *testing.T, helper *Process) {
	t.Helper()
	if err := helper.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := endSignal(helper); got != syscall.SIGKILL {
		t.Fatalf("the helper ended by %v, want SIGKILL", helper.ExitErr())
	}
}

func awaitGone(t *testing.T, pids map[string]int) {
	t.Helper()
	begin := time.Now()
	eventually(t, "no orphans", crashTimeout, func(context.Context) error {
		for name, pid := range pids {
			if alive(pid) {
				return fmt.Errorf("%s (%d) is alive", name, pid)
			}
		}
		return nil
	})
	t.Logf("all gone after %s", time.Since(begin).Round(time.Millisecond))
}

// startHelper runs this test binary as the owner of a cluster.
func startHelper(t *testing.T, mode string) (*Process, map[string]int) {
	t.Helper()
	out, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	var stderr bytes.Buffer
	helper, err := StartProcess(t.Context(), ProcessOptions{
		Name:   "helper",
		Path:   os.Args[0],
		Env:    []string{helperEnv + "=" + t.TempDir(), helperModeEnv + "=" + mode},
		Stdout: stdout,
		Stderr: &stderr,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = helper.Kill() })
	_ = stdout.Close()
	pids := map[string]int{}
	if err := json.NewDecoder(out).Decode(&pids); err != nil {
		_ = helper.Kill()
		t.Fatalf("the helper printed no process ids: %v\n%s", err, &stderr)
	}
	return helper, pids
}

// TestLifeline has the lifeline end a process by itself, without the kernel's
// help.
func TestLifeline(t *testing.T) {
	bin, err := DefaultBinDir()
	if err != nil {
		t.Fatal(err)
	}
	if err := (Options{BinDir: bin}).checkBinaries(); err != nil {
		t.Fatal(err)
	}
	p, err := StartProcess(t.Context(), ProcessOptions{
		Path: filepath.Join(bin, etcdName), Args: etcdArgs(), Dir: t.TempDir(), Lifeline: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.lifeline.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, p)
	var exit *exec.ExitError
	if err := p.ExitErr(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("got %v, want exit status 1", err)
	}
}

func TestProcess(t *testing.T) {
	t.Run("its outputs and its environment", func(t *testing.T) {
		var out, errs bytes.Buffer
		p := startShell(t, t.Context(), `echo "$GREETING"; echo oops >&2; exit 3`, func(o *ProcessOptions) {
			o.Env, o.Stdout, o.Stderr = []string{"GREETING=hello"}, &out, &errs
		})
		err := p.Wait(t.Context())
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 3 || !errors.Is(p.ExitErr(), err) {
			t.Errorf("Wait got %v and ExitErr %v, want exit status 3", err, p.ExitErr())
		}
		if out.String() != "hello\n" || errs.String() != "oops\n" {
			t.Errorf("got %q and %q", &out, &errs)
		}
	})
	t.Run("a log is appended to", func(t *testing.T) {
		log := filepath.Join(t.TempDir(), "log")
		for _, script := range []string{"echo a", "echo b >&2"} {
			p := startShell(t, t.Context(), script, func(o *ProcessOptions) { o.LogPath = log })
			if err := p.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if content, err := os.ReadFile(log); err != nil || string(content) != "a\nb\n" {
			t.Errorf("the log is %q, %v", content, err)
		}
	})
	t.Run("it ends with its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := startShell(t, ctx, "exec sleep 60", nil)
		cancel()
		await(t, p)
	})
	t.Run("Stop is an order that a paused process hears too", func(t *testing.T) {
		p := startShell(t, t.Context(), "exec sleep 60", nil)
		if err := p.Pause(); err != nil {
			t.Fatal(err)
		}
		if err := p.Stop(testTimeout); err != nil {
			t.Fatal(err)
		}
		if got := endSignal(p); got != syscall.SIGTERM {
			t.Errorf("it ended by %v, want SIGTERM", got)
		}
	})
	t.Run("Stop kills one that does not listen", func(t *testing.T) {
		r, w := io.Pipe()
		p := startShell(t, t.Context(), `trap "" TERM; echo ready; while :; do sleep 60; done`, func(o *ProcessOptions) { o.Stdout = w })
		if _, err := r.Read(make([]byte, 16)); err != nil {
			t.Fatal(err)
		}
		if err := p.Stop(10 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if got := endSignal(p); got != syscall.SIGKILL {
			t.Errorf("it ended by %v, want SIGKILL", got)
		}
		if err := p.Kill(); err != nil {
			t.Errorf("Kill of an ended process: %v", err)
		}
		if err := p.Signal(syscall.SIGHUP); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("Signal to an ended process: %v, want %v", err, os.ErrProcessDone)
		}
	})
	t.Run("it is in a process group of its own", func(t *testing.T) {
		p := startShell(t, t.Context(), "exec sleep 60", nil)
		group, err := syscall.Getpgid(p.Pid())
		if err != nil {
			t.Fatal(err)
		}
		if group != p.Pid() {
			t.Errorf("process %d is in group %d", p.Pid(), group)
		}
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	t.Run("a program that is not there", func(t *testing.T) {
		_, err := StartProcess(t.Context(), ProcessOptions{Name: "ghost", Path: filepath.Join(t.TempDir(), "none"), Lifeline: true})
		if err == nil || !strings.Contains(err.Error(), "starting ghost") {
			t.Errorf("got %v", err)
		}
	})
}

func startShell(t *testing.T, ctx context.Context, script string, change func(*ProcessOptions)) *Process { //nolint:revive // a test's own context comes second to t
	t.Helper()
	opts := ProcessOptions{Path: "/bin/sh", Args: []string{"-c", script}}
	if change != nil {
		change(&opts)
	}
	p, err := StartProcess(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func await(t *testing.T, p *Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	select {
	case <-p.Done():
	case <-ctx.Done():
		t.Fatalf("%s has not ended", p.name)
	}
}

func endSignal(p *Process) syscall.Signal {
	var exit *exec.ExitError
	if !errors.As(p.ExitErr(), &exit) {
		return 0
	}
	return exit.Sys().(syscall.WaitStatus).Signal()
}
