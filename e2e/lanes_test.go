package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/faultproxy"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// createRules creates n AlertRules for a namespace of a spoke, several at a time.
func createRules(t *testing.T, f *fleet.Fleet, spoke, namespace string, n int) {
	t.Helper()
	createMany(t, f.Hub, n, 8, func(i int) client.Object {
		return alertRule(fmt.Sprintf("%s-%d", namespace, i), namespace, onNamed(v1alpha1.ClusterName(spoke)))
	})
}

// held returns the number of PrometheusRules in a namespace of a spoke.
func held(ctx context.Context, m *fleet.Member, namespace string) (int, error) {
	var list monitoringv1.PrometheusRuleList
	if err := m.Client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return 0, fmt.Errorf("listing PrometheusRules: %w", err)
	}
	return len(list.Items), nil
}

// hangFor serves a webhook that does not answer for rules in namespaces with the prefix stuck, until it is
// released.
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

// TestHangingNamespaces makes the rules of one namespace of a spoke hang in an admission webhook, then those
// of three and of seven, with a restart of the manager in between. The webhook's timeout is longer than the
// manager's.
func TestHangingNamespaces(t *testing.T) {
	long(t)
	parallel(t)
	const limit = 10 * time.Second
	f := start(t, fleet.Options{Spokes: []string{spokeA}, Intervals: 1, Audit: true})
	m := f.Spoke(spokeA)
	options := fleet.ManagerOptions{Dir: t.TempDir(), HubID: hubID}
	manager := startManagerWith(t, f, options)
	x := alone(f, manager)
	x.plantForeign(t, m)
	at := x.only(t, spokeA, m)
	must(t, f.Register(t.Context(), spokeA, nil))
	expectConnected(t, f, spokeA, metav1.ConditionTrue, v1alpha1.ReasonConnected)
	namespace(t, "fine", m)
	h, asked, release := hangFor(t)
	config := h.validatingWithin(30)
	h.install(t, m, config)
	// healthy creates a rule of a namespace that does not hang.
	healthy := func(name string) *v1alpha1.AlertRule {
		ar := alertRule(at.name+"-"+name, "fine", onNamed(spokeA))
		must(t, f.Hub.Client.Create(t.Context(), ar))
		return ar
	}
	arrives := func(ar *v1alpha1.AlertRule) {
		t.Helper()
		within(t, limit, "a rule of another namespace is in the spoke", func(ctx context.Context) error {
			rules, err := at.rules(ctx)
			if err == nil && !slices.ContainsFunc(rules, func(pr monitoringv1.PrometheusRule) bool {
				return pr.Annotations[v1alpha1.AlertRuleAnnotation] == client.ObjectKeyFromObject(ar).String()
			}) {
				err = fmt.Errorf("it is not among %d", len(rules))
			}
			return err
		})
	}
	stuck, total := 0, 0
	for _, step := range []struct{ namespaces, rules int }{{1, 100}, {3, 40}, {7, 20}} {
		before := asked.Load()
		for ; stuck < step.namespaces; stuck++ {
			name := fmt.Sprintf("stuck-%d", stuck)
			namespace(t, name, m)
			total += step.rules
			createRules(t, f, spokeA, name, step.rules)
		}
		eventually(t, "the webhook is asked", func(context.Context) error {
			if asked.Load() == before {
				return errors.New("it is not")
			}
			return nil
		})
		began := time.Now()
		arrives(healthy(fmt.Sprintf("beside-%d", stuck)))
		total++
		t.Logf("%d namespaces hang: a rule of another one is there after %v", stuck, time.Since(began).Round(time.Millisecond))
	}

	// A rule's row says what it waits for, whether its write timed out or it waits behind one that did.
	for _, words := range []string{"an admission webhook in the spoke hangs", "of the spoke time out"} {
		within(t, time.Minute, "a row tells that "+words, func(ctx context.Context) error {
			return rowWith(ctx, t, f, spokeA, words)
		})
	}
	if log := manager.Log(); strings.Contains(log, "Rulefleet cannot manage the rules in the spoke") {
		t.Error("the spoke was taken for one that does not answer")
	}
	expectConnected(t, f, spokeA, metav1.ConditionTrue, v1alpha1.ReasonConnected)

	must(t, manager.Kill())
	late := healthy("restarted")
	total++
	manager = startManagerWith(t, f, options)
	x.adopt(manager)
	eventually(t, "the spoke is engaged again", func(ctx context.Context) error { return metricIs(ctx, manager, "rulefleet_engaged_spokes", 1) })
	began := time.Now()
	arrives(late)
	t.Logf("%d namespaces hang: a rule of another one is there %v after the spoke was engaged again", stuck, time.Since(began).Round(time.Millisecond))

	release()
	h.uninstall(t, m, config)
	within(t, 2*time.Minute, "all rules are in the spoke", func(ctx context.Context) error { return ready(ctx, f, total) })
	// The status of a rule is written when it is accepted, when it waits, when it hangs, the latter two once
	// more after the restart, and when it is applied.
	written := map[string]int{}
	events, err := f.Hub.Audit().Events(func(e controlplane.AuditEvent) bool {
		return wroteHere(e) && e.ObjectRef.Resource == "alertrules" && e.ObjectRef.Subresource == "status"
	})
	must(t, err)
	for _, e := range events {
		written[e.ObjectRef.Name]++
	}
	for name, n := range written {
		if n > 6 {
			t.Errorf("the status of %s was written %d times", name, n)
		}
	}
	t.Logf("%d statuses of %d rules were written", len(events), total)
	at.settle(t)
	at.holds(t, false)
}

// rowWith finds a row of a spoke with reason Error and these words.
func rowWith(ctx context.Context, t *testing.T, f *fleet.Fleet, spoke, words string) error {
	t.Helper()
	var list v1alpha1.AlertRuleList
	if err := f.Hub.Client.List(ctx, &list); err != nil {
		return err
	}
	for i := range list.Items {
		if r := row(&list.Items[i], spoke); r != nil && r.Reason == v1alpha1.ReasonError && strings.Contains(r.Message, words) {
			t.Logf("AlertRule %s: %s: %s", list.Items[i].Name, r.Reason, r.Message)
			return nil
		}
	}
	return fmt.Errorf("none of %d", len(list.Items))
}

// TestRulesOfAFarSpokeAreBounded registers a spoke with a round trip of 100 ms, and measures the time until it
// has 500 rules that were already on the hub: at most 5 s. On a machine on which a spoke nearby takes longer than
// 2 s, the round trips may add 3 s to the time of that spoke.
func TestRulesOfAFarSpokeAreBounded(t *testing.T) {
	const rules, roundTrip, limit, added = 500, 100 * time.Millisecond, 5 * time.Second, 3 * time.Second
	f := start(t, fleet.Options{Spokes: []string{spokeA, spokeB}, Intervals: 1})
	_, err := f.StartManager(t.Context(), fleet.ManagerOptions{Path: plainManager, Dir: t.TempDir()})
	must(t, err)
	kubeconfig, err := f.Spoke(spokeA).UserKubeconfig(fleet.SpokeUser)
	must(t, err)
	proxy, err := faultproxy.Start(kubeconfig, "far")
	must(t, err)
	t.Cleanup(proxy.Close)
	proxy.Set(faultproxy.Latency(roundTrip))
	kubeconfig, err = proxy.Kubeconfig()
	must(t, err)
	far, near := f.Spoke(spokeA), f.Spoke(spokeB)
	namespace(t, "near", near)
	createRules(t, f, spokeB, "near", rules)
	nearby := takesAll(t, near, "near", rules, func() error { return f.Register(t.Context(), spokeB, nil) })
	t.Logf("%d rules in a spoke nearby: after %v", rules, nearby.Round(time.Millisecond))
	namespace(t, "far", far)
	createRules(t, f, spokeA, "far", rules)
	took := takesAll(t, far, "far", rules, func() error { return f.RegisterKubeconfig(t.Context(), spokeA, kubeconfig, nil) })
	t.Logf("%d rules through a round trip of %v: after %v", rules, roundTrip, took.Round(time.Millisecond))
	if took > max(limit, nearby+added) {
		t.Errorf("it took %v", took)
	}
}

// takesAll registers a spoke, and returns the time until it has its rules.
func takesAll(t *testing.T, m *fleet.Member, namespace string, rules int, register func() error) time.Duration {
	t.Helper()
	registered := time.Now()
	must(t, register())
	within(t, time.Minute, "all rules are in the spoke", func(ctx context.Context) error {
		n, err := held(ctx, m, namespace)
		if err == nil && n < rules {
			err = fmt.Errorf("there are %d", n)
		}
		return err
	})
	return time.Since(registered)
}

// TestIsolationFromAHangingNamespace measures the latency of a spoke while the rules of another of its
// namespaces hang in an admission webhook, and another spoke is frozen.
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
