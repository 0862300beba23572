package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// startSilent starts a server that accepts connections and never answers.
func startSilent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, conn); _ = conn.Close() }()
		}
	}()
	return "https://" + l.Addr().String()
}

// TestIsolationFromBadSpokes registers a silent spoke and one that answers 403 before a good one.
func TestIsolationFromBadSpokes(t *testing.T) {
	f := start(t, fleet.Options{Spokes: []string{"forbidden", "good"}, Intervals: 1})
	_, err := f.StartManager(t.Context(), fleet.ManagerOptions{Path: plainManager, Dir: t.TempDir()})
	must(t, err)

	kubeconfig, err := f.Spoke("good").UserKubeconfig(fleet.SpokeUser)
	must(t, err)
	cfg, err := clientcmd.Load(kubeconfig)
	must(t, err)
	for _, c := range cfg.Clusters {
		c.Server = startSilent(t)
	}
	silent, err := clientcmd.Write(*cfg)
	must(t, err)
	must(t, f.RegisterKubeconfig(t.Context(), "silent", silent, nil))
	nobody, err := f.Spoke("forbidden").UserKubeconfig("nobody")
	must(t, err)
	must(t, f.RegisterKubeconfig(t.Context(), "forbidden", nobody, nil))
	expectConnected(t, f, "forbidden", metav1.ConditionFalse, v1alpha1.ReasonForbidden)

	registered := time.Now()
	must(t, f.Register(t.Context(), "good", nil))
	within(t, 2*time.Second, "the good spoke is engaged", func(ctx context.Context) error {
		return connected(ctx, f, "good", metav1.ConditionTrue, v1alpha1.ReasonConnected)
	})
	t.Logf("engaged %v after it was registered", time.Since(registered).Round(time.Millisecond))
	namespace(t, "shop", f.Spoke("good"))
	must(t, f.Spoke("good").Client.Create(t.Context(), deployment("shop", "web")))
	ar := expectGenerated(t, f, "good", "shop", "web", 1)
	expectPushed(t, f.Spoke("good"), client.ObjectKeyFromObject(ar), 1)
	expectConnected(t, f, "silent", metav1.ConditionFalse, v1alpha1.ReasonUnreachable)
}

func expectConnected(t *testing.T, f *fleet.Fleet, name string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	eventually(t, fmt.Sprintf("SpokeCluster %s: Connected=%s, reason %s", name, status, reason), func(ctx context.Context) error {
		return connected(ctx, f, name, status, reason)
	})
}

func connected(ctx context.Context, f *fleet.Fleet, name string, status metav1.ConditionStatus, reason string) error {
	sc := &v1alpha1.SpokeCluster{}
	if err := f.Hub.Client.Get(ctx, client.ObjectKey{Name: name}, sc); err != nil {
		return err
	}
	c := meta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionConnected)
	if c == nil || c.Status != status || c.Reason != reason {
		return fmt.Errorf("the condition is %+v", c)
	}
	return nil
}

// noise is the observed variation of p99 on a busy machine.
const noise = 200 * time.Millisecond

// queued is the number of rules that wait for a frozen spoke.
const queued = 1000

// TestIsolationFromAFrozenSpoke freezes a spoke with 1,000 queued keys, and compares the latency of a healthy
// spoke with its latency before. It compares the medians of several rounds' p99: other load affects one round,
// a spoke that is slowed down is slow in all.
func TestIsolationFromAFrozenSpoke(t *testing.T) {
	long(t)
	const rounds, samples = 5, 150
	f, m := startLoaded(t)
	healthy, frozen := f.Spoke("healthy"), f.Spoke("frozen")
	propagation(t, f, healthy, "warm", 50)
	var before, during, p99Before, p99During []time.Duration
	for round := range rounds {
		took := propagation(t, f, healthy, fmt.Sprintf("before-%d", round), samples)
		before, p99Before = append(before, took...), append(p99Before, p(99, took))
		must(t, frozen.Pause())
		revise(t, f, strconv.Itoa(round))
		// This is before the first write times out: until then, only the limit of keys in flight keeps the frozen
		// spoke from occupying all workers.
		within(t, 5*time.Second, "the keys are queued", func(ctx context.Context) error {
			return metricAtLeast(ctx, m, `rulefleet_parked_keys{controller="distribute"}`, queued-10)
		})
		took = propagation(t, f, healthy, fmt.Sprintf("during-%d", round), samples)
		during, p99During = append(during, took...), append(p99During, p(99, took))
		must(t, metricAtLeast(t.Context(), m, `rulefleet_parked_keys{controller="distribute"}`, queued-10))
		must(t, frozen.Resume())
		within(t, time.Minute, "the frozen spoke has caught up", func(ctx context.Context) error {
			return revised(ctx, frozen, strconv.Itoa(round))
		})
	}
	was, is := p(50, p99Before), p(50, p99During)
	t.Logf("hub to healthy spoke: p99 %v, and %v with a frozen spoke and %d keys queued for it: × %.2f", was, is, queued, float64(is)/float64(was))
	t.Logf("p99 of each round: %v, and %v; p50 and p99 of all: %v and %v, and %v and %v",
		p99Before, p99During, p(50, before), p(99, before), p(50, during), p(99, during))
	// Waiting for another spoke takes seconds. A difference below noise may come from the machine, whose two
	// cores run ten API servers and etcds.
	if float64(is) > 1.2*float64(was) && is > was+noise {
		t.Errorf("p99 is %v with a frozen spoke, and %v without", is, was)
	}
	if a, b := p(50, before), p(50, during); float64(b) > 1.2*float64(a) && b > a+noise/10 {
		t.Errorf("p50 is %v with a frozen spoke, and %v without", b, a)
	}
}

// startLoaded starts a fleet with a spoke that will be frozen, and rules there that contain a label of the
// spoke: changing it queues all of them with one write on the hub.
func startLoaded(t *testing.T) (*fleet.Fleet, *fleet.Manager) {
	t.Helper()
	f := start(t, fleet.Options{Spokes: []string{"healthy", "frozen"}, Intervals: 1})
	m, err := f.StartManager(t.Context(), fleet.ManagerOptions{Path: plainManager, Dir: t.TempDir()})
	must(t, err)
	for _, name := range []string{"healthy", "frozen"} {
		namespace(t, "load", f.Spoke(name))
		must(t, f.Register(t.Context(), name, map[string]string{"revision": "none"}))
		expectConnected(t, f, name, metav1.ConditionTrue, v1alpha1.ReasonConnected)
	}
	createMany(t, f.Hub, queued, 8, func(i int) client.Object {
		ar := alertRule(fmt.Sprintf("queued-%d", i), "load", onNamed("frozen"))
		ar.Spec.Annotations = map[string]v1alpha1.LabelText{"summary": "$(cluster.labels.revision)"}
		return ar
	})
	within(t, time.Minute, "all rules are ready", func(ctx context.Context) error { return ready(ctx, f, queued) })
	return f, m
}

// revise changes the label in the rules of the frozen spoke.
func revise(t *testing.T, f *fleet.Fleet, revision string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"revision":%q}}}`, revision)
	sc := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "frozen"}}
	must(t, f.Hub.Client.Patch(t.Context(), sc, client.RawPatch(types.MergePatchType, patch)))
}

// revised returns an error unless all rules in a spoke have a revision.
func revised(ctx context.Context, m *fleet.Member, revision string) error {
	var list monitoringv1.PrometheusRuleList
	if err := m.Client.List(ctx, &list, client.InNamespace("load")); err != nil {
		return err
	}
	for i := range list.Items {
		if got := list.Items[i].Spec.Groups[0].Rules[0].Annotations["summary"]; got != revision {
			return fmt.Errorf("%s has revision %q", list.Items[i].Name, got)
		}
	}
	return nil
}

// propagation measures, n times, how long a new AlertRule on the hub takes to become a PrometheusRule in a
// spoke.
func propagation(t *testing.T, f *fleet.Fleet, m *fleet.Member, prefix string, n int) []time.Duration {
	t.Helper()
	return measure(t, f, m, "load", prefix, n, func(name string) *v1alpha1.AlertRule {
		return alertRule(name, "load", onNamed(v1alpha1.ClusterName(m.Name())))
	})
}

// propagationOf is propagation for the AlertRules of a tenant.
func propagationOf(t *testing.T, f *fleet.Fleet, m *fleet.Member, tenant, prefix string, n int) []time.Duration {
	t.Helper()
	return measure(t, f, m, tenant, prefix, n, func(name string) *v1alpha1.AlertRule {
		return tenantsRule(tenant, name, onNamed(v1alpha1.ClusterName(m.Name())))
	})
}

func measure(t *testing.T, f *fleet.Fleet, m *fleet.Member, namespace, prefix string, n int, rule func(name string) *v1alpha1.AlertRule) []time.Duration {
	t.Helper()
	watching, err := client.NewWithWatch(m.RESTConfig(), client.Options{Scheme: fleet.Scheme})
	must(t, err)
	w, err := watching.Watch(t.Context(), &monitoringv1.PrometheusRuleList{}, client.InNamespace(namespace))
	must(t, err)
	defer w.Stop()
	out := make([]time.Duration, 0, n)
	for i := range n {
		ar := rule(fmt.Sprintf("%s-%d", prefix, i))
		start := time.Now()
		must(t, f.Hub.Client.Create(t.Context(), ar))
		awaitAdded(t, w, client.ObjectKeyFromObject(ar).String())
		out = append(out, time.Since(start))
	}
	return out
}

func awaitAdded(t *testing.T, w watch.Interface, key string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case e := <-w.ResultChan():
			if pr, ok := e.Object.(*monitoringv1.PrometheusRule); ok && e.Type == watch.Added && pr.Annotations[v1alpha1.AlertRuleAnnotation] == key {
				return
			}
		case <-deadline:
			t.Fatalf("no PrometheusRule of %s within %v", key, patience)
		}
	}
}

// p returns a percentile.
func p(percent int, of []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(len(sorted)-1, len(sorted)*percent/100)].Round(10 * time.Microsecond)
}

// TestIsolationFromATenant measures how soon a new AlertRule of a tenant is in a spoke, while another tenant changes
// 5,000 AlertRules, in the same namespace of the spoke.
func TestIsolationFromATenant(t *testing.T) {
	long(t)
	const changed, samples, rounds, tenantsPace = 5000, 40, 3, 50
	f := start(t, fleet.Options{Spokes: []string{"spoke"}, Intervals: 1})
	m := f.Spoke("spoke")
	_, err := f.StartManager(t.Context(), fleet.ManagerOptions{Path: plainManager, Dir: t.TempDir(), Args: []string{"--tenant-max-rules=0"}})
	must(t, err)
	for _, ns := range []string{"greedy", "modest"} {
		namespace(t, ns, f.Hub, m)
	}
	must(t, f.Register(t.Context(), "spoke", map[string]string{"revision": "none"}))
	expectConnected(t, f, "spoke", metav1.ConditionTrue, v1alpha1.ReasonConnected)
	createMany(t, f.Hub, changed, 8, func(i int) client.Object {
		ar := tenantsRule("greedy", fmt.Sprintf("rule-%d", i), onNamed("spoke"))
		ar.Spec.Annotations = map[string]v1alpha1.LabelText{"summary": "none"}
		return ar
	})
	within(t, 10*time.Minute, "all rules are ready", func(ctx context.Context) error { return ready(ctx, f, changed) })
	propagationOf(t, f, m, "modest", "warm", samples)

	var before, during []time.Duration
	for round := range rounds {
		before = append(before, propagationOf(t, f, m, "modest", fmt.Sprintf("before-%d", round), samples)...)
		// The tenant writes twice as fast as kubectl apply, which sends 50 requests a second, two for each object. The API
		// servers are on this machine, too: without a limit, their own load would be measured.
		pace := rate.NewLimiter(tenantsPace, 1)
		ctx, stop := context.WithCancel(t.Context())
		writers, wctx := errgroup.WithContext(ctx)
		var written atomic.Int64
		writers.Go(func() error {
			for n := 0; pace.Wait(wctx) == nil; n++ {
				patch := fmt.Appendf(nil, `{"spec":{"annotations":{"summary":"%d-%d"}}}`, round, n)
				ar := tenantsRule("greedy", fmt.Sprintf("rule-%d", n%changed), onNamed("spoke"))
				if err := f.Hub.Client.Patch(wctx, ar, client.RawPatch(types.MergePatchType, patch)); err != nil && wctx.Err() == nil {
					return err
				}
				written.Add(1)
			}
			return nil
		})
		within(t, time.Minute, "the tenant has changed a part of its rules", func(context.Context) error {
			if n := written.Load(); n < changed/rounds/4 {
				return fmt.Errorf("%d are changed", n)
			}
			return nil
		})
		during = append(during, propagationOf(t, f, m, "modest", fmt.Sprintf("during-%d", round), samples)...)
		stop()
		must(t, writers.Wait())
		t.Logf("round %d: %d changes", round, written.Load())
	}
	was, is := p(50, before), p(50, during)
	t.Logf("hub to spoke: p50 %v, and %v while another tenant changes %d of its %d rules a second: × %.2f; p99 %v and %v", was, is, tenantsPace, changed, float64(is)/float64(was), p(99, before), p(99, during))
	if float64(is) > 2*float64(was) && is > was+noise/10 {
		t.Errorf("p50 is %v while another tenant changes its rules, and %v without", is, was)
	}
}
