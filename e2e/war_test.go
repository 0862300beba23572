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
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	"github.com/rulefleet/rulefleet/pkg/webhook/certs"
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

// startWar starts a fleet for wars, whose manager has to end without a data race.
func startWar(t *testing.T, spokes ...string) *faulty {
	t.Helper()
	f := startFaulty(t, fleet.Options{Spokes: spokes, Intervals: quick})
	f.options.Path = raceManager
	t.Cleanup(func() {
		if strings.Contains(f.current().Log(), "DATA RACE") {
			t.Error("the manager has a data race")
		}
	})
	return f
}

// war is one, of which the rule is on the hub.
type war struct {
	*place
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
	expectSpoke(t, w.Fleet, w.name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonContested, "")
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
func (at *place) inSpoke(namespace string) *war {
	return &war{place: at, member: at.m, user: fleet.SpokeUser, began: time.Now(), object: func(o controlplane.AuditObject) bool {
		return o.Resource == "prometheusrules" && o.Namespace == namespace
	}}
}

// onHub is a war about an object on the hub.
func (at *place) onHub(resource, name string) *war {
	return &war{place: at, member: at.Hub, user: fleet.HubUser, began: time.Now(), object: func(o controlplane.AuditObject) bool {
		return o.Resource == resource && o.Name == name
	}}
}

// on places a rule in the spoke alone.
func (at *place) on() v1alpha1.ClusterSelection { return onNamed(v1alpha1.ClusterName(at.name)) }

// TestWars has somebody undo each write of the manager, in the spoke and on the hub. After all of
// them the fleet is as after any fault.
func TestWars(t *testing.T) {
	long(t)
	t.Parallel()
	f := startWar(t, "contested", "confirmed")
	f.manage(t)
	at := f.place(t, "contested")
	at.register(t)
	at.settle(t)
	must(t, f.Register(t.Context(), "confirmed", nil))
	f.measure(t)
	at.row("wars", rowOptions{}, func(r *fault) {
		r.inject(func() {}, func() {})
		r.t.Run("all", func(t *testing.T) {
			for name, fight := range map[string]func(t *testing.T, at *place, ns string){
				"written-back":         warWrittenBack,
				"deleted":              warDeleted,
				"made-again":           warMadeAgain,
				"made-again-elsewhere": warMadeAgainElsewhere,
				"hub-written-back":     warHubWrittenBack,
				"hub-deleted":          warHubDeleted,
				"hub-made-again":       warHubMadeAgain,
				"membership":           warOverMembership,
				"acknowledged":         warOverAcknowledgement,
				"confirmed":            warOverConfirmation,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					fight(t, at, name)
				})
			}
		})
		within(r.t, warEnds, "the spoke is ready again", func(ctx context.Context) error {
			return says(ctx, f.Fleet, membership(at.name), v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "")
		})
		r.over()
	})
}

// opposeMembership is oppose for one SpokeCluster. undo tells whether it changed something.
func opposeMembership(t *testing.T, at *place, name string, undo func(sc *v1alpha1.SpokeCluster) bool) (end func()) {
	t.Helper()
	return oppose(t, at.Hub, &v1alpha1.SpokeClusterList{}, func(ctx context.Context, kind watch.EventType, sc *v1alpha1.SpokeCluster) error {
		if kind == watch.Deleted || !undo(sc) {
			return nil
		}
		return at.Hub.Client.Update(ctx, sc, client.FieldOwner(opponent))
	}, client.MatchingFields{"metadata.name": name})
}

// annotates sets an annotation where it is missing.
func annotates(key, value string) func(sc *v1alpha1.SpokeCluster) bool {
	return func(sc *v1alpha1.SpokeCluster) bool {
		if sc.Annotations[key] != "" {
			return false
		}
		metav1.SetMetaDataAnnotation(&sc.ObjectMeta, key, value)
		return true
	}
}

// warOverMembership is about the labels and the finalizer of a SpokeCluster.
func warOverMembership(t *testing.T, at *place, name string) {
	t.Helper()
	must(t, at.RegisterKubeconfig(t.Context(), name, []byte("none"), map[string]string{"env": "prod"}))
	labeled := func(ctx context.Context) error {
		sc := membership(name)
		if err := read(ctx, at.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
			return err
		}
		if sc.Labels["env"] != "prod" || len(sc.Finalizers) != 1 {
			return fmt.Errorf("it has %v, %v", sc.Labels, sc.Finalizers)
		}
		return nil
	}
	eventually(t, "the SpokeCluster is made", labeled)
	w := at.onHub("spokeclusters", name)
	end := opposeMembership(t, at, name, func(sc *v1alpha1.SpokeCluster) bool {
		has := sc.Labels["env"] != "" || len(sc.Finalizers) > 0
		sc.Labels, sc.Finalizers = nil, nil
		return has
	})
	w.rages(t)
	end()
	within(t, warEnds, "it is as its Secret", labeled)
}

// warOverAcknowledgement is about an acknowledgement that is kept in a repository.
func warOverAcknowledgement(t *testing.T, at *place, name string) {
	t.Helper()
	must(t, at.RegisterKubeconfig(t.Context(), name, []byte("none"), nil))
	w := at.onHub("spokeclusters", name)
	end := opposeMembership(t, at, name, annotates(v1alpha1.AcknowledgeDeletionsAnnotation, "true"))
	w.rages(t)
	end()
	within(t, warEnds, "the annotation is taken off", unannotated(at, name))
}

// warOverConfirmation is the same for the confirmation of an identity.
func warOverConfirmation(t *testing.T, at *place, name string) {
	t.Helper()
	expectSpoke(t, at.Fleet, name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "")
	sc := membership(name)
	must(t, read(t.Context(), at.Hub, client.ObjectKeyFromObject(sc), sc))
	w := at.onHub("spokeclusters", name)
	end := opposeMembership(t, at, name, annotates(v1alpha1.AcceptIdentityAnnotation, sc.Status.Identity))
	expectSpoke(t, at.Fleet, name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonContested,
		fmt.Sprintf("field manager %q sets annotation %s of SpokeCluster %s again", opponent, v1alpha1.AcceptIdentityAnnotation, name))
	w.rages(t)
	end()
	within(t, warEnds, "the spoke is ready again", func(ctx context.Context) error {
		return says(ctx, at.Fleet, membership(name), v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "")
	})
	must(t, unannotated(at, name)(t.Context()))
}

func unannotated(at *place, name string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		sc := membership(name)
		if err := read(ctx, at.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
			return err
		}
		if len(sc.Annotations) > 0 {
			return fmt.Errorf("it has %v", sc.Annotations)
		}
		return nil
	}
}

func warWrittenBack(t *testing.T, at *place, ns string) {
	t.Helper()
	namespace(t, ns, at.m)
	key := create(t, at.Hub, alertRule(ns, ns, at.on()))
	expectPushed(t, at.m, key, 1)
	w := at.inSpoke(ns)
	end := oppose(t, at.m, &monitoringv1.PrometheusRuleList{}, func(ctx context.Context, kind watch.EventType, o *monitoringv1.PrometheusRule) error {
		if r := &o.Spec.Groups[0].Rules[0]; kind != watch.Deleted && r.Expr.String() != "vector(0)" {
			r.Expr = intstr.FromString("vector(0)")
			return at.m.Client.Update(ctx, o, client.FieldOwner(opponent))
		}
		return nil
	}, client.InNamespace(ns))
	w.contested(t, key, opponent, "PrometheusRule "+ns+"/", "changes", "back after each write")

	w.rages(t)

	// A person's change is tried at once.
	ar := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	update(t, at.Hub, ar, func(r *v1alpha1.AlertRule) { r.Spec.Expr = "up == 1" })
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
	expectRule(t, at.m, key, "as the hub says", func(r *monitoringv1.Rule) bool { return r.Expr.String() == "up == 1" })
}

func warDeleted(t *testing.T, at *place, ns string) {
	t.Helper()
	namespace(t, ns, at.m)
	key := create(t, at.Hub, alertRule(ns, ns, at.on()))
	expectPushed(t, at.m, key, 1)
	w := at.inSpoke(ns)
	end := oppose(t, at.m, &monitoringv1.PrometheusRuleList{}, func(ctx context.Context, kind watch.EventType, o *monitoringv1.PrometheusRule) error {
		if kind == watch.Deleted {
			return nil
		}
		return at.m.Client.Delete(ctx, o)
	}, client.InNamespace(ns))
	w.contested(t, key, "an unknown client deletes PrometheusRule "+ns+"/")
	w.rages(t)
	end()
	w.over(t, key)
	expectPushed(t, at.m, key, 1)
}

// warMadeAgain is about what is left of an AlertRule that was deleted.
func warMadeAgain(t *testing.T, at *place, ns string) {
	t.Helper()
	namespace(t, ns, at.m)
	ar := alertRule(ns, ns, at.on())
	key := create(t, at.Hub, ar)
	expectPushed(t, at.m, key, 1)
	end := makeAgain(t, at, ns)
	w := at.inSpoke(ns)
	must(t, at.Hub.Client.Delete(t.Context(), ar))
	expectSpoke(t, at.Fleet, at.name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonContested, "")
	w.rages(t)
	end()
	within(t, warEnds, "it is gone", func(ctx context.Context) error { return nonePushed(ctx, at.m, key) })
}

// warMadeAgainElsewhere is about what is left in an AlertRule's former namespace.
func warMadeAgainElsewhere(t *testing.T, at *place, ns string) {
	t.Helper()
	namespace(t, ns, at.m)
	namespace(t, ns+"-now", at.m)
	ar := alertRule(ns, ns, at.on())
	key := create(t, at.Hub, ar)
	expectPushed(t, at.m, key, 1)
	end := makeAgain(t, at, ns)
	w := at.inSpoke(ns)
	update(t, at.Hub, ar, func(r *v1alpha1.AlertRule) { r.Spec.RuleNamespace += "-now" })
	w.contested(t, key, opponent, "makes PrometheusRule "+ns+"/", "again after each deletion")
	w.rages(t)
	end()
	w.over(t, key)
	if pr := expectPushed(t, at.m, key, 1); pr.Namespace != ns+"-now" {
		t.Errorf("what is left is in %s", pr.Namespace)
	}
}

func makeAgain(t *testing.T, at *place, ns string) (end func()) {
	t.Helper()
	return oppose(t, at.m, &monitoringv1.PrometheusRuleList{}, func(ctx context.Context, kind watch.EventType, o *monitoringv1.PrometheusRule) error {
		if kind != watch.Deleted {
			return nil
		}
		again := &monitoringv1.PrometheusRule{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, Labels: o.Labels, Annotations: o.Annotations}, Spec: o.Spec,
		}
		return at.m.Client.Create(ctx, again, client.FieldOwner(opponent))
	}, client.InNamespace(ns))
}

// opposeAlertRule is oppose for one generated AlertRule.
func opposeAlertRule(t *testing.T, at *place, name string, undo func(ctx context.Context, kind watch.EventType, ar *v1alpha1.AlertRule) error) (end func()) {
	t.Helper()
	return oppose(t, at.Hub, &v1alpha1.AlertRuleList{}, undo, client.InNamespace(fleet.GeneratedNamespace), client.MatchingFields{"metadata.name": name})
}

func warHubWrittenBack(t *testing.T, at *place, name string) {
	t.Helper()
	create(t, at.m, deployment(at.name, name))
	ar := expectGenerated(t, at.Fleet, at.name, at.name, name, 1)
	key := client.ObjectKeyFromObject(ar)
	expectReady(t, at.Fleet, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	template := ar.Labels[v1alpha1.TemplateLabel]
	w := at.onHub("alertrules", ar.Name)
	end := opposeAlertRule(t, at, ar.Name, func(ctx context.Context, kind watch.EventType, ar *v1alpha1.AlertRule) error {
		if kind == watch.Deleted || ar.Labels[v1alpha1.TemplateLabel] != template {
			return nil
		}
		ar.Labels[v1alpha1.TemplateLabel] = "other"
		return at.Hub.Client.Update(ctx, ar, client.FieldOwner(opponent))
	})
	w.contested(t, key, opponent, "AlertRule "+key.String(), "back after each write")
	w.rages(t)
	end()
	w.over(t, key)
	expectGenerated(t, at.Fleet, at.name, at.name, name, 1)
}

func warHubDeleted(t *testing.T, at *place, name string) {
	t.Helper()
	create(t, at.m, deployment(at.name, name))
	ar := expectGenerated(t, at.Fleet, at.name, at.name, name, 1)
	key := client.ObjectKeyFromObject(ar)
	expectReady(t, at.Fleet, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	w := at.onHub("alertrules", ar.Name)
	end := opposeAlertRule(t, at, ar.Name, func(ctx context.Context, kind watch.EventType, ar *v1alpha1.AlertRule) error {
		if kind == watch.Deleted {
			return nil
		}
		return at.Hub.Client.Delete(ctx, ar)
	})
	expectSpoke(t, at.Fleet, at.name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonContested, "")
	w.rages(t)
	end()
	w.over(t, key)
	expectPushed(t, at.m, key, 1)
}

// warHubMadeAgain is about the AlertRule of a Deployment that is gone.
func warHubMadeAgain(t *testing.T, at *place, name string) {
	t.Helper()
	d := deployment(at.name, name)
	create(t, at.m, d)
	ar := expectGenerated(t, at.Fleet, at.name, at.name, name, 1)
	key := client.ObjectKeyFromObject(ar)
	expectReady(t, at.Fleet, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	w := at.onHub("alertrules", ar.Name)
	end := opposeAlertRule(t, at, ar.Name, func(ctx context.Context, kind watch.EventType, ar *v1alpha1.AlertRule) error {
		if kind != watch.Deleted {
			return nil
		}
		again := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: ar.Namespace, Name: ar.Name, Labels: ar.Labels}, Spec: ar.Spec}
		return at.Hub.Client.Create(ctx, again, client.FieldOwner(opponent))
	})
	must(t, at.m.Client.Delete(t.Context(), d))
	w.contested(t, key, opponent, "makes AlertRule "+key.String(), "again after each deletion")
	w.rages(t)
	end()
	within(t, warEnds, "both are gone", func(ctx context.Context) error {
		if err := at.Hub.Client.Get(ctx, key, &v1alpha1.AlertRule{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the AlertRule is still there: %w", err)
		}
		return nonePushed(ctx, at.m, key)
	})
}

// TestWarOfTwins lets two hubs with one id, and other rules, look after one spoke.
func TestWarOfTwins(t *testing.T) {
	long(t)
	t.Parallel()
	other := start(t, fleet.Options{}) // first, or what it lacks would be suspect there
	f := startWar(t, "contested")
	f.manage(t)
	at := f.place(t, "contested")
	at.register(t)
	namespace(t, "same", at.m)
	same := create(t, f.Hub, alertRule("same", "same", at.on()))
	at.settle(t)
	f.measure(t)

	twin := alertRule("same", "same", onEvery())
	twin.Spec.Expr = "vector(1)"
	create(t, other.Hub, twin)
	only := client.ObjectKey{Namespace: fleet.Namespace, Name: at.name + "-rule-1"}
	at.row("twins", rowOptions{rewritten: true}, func(r *fault) {
		wars := map[client.ObjectKey]*war{same: at.inSpoke("same"), only: at.inSpoke(at.name)}
		wars[only].object = func(o controlplane.AuditObject) bool {
			return o.Resource == "prometheusrules" && o.Name == rule.ObjectName(hubID, only.Namespace, only.Name)
		}
		var second *fleet.Manager
		r.inject(func() {
			second = startManagerWith(t, other, fleet.ManagerOptions{Dir: t.TempDir(), HubID: hubID})
			must(t, other.RegisterKubeconfig(t.Context(), at.name, at.kubeconfig, nil))
		}, func() { _ = second.Stop() })
		expectSpoke(t, other, at.name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonContested, "")
		wars[same].contested(r.t, same, `another client named "rulefleet-manager"`, "--hub-id")
		wars[only].contested(r.t, only, "an unknown client deletes PrometheusRule "+at.name+"/")
		for _, w := range wars {
			w.rages(r.t)
		}
		must(r.t, second.Stop())
		for key, w := range wars {
			w.over(r.t, key)
			expectRule(r.t, at.m, key, "as the first hub says", func(r *monitoringv1.Rule) bool { return r.Expr.String() == "up == 0" })
		}
		within(r.t, warEnds, "all is as the first hub says", at.converged)
		r.over()
	})
}

// TestWarOverTheWebhook has somebody write the caBundle of the webhook's configuration back, and
// take the label off the Secret with its certificates.
func TestWarOverTheWebhook(t *testing.T) {
	long(t)
	t.Parallel()
	f, address := startWar(t), freeAddress(t)
	f.up()
	f.options.Webhook = address
	f.start(t)
	endsWell(t, f)
	at := f.place(t, healthyName)
	f.healthy = at
	at.register(t)
	at.settle(t)
	must(t, f.InstallWebhook(t.Context(), address))
	eventually(t, "the webhook is asked", asked(f.Hub))

	at.row("the webhook", rowOptions{}, func(r *fault) {
		config := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
		must(r.t, f.Hub.Client.List(r.t.Context(), config))
		name := config.Items[0].Name
		r.inject(func() {}, func() {})
		wars := []*war{at.onHub("validatingwebhookconfigurations", name), at.onHub("secrets", certs.SecretName)}
		another := serveHook(r.t, "nobody", nil).config.CABundle
		end := oppose(r.t, f.Hub, config, func(ctx context.Context, kind watch.EventType, o *admissionregistrationv1.ValidatingWebhookConfiguration) error {
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
		endSecret := oppose(r.t, f.Hub, &corev1.SecretList{}, func(ctx context.Context, kind watch.EventType, o *corev1.Secret) error {
			if kind == watch.Deleted || o.Labels[v1alpha1.ManagedByLabel] == "" {
				return nil
			}
			o.Labels = map[string]string{"theirs": ""}
			return f.Hub.Client.Update(ctx, o, client.FieldOwner(opponent))
		}, client.InNamespace(fleet.Namespace), client.MatchingFields{"metadata.name": certs.SecretName})
		expectEvent(r.t, f.Hub, "ValidatingWebhookConfiguration", name, v1alpha1.ReasonContested, opponent)
		expectEvent(r.t, f.Hub, "Secret", certs.SecretName, v1alpha1.ReasonContested, opponent)
		for _, w := range wars {
			w.rages(r.t)
		}
		end()
		endSecret()
		within(r.t, warEnds, "the webhook is asked again", asked(f.Hub))
		r.over()
	})
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
