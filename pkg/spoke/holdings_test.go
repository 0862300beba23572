package spoke

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// kept returns a Deployment's metadata as it is cached, with texts of its own.
func kept(i, labels, size int) *metav1.PartialObjectMetadata {
	o := WorkloadMetadata(v1alpha1.DeploymentKind)
	o.Name, o.Namespace, o.UID, o.ResourceVersion = fmt.Sprintf("service-%d", i), fmt.Sprintf("team-%d", i%20), "0f31b2f3-7f1f-4f4a-9d5e-0b9a5d3f7c11", fmt.Sprint(1_000_000+i)
	o.Labels = map[string]string{}
	for l := range labels {
		o.Labels[fmt.Sprintf("app.kubernetes.io/label-%d-of-%d", l, i)] = fmt.Sprintf("value-%d", i)
	}
	if size > 0 {
		o.Annotations = map[string]string{fmt.Sprintf("note-%d", i): strings.Repeat("x", size)}
	}
	return o
}

// What is estimated is what objects take in a cache, more or less.
func TestSizes(t *testing.T) {
	for name, object := range map[string]func(i int) any{
		"bare":       func(i int) any { return kept(i, 0, 0) },
		"labels":     func(i int) any { return kept(i, 6, 0) },
		"annotation": func(i int) any { return kept(i, 2, 1000) },
		"owners": func(i int) any {
			r := &monitoringv1.PrometheusRule{ObjectMeta: kept(i, 2, 0).ObjectMeta}
			for j := range 50 {
				r.OwnerReferences = append(r.OwnerReferences, metav1.OwnerReference{
					APIVersion: "example.com/v1", Kind: "Owner", Name: fmt.Sprintf("owner-%d-%d", i, j), UID: types.UID(fmt.Sprintf("uid-%d-%d", i, j)),
				})
			}
			return r
		},
		"status": func(i int) any {
			r := &monitoringv1.PrometheusRule{ObjectMeta: kept(i, 2, 0).ObjectMeta}
			for j := range 20 {
				r.Status.Bindings = append(r.Status.Bindings, monitoringv1.WorkloadBinding{Namespace: fmt.Sprint(i), Name: fmt.Sprint(j), Conditions: []monitoringv1.ConfigResourceCondition{
					{Type: "Accepted", Status: "True", Message: fmt.Sprintf("by %d of %d, as far as is known to the operator of both", i, j)},
				}})
			}
			return r
		},
		"durations": func(i int) any {
			r := &monitoringv1.PrometheusRule{ObjectMeta: kept(i, 2, 0).ObjectMeta}
			long := monitoringv1.Duration(strings.Repeat(fmt.Sprint(i%10), 4000))
			r.Spec.Groups = []monitoringv1.RuleGroup{{Interval: &long, Rules: []monitoringv1.Rule{{Alert: "Down"}}}}
			return r
		},
		"rule": func(i int) any {
			r := &monitoringv1.PrometheusRule{ObjectMeta: kept(i, 4, 100).ObjectMeta}
			r.Spec.Groups = []monitoringv1.RuleGroup{{Name: fmt.Sprintf("group-%d", i), Rules: []monitoringv1.Rule{{
				Alert: fmt.Sprintf("Down%d", i), Expr: intstr.FromString(fmt.Sprintf("up{job=%q} == 0", fmt.Sprint(i))),
				Labels:      map[string]string{"severity": fmt.Sprintf("critical-%d", i)},
				Annotations: map[string]string{"summary": fmt.Sprintf("it is down %d", i)},
			}}}}
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 5000
			store := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
			var estimated amount
			before := heapInUse()
			for i := range n {
				o := object(i)
				estimated.add(o)
				if err := store.Add(o); err != nil {
					t.Fatal(err)
				}
			}
			took := heapInUse() - before
			runtime.KeepAlive(store)
			ratio := float64(estimated.bytes) / float64(took)
			t.Logf("%d bytes each, estimated as %d: × %.2f", took/n, estimated.bytes/n, ratio)
			if ratio < 0.7 || ratio > 1.6 {
				t.Errorf("it is estimated as × %.2f", ratio)
			}
		})
	}
}

// A workload of another kind takes no more memory in a cache than a Deployment.
func TestKindsTakeEqualMemory(t *testing.T) {
	own := map[v1alpha1.WorkloadKind]string{v1alpha1.DeploymentKind: "deployment.kubernetes.io/revision", v1alpha1.DaemonSetKind: "deprecated.daemonset.template.generation"}
	sizes := map[v1alpha1.WorkloadKind]int64{}
	for _, kind := range rule.WorkloadKinds() {
		const n = 5000
		store := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
		before := heapInUse()
		for i := range n {
			o := kept(i, 4, 0)
			o.SetGroupVersionKind(WorkloadMetadata(kind).GroupVersionKind())
			o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(strings.Repeat("x", 2000))}}
			o.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": strings.Repeat("x", 3000)}
			if name, has := own[kind]; has {
				o.Annotations[name] = fmt.Sprint(i)
			}
			in, err := trimMetadata(o)
			if err != nil {
				t.Fatal(err)
			}
			if err := store.Add(in); err != nil {
				t.Fatal(err)
			}
		}
		sizes[kind] = (heapInUse() - before) / n
		runtime.KeepAlive(store)
	}
	t.Logf("bytes each: %v", sizes)
	for kind, size := range sizes {
		if most := sizes[v1alpha1.DeploymentKind] * 101 / 100; size > most || size == 0 {
			t.Errorf("a %s takes %d bytes, and may take %d", kind, size, most)
		}
	}
}

func heapInUse() int64 {
	runtime.GC() // what earlier tests left in pools goes with the second
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// What a cache holds is counted by its events, and told when it is too much.
func TestHoldings(t *testing.T) {
	var told []error
	h := &holdings{limits: Limits{Objects: 3, Memory: 4000}, tell: func(e *TooLargeError) { told = append(told, e) }}
	deployments, namespaces := h.counting("Deployment", nil), h.counting("Namespace", nil)
	for i := range 3 {
		deployments.OnAdd(kept(i, 0, 0), true)
	}
	if len(told) > 0 {
		t.Fatalf("three are too many: %v", told)
	}
	deployments.OnAdd(kept(3, 0, 0), false)
	if len(told) != 1 || !errors.Is(told[0], errTooLarge) || !strings.Contains(told[0].Error(), "too many Deployments: 4 objects; the limit is 3 (chart value spokeLimits.objects, --spoke-max-objects)") {
		t.Errorf("four: %v", told)
	}
	deployments.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: kept(3, 0, 0)})
	deployments.OnDelete(kept(2, 0, 0))
	namespaces.OnAdd(kept(0, 0, 0), false)
	if len(told) != 1 {
		t.Errorf("it does not count what goes: %v", told)
	}
	namespaces.OnUpdate(kept(0, 0, 0), kept(0, 0, 3000))
	if len(told) != 2 || !strings.Contains(told[1].Error(), "the limit is 4,000 (chart value spokeLimits.memory, --spoke-max-memory)") {
		t.Errorf("a large one: %v", told)
	}
	namespaces.OnUpdate(kept(0, 0, 3000), kept(0, 0, 0))
	if excess := h.fits("Deployment", amount{objects: 3, bytes: 3000}); excess != nil {
		t.Errorf("a list in place of what is cached: %v", excess)
	}
	h.ended("Deployment")
	if excess := h.fits("PrometheusRule", amount{objects: 3, bytes: 3000}); excess == nil {
		t.Error("a list beside what is cached is not refused")
	}
	h.ended("PrometheusRule")
	if excess := h.fits("Deployment", amount{objects: 3, bytes: 3000}); excess != nil {
		t.Errorf("a list after one that was refused: %v", excess)
	}
	if excess := h.fits("Namespace", amount{objects: 3, bytes: 1500}); excess == nil {
		t.Error("a list beside one that is being read is not refused")
	}
	h.ended("Deployment")
	if excess := h.fits("Namespace", amount{objects: 3, bytes: 1500}); excess != nil {
		t.Errorf("a list counts after its end: %v", excess)
	}
	h.ended("Namespace")
	if excess := h.fits("Deployment", amount{objects: 3, bytes: 100}); excess != nil {
		t.Errorf("a list that begins: %v", excess)
	}
	if excess := h.fits("Namespace", amount{objects: 3, bytes: 2900}); excess == nil {
		t.Error("what is cached does not count while its kind is listed again")
	}
}

// The counts match the cache, whatever events arrive. Otherwise, a spoke could get past the limits by sending deletions of
// objects that never existed, and the status would show wrong numbers until the next session.
func TestHoldingsIgnoreOtherEvents(t *testing.T) {
	var told error
	h := &holdings{limits: Limits{Objects: 3, Memory: 1 << 20}, tell: func(e *TooLargeError) { told = e }}
	options := Options{HubID: "hub", Stands: func(o metav1.Object) bool { return o.GetName() != "stray" }}
	deployments, rules := h.counting("Deployment", nil), h.counting(monitoringv1.PrometheusRuleKind, options.ours)
	object := func(name, hub string) *monitoringv1.PrometheusRule {
		return &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.HubLabel: hub}}}
	}
	want := func(what string, deployments, rules int32) {
		t.Helper()
		if is := h.counts(); is != (Counts{Deployments: deployments, Rules: rules, Known: true}) {
			t.Errorf("%s: %+v", what, is)
		}
	}
	want("at first", 0, 0)
	for _, o := range []any{object("a", "hub"), object("stray", "hub"), object("b", "another")} {
		rules.OnAdd(o, true)
	}
	want("only those that stand for a rule of this hub", 0, 1)
	rules.OnUpdate(object("b", "another"), object("b", "hub"))
	rules.OnDelete(object("stray", "hub"))
	want("one is taken over", 0, 2)
	rules.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: object("a", "hub")})
	rules.OnDelete(object("a", "hub"))
	want("one is deleted twice", 0, 1)
	rules.OnAdd(object("b", "hub"), false)
	want("one is added twice", 0, 1)

	before := h.total()
	deployments.OnAdd(kept(0, 0, 10), false)
	deployments.OnDelete(kept(1, 0, 3000))
	deployments.OnUpdate(kept(0, 0, 3000), kept(0, 0, 20))
	want("one that was never there is deleted", 1, 1)
	deployments.OnDelete(kept(0, 0, 3000))
	if after := h.total(); after != before {
		t.Errorf("without Deployments, the size is %d, and was %d", after, before)
	}
	for i := range 4 {
		deployments.OnDelete(kept(9, 0, 0))
		deployments.OnAdd(kept(i, 0, 0), false)
	}
	if told == nil {
		t.Error("deletions of what was never there make room for more objects than the limit allows")
	}
	h.forget("Deployment")
	deployments.OnAdd(kept(5, 0, 0), false)
	want("the informer was removed", 0, 1)
}
