package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

const (
	// opponent is the field manager of somebody who undoes what the manager writes.
	opponent = "argocd-controller"
	// warLasts is how long it does, and mostWrites is how often the manager may write an
	// object in that time. The delays are scaled, so that production writes less often.
	warLasts   = time.Minute
	mostWrites = 12
)

// warEnds is how long all may take to be well again.
var warEnds = quickly(5 * time.Minute)

// oppose watches a kind in a cluster, and has every version of an object undone, until the
// function that it returns is called.
func oppose[T client.Object](t *testing.T, m *fleet.Member, list client.ObjectList, undo func(ctx context.Context, kind watch.EventType, o T) error, in ...client.ListOption) (end func()) {
	t.Helper()
	c, err := client.NewWithWatch(m.RESTConfig(), client.Options{Scheme: fleet.Scheme})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	w, err := c.Watch(ctx, list, in...)
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range w.ResultChan() {
			o, ok := event.Object.(T)
			if !ok {
				continue
			}
			// Whoever was faster is answered by the next event.
			if err := undo(ctx, event.Type, o); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
				t.Errorf("the opponent can't undo %T %s: %v", o, o.GetName(), err)
			}
		}
	}()
	end = func() {
		cancel()
		w.Stop()
		<-done
	}
	t.Cleanup(end)
	return end
}

// war is one, of which the rule is on the hub.
type war struct {
	*audited
	member *fleet.Member
	user   string
	// object picks the requests that write the object.
	object func(o controlplane.AuditObject) bool
	began  time.Time
}

// writes counts how often the manager wrote the object, or tried to, by user agent.
func (w *war) writes(t *testing.T) map[string]int {
	t.Helper()
	events, err := w.member.Audit().Events(func(e controlplane.AuditEvent) bool {
		at := e.RequestReceivedTimestamp
		return e.IsWrite() && e.User.Username == w.user && e.ObjectRef.Subresource == "" && w.object(e.ObjectRef) && at.After(w.began) && at.Before(w.began.Add(warLasts))
	})
	must(t, err)
	counts := map[string]int{}
	for _, e := range events {
		counts[e.UserAgent]++
	}
	return counts
}

// rages waits until the war has lasted, and counts the writes.
func (w *war) rages(t *testing.T) {
	t.Helper()
	select {
	case <-time.After(time.Until(w.began.Add(warLasts))):
	case <-t.Context().Done():
	}
	counts := w.writes(t)
	t.Logf("writes within %v: %v", warLasts, counts)
	if len(counts) == 0 {
		t.Error("nothing was written")
	}
	for agent, n := range counts {
		if n > mostWrites || n < 4 {
			t.Errorf("%s wrote %d times within %v; want 4 to %d", agent, n, warLasts, mostWrites)
		}
	}
}

// contested polls until a rule and its spoke are shown as contested, and the rule tells
// words. From then on, the rule is not to be shown as ready while the war lasts.
func (w *war) contested(t *testing.T, key client.ObjectKey, words ...string) {
	t.Helper()
	ar := expectReady(t, w.Fleet, key, metav1.ConditionFalse, v1alpha1.ReasonContested)
	message := meta.FindStatusCondition(ar.Status.Conditions, v1alpha1.ConditionReady).Message
	for _, word := range words {
		if !strings.Contains(message, word) {
			t.Errorf("the message does not say %q: %s", word, message)
		}
	}
	if c := meta.FindStatusCondition(ar.Status.Conditions, v1alpha1.ConditionStalled); c.Status != metav1.ConditionFalse {
		t.Errorf("Stalled is %+v", c)
	}
	expectSpoke(t, w.Fleet, spokeA, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonContested, "")
	throughout(t, time.Until(w.began.Add(warLasts)), "it stays contested", func(ctx context.Context) error {
		if err := read(ctx, w.Hub, key, ar); err != nil {
			return client.IgnoreNotFound(err)
		}
		if c := meta.FindStatusCondition(ar.Status.Conditions, v1alpha1.ConditionReady); c != nil && c.Reason != v1alpha1.ReasonContested {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}

// over polls until a rule is ready again, after the end of the war.
func (w *war) over(t *testing.T, key client.ObjectKey) {
	t.Helper()
	began := time.Now()
	within(t, warEnds, "the rule is ready again", func(ctx context.Context) error {
		ar := &v1alpha1.AlertRule{}
		if err := read(ctx, w.Hub, key, ar); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(ar.Status.Conditions, v1alpha1.ConditionReady) {
			return fmt.Errorf("the conditions are %+v", ar.Status.Conditions)
		}
		return nil
	})
	t.Logf("ready again after %v", time.Since(began).Round(time.Millisecond))
}

// inSpoke is a war about the PrometheusRules of a namespace in the spoke.
func (f *audited) inSpoke(namespace string) *war {
	return &war{audited: f, member: f.spoke, user: fleet.SpokeUser, began: time.Now(), object: func(o controlplane.AuditObject) bool {
		return o.Resource == "prometheusrules" && o.Namespace == namespace
	}}
}

// onHub is a war about an object on the hub.
func (f *audited) onHub(resource, name string) *war {
	return &war{audited: f, member: f.Hub, user: fleet.HubUser, began: time.Now(), object: func(o controlplane.AuditObject) bool {
		return o.Resource == resource && o.Name == name
	}}
}

// TestWars has somebody undo each write of the manager, in the spoke and on the hub.
func TestWars(t *testing.T) {
	long(t)
	t.Parallel()
	f := startAudited(t)
	must(t, f.Register(t.Context(), spokeA, nil))
	f.manage(t, t.TempDir())
	namespace(t, "peace", f.spoke)
	calm := create(t, f.Hub, alertRule("peace", "peace", onEvery()))
	expectReady(t, f.Fleet, calm, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	pr := expectPushed(t, f.spoke, calm, 1)

	t.Run("all", func(t *testing.T) {
		for name, fight := range map[string]func(t *testing.T, f *audited, ns string){
			"written-back":         warWrittenBack,
			"deleted":              warDeleted,
			"made-again":           warMadeAgain,
			"made-again-elsewhere": warMadeAgainElsewhere,
			"hub-written-back":     warHubWrittenBack,
			"hub-deleted":          warHubDeleted,
			"hub-made-again":       warHubMadeAgain,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				namespace(t, name, f.spoke)
				fight(t, f, name)
			})
		}
	})
	within(t, warEnds, "the spoke is ready again", func(ctx context.Context) error {
		return says(ctx, f.Fleet, membership(spokeA), v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "")
	})
	must(t, untouched(t.Context(), f.spoke, pr))
}

func warWrittenBack(t *testing.T, f *audited, ns string) {
	t.Helper()
	key := create(t, f.Hub, alertRule(ns, ns, onEvery()))
	expectPushed(t, f.spoke, key, 1)
	w := f.inSpoke(ns)
	end := oppose(t, f.spoke, &monitoringv1.PrometheusRuleList{}, func(ctx context.Context, kind watch.EventType, o *monitoringv1.PrometheusRule) error {
		if r := &o.Spec.Groups[0].Rules[0]; kind != watch.Deleted && r.Expr.String() != "vector(0)" {
			r.Expr = intstr.FromString("vector(0)")
			return f.spoke.Client.Update(ctx, o, client.FieldOwner(opponent))
		}
		return nil
	}, client.InNamespace(ns))
	w.contested(t, key, opponent, "PrometheusRule "+ns+"/", "changes", "back after each write")

	w.rages(t)

	// A person's change is tried at once.
	ar := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	update(t, f.Hub, ar, func(r *v1alpha1.AlertRule) { r.Spec.Expr = "up == 1" })
	now := *w
	now.began = w.began.Add(warLasts)
	within(t, promptly, "the change is tried", func(context.Context) error {
		if len(now.writes(t)) == 0 {
			return errors.New("nothing was written")
		}
		return nil
	})
	end()
	w.over(t, key)
	expectRule(t, f.spoke, key, "as the hub says", func(r *monitoringv1.Rule) bool { return r.Expr.String() == "up == 1" })
}

func warDeleted(t *testing.T, f *audited, ns string) {
	t.Helper()
	key := create(t, f.Hub, alertRule(ns, ns, onEvery()))
	expectPushed(t, f.spoke, key, 1)
	w := f.inSpoke(ns)
	end := oppose(t, f.spoke, &monitoringv1.PrometheusRuleList{}, func(ctx context.Context, kind watch.EventType, o *monitoringv1.PrometheusRule) error {
		if kind == watch.Deleted {
			return nil
		}
		return f.spoke.Client.Delete(ctx, o)
	}, client.InNamespace(ns))
	w.contested(t, key, "an unknown client deletes PrometheusRule "+ns+"/")
	w.rages(t)
	end()
	w.over(t, key)
	expectPushed(t, f.spoke, key, 1)
}

// warMadeAgain is about what is left of an AlertRule that was deleted.
func warMadeAgain(t *testing.T, f *audited, ns string) {
	t.Helper()
	ar := alertRule(ns, ns, onEvery())
	key := create(t, f.Hub, ar)
	expectPushed(t, f.spoke, key, 1)
	end := makeAgain(t, f, ns)
	w := f.inSpoke(ns)
	must(t, f.Hub.Client.Delete(t.Context(), ar))
	expectSpoke(t, f.Fleet, spokeA, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonContested, "")
	w.rages(t)
	end()
	within(t, warEnds, "it is gone", func(ctx context.Context) error { return nonePushed(ctx, f.spoke, key) })
}

// warMadeAgainElsewhere is about what is left in an AlertRule's former namespace.
func warMadeAgainElsewhere(t *testing.T, f *audited, ns string) {
	t.Helper()
	namespace(t, ns+"-now", f.spoke)
	ar := alertRule(ns, ns, onEvery())
	key := create(t, f.Hub, ar)
	expectPushed(t, f.spoke, key, 1)
	end := makeAgain(t, f, ns)
	w := f.inSpoke(ns)
	update(t, f.Hub, ar, func(r *v1alpha1.AlertRule) { r.Spec.RuleNamespace += "-now" })
	w.contested(t, key, opponent, "makes PrometheusRule "+ns+"/", "again after each deletion")
	w.rages(t)
	end()
	w.over(t, key)
	if pr := expectPushed(t, f.spoke, key, 1); pr.Namespace != ns+"-now" {
		t.Errorf("what is left is in %s", pr.Namespace)
	}
}

func makeAgain(t *testing.T, f *audited, ns string) (end func()) {
	t.Helper()
	return oppose(t, f.spoke, &monitoringv1.PrometheusRuleList{}, func(ctx context.Context, kind watch.EventType, o *monitoringv1.PrometheusRule) error {
		if kind != watch.Deleted {
			return nil
		}
		again := &monitoringv1.PrometheusRule{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, Labels: o.Labels, Annotations: o.Annotations}, Spec: o.Spec,
		}
		return f.spoke.Client.Create(ctx, again, client.FieldOwner(opponent))
	}, client.InNamespace(ns))
}

// opposeAlertRule is oppose for one generated AlertRule.
func opposeAlertRule(t *testing.T, f *audited, name string, undo func(ctx context.Context, kind watch.EventType, ar *v1alpha1.AlertRule) error) (end func()) {
	t.Helper()
	return oppose(t, f.Hub, &v1alpha1.AlertRuleList{}, undo, client.InNamespace(fleet.GeneratedNamespace), client.MatchingFields{"metadata.name": name})
}

func warHubWrittenBack(t *testing.T, f *audited, ns string) {
	t.Helper()
	create(t, f.spoke, deployment(ns, "web"))
	ar := expectGenerated(t, f.Fleet, spokeA, ns, "web", 1)
	key := client.ObjectKeyFromObject(ar)
	expectReady(t, f.Fleet, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	template := ar.Labels[v1alpha1.TemplateLabel]
	w := f.onHub("alertrules", ar.Name)
	end := opposeAlertRule(t, f, ar.Name, func(ctx context.Context, kind watch.EventType, ar *v1alpha1.AlertRule) error {
		if kind == watch.Deleted || ar.Labels[v1alpha1.TemplateLabel] != template {
			return nil
		}
		ar.Labels[v1alpha1.TemplateLabel] = "other"
		return f.Hub.Client.Update(ctx, ar, client.FieldOwner(opponent))
	})
	w.contested(t, key, opponent, "AlertRule "+key.String(), "back after each write")
	w.rages(t)
	end()
	w.over(t, key)
	expectGenerated(t, f.Fleet, spokeA, ns, "web", 1)
}

func warHubDeleted(t *testing.T, f *audited, ns string) {
	t.Helper()
	create(t, f.spoke, deployment(ns, "web"))
	ar := expectGenerated(t, f.Fleet, spokeA, ns, "web", 1)
	key := client.ObjectKeyFromObject(ar)
	expectReady(t, f.Fleet, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	w := f.onHub("alertrules", ar.Name)
	end := opposeAlertRule(t, f, ar.Name, func(ctx context.Context, kind watch.EventType, ar *v1alpha1.AlertRule) error {
		if kind == watch.Deleted {
			return nil
		}
		return f.Hub.Client.Delete(ctx, ar)
	})
	expectSpoke(t, f.Fleet, spokeA, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonContested, "")
	w.rages(t)
	end()
	w.over(t, key)
	expectPushed(t, f.spoke, key, 1)
}

// warHubMadeAgain is about the AlertRule of a Deployment that is gone.
func warHubMadeAgain(t *testing.T, f *audited, ns string) {
	t.Helper()
	d := deployment(ns, "web")
	create(t, f.spoke, d)
	ar := expectGenerated(t, f.Fleet, spokeA, ns, "web", 1)
	key := client.ObjectKeyFromObject(ar)
	expectReady(t, f.Fleet, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	w := f.onHub("alertrules", ar.Name)
	end := opposeAlertRule(t, f, ar.Name, func(ctx context.Context, kind watch.EventType, ar *v1alpha1.AlertRule) error {
		if kind != watch.Deleted {
			return nil
		}
		again := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: ar.Namespace, Name: ar.Name, Labels: ar.Labels}, Spec: ar.Spec}
		return f.Hub.Client.Create(ctx, again, client.FieldOwner(opponent))
	})
	must(t, f.spoke.Client.Delete(t.Context(), d))
	w.contested(t, key, opponent, "makes AlertRule "+key.String(), "again after each deletion")
	w.rages(t)
	end()
	within(t, warEnds, "both are gone", func(ctx context.Context) error {
		if err := f.Hub.Client.Get(ctx, key, &v1alpha1.AlertRule{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the AlertRule is still there: %w", err)
		}
		return nonePushed(ctx, f.spoke, key)
	})
}

// TestWarOfTwins lets two hubs with one id, and other rules, look after one spoke.
func TestWarOfTwins(t *testing.T) {
	long(t)
	t.Parallel()
	one := startAudited(t)
	other := start(t, fleet.Options{})
	kubeconfig, err := one.spoke.UserKubeconfig(fleet.SpokeUser)
	must(t, err)
	namespace(t, "same", one.spoke)
	namespace(t, "only", one.spoke)
	must(t, one.Register(t.Context(), spokeA, nil))
	one.manage(t, t.TempDir()) // its hub's id is "audited"
	same := create(t, one.Hub, alertRule("same", "same", onEvery()))
	only := create(t, one.Hub, alertRule("only", "only", onEvery()))
	for _, key := range []client.ObjectKey{same, only} {
		expectReady(t, one.Fleet, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	}

	twin := alertRule("same", "same", onEvery())
	twin.Spec.Expr = "vector(1)"
	create(t, other.Hub, twin)
	wars := []*war{one.inSpoke("same"), one.inSpoke("only")}
	second := startManagerWith(t, other, fleet.ManagerOptions{Dir: t.TempDir(), HubID: "audited"})
	must(t, other.RegisterKubeconfig(t.Context(), spokeA, kubeconfig, nil))
	expectSpoke(t, other, spokeA, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonContested, "")
	wars[0].contested(t, same, `another client named "rulefleet-manager"`, "--hub-id")
	wars[1].contested(t, only, "an unknown client deletes PrometheusRule only/")
	for _, w := range wars {
		w.rages(t)
	}
	must(t, second.Stop())
	for i, key := range []client.ObjectKey{same, only} {
		wars[i].over(t, key)
		expectRule(t, one.spoke, key, "as the first hub says", func(r *monitoringv1.Rule) bool { return r.Expr.String() == "up == 0" })
	}
}

// TestWarOverTheWebhook has somebody write the caBundle of the webhook's configuration back.
func TestWarOverTheWebhook(t *testing.T) {
	long(t)
	t.Parallel()
	f, address := start(t, fleet.Options{Audit: true}), freeAddress(t)
	startManagerWith(t, f, fleet.ManagerOptions{Dir: t.TempDir(), Webhook: address})
	must(t, f.InstallWebhook(t.Context(), address))
	eventually(t, "the webhook is asked", asked(f.Hub))

	config := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	must(t, f.Hub.Client.List(t.Context(), config))
	name := config.Items[0].Name
	w := (&audited{Fleet: f}).onHub("validatingwebhookconfigurations", name)
	another := serveHook(t, "nobody", nil).config.CABundle
	end := oppose(t, f.Hub, config, func(ctx context.Context, kind watch.EventType, o *admissionregistrationv1.ValidatingWebhookConfiguration) error {
		changed := false
		for i := range o.Webhooks {
			changed = changed || !bytes.Equal(o.Webhooks[i].ClientConfig.CABundle, another)
			o.Webhooks[i].ClientConfig.CABundle = another
		}
		if kind == watch.Deleted || !changed {
			return nil
		}
		return f.Hub.Client.Update(ctx, o, client.FieldOwner(opponent))
	})
	expectEvent(t, f.Hub, "ValidatingWebhookConfiguration", name, v1alpha1.ReasonContested, opponent)
	w.rages(t)
	end()
	within(t, warEnds, "the webhook is asked again", asked(f.Hub))
}

// uncontested tells whether nothing was ever shown as contested on the shared fleet: its tests
// change things by hand, and nobody insists.
func (s *sharedFleet) uncontested(ctx context.Context) error {
	var list eventsv1.EventList
	if err := s.Hub.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("listing Events: %w", err)
	}
	var err error
	for i := range list.Items {
		if e := &list.Items[i]; e.Reason == v1alpha1.ReasonContested {
			err = errors.Join(err, fmt.Errorf("on %s %s: %s", e.Regarding.Kind, e.Regarding.Name, e.Note))
		}
	}
	return err
}
