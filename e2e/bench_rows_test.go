package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// returns is the time until all spokes have the rules that were written while none of them answered.
func (b *bench) returns(t *testing.T, rules int) {
	t.Helper()
	m, stop := byManager(t, b)
	defer func() {
		stop()
		erase(t, b.Hub, storedAlertRules, fleet.Namespace, &v1alpha1.AlertRuleList{})
		b.clear(t)
	}()
	b.engaged(t, m)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all []*arrivals
	for _, name := range b.near {
		all = append(all, b.watchArrivals(ctx, t, name))
		must(t, b.Spoke(name).Pause())
	}
	for _, name := range b.near {
		createMany(t, b.Hub, rules, 8, func(i int) client.Object {
			return alertRule(fmt.Sprintf("%s-%d", name, i), benchNamespace, onNamed(v1alpha1.ClusterName(name)))
		})
	}
	for _, name := range b.near {
		expectConnected(t, b.Fleet, name, metav1.ConditionFalse, v1alpha1.ReasonUnreachable)
	}
	began := time.Now()
	for _, name := range b.near {
		must(t, b.Spoke(name).Resume())
	}
	took := untilAll(t, all, rules).Sub(began)
	b.add(t, fmt.Sprintf("%d spokes are back until each has %d rules", len(b.near), rules), "s", []float64{took.Seconds()}, nil)
}

// changed is the time from the change of a rule until the last of all spokes has it.
func (b *bench) changed(t *testing.T) {
	t.Helper()
	const changes = 30
	m, stop := byManager(t, b)
	defer stop()
	b.engaged(t, m)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := make(chan string, len(b.near)*(changes+1))
	for _, name := range b.near {
		b.followRules(ctx, t, name, func(change watch.EventType, pr *monitoringv1.PrometheusRule) {
			if change != watch.Deleted {
				seen <- pr.Spec.Groups[0].Rules[0].Expr.String()
			}
		})
	}
	ar := alertRule("changes", benchNamespace, onEvery())
	must(t, b.Hub.Client.Create(t.Context(), ar))
	everywhere := func(expr string) {
		limit := time.After(benchPatience)
		for n := 0; n < len(b.near); {
			select {
			case got := <-seen:
				if got == expr {
					n++
				}
			case <-limit:
				t.Fatalf("%d of %d spokes have %q", n, len(b.near), expr)
			}
		}
	}
	everywhere(ar.Spec.Expr)
	took := make([]float64, 0, changes)
	for i := range changes {
		expr := fmt.Sprintf("up == %d", i+2)
		base := client.MergeFrom(ar.DeepCopy())
		ar.Spec.Expr = expr
		began := time.Now()
		must(t, b.Hub.Client.Patch(t.Context(), ar, base))
		everywhere(expr)
		took = append(took, time.Since(began).Seconds()*1000)
	}
	b.addLatencies(t, fmt.Sprintf("a rule is changed until %d spokes have it", len(b.near)), [][]float64{took}, nil)
	must(t, b.Hub.Client.Delete(t.Context(), ar))
}

// churn is what updates of Deployments that change no rule cost.
func (b *bench) churn(t *testing.T) {
	t.Helper()
	const (
		many = 100
		span = 10 * time.Second
	)
	m, into, end := b.watched(t, byManager)
	defer func() { end(); b.clear(t) }()
	b.fill(t, b.near[0], "churn", many)
	into.until(t, many)
	b.quiet(t)
	b.resetAudits(t)
	before, err := metric(t.Context(), m, processCPU)
	must(t, err)
	const updates = 10 * many
	tick := time.NewTicker(span / updates)
	defer tick.Stop()
	for i := range updates {
		<-tick.C
		patch := fmt.Appendf(nil, `{"status":{"replicas":%d,"observedGeneration":%d}}`, i%5, i)
		must(t, b.Spoke(b.near[0]).Client.Status().Patch(t.Context(), deployment(benchNamespace, fmt.Sprintf("churn-%d", i%many)), client.RawPatch("application/merge-patch+json", patch)))
	}
	after, err := metric(t.Context(), m, processCPU)
	must(t, err)
	b.quiet(t)
	n := 0
	for _, times := range b.requests(t) {
		n += times
	}
	b.add(t, fmt.Sprintf("requests for %d updates of the status of Deployments", updates), "", []float64{float64(n)}, nil)
	b.add(t, "CPU for each of them", "ms", []float64{(after - before) * 1000 / float64(updates)}, nil)
}

// yardstick is what Kubernetes takes to make a ReplicaSet of a Deployment, on a control plane of the same kind.
func (b *bench) yardstick(t *testing.T, burst int) {
	t.Helper()
	c, err := controlplane.Start(t.Context(), controlplane.Options{Name: "yardstick", ControllerManager: true, Usage: b.Hub.Usage()})
	must(t, err)
	t.Cleanup(func() { must(t, c.Stop()) })
	k, err := client.NewWithWatch(c.RESTConfig(), client.Options{Scheme: fleet.Scheme})
	must(t, err)
	must(t, k.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: benchNamespace}}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	into := &arrivals{at: map[string]time.Time{}}
	follow(ctx, t, &b.watches, k, &appsv1.ReplicaSetList{}, func(e watch.Event) {
		if rs, ok := e.Object.(*appsv1.ReplicaSet); ok && e.Type == watch.Added {
			into.add(rs.OwnerReferences[0].Name)
		}
	}, client.InNamespace(benchNamespace))
	small := func(name string) client.Object {
		d := deployment(benchNamespace, name)
		d.Spec.Replicas = new(int32) // no pods
		return d
	}
	took := sampleArrivals(t, into, func(i int) bool { return i < samples }, func(_ int, name string) { must(t, k.Create(t.Context(), small(name))) })
	b.addLatencies(t, "Deployment to ReplicaSet at 5/s", [][]float64{took}, nil)
	began := time.Now()
	createMany(t, &fleet.Member{Client: k}, burst, 16, func(i int) client.Object { return small(fmt.Sprintf("burst-%d", i)) })
	last := into.until(t, samples+burst)
	b.add(t, fmt.Sprintf("first of %d Deployments until the last ReplicaSet", burst), "s", []float64{last.Sub(began).Seconds()}, nil)
}

// processCPU is the metric of the CPU time of a process, in seconds.
const processCPU = "process_cpu_seconds_total"
