package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionv1 "k8s.io/api/admission/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/leader"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// replicas are managers of one hub, one of which leads.
type replicas struct {
	*fleet.Fleet
	spoke *fleet.Member
	rule  *v1alpha1.AlertRule // changed to see whether a replica works
	round int
}

// TestLeaderElection removes the leader in each possible way.
func TestLeaderElection(t *testing.T) {
	long(t)
	parallel(t)
	r := &replicas{Fleet: start(t, fleet.Options{Spokes: []string{spokeA}, Audit: true})}
	r.spoke = r.Spoke(spokeA)
	namespace(t, "shop", r.spoke)
	must(t, r.Register(t.Context(), spokeA, nil))
	r.rule = alertRule("changing", "shop", onEvery())
	create(t, r.Hub, r.rule)

	first := r.replica(t)
	r.expectLeader(t, first)
	second := r.standby(t)
	r.expectWork(t)
	r.freeze(t, first, second)
	third := r.standby(t)
	r.stop(t, second, third)
	r.kill(t, third, r.standby(t))
}

func (r *replicas) replica(t *testing.T) *fleet.Manager {
	t.Helper()
	return startManagerWith(t, r.Fleet, fleet.ManagerOptions{Dir: t.TempDir(), LeaderElect: true})
}

// standby starts a replica while another one leads: it is ready, and writes nothing.
func (r *replicas) standby(t *testing.T) *fleet.Manager {
	t.Helper()
	m := r.replica(t)
	eventually(t, "the standby is ready", func(ctx context.Context) error {
		ok, body, err := readyz(ctx, m)
		if err == nil && !ok {
			err = fmt.Errorf("it says %q", body)
		}
		return err
	})
	throughout(t, time.Second, "the standby writes nothing", func(context.Context) error { return r.wroteSince(m, time.Time{}) })
	return m
}

// holder returns the holder of the lease.
func holder(ctx context.Context, hub *fleet.Member) (string, error) {
	lease := &coordinationv1.Lease{}
	if err := read(ctx, hub, client.ObjectKey{Namespace: fleet.Namespace, Name: "rulefleet-manager"}, lease); err != nil {
		return "", err
	}
	if lease.Spec.HolderIdentity == nil {
		return "", nil
	}
	return *lease.Spec.HolderIdentity, nil
}

// identity returns a replica's name in the lease and in audit logs.
func identity(m *fleet.Manager) (string, error) {
	_, after, found := strings.Cut(m.Log(), `"replica":"`)
	name, _, ended := strings.Cut(after, `"`)
	if !found || !ended {
		return "", errors.New("the log does not tell what the replica calls itself")
	}
	return name, nil
}

// expectLeader waits until a replica leads.
func (r *replicas) expectLeader(t *testing.T, m *fleet.Manager) {
	t.Helper()
	eventually(t, "the replica leads", func(ctx context.Context) error {
		want, err := identity(m)
		if err != nil {
			return err
		}
		is, err := holder(ctx, r.Hub)
		if err == nil && is != want {
			err = fmt.Errorf("%q leads, and not %q", is, want)
		}
		return err
	})
}

// expectWork changes a rule, and waits until the spoke has the change.
func (r *replicas) expectWork(t *testing.T) {
	t.Helper()
	r.round++
	expr := fmt.Sprintf("up == %d", r.round)
	update(t, r.Hub, r.rule, func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = expr })
	key := client.ObjectKeyFromObject(r.rule)
	expectRule(t, r.spoke, key, "the change", func(pr *monitoringv1.Rule) bool { return pr.Expr.String() == expr })
	expectReady(t, r.Fleet, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
}

// wroteSince returns the writes of a replica to the hub or the spoke since then, except those of the leader
// election.
func (r *replicas) wroteSince(m *fleet.Manager, since time.Time) error {
	name, err := identity(m)
	if err != nil {
		return err
	}
	var errs []error
	for _, member := range []*fleet.Member{r.Hub, r.spoke} {
		events, err := member.Audit().Events(func(e controlplane.AuditEvent) bool {
			return e.IsWrite() && strings.Contains(e.UserAgent, name) && e.RequestReceivedTimestamp.After(since) && e.ObjectRef.Resource != "leases"
		})
		errs = append(errs, err)
		for _, e := range events {
			errs = append(errs, fmt.Errorf("%s: %s %s %s: %d", member.Name(), e.RequestReceivedTimestamp.Format(time.StampMilli), e.Verb, e.RequestURI, e.ResponseStatus.Code))
		}
	}
	return errors.Join(errs...)
}

// freeze stops the leader by SIGSTOP while the spoke processes its writes, until another replica has worked,
// and resumes it.
func (r *replicas) freeze(t *testing.T, frozen, next *fleet.Manager) {
	t.Helper()
	const count = 20
	var hanging atomic.Bool
	arrived, released := make(chan struct{}, 10*count), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	h := serveHook(t, "hang", func(ctx context.Context, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if hanging.Load() {
			arrived <- struct{}{}
			select {
			case <-released:
			case <-ctx.Done():
			}
		}
		return nil
	})
	t.Cleanup(release)
	config := h.validating()
	h.install(t, r.spoke, config)
	hanging.Store(true)
	var keys []client.ObjectKey
	for i := range count {
		keys = append(keys, create(t, r.Hub, alertRule(fmt.Sprintf("rule-%d", i), "shop", onEvery())))
	}
	select {
	case <-arrived:
	case <-time.After(patience):
		t.Fatal("nothing is written to the spoke")
	}
	must(t, frozen.Pause())
	hanging.Store(false)
	begun := time.Now()
	r.expectLeader(t, next)
	t.Logf("frozen: the other leads after %v", time.Since(begun).Round(time.Millisecond))
	for _, key := range keys {
		expectPushed(t, r.spoke, key, 1)
		expectReady(t, r.Fleet, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	}
	r.expectWork(t)
	t.Logf("and has done its work after %v", time.Since(begun).Round(time.Millisecond))
	release()

	// Now its earlier requests are answered, its workers continue, and there is much to do.
	resumed := time.Now()
	must(t, frozen.Resume())
	select {
	case <-frozen.Done():
	case <-time.After(patience):
		t.Fatal("the former leader goes on")
	}
	t.Logf("the former leader ended %v after it went on: %v; writes refused: %d",
		time.Since(resumed).Round(time.Millisecond), frozen.ExitErr(), strings.Count(frozen.Log(), leader.ErrNotLeading.Error()))
	if frozen.ExitErr() == nil || !strings.Contains(frozen.Log(), leader.ErrLost.Error()) {
		t.Errorf("it ended with %v", frozen.ExitErr())
	}
	r.expectWork(t)
	if err := r.wroteSince(frozen, resumed); err != nil {
		t.Errorf("the former leader wrote:\n%v", err)
	}
	h.uninstall(t, r.spoke, config)
}

// stop ends the leader as Kubernetes does: it releases the lease, and writes nothing afterwards.
func (r *replicas) stop(t *testing.T, m, next *fleet.Manager) {
	t.Helper()
	begun := time.Now()
	must(t, m.Stop())
	ended := time.Now()
	r.expectLeader(t, next)
	t.Logf("stopped: it ended after %v, and the other leads %v later", ended.Sub(begun).Round(time.Millisecond), time.Since(ended).Round(time.Millisecond))
	if took := time.Since(ended); took > 10*time.Second {
		t.Errorf("the other took over after %v", took)
	}
	if err := m.ExitErr(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	r.expectWork(t)

	name, err := identity(m)
	must(t, err)
	renewals, err := r.Hub.Audit().Events(func(e controlplane.AuditEvent) bool {
		return e.IsWrite() && strings.Contains(e.UserAgent, name) && e.ObjectRef.Resource == "leases"
	})
	must(t, err)
	if len(renewals) == 0 {
		t.Fatal("it never held the lease")
	}
	if err := r.wroteSince(m, renewals[len(renewals)-1].RequestReceivedTimestamp); err != nil {
		t.Errorf("it wrote after it had given up the lease:\n%v", err)
	}
}

// kill ends the leader by SIGKILL: the lease has to expire.
func (r *replicas) kill(t *testing.T, m, next *fleet.Manager) {
	t.Helper()
	must(t, m.Kill())
	begun := time.Now()
	r.expectLeader(t, next)
	took := time.Since(begun)
	t.Logf("killed: the other leads after %v", took.Round(time.Millisecond))
	// A standby checks every 2.4 s at most and counts from when it saw the last renewal, and this machine may be
	// busy.
	if limit := leader.LeaseDuration + 2*leader.RetryPeriod + 5*time.Second; took > limit {
		t.Errorf("the other took over after %v, and not within %v", took, limit)
	}
	r.expectWork(t)
}
