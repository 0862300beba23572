package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	"github.com/rulefleet/rulefleet/pkg/testing/helm"
)

// minutes is how long to wait for events that involve pods and nodes.
const minutes = 2 * time.Minute

const (
	// each is the initial number of Deployments and of AlertRules.
	each = 20
	// rollout is the number of AlertRules under way when the leader is killed.
	rollout = 200
	// anyUser is one that a platform may select.
	anyUser = 1_000_680_000
)

// installed is the operator, installed by the chart in kind clusters.
type installed struct {
	*fleet.Fleet
	test    *testing.T // all of it
	release *helm.Release
	ns      string // of the tests, in both spokes

	before map[string]string // the state to compare with
}

// TestKind goes through the life of an installation, from its first upgrade to its uninstallation. Each step
// depends on the previous ones, so the first failure is the last step.
func TestKind(t *testing.T) {
	if *provider != providerKind {
		t.Skip("needs clusters of kind: make e2e")
	}
	release, err := operator()
	must(t, err)
	f := &installed{Fleet: shared(), test: t, release: release, ns: unique(t)}
	namespace(t, f.ns, f.Spoke(spokeA), f.Spoke(spokeB))
	f.fill(t)
	_ = t.Run("UpgradeWritesNoRule", f.upgrade) &&
		t.Run("RollbackWritesNoRule", f.rollback) &&
		t.Run("PodsAreRestricted", f.restricted) &&
		t.Run("SelectorReachesTheRightSpokes", f.selects) &&
		t.Run("DeploymentGetsItsRule", f.deployment) &&
		t.Run("TeamsWriteAlertRules", f.teams) &&
		t.Run("WebhookRefusesBadPromQL", f.refuses) &&
		t.Run("LeaderIsKilledInMidRollout", f.killLeader) &&
		t.Run("NodeIsPaused", f.pauseNode) &&
		t.Run("UninstallLeavesTheRules", f.uninstall) &&
		t.Run("InstalledAgainWritesNoRule", f.reinstall) &&
		t.Run("NothingIsStuck", f.remove)
}

func (f *installed) spokes() []*fleet.Member {
	return []*fleet.Member{f.Spoke(spokeA), f.Spoke(spokeB)}
}

// fill creates what the upgrade must not change: Deployments with their rules, and rules written by hand in
// every spoke.
func (f *installed) fill(t *testing.T) {
	t.Helper()
	for i := range each {
		create(t, f.Spoke(spokeA), deployment(f.ns, fmt.Sprintf("web-%d", i)))
		create(t, f.Hub, alertRule(fmt.Sprintf("%s-%d", f.ns, i), f.ns, onEvery()))
	}
	within(t, minutes, "the rules are ready", func(ctx context.Context) error { return f.ready(ctx, 2*each) })
}

// ready returns an error unless n AlertRules concern the tests' namespace and all of them are ready.
func (f *installed) ready(ctx context.Context, n int) error {
	var list v1alpha1.AlertRuleList
	if err := f.Hub.Client.List(ctx, &list); err != nil {
		return err
	}
	there, done := 0, 0
	for i := range list.Items {
		ar := &list.Items[i]
		if string(ar.Spec.RuleNamespace) != f.ns && (ar.Spec.WorkloadRef == nil || string(ar.Spec.WorkloadRef.Namespace) != f.ns) {
			continue
		}
		there++
		c := meta.FindStatusCondition(ar.Status.Conditions, v1alpha1.ConditionReady)
		if c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == ar.Generation {
			done++
		}
	}
	if there != n || done != n {
		return fmt.Errorf("%d of %d AlertRules are ready; want %d", done, there, n)
	}
	return nil
}

// snapshot returns the version of every PrometheusRule in the spokes, and the generation of
// every AlertRule.
func (f *installed) snapshot(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	for _, m := range f.spokes() {
		var list monitoringv1.PrometheusRuleList
		if err := m.Client.List(ctx, &list); err != nil {
			return nil, fmt.Errorf("listing the PrometheusRules of %s: %w", m.Name(), err)
		}
		for _, r := range list.Items {
			out[m.Name()+": "+r.Namespace+"/"+r.Name] = string(r.UID) + " at " + r.ResourceVersion
		}
	}
	var list v1alpha1.AlertRuleList
	if err := f.Hub.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing the AlertRules: %w", err)
	}
	for i := range list.Items {
		ar := &list.Items[i]
		out["hub: "+ar.Namespace+"/"+ar.Name] = fmt.Sprintf("%s in generation %d", ar.UID, ar.Generation)
	}
	return out, nil
}

// remember records the present state for unchanged.
func (f *installed) remember(t *testing.T) {
	t.Helper()
	var err error
	f.before, err = f.snapshot(t.Context())
	must(t, err)
	if len(f.before) < 5*each { // 2 for each Deployment, 3 for each AlertRule
		t.Fatalf("there are no more than %d rules to compare: %v", len(f.before), f.before)
	}
}

// unchanged returns an error unless the state is as recorded.
func (f *installed) unchanged(ctx context.Context) error {
	now, err := f.snapshot(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(f.before)) {
		if now[name] != f.before[name] {
			errs = append(errs, fmt.Errorf("%s was %s, and is %s", name, f.before[name], now[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if f.before[name] == "" {
			errs = append(errs, fmt.Errorf("%s is new", name))
		}
	}
	return errors.Join(errs...)
}

// expectEngaged waits until a leader serves both spokes, which requires its election. The state from before
// does not show that.
func (f *installed) expectEngaged(t *testing.T) {
	t.Helper()
	for _, spoke := range []string{spokeA, spokeB} {
		expectConnectedWithin(t, f.Fleet, spoke, metav1.ConditionTrue, v1alpha1.ReasonConnected)
	}
	f.expectAdmission(t)
	// A new rule arrives once everything replayed before it was handled.
	key := create(t, f.Hub, alertRule(unique(t), f.ns, onEvery()))
	for _, m := range f.spokes() {
		within(t, minutes, "a new rule is in "+m.Name(), func(ctx context.Context) error {
			found, err := pushed(ctx, m, key)
			if err == nil && len(found) != 1 {
				err = fmt.Errorf("there are %d", len(found))
			}
			return err
		})
	}
	must(t, f.Hub.Client.Delete(t.Context(), &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}))
	for _, m := range f.spokes() {
		expectPushed(t, m, key, 0)
	}
}

// expectAdmission waits until the API server reaches the webhook: the configuration gets the manager's CA
// shortly after the installation.
func (f *installed) expectAdmission(t *testing.T) {
	t.Helper()
	eventually(t, "the API server reaches the webhook", func(ctx context.Context) error {
		return f.Hub.Client.Create(ctx, alertRule(unique(t), f.ns, onEvery()), client.DryRunAll)
	})
}

func expectConnectedWithin(t *testing.T, f *fleet.Fleet, spoke string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	within(t, minutes, fmt.Sprintf("SpokeCluster %s: Connected=%s, reason %s", spoke, status, reason), func(ctx context.Context) error {
		return connected(ctx, f, spoke, status, reason)
	})
}

// pods returns the manager's pods.
func (f *installed) pods(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := f.Hub.Client.List(ctx, &list, client.InNamespace(fleet.Namespace),
		client.MatchingLabels{"app.kubernetes.io/name": "rulefleet", "app.kubernetes.io/component": "manager"})
	if err != nil {
		return nil, fmt.Errorf("listing the manager's pods: %w", err)
	}
	return list.Items, nil
}

// upgrade changes values so that all pods are replaced and the webhook is installed.
func (f *installed) upgrade(t *testing.T) {
	f.remember(t)
	old, err := f.pods(t.Context())
	must(t, err)
	values, err := defaultValues()
	must(t, err)
	values["log"] = map[string]any{"level": "debug"}
	values["runAsUser"] = anyUser
	_, err = f.release.Upgrade(t.Context(), values)
	must(t, err)
	within(t, minutes, "the pods are new ones", func(ctx context.Context) error {
		now, err := f.pods(ctx)
		for i := range now {
			if slices.ContainsFunc(old, func(p corev1.Pod) bool { return p.UID == now[i].UID }) {
				err = fmt.Errorf("%s is an old one", now[i].Name)
			}
		}
		return err
	})
	f.expectEngaged(t)
	must(t, f.unchanged(t.Context()))
}

// rollback rolls back to the previous revision, and forward again.
func (f *installed) rollback(t *testing.T) {
	installed, err := f.release.Status()
	must(t, err)
	must(t, f.release.Rollback(installed.Version-1))
	f.expectEngaged(t)
	must(t, f.release.Rollback(installed.Version))
	f.expectEngaged(t)
	must(t, f.unchanged(t.Context()))
}

// teams tests Kubernetes' own roles in a namespace: edit allows writing AlertRules there, view reading them,
// and neither anything elsewhere.
func (f *installed) teams(t *testing.T) {
	namespace(t, f.ns, f.Hub)
	for role, verbs := range map[string][]string{"view": {"list"}, "edit": {"list", "create", "delete"}} {
		create(t, f.Hub, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: role}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		})
		for _, verb := range []string{"list", "create", "delete"} {
			for _, ns := range []string{f.ns, fleet.Namespace} {
				want := ns == f.ns && slices.Contains(verbs, verb)
				eventually(t, fmt.Sprintf("%s may %s AlertRules in %s: %t", role, verb, ns, want), func(ctx context.Context) error {
					review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
						User:               role,
						ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: ns, Verb: verb, Group: v1alpha1.Group, Resource: "alertrules"},
					}}
					if err := f.Hub.Client.Create(ctx, review); err != nil {
						return err
					}
					if review.Status.Allowed != want {
						return fmt.Errorf("it is %t: %s", review.Status.Allowed, review.Status.Reason)
					}
					return nil
				})
			}
		}
	}
}

// restricted checks the pods, which mostly follows from their running in this namespace.
func (f *installed) restricted(t *testing.T) {
	ns := &corev1.Namespace{}
	must(t, read(t.Context(), f.Hub, client.ObjectKey{Name: fleet.Namespace}, ns))
	if level := ns.Labels["pod-security.kubernetes.io/enforce"]; level != "restricted" {
		t.Errorf("the namespace enforces the level %q", level)
	}
	var pods []corev1.Pod
	eventually(t, "only the two pods of the last rollout are left", func(ctx context.Context) (err error) {
		if pods, err = f.pods(ctx); err == nil && len(pods) != 2 {
			err = fmt.Errorf("there are %d pods of the manager", len(pods))
		}
		return err
	})
	for i := range pods {
		if s := pods[i].Spec.SecurityContext; s.RunAsUser == nil || *s.RunAsUser != anyUser {
			t.Errorf("%s runs as another user: %+v", pods[i].Name, s)
		}
		for _, c := range pods[i].Spec.Containers {
			if s := c.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
				t.Errorf("container %s of %s may write to its root", c.Name, pods[i].Name)
			}
		}
		for _, s := range pods[i].Status.ContainerStatuses {
			if s.RestartCount != 0 {
				t.Errorf("container %s of %s has restarted %d times: %+v", s.Name, pods[i].Name, s.RestartCount, s.LastTerminationState)
			}
		}
	}
}

// selects places a rule by a label of one spoke, then by one of the other.
func (f *installed) selects(t *testing.T) {
	ar := alertRule(unique(t), f.ns, onLabeled("env", spokeLabels[spokeA]["env"]))
	key := create(t, f.Hub, ar)
	expectPlaced(t, key, spokeA)
	update(t, f.Hub, ar, func(r *v1alpha1.AlertRule) { r.Spec.Placement = onLabeled("region", spokeLabels[spokeB]["region"]) })
	expectPlaced(t, key, spokeB)
}

func (f *installed) deployment(t *testing.T) {
	create(t, f.Spoke(spokeB), deployment(f.ns, "late"))
	ar := expectGenerated(t, f.Fleet, spokeB, f.ns, "late", 1)
	expectPushed(t, f.Spoke(spokeB), client.ObjectKeyFromObject(ar), 1)
	expectReady(t, f.Fleet, client.ObjectKeyFromObject(ar), metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	must(t, nonePushed(t.Context(), f.Spoke(spokeA), client.ObjectKeyFromObject(ar)))
}

// refuses writes invalid objects, for which the API server calls the webhook's Service.
func (f *installed) refuses(t *testing.T) {
	f.expectAdmission(t)
	bad := alertRule(unique(t), f.ns, onEvery())
	bad.Spec.Expr = `sum by (job (up{job="x"}) > 1`
	err := f.Hub.Client.Create(t.Context(), bad)
	if err == nil {
		remove(t, f.Hub, bad)
		t.Fatal("bad PromQL is taken")
	}
	for _, want := range []string{`admission webhook "alertrules.rulefleet.io" denied the request`, "spec.expr: 1:13: "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	t.Logf("refused: %v", err)
}

// leader returns the name of the pod that leads.
func (f *installed) leader(ctx context.Context) (string, error) {
	lease := &coordinationv1.Lease{}
	if err := f.Hub.Client.Get(ctx, client.ObjectKey{Namespace: fleet.Namespace, Name: "rulefleet-manager"}, lease); err != nil {
		return "", fmt.Errorf("reading the lease: %w", err)
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return "", errors.New("nobody leads")
	}
	pod, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return pod, nil
}

// killLeader kills the leading pod while rules are being distributed.
func (f *installed) killLeader(t *testing.T) {
	old, err := f.leader(t.Context())
	must(t, err)
	var g errgroup.Group
	g.Go(func() error {
		for i := range rollout {
			ar := alertRule(fmt.Sprintf("%s-%d", unique(t), i), f.ns, onEvery())
			remove(f.test, f.Hub, ar)
			if err := f.createInTheEnd(t.Context(), ar); err != nil {
				return err
			}
		}
		return nil
	})
	within(t, minutes, "a part of the rollout is done", func(ctx context.Context) error {
		var list monitoringv1.PrometheusRuleList
		err := f.Spoke(spokeA).Client.List(ctx, &list, client.InNamespace(f.ns))
		if err == nil && len(list.Items) < 2*each+rollout/5 {
			err = fmt.Errorf("there are %d rules", len(list.Items))
		}
		return err
	})
	killed := time.Now()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: old}}
	must(t, f.Hub.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	must(t, g.Wait())
	within(t, minutes, "another pod leads", func(ctx context.Context) error {
		now, err := f.leader(ctx)
		if err == nil && now == old {
			err = errors.New(old + " does still")
		}
		return err
	})
	led := time.Since(killed)
	within(t, minutes, "every rule is ready", func(ctx context.Context) error { return f.ready(ctx, 2*each+rollout) })
	t.Logf("the leader was killed: another led after %v, and all %d rules were in both spokes after %v",
		led.Round(time.Millisecond), rollout, time.Since(killed).Round(time.Millisecond))
	// The new leader may still have to remove what other steps have deleted.
	within(t, minutes, "there is what is due, and nothing else", f.exact)
}

// exact returns an error unless each spoke has exactly one rule for every AlertRule that is placed there.
func (f *installed) exact(ctx context.Context) error {
	for m, want := range map[*fleet.Member]int{f.Spoke(spokeA): 2*each + rollout, f.Spoke(spokeB): each + rollout} {
		var list monitoringv1.PrometheusRuleList
		if err := m.Client.List(ctx, &list, client.InNamespace(f.ns)); err != nil {
			return fmt.Errorf("listing the PrometheusRules of %s: %w", m.Name(), err)
		}
		of := map[string]bool{}
		for _, r := range list.Items {
			of[r.Annotations[v1alpha1.AlertRuleAnnotation]] = true
		}
		if len(list.Items) != want || len(of) != want {
			return fmt.Errorf("%s has %d rules of %d AlertRules, not %d", m.Name(), len(list.Items), len(of), want)
		}
	}
	return nil
}

// createInTheEnd creates an AlertRule with retries. While the address of a replica that is gone is still in
// the Service, the webhook may not answer.
func (f *installed) createInTheEnd(ctx context.Context, ar *v1alpha1.AlertRule) error {
	var last error
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		last = f.Hub.Client.Create(ctx, ar.DeepCopy())
		if last == nil || apierrors.IsAlreadyExists(last) {
			return nil
		}
		if !apierrors.IsInternalError(last) && !apierrors.IsServerTimeout(last) {
			break
		}
	}
	return fmt.Errorf("creating %s: %w", ar.Name, last)
}

// pauseNode freezes a spoke's node with its API server, and changes rules meanwhile.
func (f *installed) pauseNode(t *testing.T) {
	a, b := f.Spoke(spokeA), f.Spoke(spokeB)
	ar := alertRule(unique(t), f.ns, onEvery())
	key := create(t, f.Hub, ar)
	expectPlaced(t, key, spokeA, spokeB)
	old := expectPushed(t, b, key, 1)

	must(t, b.PauseNode(t.Context()))
	paused := time.Now()
	running := false
	t.Cleanup(func() {
		if !running {
			must(t, b.UnpauseNode(context.WithoutCancel(t.Context())))
		}
	})
	expectConnectedWithin(t, f.Fleet, spokeB, metav1.ConditionFalse, v1alpha1.ReasonUnreachable)
	t.Logf("the outage showed after %v", time.Since(paused).Round(time.Millisecond))
	update(t, f.Hub, ar, func(r *v1alpha1.AlertRule) { r.Spec.Expr = "up == 2" })
	expectRule(t, a, key, "the change, in the other spoke", func(r *monitoringv1.Rule) bool { return r.Expr.String() == "up == 2" })

	must(t, b.UnpauseNode(t.Context()))
	running = true
	back := time.Now()
	within(t, minutes, "the change is in the spoke that is back", func(ctx context.Context) error {
		found, err := pushed(ctx, b, key)
		if err == nil && (len(found) != 1 || found[0].Spec.Groups[0].Rules[0].Expr.String() != "up == 2" || found[0].UID != old.UID) {
			err = fmt.Errorf("there are %+v", found)
		}
		return err
	})
	expectConnectedWithin(t, f.Fleet, spokeB, metav1.ConditionTrue, v1alpha1.ReasonConnected)
	t.Logf("the change was there %v after the node was back", time.Since(back).Round(time.Millisecond))
	expectPlaced(t, key, spokeA, spokeB)
}

// uninstall removes the operator and nothing else.
func (f *installed) uninstall(t *testing.T) {
	within(t, minutes, "what the other steps made is gone", func(ctx context.Context) error {
		return errors.Join(f.ready(ctx, 2*each+rollout), f.exact(ctx))
	})
	f.remember(t)
	must(t, f.release.Uninstall())
	eventually(t, "the operator is gone", func(ctx context.Context) error { return f.gone(ctx) })
	must(t, f.unchanged(t.Context()))
	// The webhook's configuration would refuse all of this if it still existed.
	create(t, f.Hub, alertRule(unique(t), f.ns, v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"nowhere"}}))
}

// gone returns an error if anything of the release is left that should not be kept.
func (f *installed) gone(ctx context.Context) error {
	pods, err := f.pods(ctx)
	if err != nil || len(pods) > 0 {
		return fmt.Errorf("there are %d pods: %w", len(pods), err)
	}
	for _, o := range []client.Object{
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "rulefleet"}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "rulefleet"}},
	} {
		if err := f.Hub.Client.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%T %s is there: %w", o, o.GetName(), err)
		}
	}
	return nil
}

func (f *installed) reinstall(t *testing.T) {
	values, err := defaultValues()
	must(t, err)
	_, err = f.release.Install(t.Context(), values)
	must(t, err)
	f.expectEngaged(t)
	must(t, f.unchanged(t.Context()))
}

// remove uninstalls completely: the operator's namespace and the SpokeClusters are deleted, the rules stay.
func (f *installed) remove(t *testing.T) {
	must(t, f.release.Uninstall())
	var spokes v1alpha1.SpokeClusterList
	must(t, f.Hub.Client.List(t.Context(), &spokes))
	if len(spokes.Items) != 2 {
		t.Errorf("there are %d SpokeClusters", len(spokes.Items))
	}
	doomed := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.Namespace}}}
	for i := range spokes.Items {
		doomed = append(doomed, &spokes.Items[i])
	}
	for _, o := range doomed {
		must(t, f.Hub.Client.Delete(t.Context(), o))
	}
	for _, o := range doomed {
		within(t, minutes, fmt.Sprintf("%T %s is gone", o, o.GetName()), func(ctx context.Context) error {
			if err := f.Hub.Client.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there, with finalizers %v: %w", o.GetFinalizers(), err)
			}
			return nil
		})
	}
	now, err := f.snapshot(t.Context())
	must(t, err)
	for name, version := range f.before {
		if !strings.HasPrefix(name, "hub: ") && now[name] != version {
			t.Errorf("%s was %s, and is %q", name, version, now[name])
		}
	}
}
