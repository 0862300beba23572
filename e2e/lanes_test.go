package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/faultproxy"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// createRules creates n AlertRules for a namespace of a spoke, several at a time.
func createRules(t *testing.T, f *fleet.Fleet, spoke, namespace string, n int) {
	t.Helper()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(8)
	for i := range n {
		g.Go(func() error {
			return f.Hub.Client.Create(ctx, alertRule(fmt.Sprintf("%s-%d", namespace, i), namespace, onNamed(v1alpha1.ClusterName(spoke))))
		})
	}
	must(t, g.Wait())
}

// held is how many PrometheusRules are in a namespace of a spoke.
func held(ctx context.Context, m *fleet.Member, namespace string) (int, error) {
	var list monitoringv1.PrometheusRuleList
	if err := m.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return 0, fmt.Errorf("listing PrometheusRules: %w", err)
	}
	return len(list.Items), nil
}

// hangFor serves a webhook that does not answer for rules in namespaces whose names begin with stuck,
// until it is released.
func hangFor(t *testing.T) (h *hook, asked *atomic.Int32, release func()) {
	t.Helper()
	asked = &atomic.Int32{}
	released, free := context.WithCancel(t.Context())
	h = serveHook(t, "hang", func(ctx context.Context, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if strings.HasPrefix(r.Namespace, "stuck") {
			asked.Add(1)
			select {
			case <-ctx.Done():
			case <-released.Done():
			}
		}
		return nil
	})
	t.Cleanup(free)
	return h, asked, free
}

// TestHangingNamespaces lets the rules of a namespace hang in an admission webhook of the spoke, then
// those of a second one, and of a third one beside. The webhook takes longer than the manager waits.
func TestHangingNamespaces(t *testing.T) {
	long(t)
	t.Parallel()
	const stuck, limit = 100, 10 * time.Second
	f := start(t, fleet.Options{Spokes: []string{spokeA}, Intervals: 1})
	m := f.Spoke(spokeA)
	manager := startManager(t, f, t.TempDir())
	must(t, f.Register(t.Context(), spokeA, nil))
	expectConnected(t, f, spokeA, metav1.ConditionTrue, v1alpha1.ReasonConnected)
	namespace(t, "fine", m)
	h, asked, release := hangFor(t)
	config := h.validatingWithin(30)
	h.install(t, m, config)
	for i := range 3 {
		name := fmt.Sprintf("stuck-%d", i)
		namespace(t, name, m)
		before := asked.Load()
		createRules(t, f, spokeA, name, stuck)
		eventually(t, "the webhook is asked", func(context.Context) error {
			if asked.Load() == before {
				return fmt.Errorf("not for %s", name)
			}
			return nil
		})
		healthy := alertRule(fmt.Sprintf("healthy-%d", i), "fine", onNamed(spokeA))
		began := time.Now()
		must(t, f.Hub.Client.Create(t.Context(), healthy))
		within(t, limit, "a rule of another namespace is in the spoke", func(ctx context.Context) error {
			n, err := held(ctx, m, "fine")
			if err == nil && n <= i {
				err = fmt.Errorf("there are %d", n)
			}
			return err
		})
		t.Logf("%d rules hang: a rule of another namespace is there after %v", (i+1)*stuck, time.Since(began).Round(time.Millisecond))
	}

	// One of them says what it waits for, though the manager gave up before the webhook did.
	within(t, time.Minute, "a row tells of the webhook", func(ctx context.Context) error {
		var list v1alpha1.AlertRuleList
		if err := f.Hub.Client.List(ctx, &list); err != nil {
			return err
		}
		for i := range list.Items {
			r := row(&list.Items[i], spokeA)
			if r != nil && r.Reason == v1alpha1.ReasonError && strings.Contains(r.Message, "an admission webhook in the spoke hangs") {
				t.Logf("AlertRule %s: %s: %s", list.Items[i].Name, r.Reason, r.Message)
				return nil
			}
		}
		return fmt.Errorf("none of %d", len(list.Items))
	})
	// The spoke is well meanwhile.
	if log := manager.Log(); strings.Contains(log, "the spoke can't be served") {
		t.Error("the spoke was taken for one that does not answer")
	}
	expectConnected(t, f, spokeA, metav1.ConditionTrue, v1alpha1.ReasonConnected)

	release()
	h.uninstall(t, m, config)
	within(t, 2*time.Minute, "all rules are in the spoke", func(ctx context.Context) error { return ready(ctx, f, 3*stuck+3) })
}

// TestRulesOfAFarSpokeAreBounded puts a spoke alone behind a round trip of 100 ms, and counts the time
// until it has 500 rules that were on the hub before it came.
func TestRulesOfAFarSpokeAreBounded(t *testing.T) {
	const rules, roundTrip, limit = 500, 100 * time.Millisecond, 5 * time.Second
	f := start(t, fleet.Options{Spokes: []string{spokeA}, Intervals: 1})
	m := f.Spoke(spokeA)
	_, err := f.StartManager(t.Context(), fleet.ManagerOptions{Path: plainManager, Dir: t.TempDir()})
	must(t, err)
	namespace(t, "far", m)
	createRules(t, f, spokeA, "far", rules)
	kubeconfig, err := m.UserKubeconfig(fleet.SpokeUser)
	must(t, err)
	proxy, err := faultproxy.Start(kubeconfig, "far")
	must(t, err)
	t.Cleanup(proxy.Close)
	proxy.Set(faultproxy.Latency(roundTrip))
	kubeconfig, err = proxy.Kubeconfig()
	must(t, err)

	registered := time.Now()
	must(t, f.RegisterKubeconfig(t.Context(), spokeA, kubeconfig, nil))
	var first time.Duration
	within(t, time.Minute, "all rules are in the spoke", func(ctx context.Context) error {
		n, err := held(ctx, m, "far")
		if n > 0 && first == 0 {
			first = time.Since(registered)
		}
		if err == nil && n < rules {
			err = fmt.Errorf("there are %d", n)
		}
		return err
	})
	took := time.Since(registered)
	t.Logf("%d rules through a round trip of %v: the first after %v, all after %v", rules, roundTrip, first.Round(time.Millisecond), took.Round(time.Millisecond))
	if took > limit {
		t.Errorf("it took %v", took)
	}
}

// TestIsolationFromAHangingNamespace measures how fast a spoke gets its rules while those of another
// namespace of its own hang in an admission webhook, and another spoke is frozen.
func TestIsolationFromAHangingNamespace(t *testing.T) {
	long(t)
	const rounds, samples, stuck = 3, 100, 100
	f, m := startLoaded(t)
	healthy, frozen := f.Spoke("healthy"), f.Spoke("frozen")
	h, asked, _ := hangFor(t)
	propagation(t, f, healthy, "warm", 50)
	var p50Before, p99Before, p50During, p99During []time.Duration
	for round := range rounds {
		took := propagation(t, f, healthy, fmt.Sprintf("before-%d", round), samples)
		p50Before, p99Before = append(p50Before, p(50, took)), append(p99Before, p(99, took))
	}
	h.install(t, healthy, h.validatingWithin(30))
	namespace(t, "stuck", healthy)
	createRules(t, f, "healthy", "stuck", stuck)
	eventually(t, "the webhook is asked", func(context.Context) error {
		if asked.Load() == 0 {
			return errors.New("never")
		}
		return nil
	})
	for round := range rounds {
		must(t, frozen.Pause())
		revise(t, f, strconv.Itoa(round))
		within(t, 5*time.Second, "the keys are queued", func(ctx context.Context) error {
			return metricAtLeast(ctx, m, `rulefleet_parked_keys{controller="distribute"}`, queued-10)
		})
		took := propagation(t, f, healthy, fmt.Sprintf("during-%d", round), samples)
		p50During, p99During = append(p50During, p(50, took)), append(p99During, p(99, took))
		must(t, frozen.Resume())
		within(t, time.Minute, "the frozen spoke has caught up", func(ctx context.Context) error {
			return revised(ctx, frozen, strconv.Itoa(round))
		})
	}
	was, is := p(50, p99Before), p(50, p99During)
	t.Logf("hub to healthy spoke: p99 %v, and %v with %d rules of another namespace that hang and a frozen spoke: × %.2f", was, is, stuck, float64(is)/float64(was))
	t.Logf("p50 %v, and %v; p99 of each round: %v, and %v", p(50, p50Before), p(50, p50During), p99Before, p99During)
	if float64(is) > 1.2*float64(was) && is > was+noise {
		t.Errorf("p99 is %v with them, and %v without", is, was)
	}
	if a, b := p(50, p50Before), p(50, p50During); float64(b) > 1.2*float64(a) && b > a+noise/10 {
		t.Errorf("p50 is %v with them, and %v without", b, a)
	}
}
