package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

const (
	// restoredWithin is how soon after a restore all has to be as it should be.
	restoredWithin = time.Minute
	// readyWithin is how soon after its hub is back a manager has to be ready that waited for it.
	readyWithin = 10 * time.Second
	// restoredMessage is what a manager says of a cluster that was restored.
	restoredMessage = "restored from a backup"
)

// restoreRows are how many writes are lost beside those that the manager has to do with. With
// few, the restored etcd passes the former resource version while the API server starts.
var restoreRows = map[string]int{"few": 0, "many": 500}

// TestSpokeRestored restores a spoke's etcd while the manager runs.
func TestSpokeRestored(t *testing.T) {
	t.Parallel()
	f := startFaulty(t, fleet.Options{Spokes: []string{"restored"}})
	f.up()
	f.start(t)
	endsWell(t, f)
	healthy, at := f.place(t, healthyName), f.place(t, "restored")
	for _, at := range []*place{healthy, at} {
		at.register(t)
		at.settle(t)
	}
	for name, lost := range restoreRows {
		t.Run(name, func(t *testing.T) { at.restoreSpoke(t, name, lost, healthy) })
	}
}

func (at *place) restoreSpoke(t *testing.T, row string, lost int, healthy *place) {
	t.Helper()
	comes, goes := deployment(at.name, "comes-"+row), deployment(at.name, "goes-"+row)
	must(t, at.m.Client.Create(t.Context(), comes))
	changed, older := at.rule(t, "changed-"+row), at.rule(t, "older-"+row)
	at.settle(t)

	must(t, at.m.Save())
	must(t, at.m.Client.Create(t.Context(), goes))
	must(t, at.m.Client.Delete(t.Context(), comes))
	must(t, at.Hub.Client.Delete(t.Context(), older))
	update(t, at.Hub, changed, func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up == 2" })
	at.rule(t, "newer-"+row)
	at.settle(t)
	loseWrites(t, at.m, row, lost)
	untouched := at.versions(t, healthy)
	said := strings.Count(at.current().Log(), restoredMessage)

	since := time.Now()
	must(t, at.m.Restore(t.Context()))
	begun := time.Now()
	within(t, restoredWithin, "the spoke is as it should be", at.converged)
	t.Logf("%s: all is as it should be %s after the restore", row, seconds(time.Since(begun)))
	if log := at.current().Log(); strings.Count(log, restoredMessage) > said {
		t.Logf("%s: the manager says: %s", row, lastLineWith(log, restoredMessage))
	} else if lost > 0 {
		t.Error("the manager does not say that the spoke was restored")
	}

	// One write each for the rules that were changed, made and deleted. Those of the Deployments
	// that came back and are gone may be deleted, or made, before the hub knows about these.
	pause(t, at.intervals.Of(quiet))
	wrote := at.wrote(t, at.m, since)
	if n := wrote["create"]; wrote["update"] != 1 || n < 1 || n > 3 || wrote["delete"] != n {
		t.Errorf("the manager wrote %v in the spoke", wrote)
	}
	if now := at.versions(t, healthy); now != untouched {
		t.Errorf("the healthy spoke's rules were %s, and are %s", untouched, now)
	}
	must(t, at.converged(t.Context()))
}

// TestHubRestored restores the hub's etcd while a leader and a standby run, which are started
// again when they end.
func TestHubRestored(t *testing.T) {
	t.Parallel()
	f := startFaulty(t, fleet.Options{})
	f.up()
	f.options.LeaderElect = true
	f.keepRunning(t)
	endsWell(t, f)
	at := f.place(t, healthyName)
	at.register(t)
	at.settle(t)
	standby := &faulty{Fleet: f.Fleet, options: f.options, intervals: f.intervals}
	standby.options.Dir = t.TempDir()
	standby.keepRunning(t)
	endsWell(t, standby)
	for name, lost := range restoreRows {
		t.Run(name, func(t *testing.T) { at.restoreHub(t, name, lost, f, standby) })
	}
}

func (at *place) restoreHub(t *testing.T, row string, lost int, replicas ...*faulty) {
	t.Helper()
	changed, comes := at.rule(t, "changed-"+row), at.rule(t, "comes-"+row)
	at.settle(t)

	must(t, at.Hub.Save())
	update(t, at.Hub, changed, func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up == 2" })
	must(t, at.Hub.Client.Delete(t.Context(), comes))
	at.settle(t)
	loseWrites(t, at.Hub, row, lost)
	said := make([]int, len(replicas))
	for i, r := range replicas {
		said[i] = strings.Count(r.current().Log(), restoredMessage)
	}

	since := time.Now()
	must(t, at.Hub.Restore(t.Context()))
	begun := time.Now()
	at.rule(t, "after-"+row)
	within(t, restoredWithin, "the spoke is as it should be", at.converged)
	t.Logf("%s: all is as it should be %s after the restore", row, seconds(time.Since(begun)))
	for i, r := range replicas {
		if log := r.current().Log(); strings.Count(log, restoredMessage) > said[i] {
			t.Logf("%s: replica %d says: %s", row, i, lastLineWith(log, restoredMessage))
		} else if lost > 0 {
			t.Errorf("replica %d does not say that the hub was restored", i)
		}
	}

	pause(t, at.intervals.Of(quiet))
	if wrote := at.wrote(t, at.m, since); wrote["update"] != 1 || wrote["create"] != 2 || wrote["delete"] != 0 {
		t.Errorf("the manager wrote %v in the spoke", wrote)
	}
	must(t, at.converged(t.Context()))
}

// TestHubDownAtStart starts a manager, the only replica, while its hub is down.
func TestHubDownAtStart(t *testing.T) {
	t.Parallel()
	f := startFaulty(t, fleet.Options{})
	f.up()
	f.options.LeaderElect, f.options.Pod = true, "8a2f0f4c-53c4-4d0b-9d0c-0d9d1f7f2f11"
	f.start(t)
	endsWell(t, f)
	at := f.place(t, healthyName)
	at.register(t)
	at.settle(t)
	kubeconfig, err := f.HubKubeconfig(t.Context())
	must(t, err)
	must(t, f.current().Kill())

	must(t, f.Hub.Kill())
	f.options.Kubeconfig, f.options.Dir = kubeconfig, t.TempDir()
	f.start(t) // it is alive
	m := f.current()
	throughout(t, 5*time.Second, "it waits", func(ctx context.Context) error {
		select {
		case <-m.Done():
			return fmt.Errorf("it ended: %w", m.ExitErr())
		default:
		}
		if ready, _, err := readyz(ctx, m); err != nil || ready {
			return fmt.Errorf("ready: %t, %w", ready, err)
		}
		return nil
	})
	if n := strings.Count(m.Log(), "connection refused"); n != 1 {
		t.Errorf("it says %d times that the connection is refused", n)
	}
	must(t, f.Hub.Restart(t.Context()))
	back := time.Now()
	eventually(t, "it is ready", func(ctx context.Context) error {
		ready, body, err := readyz(ctx, m)
		if err == nil && !ready {
			err = errors.New(body)
		}
		return err
	})
	took := time.Since(back)
	if took > readyWithin {
		t.Errorf("it was ready after %v", took)
	}
	at.rule(t, "after")
	at.settle(t)
	if took := time.Since(back); took > readyWithin {
		t.Errorf("it was at work after %v, though the lease was its own pod's", took)
	}
	t.Logf("ready %s after the hub was back, and at work %s after it", seconds(took), seconds(time.Since(back)))
}

// endsWell ends the fleet's manager with the test.
func endsWell(t *testing.T, f *faulty) {
	t.Helper()
	t.Cleanup(func() {
		must(t, f.current().Kill())
		if t.Failed() {
			t.Logf("the end of the manager's log:\n%s", lastLines(f.current().Log(), 60))
		}
	})
}

// loseWrites makes writes that are to be lost.
func loseWrites(t *testing.T, m *fleet.Member, row string, n int) {
	t.Helper()
	for i := range n {
		must(t, m.Client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("lost-%s-%d", row, i)}}))
	}
}

// lastLineWith returns the last line of a log that has some words in it.
func lastLineWith(log, words string) string {
	lines := strings.Split(log, "\n")
	for i := range slices.Backward(lines) {
		if strings.Contains(lines[i], words) {
			return lines[i]
		}
	}
	return ""
}

// versions tells the versions of the rules in another spoke.
func (at *place) versions(t *testing.T, of *place) string {
	t.Helper()
	rules, err := of.rules(t.Context())
	must(t, err)
	var out []string
	for _, pr := range rules {
		out = append(out, pr.Name+"@"+pr.ResourceVersion)
	}
	return strings.Join(out, " ")
}

// wrote counts the writes of PrometheusRules in a spoke, since then, by verb. Refused ones change
// nothing.
func (at *place) wrote(t *testing.T, m *fleet.Member, since time.Time) map[string]int {
	t.Helper()
	events, err := m.Audit().Events(func(e controlplane.AuditEvent) bool {
		return e.User.Username == fleet.SpokeUser && e.IsWrite() && e.ObjectRef.Resource == "prometheusrules" && e.RequestReceivedTimestamp.After(since)
	})
	must(t, err)
	out := map[string]int{}
	for _, e := range events {
		t.Logf("%s %s: %d", e.Verb, e.ObjectRef.Name, e.ResponseStatus.Code)
		if e.ResponseStatus.Code < 300 {
			out[e.Verb]++
		}
	}
	return out
}
