package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/rollup"
	"github.com/rulefleet/rulefleet/pkg/testing/faultproxy"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// readyWithin is how soon a manager that waited for its hub must be ready once the hub is back.
const readyWithin = 10 * time.Second

// TestHubDownAtStart starts the only replica of a manager while its hub is down, and then one whose hub goes down
// when the manager has begun to read it.
func TestHubDownAtStart(t *testing.T) {
	long(t)
	parallel(t)
	f := startFaulty(t, fleet.Options{})
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
	at.waits(t, m, "down")
	if n := strings.Count(m.Log(), "connection refused"); n != 1 {
		t.Errorf("it says %d times that the connection is refused", n)
	}
	must(t, m.Kill())

	front := f.frontHub(t)
	f.options.Dir = t.TempDir()
	// This is the last read before anything is watched.
	gone := front.At(faultproxy.Point{Method: http.MethodGet, Resource: "configmaps", After: true}, func() bool { return f.Hub.Kill() == nil })
	f.start(t)
	select {
	case <-gone:
	case <-time.After(patience):
		t.Fatal("the hub was not prepared")
	}
	at.waits(t, f.current(), "gone")
	t.Run("a SpokeCluster is replaced", at.replaced)
}

// waits checks that a manager waits for its hub while it is down, and works soon after it is back.
func (at *place) waits(t *testing.T, m *fleet.Manager, name string) {
	t.Helper()
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
	must(t, at.Hub.Restart(t.Context()))
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
	at.rule(t, name)
	at.settle(t)
	if took := time.Since(back); took > readyWithin {
		t.Errorf("it was at work after %v, though the lease was its own pod's", took)
	}
	t.Logf("%s: ready %s after the hub was back, and at work %s after it", name, seconds(took), seconds(time.Since(back)))
}

// replaced replaces the SpokeCluster while no manager runs, and its cluster does not answer
// afterwards: a rule that is placed by hand shows nothing of the former one.
func (at *place) replaced(t *testing.T) {
	f := at.faulty
	f.options.LeaderElect, f.options.Pod, f.options.Kubeconfig = false, "", nil
	key := client.ObjectKey{Namespace: fleet.Namespace, Name: at.name + "-rule-0"}
	expectRow(t, f.Fleet, key, at.name, v1alpha1.PhaseApplied, v1alpha1.ReasonNoEvaluator)
	must(t, f.current().Stop())
	must(t, at.m.Kill())
	sc := membership(at.name)
	update(t, f.Hub, sc, func(sc *v1alpha1.SpokeCluster) { sc.Finalizers = nil })
	must(t, f.Hub.Client.Delete(t.Context(), sc))
	eventually(t, "its status is a second old", func(ctx context.Context) error {
		ar := &v1alpha1.AlertRule{}
		if err := read(ctx, f.Hub, key, ar); err != nil {
			return err
		}
		if !rollup.Predates(ar, metav1.NewTime(time.Now().Truncate(time.Second))) {
			return fmt.Errorf("it is of %+v", ar.ManagedFields)
		}
		return nil
	})

	f.options.Dir = at.t.TempDir() // the manager outlives this subtest
	f.start(t)
	expectCondition(t, f.Fleet, sc, v1alpha1.ConditionConnected, metav1.ConditionFalse, v1alpha1.ReasonUnreachable)
	eventually(t, "the rule shows nothing of the former cluster", func(ctx context.Context) error {
		ar := &v1alpha1.AlertRule{}
		if err := read(ctx, f.Hub, key, ar); err != nil {
			return err
		}
		if r := row(ar, at.name); r == nil || r.Phase != v1alpha1.PhasePending || r.Rule != "" {
			return fmt.Errorf("the rows are %+v", ar.Status.Clusters)
		}
		return nil
	})
}
