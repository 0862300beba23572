package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// helperEnv turns the test binary into the victim of a crash test; its value is
// the work folder, and that of helperModeEnv one of the modes.
const (
	helperEnv     = "RULEFLEET_TEST_HELPER_DIR"
	helperModeEnv = "RULEFLEET_TEST_HELPER_MODE"

	modeRunning = "running" // A cluster.
	modePaused  = "paused"  // A cluster whose API server is paused.
	modePlain   = "plain"   // A process without a lifeline.
)

const (
	testPoll    = 20 * time.Millisecond
	testTimeout = 60 * time.Second
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperEnv); dir != "" {
		if err := runHelper(context.Background(), dir, os.Getenv(helperModeEnv)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runHelper starts what the mode says, prints the process ids, and waits to be
// killed. It stops nothing: that is what the test is about.
func runHelper(ctx context.Context, dir, mode string) error {
	pids, err := startVictims(ctx, dir, mode)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(pids); err != nil {
		return err
	}
	select {}
}

func startVictims(ctx context.Context, dir, mode string) (map[string]int, error) {
	if mode == modePlain {
		p, err := StartProcess(ctx, ProcessOptions{Path: "/bin/sh", Args: []string{"-c", "exec sleep 60"}})
		if err != nil {
			return nil, err
		}
		return map[string]int{"sleep": p.Pid()}, nil
	}
	c, err := Start(ctx, Options{Name: "crash", Dir: dir, ControllerManager: true})
	if err != nil {
		return nil, err
	}
	pids := c.Pids()
	if mode == modePaused {
		return pids, c.Pause()
	}
	return pids, nil
}

// start brings up a cluster for one test. The binaries are not optional: a test
// that is skipped tells nothing.
func start(t *testing.T, opts Options) *Cluster {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	begin := time.Now()
	c, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("cluster %s started in %s", c.Name(), time.Since(begin).Round(time.Millisecond))
	t.Cleanup(func() {
		if t.Failed() {
			if err := c.Dump(t.Output()); err != nil {
				t.Error(err)
			}
		}
		begin := time.Now()
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		t.Logf("cluster %s stopped in %s", c.Name(), time.Since(begin).Round(time.Millisecond))
	})
	return c
}

func client(t *testing.T, c *Cluster) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// eventually polls until the condition holds, and tells its last error when it
// does not in time.
func eventually(t *testing.T, what string, timeout time.Duration, condition func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), testPoll, timeout, true, func(ctx context.Context) (bool, error) {
		last = condition(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: not within %s: %v", what, timeout, last)
	}
}

// alive reports whether a process exists and is no zombie: an orphan may stay
// one for as long as nobody reaps it.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		_, err := os.Stat("/proc/self")
		return err != nil // Without /proc there is no telling.
	}
	// The state follows the name, which is in parentheses and may hold some.
	_, state, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')'):]), " ")
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}
