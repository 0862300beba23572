package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// unlabel removes a test's label from a SpokeCluster and its Secret.
func unlabel(t *testing.T, f *fleet.Fleet, spoke, key string) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"`+key+`":null}}}`))
	for _, o := range []client.Object{
		registration(spoke),
		membership(spoke),
	} {
		if err := f.Hub.Client.Patch(context.WithoutCancel(t.Context()), o, patch); err != nil {
			t.Errorf("taking label %s off %T %s: %v", key, o, spoke, err)
		}
	}
}

// expectIn waits until an AlertRule is in exactly these spokes of the shared fleet.
func expectIn(t *testing.T, key client.ObjectKey, spokes ...string) {
	t.Helper()
	for _, spoke := range []string{spokeA, spokeB} {
		n := 0
		if slices.Contains(spokes, spoke) {
			n = 1
		}
		expectPushed(t, shared().Spoke(spoke), key, n)
	}
}

// expectPlaced is expectIn, and checks the status as well.
func expectPlaced(t *testing.T, key client.ObjectKey, spokes ...string) {
	t.Helper()
	expectIn(t, key, spokes...)
	status, reason := metav1.ConditionTrue, v1alpha1.ReasonAllApplied
	if len(spokes) == 0 {
		status, reason = metav1.ConditionFalse, v1alpha1.ReasonNoClusters
	}
	ar := &v1alpha1.AlertRule{}
	eventually(t, fmt.Sprintf("the status of %s tells of %v", key, spokes), func(ctx context.Context) error {
		if err := read(ctx, shared().Hub, key, ar); err != nil {
			return err
		}
		var rows []string
		for _, r := range ar.Status.Clusters {
			rows = append(rows, string(r.Name))
		}
		c := meta.FindStatusCondition(ar.Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || !slices.Equal(rows, spokes) || ar.Status.Summary.Desired != int32(len(spokes)) || c.Status != status || c.Reason != reason {
			return fmt.Errorf("it is %+v", ar.Status)
		}
		return nil
	})
}

// TestPlacement moves a rule by names and by labels.
func TestPlacement(t *testing.T) {
	parallelOnShared(t)
	ns := unique(t)
	namespace(t, ns, shared().Spoke(spokeA), shared().Spoke(spokeB))
	ar := alertRule(ns, ns, onNamed(spokeA))
	key := create(t, shared().Hub, ar)
	expectPlaced(t, key, spokeA)
	place := func(p v1alpha1.ClusterSelection) {
		t.Helper()
		update(t, shared().Hub, ar, func(r *v1alpha1.AlertRule) { r.Spec.Placement = p })
	}
	byLabel := onLabeled("env", spokeLabels[spokeB]["env"])

	place(byLabel)
	expectIn(t, key, spokeB)
	place(v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{spokeA}, Selector: byLabel.Selector})
	expectPlaced(t, key, spokeA, spokeB)
	place(onLabeled("env", "nowhere"))
	expectPlaced(t, key)
	place(onEvery())
	expectIn(t, key, spokeA, spokeB)
	place(onNamed(spokeB))
	expectPlaced(t, key, spokeB)

	place(onNamed(spokeB, "not-registered"))
	ar = expectRow(t, shared(), key, "not-registered", v1alpha1.PhasePending, v1alpha1.ReasonNotRegistered)
	if r := row(ar, spokeB); r == nil || r.Phase != v1alpha1.PhaseApplied || ar.Status.Summary.Ready != "1/2" {
		t.Errorf("the status is %+v", ar.Status)
	}
	expectReady(t, shared(), key, metav1.ConditionFalse, v1alpha1.ReasonNotRegistered)
}

// TestPlacementFollowsLabels labels a spoke, by hand and by its Secret.
func TestPlacementFollowsLabels(t *testing.T) {
	parallelOnShared(t)
	ns := unique(t)
	namespace(t, ns, shared().Spoke(spokeA), shared().Spoke(spokeB))
	t.Cleanup(func() {
		unlabel(t, shared(), spokeA, ns)
		unlabel(t, shared(), spokeB, ns)
	})
	key := create(t, shared().Hub, alertRule(ns, ns, onLabeled(ns, "on")))
	expectPlaced(t, key)
	label := func(o client.Object, value string) {
		t.Helper()
		update(t, shared().Hub, o, func(o client.Object) {
			labels := o.GetLabels()
			labels[ns] = value
			if value == "" {
				delete(labels, ns)
			}
			o.SetLabels(labels)
		})
	}
	a, secretA, secretB := membership(spokeA), registration(spokeA), registration(spokeB)

	label(a, "on")
	expectIn(t, key, spokeA)
	label(secretB, "on")
	expectIn(t, key, spokeA, spokeB)
	label(secretB, "off")
	expectIn(t, key, spokeA)
	label(secretB, "on")
	expectPlaced(t, key, spokeA, spokeB)
	label(secretB, "")
	expectIn(t, key, spokeA)
	label(a, "")
	expectIn(t, key)

	// A label that a person has set on the SpokeCluster is theirs.
	label(a, "off")
	label(secretA, "on")
	label(secretB, "on")
	expectIn(t, key, spokeB)
	must(t, read(t.Context(), shared().Hub, client.ObjectKeyFromObject(a), a))
	if a.Labels[ns] != "off" {
		t.Errorf("the person's label is %q now", a.Labels[ns])
	}
}

// TestRuleNamespace checks the namespace of rules without ruleNamespace, and which namespaces are allowed.
func TestRuleNamespace(t *testing.T) {
	parallelOnShared(t)
	a, ns := shared().Spoke(spokeA), unique(t)
	other := ns + "-other"
	namespace(t, ns, a, shared().Hub)
	namespace(t, other, a)
	if err := a.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "monitoring"}}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	expectThere := func(ar *v1alpha1.AlertRule, where string) *monitoringv1.PrometheusRule {
		t.Helper()
		key := client.ObjectKeyFromObject(ar)
		var pr *monitoringv1.PrometheusRule
		eventually(t, fmt.Sprintf("AlertRule %s is in namespace %s alone", key, where), func(ctx context.Context) error {
			found, err := pushed(ctx, a, key)
			if err != nil || len(found) != 1 || found[0].Namespace != where {
				return fmt.Errorf("there are %+v: %w", found, err)
			}
			pr = &found[0]
			return nil
		})
		return pr
	}
	expectRefused := func(ar *v1alpha1.AlertRule) {
		t.Helper()
		expectCondition(t, shared(), ar, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonNamespaceNotAllowed)
		expectCondition(t, shared(), ar, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNamespaceNotAllowed)
		expectCondition(t, shared(), ar, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNamespaceNotAllowed)
	}
	inTenant := func(name string) *v1alpha1.AlertRule {
		ar := alertRule(name, "", onNamed(spokeA))
		ar.Namespace = ns
		return ar
	}

	admin := alertRule(ns, "", onNamed(spokeA))
	create(t, shared().Hub, admin)
	expectThere(admin, "monitoring")
	update(t, shared().Hub, admin, func(r *v1alpha1.AlertRule) { r.Spec.RuleNamespace = v1alpha1.NamespaceName(other) })
	moved := expectThere(admin, other)
	ar := expectReady(t, shared(), client.ObjectKeyFromObject(admin), metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	if r := row(ar, spokeA); r == nil || r.Rule != client.ObjectKeyFromObject(moved).String() {
		t.Errorf("the row is %+v", r)
	}

	tenant := inTenant("tenant")
	create(t, shared().Hub, tenant)
	good := expectThere(tenant, ns)

	// A tenant can't use another namespace: neither by name, nor by a workload, nor by changing a valid rule,
	// which stays where it was.
	named, workload := inTenant("named"), inTenant("workload")
	named.Spec.RuleNamespace = v1alpha1.NamespaceName(other)
	workload.Spec.WorkloadRef = &v1alpha1.WorkloadReference{Cluster: spokeA, Kind: "Deployment", Namespace: v1alpha1.NamespaceName(other), Name: "web"}
	create(t, shared().Hub, named)
	create(t, shared().Hub, workload)
	update(t, shared().Hub, tenant, func(r *v1alpha1.AlertRule) { r.Spec.RuleNamespace = v1alpha1.NamespaceName(other) })
	for _, ar := range []*v1alpha1.AlertRule{named, workload, tenant} {
		expectRefused(ar)
	}
	must(t, nonePushed(t.Context(), a, client.ObjectKeyFromObject(named)))
	must(t, nonePushed(t.Context(), a, client.ObjectKeyFromObject(workload)))
	must(t, untouched(t.Context(), a, good))
	if pr := expectPushed(t, a, client.ObjectKeyFromObject(tenant), 1); pr.UID != good.UID {
		t.Errorf("the tenant's rule is %s/%s now", pr.Namespace, pr.Name)
	}
}

// TestNamespaceMissing places a rule into a namespace that is created, deleted and created again.
func TestNamespaceMissing(t *testing.T) {
	parallelOnShared(t)
	a, ns := shared().Spoke(spokeA), unique(t)
	namespace(t, ns, shared().Spoke(spokeB))
	key := create(t, shared().Hub, alertRule(ns, ns, onNamed(spokeA, spokeB)))
	expectRow(t, shared(), key, spokeA, v1alpha1.PhasePending, v1alpha1.ReasonNamespaceMissing)
	expectRow(t, shared(), key, spokeB, v1alpha1.PhaseApplied, v1alpha1.ReasonNoEvaluator)
	expectReady(t, shared(), key, metav1.ConditionFalse, v1alpha1.ReasonNamespaceMissing)
	expectPushed(t, a, key, 0)

	namespace(t, ns, a)
	expectPushed(t, a, key, 1)
	expectReady(t, shared(), key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)

	must(t, a.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}))
	expectRow(t, shared(), key, spokeA, v1alpha1.PhasePending, v1alpha1.ReasonNamespaceMissing)
	eventually(t, "the namespace is gone", func(ctx context.Context) error {
		err := read(ctx, a, client.ObjectKey{Name: ns}, &corev1.Namespace{})
		if err == nil || client.IgnoreNotFound(err) != nil {
			return errors.New("not yet")
		}
		return nil
	})
	namespace(t, ns, a)
	expectPushed(t, a, key, 1)
	expectReady(t, shared(), key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
}
