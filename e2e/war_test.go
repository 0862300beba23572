package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
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
	if c := meta.FindStatusCondition(ar.Status.Conditions, v1alpha1.ConditionStalled); c != nil {
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
	parallel(t)
	f := startWar(t, "contested", "confirmed")
	f.manage(t)
	at := f.place(t, "contested")
	at.register(t)
	at.settle(t)
	must(t, f.Register(t.Context(), "confirmed", nil))
	f.measure(t)
	at.row("wars", rowOptions{}, func(r *fault) {
		r.inject(func() {}, func() {})
		atOnce(r.t, map[string]func(t *testing.T, at *place, ns string){
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
		}, func(t *testing.T, name string, fight func(t *testing.T, at *place, ns string)) {
			t.Helper()
			fight(t, at, name)
		})
		within(r.t, warEnds, "the spoke is ready again", func(ctx context.Context) error {
			return says(ctx, f.Fleet, membership(at.name), v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "")
		})
		r.over()
	})
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
	w.contested(t, key, opponent, "creates PrometheusRule "+ns+"/", "again after each deletion")
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

// TestWarOfTwins lets two hubs with one id, and other rules, look after one spoke.
func TestWarOfTwins(t *testing.T) {
	long(t)
	parallel(t)
	other := start(t, fleet.Options{}) // first, or what it lacks would be suspect there
	f := startWar(t, "contested")
	f.manage(t)
	at := f.place(t, "contested")
	at.register(t)
	namespace(t, "same", at.m)
	same := create(t, f.Hub, alertRule("same", "same", at.on()))
	at.settle(t)
	// Start it before the measurement: a start keeps the machine busy for seconds.
	second := startManagerWith(t, other, fleet.ManagerOptions{Dir: t.TempDir(), HubID: hubID})
	f.measure(t)

	twin := alertRule("same", "same", onEvery())
	twin.Spec.Expr = "vector(1)"
	create(t, other.Hub, twin)
	only := client.ObjectKey{Namespace: fleet.Namespace, Name: at.name + "-rule-1"}
	at.row("twins", rowOptions{unregistered: true}, func(r *fault) {
		wars := map[client.ObjectKey]*war{same: at.inSpoke("same"), only: at.inSpoke(at.name)}
		wars[only].object = func(o controlplane.AuditObject) bool {
			return o.Resource == "prometheusrules" && o.Name == rule.ObjectName(hubID, rule.AlertRuleKey(only.Namespace, only.Name))
		}
		r.inject(func() {
			must(t, other.RegisterKubeconfig(t.Context(), at.name, at.kubeconfig, nil))
		}, func() { _ = second.Stop() })
		expectSpoke(t, other, at.name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonContested, "")
		wars[same].contested(r.t, same, `another client named "rulefleet-manager"`, "a second Rulefleet manager has the id of this hub")
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
