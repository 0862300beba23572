// Package e2e tests the whole operator on real API servers, with two providers. By default the manager runs as
// a process, and so do the hub and the spokes, with only the permissions that the manager needs. With
// -provider=kind it runs in pods of a kind cluster, installed by the chart, with spokes in kind: kind.sh
// starts them.
package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// The spokes of the shared fleet, and the labels by which placement selects them.
const (
	spokeA = "eu-1"
	spokeB = "us-1"
)

var spokeLabels = map[string]map[string]string{
	spokeA: {"env": "prod", "region": "eu"},
	spokeB: {"env": "dev", "region": "us"},
}

const (
	providerProcesses = "processes"
	providerKind      = "kind"
)

var provider = flag.String("provider", providerProcesses, "where the clusters `run`: processes, or kind")

// sharedFleet is the fleet, with its manager, for tests that do not harm it. Each test uses its own
// namespaces.
type sharedFleet struct {
	*fleet.Fleet
	manager *fleet.Manager
}

// startShared starts the shared fleet at the first call.
var startShared = sync.OnceValue(func() *sharedFleet {
	s, err := startSharedFleet(context.Background())
	if err != nil {
		panic(fmt.Sprintf("e2e: %v", err)) // no test that needs it could continue
	}
	started.Store(s)
	return s
})

// started is the running shared fleet, which TestMain stops.
var started atomic.Pointer[sharedFleet]

func shared() *fleet.Fleet { return startShared().Fleet }

func sharedManager() *fleet.Manager { return startShared().manager }

// raceManager and plainManager are the manager's program, with the race detector if E2E_RACE is set, and
// without. managerFor chooses one for a test. Tests that measure time use the latter.
var raceManager, plainManager = filepath.Join("..", "bin", "rulefleet-manager-race"), filepath.Join("..", "bin", "rulefleet-manager-test")

// quick is the factor for a manager's intervals in tests that do not measure reaction times.
const quick = 0.2

// quickly scales an interval of the manager.
func quickly(d time.Duration) time.Duration { return interval.Scale(quick).Of(d) }

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := runSuite(context.Background(), m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func runSuite(ctx context.Context, m *testing.M) (code int, err error) {
	if err := takePlaces(); err != nil {
		return 1, err
	}
	switch *provider {
	case providerKind:
		return runOnKind(ctx, m)
	case providerProcesses:
		return runOnProcesses(ctx, m)
	default:
		return 1, fmt.Errorf("-provider=%s: there is %s and %s", *provider, providerProcesses, providerKind)
	}
}

// runOnProcesses builds the manager, runs the tests, and stops the shared fleet.
func runOnProcesses(ctx context.Context, m *testing.M) (code int, err error) {
	// The flags are those of 'make build', to share its build cache. A current program is not built again.
	if err := buildManager(ctx, plainManager, []string{"CGO_ENABLED=0"}, "-trimpath"); err != nil {
		return 1, err
	}
	if os.Getenv("E2E_RACE") == "" {
		raceManager = plainManager
	} else if err := buildManager(ctx, raceManager, []string{"CGO_ENABLED=1"}, "-race"); err != nil {
		return 1, err
	}
	// Ctrl-C would end this process before its deferred calls run.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		if s := started.Load(); s != nil {
			_ = s.Stop()
		}
		os.Exit(130)
	}()
	code = m.Run()
	err = writeTable(filepath.Join("..", "bin", "faults.txt"))
	if s := started.Load(); s != nil {
		err = errors.Join(err, s.end(code == 0))
	}
	return code, err
}

// end stops the shared fleet. After a failure the manager's log is kept.
func (s *sharedFleet) end(well bool) error {
	err := s.manager.Stop()
	log := s.manager.Log()
	if strings.Contains(log, "DATA RACE") {
		err = errors.Join(err, fmt.Errorf("the manager has a data race:\n%s", log))
	}
	err = errors.Join(err, s.uncontested(context.Background()))
	if !well || err != nil {
		s.Dump(os.Stderr)
	} else {
		err = os.RemoveAll(filepath.Dir(s.manager.LogPath))
	}
	err = errors.Join(err, s.Stop())
	fmt.Println("e2e: the shared fleet:", &s.Usage)
	if err != nil {
		return fmt.Errorf("ending the shared fleet: %w", err)
	}
	return nil
}

func startSharedFleet(ctx context.Context) (_ *sharedFleet, err error) {
	f, err := fleet.Start(ctx, fleet.Options{Spokes: []string{spokeA, spokeB}, ControllerManager: true, Intervals: quick})
	if err != nil {
		return nil, fmt.Errorf("starting the shared fleet: %w", err)
	}
	defer func() {
		if err != nil {
			f.Dump(os.Stderr)
			err = errors.Join(err, f.Stop())
		}
	}()
	// In the other one, the manager's own checks are all that protects the objects of others.
	if err := f.InstallSpokePolicy(ctx, f.Spoke(spokeB)); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "rulefleet-e2e-")
	if err != nil {
		return nil, fmt.Errorf("making a work folder: %w", err)
	}
	// The deletions of parallel tests add up to what the brake would hold. The brake has its own test and fleet.
	m, err := f.StartManager(ctx, fleet.ManagerOptions{Path: raceManager, Dir: dir, Args: []string{"--deletion-hold=0"}})
	if err != nil {
		return nil, fmt.Errorf("starting the manager: %w", err)
	}
	for name, labels := range spokeLabels {
		if err := f.Register(ctx, name, labels); err != nil {
			return nil, err
		}
	}
	return &sharedFleet{f, m}, nil
}

func buildManager(ctx context.Context, out string, env []string, args ...string) error {
	args = append(append([]string{"build"}, args...), "-o", out, "../cmd/manager")
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building the manager: %w", err)
	}
	return nil
}
