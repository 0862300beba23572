package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// TestFaultAPI has spokes with healthy API servers that do not accept the rules: all that
// kube-controller-manager and admission can do to them.
func TestFaultAPI(t *testing.T) {
	parallel(t)
	names := []string{"homeless", "leaving", "full", "denied", "late"}
	if testing.Short() {
		names = []string{"denied"}
	}
	f := startFaulty(t, fleet.Options{Spokes: names, ControllerManager: true})
	f.refusesLoopback(t)
	f.manage(t)
	places := map[string]*place{}
	for _, name := range names {
		places[name] = f.place(t, name)
	}
	f.measure(t)
	f.refusesKubeconfigs(t, places["denied"])
	for _, at := range places {
		at.register(t)
		at.settle(t)
	}
	collected := f.startCollecting(t, places)
	f.lanes(t, places, map[string]func(at *place){
		"homeless": homelessRows, "leaving": leavingRows, "full": fullRows, "denied": deniedRows, "late": lateRows,
	})
	collected(t)
}

// readyWith waits until the SpokeCluster shows that a rule is not in the spoke.
func (r *fault) readyWith(words ...string) {
	r.t.Helper()
	r.expectShown(metav1.ConditionTrue, v1alpha1.ReasonRulesFailing, words...)
}

// home is a namespace for a rule of its own.
func (r *fault) home() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.name + "-home"}}
}

// ruleAtHome creates the AlertRule of that namespace.
func (r *fault) ruleAtHome() client.ObjectKey {
	ar := alertRule(r.name+"-homeless", r.home().Name, onNamed(v1alpha1.ClusterName(r.name)))
	must(r.t, r.Hub.Client.Create(r.t.Context(), ar))
	return client.ObjectKeyFromObject(ar)
}

func homelessRows(at *place) {
	at.row("a namespace is missing", rowOptions{}, func(r *fault) {
		var key client.ObjectKey
		r.inject(func() { key = r.ruleAtHome() }, func() { _ = r.m.Client.Create(context.WithoutCancel(r.t.Context()), r.home()) })
		r.change()
		r.readyWith(v1alpha1.ReasonNamespaceMissing, r.name+"-homeless")
		expectRow(r.t, r.Fleet, key, r.name, v1alpha1.PhasePending, v1alpha1.ReasonNamespaceMissing)
		r.hold(15 * time.Second)
		r.mend("")
		r.over()
	})
}

func leavingRows(at *place) {
	at.row("a namespace is terminating", rowOptions{rewritten: true}, func(r *fault) {
		must(r.t, r.m.Client.Create(r.t.Context(), r.home()))
		r.ruleAtHome()
		r.settle(r.t)
		guest := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.home().Name, Name: "guest", Finalizers: []string{"example.com/stays"}}}
		must(r.t, r.m.Client.Create(r.t.Context(), guest))
		free := func() {
			if err := r.m.Client.Get(context.WithoutCancel(r.t.Context()), client.ObjectKeyFromObject(guest), guest); err == nil {
				guest.Finalizers = nil
				_ = r.m.Client.Update(context.WithoutCancel(r.t.Context()), guest)
			}
		}
		r.inject(func() { must(r.t, r.m.Client.Delete(r.t.Context(), r.home())) }, free)
		r.change()
		r.readyWith(v1alpha1.ReasonNamespaceMissing, "being deleted")
		r.hold(15 * time.Second)
		free()
		within(r.t, patience, "the namespace is gone", func(ctx context.Context) error {
			if err := r.m.Client.Get(ctx, client.ObjectKeyFromObject(r.home()), &corev1.Namespace{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there: %w", err)
			}
			return nil
		})
		r.mend("")
		r.over()
	})
}

func fullRows(at *place) {
	const counted = "count/prometheusrules.monitoring.coreos.com"
	at.row("a ResourceQuota is full", rowOptions{}, func(r *fault) {
		quota := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.name, Name: "rules"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{counted: resource.MustParse("1")}},
		}
		must(r.t, r.m.Client.Create(r.t.Context(), quota))
		// kube-controller-manager would also count them, but later.
		count := func(ctx context.Context, hard string) error {
			patch := fmt.Appendf(nil, `{"status":{"hard":{%[1]q:%[2]q},"used":{%[1]q:"8"}}}`, counted, hard)
			return r.m.Client.Status().Patch(ctx, quota, client.RawPatch(types.MergePatchType, patch))
		}
		must(r.t, count(r.t.Context(), "1"))
		r.inject(func() { r.rule(r.t, "one-more") }, func() {
			ctx := context.WithoutCancel(r.t.Context())
			raised := fmt.Appendf(nil, `{"spec":{"hard":{%q:"1000"}}}`, counted)
			_ = r.m.Client.Patch(ctx, quota, client.RawPatch(types.MergePatchType, raised))
			_ = count(ctx, "1000")
		})
		r.readyWith(v1alpha1.ReasonQuotaExceeded, r.name+"-one-more")
		r.change()
		r.changeSpoke()
		r.hold(15 * time.Second)
		r.mend(`s/"1"/"1000"/`)
		must(r.t, r.m.Client.Get(r.t.Context(), client.ObjectKeyFromObject(quota), quota))
		if is := quota.Spec.Hard[counted]; is.Value() != 1000 {
			r.t.Errorf("the quota is %v", is.String())
		}
		r.over()
	})
}

func deniedRows(at *place) {
	at.row("an admission webhook denies", rowOptions{exemplary: true}, func(r *fault) {
		h := serveHook(r.t, "deny", func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "not on a Friday"}}
		})
		config := h.validating()
		h.install(r.t, r.m, config)
		r.inject(r.change, func() {})
		r.readyWith(v1alpha1.ReasonRejected, "not on a Friday")
		r.changeSpoke()
		r.hold(15 * time.Second)
		h.uninstall(r.t, r.m, config)
		r.over()
	})
}

func lateRows(at *place) {
	at.row("an admission webhook times out", rowOptions{}, func(r *fault) {
		asked := atomic.Int32{}
		h := serveHook(r.t, "hang", func(ctx context.Context, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			asked.Add(1)
			<-ctx.Done() // the API server gives up
			return nil
		})
		config := h.validatingWithin(2)
		h.install(r.t, r.m, config)
		r.inject(r.change, func() {})
		r.readyWith(v1alpha1.ReasonError, "hang.example.com")
		r.changeSpoke()
		r.hold(20 * time.Second)
		r.t.Logf("the webhook was asked %d times", asked.Load())
		h.uninstall(r.t, r.m, config)
		r.over()
	})
}

// startCollecting creates an object in each spoke that the garbage collector must delete, and returns a check
// that it did, and deleted nothing of ours.
func (f *faulty) startCollecting(t *testing.T, places map[string]*place) func(t *testing.T) {
	t.Helper()
	yes := true
	garbage := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "garbage", OwnerReferences: []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "ConfigMap", Name: "nobody", UID: "00000000-0000-0000-0000-000000000000", Controller: &yes,
	}}}}
	var kept []client.Object
	members := map[client.Object]*fleet.Member{}
	for _, at := range places {
		must(t, at.m.Client.Create(t.Context(), garbage.DeepCopy()))
		rules, err := at.rules(t.Context())
		must(t, err)
		for i := range rules {
			if key := rules[i].Annotations[v1alpha1.AlertRuleAnnotation]; strings.Contains(key, "-rule-0") || strings.Contains(key, "-gone-") {
				continue
			}
			if len(rules[i].OwnerReferences) > 0 {
				t.Errorf("%s has owners: %v", rules[i].Name, rules[i].OwnerReferences)
			}
			kept, members[&rules[i]] = append(kept, &rules[i]), at.m
		}
	}
	begun := time.Now()
	return func(t *testing.T) {
		t.Helper()
		for _, at := range places {
			if err := at.m.Client.Get(t.Context(), client.ObjectKeyFromObject(garbage), garbage.DeepCopy()); !apierrors.IsNotFound(err) {
				t.Errorf("the garbage collector of %s does not run: %v", at.name, err)
			}
		}
		for _, o := range kept {
			if err := untouched(t.Context(), members[o], o); err != nil {
				t.Errorf("after %s with a garbage collector: %v", seconds(time.Since(begun)), err)
			}
		}
		t.Logf("%d rules are as they were after %s with a garbage collector", len(kept), seconds(time.Since(begun)))
	}
}
