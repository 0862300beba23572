package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/faultproxy"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// TestOldKnowledge makes a replica lead whose cache of the hub is old: objects that it would wrongly remove
// stay, and are updated when the cache is current.
func TestOldKnowledge(t *testing.T) {
	long(t)
	parallel(t)
	f := start(t, fleet.Options{Spokes: []string{spokeA}, Audit: true})
	m := f.Spoke(spokeA)
	namespace(t, "shop", m)
	must(t, f.Register(t.Context(), spokeA, nil))
	r := &replicas{Fleet: f, spoke: m}
	first := r.replica(t)
	r.expectLeader(t, first)
	update(t, f.Hub, &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: builtIn}}, func(tpl *v1alpha1.AlertRuleTemplate) {
		tpl.Spec.State = v1alpha1.Disabled
	})
	create(t, m, deployment("shop", "web"))
	rules := map[string]*v1alpha1.AlertRule{
		"state":     alertRule("state", "shop", onEvery()),
		"placement": alertRule("placement", "shop", onNamed("other")),
	}
	rules["state"].Spec.State = v1alpha1.Disabled
	for _, ar := range rules {
		create(t, f.Hub, ar)
	}
	expectReady(t, f, client.ObjectKeyFromObject(rules["state"]), metav1.ConditionTrue, v1alpha1.ReasonDisabled)

	// The second replica reads all that, and nothing after it.
	kubeconfig, err := f.HubKubeconfig(t.Context())
	must(t, err)
	proxy, err := faultproxy.Start(kubeconfig, "old-knowledge")
	must(t, err)
	t.Cleanup(proxy.Close)
	behind, err := proxy.Kubeconfig()
	must(t, err)
	mute := make(chan struct{})
	proxy.Set(until(mute))
	second := startManagerWith(t, f, fleet.ManagerOptions{Dir: t.TempDir(), LeaderElect: true, Kubeconfig: behind})
	eventually(t, "the standby is ready", func(ctx context.Context) error {
		ok, body, err := readyz(ctx, second)
		if err == nil && !ok {
			err = fmt.Errorf("it says %q", body)
		}
		return err
	})
	close(mute)

	update(t, f.Hub, rules["state"], func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Enabled })
	update(t, f.Hub, rules["placement"], func(ar *v1alpha1.AlertRule) { ar.Spec.Placement = onNamed(spokeA) })
	var pushed []*monitoringv1.PrometheusRule
	for _, ar := range rules {
		pushed = append(pushed, expectPushed(t, m, client.ObjectKeyFromObject(ar), 1))
		expectReady(t, f, client.ObjectKeyFromObject(ar), metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	}
	must(t, first.Kill())
	r.expectLeader(t, second)
	eventually(t, "it works on the spoke", func(ctx context.Context) error {
		return metricAtLeast(ctx, second, `controller_runtime_reconcile_total{controller="distribute",result="requeue_after"}`, float64(len(rules)))
	})
	throughout(t, 3*time.Second, "the rules stay", func(ctx context.Context) error {
		for _, pr := range pushed {
			if err := untouched(ctx, m, pr); err != nil {
				return err
			}
		}
		return nil
	})

	proxy.Set(faultproxy.Pass)
	proxy.EndWatches()
	update(t, f.Hub, rules["state"], func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up == 1" })
	key := client.ObjectKeyFromObject(rules["state"])
	expectRule(t, m, key, "the change", func(r *monitoringv1.Rule) bool { return r.Expr.String() == "up == 1" })
	update(t, f.Hub, rules["placement"], func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled })
	expectPushed(t, m, client.ObjectKeyFromObject(rules["placement"]), 0)
}

// until delays the events of AlertRules from a moment on. Their watches stay open, because a standby whose
// watch ended does not lead before it is back. A standby has no other objects in its cache.
func until(mute <-chan struct{}) faultproxy.Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.HasSuffix(r.URL.Path, "/alertrules") && r.URL.Query().Has("watch") {
			w = &muted{ResponseWriter: w, since: mute}
		}
		next.ServeHTTP(w, r)
	}
}

// muted forwards what is written until a channel is closed.
type muted struct {
	http.ResponseWriter

	since <-chan struct{}
}

func (m *muted) Unwrap() http.ResponseWriter { return m.ResponseWriter }

func (m *muted) Write(b []byte) (int, error) {
	select {
	case <-m.since:
		return len(b), nil
	default:
		return m.ResponseWriter.Write(b) //nolint:wrapcheck // it is transparent
	}
}
