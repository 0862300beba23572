package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// crashing is a fleet whose manager is killed.
type crashing struct {
	*fleet.Fleet
	spoke   *fleet.Member
	manager *fleet.Manager
	// restart starts the manager again.
	restart func()
}

// TestCrash kills the manager by SIGKILL.
func TestCrash(t *testing.T) {
	parallel(t)
	f, dir := &crashing{Fleet: start(t, fleet.Options{Spokes: []string{spokeA}})}, t.TempDir()
	f.spoke = f.Spoke(spokeA)
	must(t, f.Register(t.Context(), spokeA, map[string]string{"was": "on"}))
	f.restart = func() { f.manager = startManager(t, f.Fleet, dir) }
	f.restart()
	expectCondition(t, f.Fleet, membership(spokeA), v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	t.Run("WhileWriting", f.whileWriting)
	t.Run("MissedEvents", f.missedEvents)
}

// whileWriting kills the manager while the spoke is processing its write.
func (f *crashing) whileWriting(t *testing.T) {
	const ns = "writing"
	m := f.spoke
	namespace(t, ns, m)

	// killed makes the manager write to the spoke, and kills it while it waits for the answer, which is a
	// refusal.
	killed := func(name string, operation admissionv1.Operation, do func()) {
		t.Helper()
		arrived, denied := make(chan admissionv1.Operation, 100), make(chan struct{})
		deny := sync.OnceFunc(func() { close(denied) })
		h := serveHook(t, name, func(_ context.Context, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			arrived <- r.Operation
			<-denied
			return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "too late"}}
		})
		t.Cleanup(deny)
		config := h.validating()
		h.install(t, m, config)
		do()
		select {
		case got := <-arrived:
			if got != operation {
				t.Errorf("the spoke was asked to %s, not to %s", got, operation)
			}
		case <-time.After(patience):
			t.Errorf("the spoke was not asked to %s anything", operation)
		}
		must(t, f.manager.Kill())
		deny()
		h.uninstall(t, m, config)
	}

	web := deployment(ns, "web")
	var key client.ObjectKey
	killed("create", admissionv1.Create, func() {
		create(t, m, web)
		key = client.ObjectKeyFromObject(expectGenerated(t, f.Fleet, spokeA, ns, "web", 1))
	})
	expectPushed(t, m, key, 0) // it is on the hub and never reached the spoke
	f.restart()
	pr := expectPushed(t, m, key, 1)
	expectReady(t, f.Fleet, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	must(t, untouched(t.Context(), m, pr))

	killed("update", admissionv1.Update, func() {
		ar := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		update(t, f.Hub, ar, func(r *v1alpha1.AlertRule) { r.Spec.For = "7m" })
	})
	must(t, untouched(t.Context(), m, pr))
	f.restart()
	expectRule(t, m, key, "the change", func(r *monitoringv1.Rule) bool { return *r.For == "7m" })
	expectReady(t, f.Fleet, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)

	killed("delete", admissionv1.Delete, func() {
		must(t, m.Client.Delete(t.Context(), web))
		expectGenerated(t, f.Fleet, spokeA, ns, "web", 0)
	})
	expectPushed(t, m, key, 1)
	f.restart()
	expectPushed(t, m, key, 0)

	// Here the spoke has the write but the status is not updated yet, which takes a debounce of a second.
	ar := alertRule("late", ns, onEvery())
	key = create(t, f.Hub, ar)
	pr = expectPushed(t, m, key, 1)
	must(t, f.manager.Kill())
	must(t, read(t.Context(), f.Hub, key, ar))
	if row(ar, spokeA) != nil {
		t.Log("the status was faster than the kill")
	}
	f.restart()
	expectReady(t, f.Fleet, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	must(t, untouched(t.Context(), m, pr))
}

// missedEvents changes everything that the manager watches while it does not run.
func (f *crashing) missedEvents(t *testing.T) {
	const ns = "missed"
	m := f.spoke
	namespace(t, ns, m)

	// The state before ...
	gone, kept, relabeled := deployment(ns, "gone"), deployment(ns, "kept"), deploymentOf(ns, "relabeled", "app", "relabeled")
	for _, d := range []client.Object{gone, kept, relabeled} {
		create(t, m, d)
	}
	tpl := template("labeled", ns)
	tpl.Spec.Workloads = &v1alpha1.WorkloadSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "relabeled"}}}
	create(t, f.Hub, tpl)
	rules := map[string]*v1alpha1.AlertRule{}
	for name, placement := range map[string]v1alpha1.ClusterSelection{
		"deleted": onEvery(), "edited": onEvery(), "disabled": onEvery(), "renamespaced": onEvery(),
		"drifted": onEvery(), "dropped": onEvery(), "was": onLabeled("was", "on"), "will": onLabeled("will", "on"),
	} {
		rules[name] = alertRule(name, ns, placement)
		create(t, f.Hub, rules[name])
	}
	key := func(name string) client.ObjectKey { return client.ObjectKeyFromObject(rules[name]) }
	keptKey := client.ObjectKeyFromObject(expectGenerated(t, f.Fleet, spokeA, ns, "kept", 1))
	goneKey := client.ObjectKeyFromObject(expectGenerated(t, f.Fleet, spokeA, ns, "gone", 1))
	expectGenerated(t, f.Fleet, spokeA, ns, "relabeled", 2)
	expectPushed(t, m, keptKey, 1)
	expectPushed(t, m, goneKey, 1)
	for name := range rules {
		if name == "will" {
			expectReady(t, f.Fleet, key(name), metav1.ConditionFalse, v1alpha1.ReasonNoClusters)
			continue
		}
		expectPushed(t, m, key(name), 1)
		expectReady(t, f.Fleet, key(name), metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	}
	drifted, dropped := expectPushed(t, m, key("drifted"), 1), expectPushed(t, m, key("dropped"), 1)
	keptRule := expectPushed(t, m, keptKey, 1)

	// ... the missed events ...
	must(t, f.manager.Kill())
	must(t, m.Client.Delete(t.Context(), gone))
	create(t, m, deployment(ns, "new"))
	update(t, m, relabeled, func(d *appsv1.Deployment) { d.Labels["app"] = "other" })
	must(t, f.Hub.Client.Delete(t.Context(), rules["deleted"]))
	update(t, f.Hub, rules["edited"], func(r *v1alpha1.AlertRule) { r.Spec.Expr = "up == 1" })
	update(t, f.Hub, rules["disabled"], func(r *v1alpha1.AlertRule) { r.Spec.State = v1alpha1.Disabled })
	namespace(t, "missed-elsewhere", m)
	update(t, f.Hub, rules["renamespaced"], func(r *v1alpha1.AlertRule) { r.Spec.RuleNamespace = "missed-elsewhere" })
	update(t, m, drifted, func(r *monitoringv1.PrometheusRule) { r.Spec.Groups[0].Rules[0].Expr = intstr.FromString("vector(0)") })
	must(t, m.Client.Delete(t.Context(), dropped))
	sc := membership(spokeA)
	update(t, f.Hub, sc, func(sc *v1alpha1.SpokeCluster) { sc.Labels["will"] = "on" })
	update(t, f.Hub, registration(spokeA), func(s *corev1.Secret) { delete(s.Labels, "was") })

	// ... and the result.
	f.restart()
	expectGenerated(t, f.Fleet, spokeA, ns, "gone", 0)
	expectPushed(t, m, goneKey, 0)
	expectPushed(t, m, client.ObjectKeyFromObject(expectGenerated(t, f.Fleet, spokeA, ns, "new", 1)), 1)
	expectGenerated(t, f.Fleet, spokeA, ns, "relabeled", 1)
	expectPushed(t, m, key("deleted"), 0)
	expectRule(t, m, key("edited"), "the edit", func(r *monitoringv1.Rule) bool { return r.Expr.String() == "up == 1" })
	expectPushed(t, m, key("disabled"), 0)
	eventually(t, "the rule has moved", func(ctx context.Context) error {
		found, err := pushed(ctx, m, key("renamespaced"))
		if err != nil || len(found) != 1 || found[0].Namespace != "missed-elsewhere" {
			return fmt.Errorf("there are %+v: %w", found, err)
		}
		return nil
	})
	expectRule(t, m, key("drifted"), "the drift is put back", func(r *monitoringv1.Rule) bool { return r.Expr.String() == "up == 0" })
	if again := expectPushed(t, m, key("dropped"), 1); again.Name != dropped.Name {
		t.Errorf("it is %s now", again.Name)
	}
	expectPushed(t, m, key("was"), 0)
	expectPushed(t, m, key("will"), 1)
	for name, reason := range map[string]string{
		"edited": v1alpha1.ReasonAllApplied, "disabled": v1alpha1.ReasonDisabled, "renamespaced": v1alpha1.ReasonAllApplied,
		"drifted": v1alpha1.ReasonAllApplied, "dropped": v1alpha1.ReasonAllApplied, "will": v1alpha1.ReasonAllApplied,
	} {
		expectReady(t, f.Fleet, key(name), metav1.ConditionTrue, reason)
	}
	expectReady(t, f.Fleet, key("was"), metav1.ConditionFalse, v1alpha1.ReasonNoClusters)
	must(t, untouched(t.Context(), m, keptRule))
}

// TestCRDDeleted deletes the kind AlertRule with all its objects. That is not a decision about any of them:
// the spokes keep theirs, and use them again when the hub is restored.
func TestCRDDeleted(t *testing.T) {
	parallel(t)
	const ns = "shop"
	f := start(t, fleet.Options{Spokes: []string{spokeA}})
	m := f.Spoke(spokeA)
	namespace(t, ns, m)
	must(t, f.Register(t.Context(), spokeA, nil))
	startManager(t, f, t.TempDir())
	create(t, m, deployment(ns, "web"))
	key := create(t, f.Hub, alertRule("rule", ns, onEvery()))
	keys := []client.ObjectKey{key, client.ObjectKeyFromObject(expectGenerated(t, f, spokeA, ns, "web", 1))}
	var rules []*monitoringv1.PrometheusRule
	for _, key := range keys {
		rules = append(rules, expectPushed(t, m, key, 1))
		expectReady(t, f, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	}
	stay := func(ctx context.Context) error {
		for _, pr := range rules {
			if err := untouched(ctx, m, pr); err != nil {
				return err
			}
		}
		return nil
	}

	deleteKind(t, f.Hub, "alertrules."+v1alpha1.Group)
	throughout(t, 2*time.Second, "the spoke's rules stay", stay)

	must(t, f.Hub.InstallCRDs(t.Context(), filepath.Join("..", "charts", "rulefleet", "files", "crds"), "*_alertrules.yaml"))
	create(t, f.Hub, alertRule("rule", ns, onEvery())) // as from a backup; the template generates its own again
	for _, key := range keys {
		expectReady(t, f, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	}
	must(t, stay(t.Context()))
}
