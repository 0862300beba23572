package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// lifecycle is a fleet whose spokes join and leave.
type lifecycle struct {
	*fleet.Fleet
	manager *fleet.Manager
	// restart starts a manager, after the one before was killed.
	restart func()
}

// leaveTimeout is the flag of the manager of these tests.
const leaveTimeout = 8 * time.Second

// TestLifecycle tests what people do to spokes.
func TestLifecycle(t *testing.T) {
	long(t)
	parallel(t)
	f, dir := &lifecycle{Fleet: start(t, fleet.Options{Spokes: []string{"one", "two"}, Audit: true})}, t.TempDir()
	for _, name := range []string{"one", "two"} {
		namespace(t, "shop", f.Spoke(name))
	}
	f.restart = func() { // with this t: the manager is to outlive the subtest
		f.manager = startManagerWith(t, f.Fleet, fleet.ManagerOptions{Dir: dir, Args: []string{"--leave-timeout=" + leaveTimeout.String()}})
	}
	f.restart()
	t.Run("Suspend", f.suspend)
	t.Run("RuleLabels", f.ruleLabels)
	t.Run("MaxRules", f.maxRules)
	t.Run("Repointed", f.repointed)
	t.Run("Renamed", f.renamed)
	t.Run("Leave", f.leave)
	t.Run("LeaveOrphan", f.leaveOrphan)
	t.Run("LeaveSuspended", f.leaveSuspended)
	t.Run("LeaveUnreachable", f.leaveUnreachable)
	t.Run("LeaveWithoutSecret", f.leaveWithoutSecret)
	t.Run("AdoptFormerHub", f.adoptFormerHub)
	t.Run("KindDeleted", f.kindDeleted)
	t.Run("Freed", f.freed)
}

// join registers a spoke, and ends its membership with the test.
func (f *lifecycle) join(t *testing.T, as string, m *fleet.Member, labels map[string]string) {
	t.Helper()
	kubeconfig, err := m.UserKubeconfig(fleet.SpokeUser)
	must(t, err)
	must(t, f.RegisterKubeconfig(t.Context(), as, kubeconfig, labels))
	t.Cleanup(func() { f.endOf(t, as, m) })
	f.ready(t, as, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

// endOf ends a membership at the end of a test, whatever its state.
func (f *lifecycle) endOf(t *testing.T, name string, m *fleet.Member) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	must(t, client.IgnoreNotFound(f.Hub.Client.Delete(ctx, registration(name))))
	must(t, client.IgnoreNotFound(f.Hub.Client.Delete(ctx, membership(name))))
	expectGone(t, f.Hub, membership(name))
	must(t, m.Client.DeleteAllOf(ctx, &monitoringv1.PrometheusRule{}, client.InNamespace("shop")))
	must(t, m.Client.DeleteAllOf(ctx, &appsv1.Deployment{}, client.InNamespace("shop")))
}

// joined registers a spoke with rules of both kinds, and a rule of another hub in it.
func (f *lifecycle) joined(t *testing.T, name string) (m *fleet.Member, rules []client.ObjectKey, foreign *monitoringv1.PrometheusRule) {
	t.Helper()
	m = f.Spoke("two")
	f.join(t, name, m, nil)
	create(t, m, deployment("shop", name))
	rules = []client.ObjectKey{
		client.ObjectKeyFromObject(expectGenerated(t, f.Fleet, name, "shop", name, 1)),
		create(t, f.Hub, alertRule("by-hand-"+name, "shop", onNamed(v1alpha1.ClusterName(name)))),
	}
	for _, key := range rules {
		expectPushed(t, m, key, 1)
	}
	foreign = foreignRule("shop", "foreign-"+name)
	create(t, m, foreign)
	return m, rules, foreign
}

// foreignRule returns another hub's rule.
func foreignRule(namespace, name string) *monitoringv1.PrometheusRule {
	return &monitoringv1.PrometheusRule{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels:      map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.HubLabel: "another"},
			Annotations: map[string]string{v1alpha1.AlertRuleAnnotation: "somewhere/else"},
		},
		Spec: monitoringv1.PrometheusRuleSpec{Groups: []monitoringv1.RuleGroup{{
			Name: "g", Rules: []monitoringv1.Rule{{Alert: "A", Expr: intstr.FromString("up == 0")}},
		}}},
	}
}

// expectLeft checks the common results when a spoke has left.
func (f *lifecycle) expectLeft(t *testing.T, name string, m *fleet.Member, foreign *monitoringv1.PrometheusRule) {
	t.Helper()
	expectGone(t, f.Hub, membership(name))
	expectGenerated(t, f.Fleet, name, "shop", name, 0)
	must(t, untouched(t.Context(), m, foreign))
	throughout(t, time.Second, "it does not come back", func(ctx context.Context) error {
		if err := f.Hub.Client.Get(ctx, client.ObjectKey{Name: name}, membership(name)); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	secret := registration(name)
	err := f.Hub.Client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)
	must(t, client.IgnoreNotFound(err))
	if err != nil {
		return
	}
	if _, labeled := secret.Labels[v1alpha1.RegistrationLabel]; labeled || len(secret.Data) == 0 || secret.Labels["theirs"] != "too" {
		t.Errorf("the Secret has labels %v and %d keys", secret.Labels, len(secret.Data))
	}
}

// leave deletes the SpokeCluster of a spoke that can be reached.
func (f *lifecycle) leave(t *testing.T) {
	m, rules, foreign := f.joined(t, "leaver")
	update(t, f.Hub, registration("leaver"), func(s *corev1.Secret) { s.Labels["theirs"] = "too" })
	for i := range 15 { // together, more than the brake releases
		name := fmt.Sprintf("bulk-%d", i)
		create(t, f.Hub, alertRule(name, "shop", onNamed("leaver")))
		pack := samplePack(t, name, "shop", 5)
		pack.Spec.Placement = onNamed("leaver")
		create(t, f.Hub, pack)
	}
	eventually(t, "all are there", func(ctx context.Context) error { return ownedBy(ctx, m, 32) })
	must(t, f.Hub.Client.Delete(t.Context(), membership("leaver")))
	f.expectLeft(t, "leaver", m, foreign)
	must(t, ownedBy(t.Context(), m, 0))
	expectEvent(t, f.Hub, "SpokeCluster", "leaver", "Left", "32 PrometheusRules were removed")
	expectEvent(t, f.Hub, "Secret", "leaver", "Deregistered", "SpokeCluster leaver was deleted")
	expectRow(t, f.Fleet, rules[1], "leaver", v1alpha1.PhasePending, v1alpha1.ReasonNotRegistered)

	// The next spoke of its name counts as another cluster until it is known.
	must(t, f.Hub.Client.Create(t.Context(), membership("leaver")))
	expectRow(t, f.Fleet, rules[1], "leaver", v1alpha1.PhasePending, v1alpha1.ReasonKubeconfigMissing)

	// The label registers it again.
	update(t, f.Hub, registration("leaver"), func(s *corev1.Secret) { s.Labels[v1alpha1.RegistrationLabel] = "true" })
	f.ready(t, "leaver", metav1.ConditionTrue, v1alpha1.ReasonReady)
	eventually(t, "all are there again", func(ctx context.Context) error { return ownedBy(ctx, m, 32) })
}

// ownedBy checks the number of the hub's PrometheusRules in a spoke.
func ownedBy(ctx context.Context, m *fleet.Member, want int) error {
	var list monitoringv1.PrometheusRuleList
	if err := m.Client.List(ctx, &list, client.MatchingLabels{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue}); err != nil {
		return err
	}
	n := 0
	for i := range list.Items {
		if list.Items[i].Labels[v1alpha1.HubLabel] != "another" {
			n++
		}
	}
	if n != want {
		return fmt.Errorf("%s has %d of the hub's rules, not %d", m.Name(), n, want)
	}
	return nil
}

func (f *lifecycle) leaveOrphan(t *testing.T) {
	m, rules, foreign := f.joined(t, "orphan")
	update(t, f.Hub, registration("orphan"), func(s *corev1.Secret) { s.Labels["theirs"] = "too" })
	f.change(t, "orphan", func(sc *v1alpha1.SpokeCluster) { sc.Spec.DeletionPolicy = v1alpha1.DeletionPolicyOrphan })
	there := f.leavesAll(t, "orphan", m, rules, foreign, "spec.deletionPolicy of the SpokeCluster is Orphan")

	// After it returns, the kept rules are in use again.
	update(t, f.Hub, registration("orphan"), func(s *corev1.Secret) { s.Labels[v1alpha1.RegistrationLabel] = "true" })
	f.ready(t, "orphan", metav1.ConditionTrue, v1alpha1.ReasonReady)
	for _, key := range rules {
		expectReady(t, f.Fleet, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	}
	for _, pr := range there {
		must(t, untouched(t.Context(), m, pr))
	}
}

func (f *lifecycle) leaveSuspended(t *testing.T) {
	m, rules, foreign := f.joined(t, "paused")
	update(t, f.Hub, registration("paused"), func(s *corev1.Secret) { s.Labels["theirs"] = "too" })
	f.change(t, "paused", func(sc *v1alpha1.SpokeCluster) { sc.Spec.Suspend = new(true) })
	f.ready(t, "paused", metav1.ConditionFalse, v1alpha1.ReasonSuspended)
	f.leavesAll(t, "paused", m, rules, foreign, "the SpokeCluster was suspended")
}

// leavesAll deletes a SpokeCluster, which changes nothing in the spoke.
func (f *lifecycle) leavesAll(t *testing.T, name string, m *fleet.Member, rules []client.ObjectKey, foreign *monitoringv1.PrometheusRule, why string) []*monitoringv1.PrometheusRule {
	t.Helper()
	var there []*monitoringv1.PrometheusRule
	for _, key := range rules {
		there = append(there, expectPushed(t, m, key, 1))
	}
	must(t, f.Hub.Client.Delete(t.Context(), membership(name)))
	f.expectLeft(t, name, m, foreign)
	for _, pr := range there {
		must(t, untouched(t.Context(), m, pr))
	}
	expectEvent(t, f.Hub, "SpokeCluster", name, "LeftBehind", append(keyNames(rules), "2 PrometheusRules were left", why)...)
	return there
}

// leaveUnreachable deletes the SpokeCluster of a spoke that does not answer.
func (f *lifecycle) leaveUnreachable(t *testing.T) {
	m, rules, foreign := f.joined(t, "silent")
	update(t, f.Hub, registration("silent"), func(s *corev1.Secret) { s.Labels["theirs"] = "too" })
	must(t, m.Pause())
	t.Cleanup(func() { _ = m.Resume() })
	deleted := time.Now()
	must(t, f.Hub.Client.Delete(t.Context(), membership("silent")))
	c := f.ready(t, "silent", metav1.ConditionFalse, v1alpha1.ReasonLeaving)
	if !strings.Contains(c.Message, "removing 2 rules from the spoke until ") {
		t.Errorf("the message is %q", c.Message)
	}
	f.expectPending(t, "silent", rules...)
	expectGone(t, f.Hub, membership("silent"))
	if took := time.Since(deleted); took < leaveTimeout-2*time.Second {
		t.Errorf("it left after %v", took)
	}
	must(t, m.Resume())
	f.expectLeft(t, "silent", m, foreign)
	expectEvent(t, f.Hub, "SpokeCluster", "silent", "LeftBehind", append(keyNames(rules), "2 PrometheusRules were left")...)
	must(t, ownedBy(t.Context(), m, 2))
}

// leaveWithoutSecret deletes the SpokeCluster of a spoke without a Secret.
func (f *lifecycle) leaveWithoutSecret(t *testing.T) {
	m, rules, foreign := f.joined(t, "lost")
	must(t, f.Hub.Client.Delete(t.Context(), registration("lost")))
	f.ready(t, "lost", metav1.ConditionFalse, v1alpha1.ReasonKubeconfigMissing)
	expectEvent(t, f.Hub, "SpokeCluster", "lost", v1alpha1.ReasonKubeconfigMissing)
	must(t, f.Hub.Client.Delete(t.Context(), membership("lost")))
	f.expectLeft(t, "lost", m, foreign)
	must(t, ownedBy(t.Context(), m, 2))
	expectEvent(t, f.Hub, "SpokeCluster", "lost", "LeftBehind", append(keyNames(rules), "PrometheusRules of this hub may be left in the spoke")...)
}

// adoptFormerHub registers a spoke with the rules of a hub that no longer exists.
func (f *lifecycle) adoptFormerHub(t *testing.T) {
	const former = "former-hub"
	m := f.Spoke("two")
	ar := alertRule("adopted", "shop", onNamed("heir"))
	key := create(t, f.Hub, ar)
	old := foreignRule("shop", rule.ObjectName(former, rule.AlertRuleKey(key.Namespace, key.Name)))
	old.Labels[v1alpha1.HubLabel], old.Labels["theirs"] = former, "too"
	old.Annotations[v1alpha1.AlertRuleAnnotation] = key.String()
	create(t, m, old)
	unclaimed := foreignRule("shop", rule.ObjectName(former, rule.AlertRuleKey(key.Namespace, "nobodys")))
	unclaimed.Labels[v1alpha1.HubLabel] = former
	unclaimed.Annotations[v1alpha1.AlertRuleAnnotation] = key.Namespace + "/nobodys"
	create(t, m, unclaimed)

	heir := membership("heir")
	heir.Spec.AdoptHubIDs = []v1alpha1.HubID{former}
	must(t, f.Hub.Client.Create(t.Context(), heir)) // as GitOps would, before the Secret
	f.join(t, "heir", m, nil)
	expectReady(t, f.Fleet, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	pr := expectPushed(t, m, key, 1)
	if pr.UID != old.UID || pr.Name != old.Name || pr.Labels[v1alpha1.HubLabel] == former || pr.Labels["theirs"] != "too" ||
		pr.Spec.Groups[0].Rules[0].Alert != "TestAlert" || pr.Annotations[v1alpha1.AdoptedFromAnnotation] != former {
		t.Errorf("it is %+v", pr)
	}
	must(t, untouched(t.Context(), m, unclaimed))

	// From now on they are ordinary rules, even when the former hub is forgotten.
	f.change(t, "heir", func(sc *v1alpha1.SpokeCluster) { sc.Spec.AdoptHubIDs = nil })
	update(t, f.Hub, ar, func(r *v1alpha1.AlertRule) { r.Spec.For = "9m" })
	expectRule(t, m, key, "the change", func(r *monitoringv1.Rule) bool { return *r.For == "9m" })
	if again := expectPushed(t, m, key, 1); again.UID != old.UID {
		t.Error("it was made anew")
	}
	must(t, f.manager.Kill())
	f.restart()
	f.ready(t, "heir", metav1.ConditionTrue, v1alpha1.ReasonReady)
	must(t, f.Hub.Client.Delete(t.Context(), ar))
	expectPushed(t, m, key, 0)
	must(t, untouched(t.Context(), m, unclaimed))
}

// kindDeleted deletes the kind SpokeCluster with all its objects, which is not a leave.
func (f *lifecycle) kindDeleted(t *testing.T) {
	m, _, _ := f.joined(t, "remains")
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "spokeclusters." + v1alpha1.Group}}
	must(t, f.Hub.Client.Delete(t.Context(), crd))
	expectGone(t, f.Hub, crd)
	throughout(t, 2*time.Second, "its rules stay", func(ctx context.Context) error { return ownedBy(ctx, m, 2) })
	must(t, f.Hub.InstallCRDs(t.Context(), filepath.Join("..", "charts", "rulefleet", "files", "crds"), "*_spokeclusters.yaml"))
	f.ready(t, "remains", metav1.ConditionTrue, v1alpha1.ReasonReady) // its Secret is still registered
	must(t, ownedBy(t.Context(), m, 2))
}

func (f *lifecycle) ready(t *testing.T, name string, status metav1.ConditionStatus, reason string) *metav1.Condition {
	t.Helper()
	return expectCondition(t, f.Fleet, membership(name), v1alpha1.ConditionReady, status, reason)
}

func (f *lifecycle) change(t *testing.T, name string, change func(*v1alpha1.SpokeCluster)) {
	t.Helper()
	update(t, f.Hub, membership(name), change)
}

// expectGone polls until an object is gone.
func expectGone(t *testing.T, m *fleet.Member, o client.Object) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // also at the end of a test
	deadline := time.Now().Add(patience)
	for {
		err := m.Client.Get(ctx, client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%T %s is not gone: %v: %+v", o, o.GetName(), err, o)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// expectEvent waits until an object has an Event with this reason and these words.
func expectEvent(t *testing.T, m *fleet.Member, kind, name, reason string, words ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("Event %s on %s %s, with %q", reason, kind, name, words), func(ctx context.Context) error {
		var list eventsv1.EventList
		if err := m.Client.List(ctx, &list); err != nil {
			return err
		}
		var seen []string
		for i := range list.Items {
			e := &list.Items[i]
			if e.Regarding.Kind != kind || e.Regarding.Name != name {
				continue
			}
			if e.Reason == reason && containsAll(e.Note, words) {
				return nil
			}
			seen = append(seen, e.Reason+": "+e.Note)
		}
		return fmt.Errorf("there are %q", seen)
	})
}

func containsAll(s string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(s, w) {
			return false
		}
	}
	return true
}

// expectPending waits until a SpokeCluster shows what is still to be removed.
func (f *lifecycle) expectPending(t *testing.T, name string, keys ...client.ObjectKey) {
	t.Helper()
	eventually(t, fmt.Sprintf("pendingDeletions of %s: %v", name, keys), func(ctx context.Context) error {
		sc := membership(name)
		if err := read(ctx, f.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
			return err
		}
		got := sc.Status.PendingDeletions
		if len(keys) == 0 && got == nil {
			return nil
		}
		if got == nil || int(got.Count) != len(keys) || !containsAll(strings.Join(got.Names, " "), keyNames(keys)) {
			return fmt.Errorf("it has %+v", got)
		}
		return nil
	})
}

func keyNames(keys []client.ObjectKey) []string {
	var out []string
	for _, k := range keys {
		out = append(out, k.String())
	}
	return out
}

func (f *lifecycle) suspend(t *testing.T) {
	m := f.Spoke("one")
	f.join(t, "one", m, nil)
	stays := alertRule("stays", "shop", onNamed("one"))
	stays.Spec.For = "1m"
	staysKey := create(t, f.Hub, stays)
	goesKey := create(t, f.Hub, alertRule("goes", "shop", onNamed("one")))
	before := expectPushed(t, m, staysKey, 1)
	gone := expectPushed(t, m, goesKey, 1)

	f.change(t, "one", func(sc *v1alpha1.SpokeCluster) { sc.Spec.Suspend = new(true) })
	c := f.ready(t, "one", metav1.ConditionFalse, v1alpha1.ReasonSuspended)
	if !strings.Contains(c.Message, `kubectl patch spoke one --type=merge -p '{"spec":{"suspend":false}}'`) {
		t.Errorf("the message is %q", c.Message)
	}
	expectEvent(t, f.Hub, "SpokeCluster", "one", v1alpha1.ReasonSuspended)
	update(t, f.Hub, stays, func(r *v1alpha1.AlertRule) { r.Spec.For = "2m" })
	must(t, f.Hub.Client.Delete(t.Context(), alertRule("goes", "", onNamed("one"))))
	addedKey := create(t, f.Hub, alertRule("added", "shop", onNamed("one")))
	create(t, m, deployment("shop", "suspended"))
	madeKey := client.ObjectKeyFromObject(expectGenerated(t, f.Fleet, "one", "shop", "suspended", 1))
	expectRow(t, f.Fleet, staysKey, "one", v1alpha1.PhaseApplied, v1alpha1.ReasonSuspended)
	expectRow(t, f.Fleet, addedKey, "one", v1alpha1.PhasePending, v1alpha1.ReasonSuspended)
	expectRow(t, f.Fleet, madeKey, "one", v1alpha1.PhasePending, v1alpha1.ReasonSuspended)
	f.expectPending(t, "one", goesKey)
	for _, pr := range []*monitoringv1.PrometheusRule{before, gone} {
		must(t, untouched(t.Context(), m, pr))
	}
	must(t, nonePushed(t.Context(), m, addedKey))

	f.change(t, "one", func(sc *v1alpha1.SpokeCluster) { sc.Spec.Suspend = new(false) })
	f.ready(t, "one", metav1.ConditionTrue, v1alpha1.ReasonReady)
	expectPushed(t, m, goesKey, 0)
	expectPushed(t, m, addedKey, 1)
	expectPushed(t, m, madeKey, 1)
	expectRule(t, m, staysKey, "the change", func(r *monitoringv1.Rule) bool { return *r.For == "2m" })
	f.expectPending(t, "one")
}

func (f *lifecycle) ruleLabels(t *testing.T) {
	m := f.Spoke("one")
	f.join(t, "one", m, nil)
	key := create(t, f.Hub, alertRule("labeled", "shop", onNamed("one")))
	has := func(release, team string) {
		t.Helper()
		eventually(t, fmt.Sprintf("labels release=%s and team=%s", release, team), func(ctx context.Context) error {
			found, err := pushed(ctx, m, key)
			if err != nil || len(found) != 1 {
				return fmt.Errorf("there are %d: %w", len(found), err)
			}
			l := found[0].Labels
			if l["release"] != release || l["team"] != team || l["theirs"] != "too" && found[0].Generation > 1 || l[v1alpha1.ManagedByLabel] != v1alpha1.ManagedByValue {
				return fmt.Errorf("the labels are %v", l)
			}
			return nil
		})
	}
	expectPushed(t, m, key, 1)
	has("", "")
	f.change(t, "one", func(sc *v1alpha1.SpokeCluster) {
		sc.Spec.RuleLabels = map[string]v1alpha1.RuleLabelValue{"release": "monitoring", "team": "a"}
	})
	has("monitoring", "a")
	update(t, m, expectPushed(t, m, key, 1), func(pr *monitoringv1.PrometheusRule) {
		pr.Labels["theirs"], pr.Labels["release"] = "too", "drifted"
	})
	has("monitoring", "a")
	f.change(t, "one", func(sc *v1alpha1.SpokeCluster) {
		sc.Spec.RuleLabels = map[string]v1alpha1.RuleLabelValue{"release": "other"}
	})
	has("other", "")
	f.change(t, "one", func(sc *v1alpha1.SpokeCluster) { sc.Spec.RuleLabels = nil })
	has("", "")
	if pr := expectPushed(t, m, key, 1); pr.Labels["theirs"] != "too" || pr.Annotations[v1alpha1.RuleLabelsAnnotation] != "" {
		t.Errorf("it is %+v", pr.ObjectMeta)
	}
}

func (f *lifecycle) maxRules(t *testing.T) {
	m := f.Spoke("one")
	f.join(t, "one", m, nil)
	// One namespace can't use the last quarter, which is 1.
	f.change(t, "one", func(sc *v1alpha1.SpokeCluster) { sc.Spec.MaxRules = new(int32(6)) })
	for i := range 12 {
		create(t, m, deployment("shop", fmt.Sprintf("many-%d", i)))
	}
	f.ready(t, "one", metav1.ConditionFalse, v1alpha1.ReasonMaxRulesReached)
	f.lack(t, 7, "namespace shop has used up its share of spec.maxRules")
	count := func(want int) func(context.Context) error {
		return func(ctx context.Context) error {
			var list v1alpha1.AlertRuleList
			if err := f.Hub.Client.List(ctx, &list, client.InNamespace(fleet.GeneratedNamespace)); err != nil {
				return err
			}
			if len(list.Items) != want {
				return fmt.Errorf("there are %d AlertRules, not %d", len(list.Items), want)
			}
			return nil
		}
	}
	throughout(t, time.Second, "no more than 5", count(5))
	namespace(t, "late", m)
	create(t, m, deployment("late", "late"))
	expectGenerated(t, f.Fleet, "one", "late", "late", 1)
	must(t, m.Client.Delete(t.Context(), deployment("late", "late")))
	eventually(t, "5 without it", count(5))
	hand := create(t, f.Hub, alertRule("by-hand", "shop", onNamed("one")))
	expectPushed(t, m, hand, 1) // the limit applies only to generated AlertRules

	// A deletion makes room for another one.
	var list v1alpha1.AlertRuleList
	must(t, f.Hub.Client.List(t.Context(), &list, client.InNamespace(fleet.GeneratedNamespace)))
	must(t, m.Client.Delete(t.Context(), deployment("shop", list.Items[0].Spec.WorkloadRef.Name)))
	expectGone(t, f.Hub, &list.Items[0])
	eventually(t, "5 again", count(5))

	// A lower limit removes none, and neither does a restart; a higher one allows all.
	f.change(t, "one", func(sc *v1alpha1.SpokeCluster) { sc.Spec.MaxRules = new(int32(2)) })
	must(t, f.manager.Kill())
	f.restart()
	f.lack(t, 6, "maxRules (2)")
	must(t, count(5)(t.Context()))
	f.change(t, "one", func(sc *v1alpha1.SpokeCluster) { sc.Spec.MaxRules = new(int32(100)) })
	eventually(t, "all", count(11))
	f.ready(t, "one", metav1.ConditionTrue, v1alpha1.ReasonReady)
}

// lack waits until spoke one shows that workloads lack AlertRules, and why.
func (f *lifecycle) lack(t *testing.T, n int, why string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d lack AlertRules", n), func(ctx context.Context) error {
		sc := membership("one")
		if err := read(ctx, f.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
			return err
		}
		c := meta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionReady)
		if !strings.HasPrefix(c.Message, fmt.Sprintf("%d workloads lack AlertRules", n)) || !strings.Contains(c.Message, why) {
			return errors.New(c.Message)
		}
		return nil
	})
}

// repointed puts another cluster's kubeconfig into a spoke's Secret.
func (f *lifecycle) repointed(t *testing.T) {
	one, two := f.Spoke("one"), f.Spoke("two")
	f.join(t, "one", one, nil)
	create(t, one, deployment("shop", "repointed"))
	key := client.ObjectKeyFromObject(expectGenerated(t, f.Fleet, "one", "shop", "repointed", 1))
	pr := expectPushed(t, one, key, 1)
	hand := create(t, f.Hub, alertRule("placed", "shop", onNamed("one")))
	placed := expectPushed(t, one, hand, 1)
	former := registration("one")
	must(t, read(t.Context(), f.Hub, client.ObjectKeyFromObject(former), former))

	other, err := two.UserKubeconfig(fleet.SpokeUser)
	must(t, err)
	update(t, f.Hub, registration("one"), func(s *corev1.Secret) { s.Data[v1alpha1.KubeconfigKey] = other })
	c := expectCondition(t, f.Fleet, membership("one"), v1alpha1.ConditionConnected, metav1.ConditionFalse, v1alpha1.ReasonIdentityChanged)
	f.ready(t, "one", metav1.ConditionFalse, v1alpha1.ReasonIdentityChanged)
	expectEvent(t, f.Hub, "SpokeCluster", "one", v1alpha1.ReasonIdentityChanged, "another cluster")
	expectEvent(t, f.Hub, "Secret", "one", v1alpha1.ReasonIdentityChanged, "another cluster")
	uid := clusterUID(t, two)
	if !containsAll(c.Message, []string{uid, clusterUID(t, one), "rulefleet.io/accept-identity=" + uid}) {
		t.Errorf("the message is %q", c.Message)
	}
	update(t, f.Hub, alertRule("placed", "", onNamed("one")), func(r *v1alpha1.AlertRule) { r.Spec.For = "9m" })
	quiet := func(ctx context.Context) error {
		return errors.Join(untouched(ctx, one, pr), untouched(ctx, one, placed), nonePushed(ctx, two, key), nonePushed(ctx, two, hand))
	}
	throughout(t, time.Second, "neither is written to", quiet)
	must(t, f.manager.Kill())
	f.restart()
	expectCondition(t, f.Fleet, membership("one"), v1alpha1.ConditionConnected, metav1.ConditionFalse, v1alpha1.ReasonIdentityChanged)
	f.change(t, "one", func(sc *v1alpha1.SpokeCluster) {
		sc.Annotations = map[string]string{v1alpha1.AcceptIdentityAnnotation: "something-else"}
	})
	throughout(t, time.Second, "neither is written to", quiet)

	// The former kubeconfig works as before.
	update(t, f.Hub, registration("one"), func(s *corev1.Secret) { s.Data = former.Data })
	f.ready(t, "one", metav1.ConditionTrue, v1alpha1.ReasonReady)
	expectRule(t, one, hand, "the change", func(r *monitoringv1.Rule) bool { return *r.For == "9m" })

	// After the confirmation with the command that why prints, the spoke is the other cluster.
	update(t, f.Hub, registration("one"), func(s *corev1.Secret) { s.Data[v1alpha1.KubeconfigKey] = other })
	expectCondition(t, f.Fleet, membership("one"), v1alpha1.ConditionConnected, metav1.ConditionFalse, v1alpha1.ReasonIdentityChanged)
	_, broken, err := askWhy(t, f.Hub, hand, "one")
	must(t, err)
	if broken == nil || broken.Name != "connection" {
		t.Fatalf("why says %+v", broken)
	}
	mend(t, f.Hub, two, *broken, "annotate")
	expectPushed(t, two, hand, 1)
	eventually(t, "the confirmation is taken off", func(ctx context.Context) error {
		sc := membership("one")
		if err := read(ctx, f.Hub, client.ObjectKeyFromObject(sc), sc); err != nil || sc.Annotations[v1alpha1.AcceptIdentityAnnotation] != "" {
			return fmt.Errorf("it has %v: %w", sc.Annotations, err)
		}
		return nil
	})
	// two has no such Deployment. After the change, even a single deletion is held.
	f.ready(t, "one", metav1.ConditionFalse, v1alpha1.ReasonDeletionsHeld)
	expectGenerated(t, f.Fleet, "one", "shop", "repointed", 1)
	f.change(t, "one", func(sc *v1alpha1.SpokeCluster) {
		sc.Annotations = map[string]string{v1alpha1.AcknowledgeDeletionsAnnotation: "true"}
	})
	expectGenerated(t, f.Fleet, "one", "shop", "repointed", 0)
	f.ready(t, "one", metav1.ConditionTrue, v1alpha1.ReasonReady)
	eventually(t, "the identity is shown", func(ctx context.Context) error {
		sc := membership("one")
		if err := read(ctx, f.Hub, client.ObjectKeyFromObject(sc), sc); err != nil || sc.Status.Identity != uid {
			return fmt.Errorf("it is %q: %w", sc.Status.Identity, err)
		}
		return nil
	})
	must(t, two.Client.DeleteAllOf(t.Context(), &monitoringv1.PrometheusRule{}, client.InNamespace("shop")))
}

func clusterUID(t *testing.T, m *fleet.Member) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}
	must(t, m.Client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
	return string(ns.UID)
}

// renamed moves a spoke's kubeconfig to a Secret of another name.
func (f *lifecycle) renamed(t *testing.T) {
	m := f.Spoke("one")
	f.join(t, "former", m, map[string]string{"env": "prod"})
	create(t, m, deployment("shop", "renamed"))
	byName := create(t, f.Hub, alertRule("by-name", "shop", onNamed("former")))
	byLabel := create(t, f.Hub, alertRule("by-label", "shop", onLabeled("env", "prod")))
	made := client.ObjectKeyFromObject(expectGenerated(t, f.Fleet, "former", "shop", "renamed", 1))
	named, labeled := expectPushed(t, m, byName, 1), expectPushed(t, m, byLabel, 1)
	expectPushed(t, m, made, 1)

	// The Deployment must never be without its alert.
	watching, stop := context.WithCancel(t.Context())
	defer stop()
	gap := make(chan error, 1)
	go func() { gap <- f.neverWithout(watching, m, "renamed") }()

	kubeconfig, err := m.UserKubeconfig(fleet.SpokeUser)
	must(t, err)
	must(t, f.RegisterKubeconfig(t.Context(), "present", kubeconfig, map[string]string{"env": "prod"}))
	t.Cleanup(func() { f.endOf(t, "present", m) })
	c := f.ready(t, "present", metav1.ConditionFalse, v1alpha1.ReasonDuplicateCluster)
	if !strings.Contains(c.Message, "spoke former") {
		t.Errorf("the message is %q", c.Message)
	}
	must(t, f.Hub.Client.Delete(t.Context(), registration("former")))
	f.ready(t, "present", metav1.ConditionTrue, v1alpha1.ReasonReady)
	f.ready(t, "former", metav1.ConditionFalse, v1alpha1.ReasonKubeconfigMissing)
	eventually(t, "the former says who took over", func(ctx context.Context) error {
		sc := membership("former")
		if err := read(ctx, f.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionConnected); !strings.Contains(c.Message, "SpokeCluster present refers to the same cluster") {
			return errors.New(c.Message)
		}
		return nil
	})
	remade := client.ObjectKeyFromObject(expectGenerated(t, f.Fleet, "present", "shop", "renamed", 1))
	expectPushed(t, m, remade, 1)
	expectPushed(t, m, made, 0) // once the other is there, not before
	stop()
	must(t, <-gap)
	must(t, untouched(t.Context(), m, named))
	expectRule(t, m, byLabel, "its new name", func(r *monitoringv1.Rule) bool { return r.Labels["cluster"] == "present" })
	if again := expectPushed(t, m, byLabel, 1); again.UID != labeled.UID {
		t.Error("it was made anew")
	}

	// A restart changes nothing.
	must(t, f.manager.Kill())
	f.restart()
	f.ready(t, "present", metav1.ConditionTrue, v1alpha1.ReasonReady)
	throughout(t, time.Second, "it stays", func(ctx context.Context) error { return untouched(ctx, m, named) })

	must(t, f.Hub.Client.Delete(t.Context(), membership("former")))
	expectGone(t, f.Hub, membership("former"))
	expectGenerated(t, f.Fleet, "former", "shop", "renamed", 0)
	expectPushed(t, m, byName, 0) // placed by the name of a spoke that no longer exists
	expectPushed(t, m, remade, 1)
	expectPushed(t, m, byLabel, 1)
}

// neverWithout checks that a Deployment has an alert in the spoke after every change there, until ctx ends.
func (f *lifecycle) neverWithout(ctx context.Context, m *fleet.Member, name string) error {
	watching, err := client.NewWithWatch(m.RESTConfig(), client.Options{Scheme: fleet.Scheme})
	if err != nil {
		return err
	}
	var list monitoringv1.PrometheusRuleList
	if err := watching.List(ctx, &list, client.InNamespace("shop")); err != nil {
		return fmt.Errorf("listing PrometheusRules: %w", err)
	}
	alerts := map[string]bool{}
	note := func(o *monitoringv1.PrometheusRule, exists bool) {
		delete(alerts, o.Name)
		if exists && strings.Contains(o.Spec.Groups[0].Rules[0].Expr.String(), `"`+name+`"`) {
			alerts[o.Name] = true
		}
	}
	for i := range list.Items {
		note(&list.Items[i], true)
	}
	w, err := watching.Watch(ctx, &list, client.InNamespace("shop"), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	if err != nil {
		return err
	}
	defer w.Stop()
	for len(alerts) > 0 {
		e := <-w.ResultChan()
		o, ok := e.Object.(*monitoringv1.PrometheusRule)
		if !ok {
			if ctx.Err() != nil {
				return nil // the watch has lasted long enough
			}
			return fmt.Errorf("the watch ended: %+v", e)
		}
		note(o, e.Type != watch.Deleted)
	}
	return fmt.Errorf("Deployment %s has no alert", name)
}

// freed deletes a SpokeCluster when the manager is gone already, and frees it as
// docs/how-to/install.md says. Nothing else could keep a namespace.
func (f *lifecycle) freed(t *testing.T) {
	m, _, _ := f.joined(t, "stuck")
	must(t, f.manager.Kill())
	t.Cleanup(f.restart)
	for _, member := range []*fleet.Member{f.Hub, m} {
		lists := []client.ObjectList{&corev1.SecretList{}, &corev1.ConfigMapList{}}
		if member == f.Hub {
			lists = append(lists, &v1alpha1.AlertRuleList{}, &v1alpha1.AlertRuleTemplateList{})
		} else {
			lists = append(lists, &monitoringv1.PrometheusRuleList{})
		}
		for _, list := range lists {
			must(t, member.Client.List(t.Context(), list))
			must(t, meta.EachListItem(list, func(o runtime.Object) error {
				if o := o.(client.Object); len(o.GetFinalizers()) > 0 || len(o.GetOwnerReferences()) > 0 {
					t.Errorf("%T %s/%s in %s has finalizers %q and owners %v", o, o.GetNamespace(), o.GetName(), member.Name(), o.GetFinalizers(), o.GetOwnerReferences())
				}
				return nil
			}))
		}
	}
	must(t, f.Hub.Client.Delete(t.Context(), membership("stuck")))
	sc := membership("stuck")
	must(t, f.Hub.Client.Get(t.Context(), client.ObjectKeyFromObject(sc), sc))

	doc, err := os.ReadFile(filepath.Join("..", "docs", "how-to", "install.md"))
	must(t, err)
	args := []string{"patch", "spoke", "eu-prod-1", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`}
	if want := strings.Join(args[:5], " ") + " '" + args[5] + "'"; !strings.Contains(string(doc), "kubectl "+want) {
		t.Errorf("docs/how-to/install.md does not have: kubectl %s", want)
	}
	args[2] = "stuck"
	out, err := f.Hub.Kubectl(t.Context(), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	expectGone(t, f.Hub, membership("stuck"))
	must(t, ownedBy(t.Context(), m, 2))
	must(t, f.Hub.Client.Delete(t.Context(), registration("stuck"))) // otherwise it would be registered again
}
