// Package e2e proves the whole operator on real API servers, of two providers. By default
// the manager runs as a process against a hub and spokes that run as processes, under
// accounts that may do no more than it needs. With -provider=kind it runs in pods of a hub
// of kind, installed by the chart, against spokes of kind: kind.sh starts them.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// The spokes of the shared fleet, and what placement selects them by.
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

// shared is the fleet that the tests share which do no harm to it. Each works in
// namespaces of its own.
var shared *fleet.Fleet

// sharedManager is the manager of that fleet.
var sharedManager *fleet.Manager

// raceManager and plainManager are the manager's program, with the race detector
// where this test has it, and without. Tests that measure time use the latter.
var raceManager, plainManager string

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
	switch *provider {
	case providerKind:
		return runOnKind(ctx, m)
	case providerProcesses:
	default:
		return 1, fmt.Errorf("-provider=%s: there is %s and %s", *provider, providerProcesses, providerKind)
	}
	dir, err := os.MkdirTemp("", "rulefleet-e2e-")
	if err != nil {
		return 1, fmt.Errorf("making a work folder: %w", err)
	}
	defer func() {
		if code == 0 {
			_ = os.RemoveAll(dir)
		}
	}()
	raceManager, plainManager = filepath.Join(dir, "manager-race"), filepath.Join(dir, "manager")
	if err := buildManager(ctx, raceManager, raceFlags...); err != nil {
		return 1, err
	}
	if err := buildManager(ctx, plainManager); err != nil {
		return 1, err
	}
	if *faults {
		defer printTable(os.Stdout)
		return m.Run(), nil
	}
	return runOnProcesses(ctx, m, dir)
}

// runOnProcesses starts the shared fleet and its manager, and runs the tests.
func runOnProcesses(ctx context.Context, m *testing.M, dir string) (code int, err error) {
	shared, err = fleet.Start(ctx, fleet.Options{Spokes: []string{spokeA, spokeB}, ControllerManager: true})
	if err != nil {
		return 1, fmt.Errorf("starting the shared fleet: %w", err)
	}
	// Ctrl-C would end this process before its deferred calls ran.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		_ = shared.Stop()
		os.Exit(130)
	}()
	defer func() {
		if code != 0 {
			shared.Dump(os.Stderr)
		}
		if stopErr := shared.Stop(); stopErr != nil && err == nil {
			code, err = 1, fmt.Errorf("stopping the shared fleet: %w", stopErr)
		}
	}()
	// What the tests delete side by side adds up to what the brake holds: it has a test,
	// and a fleet, of its own.
	sharedManager, err = shared.StartManager(ctx, fleet.ManagerOptions{Path: raceManager, Dir: dir, Args: []string{"--deletion-hold=0"}})
	if err != nil {
		return 1, fmt.Errorf("starting the manager: %w", err)
	}
	for name, labels := range spokeLabels {
		if err := shared.Register(ctx, name, labels); err != nil {
			return 1, err
		}
	}
	code = m.Run()
	if err := sharedManager.Stop(); err != nil {
		return 1, fmt.Errorf("stopping the manager: %w", err)
	}
	if strings.Contains(sharedManager.Log(), "DATA RACE") {
		return 1, fmt.Errorf("the manager has a data race:\n%s", sharedManager.Log())
	}
	return code, nil
}

func buildManager(ctx context.Context, out string, args ...string) error {
	args = append(append([]string{"build"}, args...), "-o", out, "../cmd/manager")
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building the manager: %w", err)
	}
	return nil
}
