package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/faultproxy"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	spokelies "github.com/rulefleet/rulefleet/pkg/testing/hostile"
)

// TestHostileSpokesTogetherAreBounded has ten spokes use as much memory as each of them can: large caches, large events in all
// watches, and answers to writes that take much memory while they are decoded. The manager stays within the chart's limit,
// and goes on to serve another spoke.
func TestHostileSpokesTogetherAreBounded(t *testing.T) {
	const (
		spokes = 10
		// chartMemory is resources.limits.memory of the chart.
		chartMemory = 1 << 30
		attack      = time.Minute
		// delivery is the highest accepted p50 of the other spoke. The hostile servers run on the same cores.
		delivery = time.Second
	)
	f := start(t, fleet.Options{Spokes: []string{"healthy"}, Intervals: 1})
	namespace(t, "load", f.Spoke("healthy"))
	m, err := f.StartManager(t.Context(), fleet.ManagerOptions{Path: plainManager, Dir: t.TempDir(), Args: []string{"--deletion-hold=0"}, Env: []string{fmt.Sprintf("GOMEMLIMIT=%d", chartMemory)}})
	must(t, err)
	must(t, f.Register(t.Context(), "healthy", nil))
	expectConnected(t, f, "healthy", metav1.ConditionTrue, v1alpha1.ReasonConnected)
	for i := range 10 {
		must(t, f.Hub.Client.Create(t.Context(), alertRule(fmt.Sprintf("caused-%d", i), "load", onLabeled("class", "hostile"))))
	}
	before := p(50, propagation(t, f, f.Spoke("healthy"), "before", 20))
	memory := memoryOf(t, m.Pid(), "VmRSS")
	upstream, err := f.Spoke("healthy").UserKubeconfig(fleet.SpokeUser)
	must(t, err)
	for i := range spokes {
		proxy, err := faultproxy.Start(upstream, "token-of-hostile")
		must(t, err)
		t.Cleanup(proxy.Close)
		proxy.Set(greedy(i))
		kubeconfig, err := proxy.Kubeconfig()
		must(t, err)
		must(t, f.RegisterKubeconfig(t.Context(), fmt.Sprintf("hostile-%d", i), kubeconfig, map[string]string{"class": "hostile"}))
	}
	var took []time.Duration
	for began, n := time.Now(), 0; time.Since(began) < attack; n++ {
		took = append(took, propagation(t, f, f.Spoke("healthy"), fmt.Sprintf("during-%d", n), 10)...)
	}
	peak := memoryOf(t, m.Pid(), "VmHWM")
	t.Logf("RSS was %d MiB, and %d MiB at most; p50 %v (before %v)", memory>>20, peak>>20, p(50, took), before)
	within(t, hostileShown, "it is shown", func(ctx context.Context) error {
		var list v1alpha1.SpokeClusterList
		if err := f.Hub.Client.List(ctx, &list); err != nil {
			return err
		}
		for i := range list.Items {
			c := meta.FindStatusCondition(list.Items[i].Status.Conditions, v1alpha1.ConditionConnected)
			if c != nil && c.Reason == v1alpha1.ReasonTooLarge && strings.Contains(c.Message, "all spokes together") {
				t.Log(c.Message)
				return nil
			}
		}
		return fmt.Errorf("no spoke of %d shows it", len(list.Items))
	})
	if peak > chartMemory {
		t.Errorf("the manager grew to %d MiB", peak>>20)
	}
	if is := p(50, took); is > delivery {
		t.Errorf("p50 is %v, and was %v", is, before)
	}
}

// greedy lies about everything that takes memory. i is the number of the spoke.
func greedy(i int) faultproxy.Fault {
	identity := fmt.Sprintf(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"hostile-%d","resourceVersion":"1"}}`, i)
	const metadata, partial = "meta.k8s.io/v1", "PartialObjectMetadata"
	lies := []spokelies.Liar{
		{About: spokelies.Path("/namespaces/kube-system"), Lie: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(identity)) }},
		{About: spokelies.List("deployments"), Lie: spokelies.Full(metadata, partial, 1200, 32<<10)},
		{About: spokelies.List("namespaces"), Lie: spokelies.Full(metadata, partial, 1, 0)},
		{About: spokelies.List("prometheusrules"), Lie: spokelies.Full("monitoring.coreos.com/v1", "PrometheusRule", 0, 0)},
		{About: watches, Lie: spokelies.LongVersions},
		{About: func(r *http.Request) bool {
			return r.Method != http.MethodGet && spokelies.Write(r.Method, "prometheusrules")(r)
		},
			Lie: spokelies.Sparse(`{"kind":"PrometheusRule","apiVersion":"monitoring.coreos.com/v1","metadata":{"name":"a"},"spec":{"groups":[{"rules":[`, 300_000, `]}]}}`)},
	}
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		for i := range lies {
			if lies[i].About(r) {
				lies[i].Lie(w, r)
				return
			}
		}
		next.ServeHTTP(w, r)
	}
}
