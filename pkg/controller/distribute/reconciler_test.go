package distribute

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	monitoringfake "github.com/prometheus-operator/prometheus-operator/pkg/client/versioned/fake"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/managedfields"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/metrics"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

const (
	hubID = "hub-1"
	admin = "rulefleet"
)

func request(spoke, name string) queue.Request {
	return hub.Request(spoke, rule.AlertRuleKey("shop", name))
}

// world is a hub and one spoke, called s. The spoke's API server and its cache are separate: sync updates the
// cache and reports the events to the Reconciler.
type world struct {
	*testing.T
	*Reconciler

	held       *brake.Brake
	clock      *testingclock.FakePassiveClock // the brake's
	liveClock  *testingclock.FakeClock        // that of what is read past the cache
	hub        client.Client
	server     client.WithWatch
	rules      *monitoringfake.Clientset
	spoke      *spoke.Spoke
	evaluators spoke.Evaluators
	queue      workqueue.TypedRateLimitingInterface[queue.Request]

	reports map[string]*v1alpha1.ClusterStatus // nil: forgotten
	cached  map[types.NamespacedName]*monitoringv1.PrometheusRule
	uids    int

	// kind is that of the rule, an AlertRule by default.
	kind string

	predecessors []string
	successors   map[string]string
	away         bool
	changed      []string

	fields []metav1.ManagedFieldsEntry        // of what is read past the cache
	mutate func(*monitoringv1.PrometheusRule) // the spoke's mutating webhook
	refuse map[string]error                   // by verb
	crd    func(o client.Object) error        // reads the definition of AlertRules, past the cache
	live   func() error                       // reads an AlertRule, past the cache
}

// Spoke and Spokes implement Spokes; Report and Forget implement Reporter.
func (w *world) Spoke(name string) *spoke.Spoke {
	if w.spoke != nil && w.spoke.Name == name {
		return w.spoke
	}
	return nil
}

func (w *world) Spokes() []*spoke.Spoke { return []*spoke.Spoke{w.spoke} }

// Predecessors, Successor, Away and ChangedSoon implement Spokes.
func (w *world) Predecessors(string) []string       { return w.predecessors }
func (w *world) Successor(name string) string       { return w.successors[name] }
func (w *world) Away(string) bool                   { return w.away }
func (w *world) Evaluators(string) spoke.Evaluators { return w.evaluators }
func (w *world) AwaySince(string, time.Time) bool   { return w.away }
func (w *world) ChangedSoon(name string)            { w.changed = append(w.changed, name) }

func (w *world) Report(key rule.Key, _ types.UID, row v1alpha1.ClusterStatus) {
	if row.Reason == v1alpha1.ReasonNoEvaluator {
		row.Reason, row.Message = "", "" // as far as it can get in a spoke without any
	}
	w.reports[key.Name+" in "+string(row.Name)] = &row
}

func (w *world) Leftover(key rule.Key, row v1alpha1.ClusterStatus) {
	row.Reason = "left: " + row.Reason
	w.reports[key.Name+" in "+string(row.Name)] = &row
}

func (w *world) Forget(key rule.Key, spoke string) {
	w.reports[key.Name+" in "+spoke] = nil
}

// unasked are evaluators that the manager is not allowed to query.
type unasked struct{}

func (unasked) Of(string, *rule.Evaluator, *monitoringv1.PrometheusRule) evaluation.State {
	return evaluation.State{Outcome: evaluation.NotGranted}
}

func (unasked) News() *queue.Feed[[]queue.Request] { return nil }

// newWorld returns a world whose spoke has the namespaces shop and monitoring.
func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOn(t, newClient(spoke.Scheme).Build())
}

// newWorldOn is newWorld with a client of the spoke's API server.
func newWorldOn(t *testing.T, server client.WithWatch) *world {
	t.Helper()
	w := &world{
		T: t, reports: map[string]*v1alpha1.ClusterStatus{}, refuse: map[string]error{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[queue.Request]()),
		crd:   func(client.Object) error { return nil },
		live:  func() error { return nil },
		clock: testingclock.NewFakePassiveClock(time.Unix(1e9, 0)), liveClock: testingclock.NewFakeClock(time.Unix(1e9, 0)),
	}
	t.Cleanup(w.queue.ShutDown)
	hubScheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(hubScheme); err != nil {
		t.Fatal(err)
	}
	builder := newClient(hubScheme)
	if err := hub.SetupIndexes(t.Context(), indexer{builder}, hubID, "rulefleet-generated"); err != nil {
		t.Fatal(err)
	}
	w.hub = builder.Build()
	w.server = server
	w.held = brake.New(w.clock, 10*time.Minute)
	w.rules = &monitoringfake.Clientset{}
	w.rules.AddReactor("*", "prometheusrules", w.serve)
	w.spoke = &spoke.Spoke{Name: "s", Rules: w.rules, RulesServed: true, Live: live.New(w.server, w.liveClock)}
	w.restart()

	w.put(w.hub, &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "s", Labels: map[string]string{"env": "prod"}}})
	for _, ns := range []string{"shop", "monitoring"} {
		err := w.server.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
		if client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
	}
	w.sync()
	return w
}

// newClient saves the fake client the creation of all Kubernetes types.
func newClient(scheme *runtime.Scheme) *fake.ClientBuilder {
	return fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter())
}

// indexer gives a fake client the indexes of a cache.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, fn client.IndexerFunc) error {
	i.WithIndex(o, field, fn)
	return nil
}

// restart creates a Reconciler without state.
func (w *world) restart() {
	past := interceptor.NewClient(w.hub.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if o.GetObjectKind().GroupVersionKind().Kind == "CustomResourceDefinition" {
				return w.crd(o)
			}
			if err := w.live(); err != nil {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	w.Reconciler = NewReconciler(Options{
		Hub: w.hub, Guard: hub.Guard{Live: live.New(past, w.liveClock), Kinds: hub.NewKinds(past, nil, hub.RecordKeys{}, w.liveClock, nil)}, Witness: hub.NewWitness(), Brake: w.held, Spokes: w, Reporter: w,
		Render:    delivery.Options{HubID: hubID, AdminNamespace: admin, RuleNamespace: "monitoring", ClusterLabel: "cluster"},
		Validator: validation.New(validation.Options{AdminNamespace: admin, GeneratedNamespace: "rulefleet-generated"}),
		Generated: "rulefleet-generated",
		Contests:  contest.New(w.clock, 0), Evaluations: unasked{}, Propagation: metrics.NewPropagation(w.clock),
	})
}

// serve answers a write like the spoke's API server.
func (w *world) serve(action clienttesting.Action) (bool, runtime.Object, error) {
	if err := w.refuse[action.GetVerb()]; err != nil {
		return true, nil, err
	}
	ctx := w.Context()
	switch a := action.(type) {
	case clienttesting.CreateActionImpl: // an update's is of the same kind as UpdateActionImpl
		o := a.GetObject().DeepCopyObject().(*monitoringv1.PrometheusRule)
		w.uids++
		o.UID, o.CreationTimestamp = types.UID(fmt.Sprintf("uid-%d", w.uids)), metav1.NewTime(w.clock.Now())
		if w.mutate != nil {
			w.mutate(o)
		}
		return true, o, w.server.Create(ctx, o, client.FieldOwner(contest.Manager))
	case clienttesting.UpdateActionImpl:
		o := a.GetObject().DeepCopyObject().(*monitoringv1.PrometheusRule)
		if w.mutate != nil {
			w.mutate(o)
		}
		return true, o, w.server.Update(ctx, o, client.FieldOwner(contest.Manager))
	case clienttesting.GetActionImpl:
		o := &monitoringv1.PrometheusRule{}
		err := w.server.Get(ctx, types.NamespacedName{Namespace: a.Namespace, Name: a.Name}, o)
		if w.fields != nil {
			o.ManagedFields = w.fields
		}
		return true, o, err
	case clienttesting.DeleteActionImpl:
		o := &monitoringv1.PrometheusRule{}
		if err := w.server.Get(ctx, types.NamespacedName{Namespace: a.Namespace, Name: a.Name}, o); err != nil {
			return true, nil, err
		}
		p := a.DeleteOptions.Preconditions
		if p == nil || p.UID == nil || p.ResourceVersion == nil {
			w.Errorf("%s is deleted without preconditions", a.Name)
		} else if *p.UID != o.UID || *p.ResourceVersion != o.ResourceVersion {
			return true, nil, apierrors.NewConflict(resource, a.Name, errors.New("precondition"))
		}
		return true, nil, w.server.Delete(ctx, o)
	}
	w.Errorf("an unexpected %T", action)
	return false, nil, nil
}

// sync updates the spoke's cache.
func (w *world) sync() {
	w.Helper()
	var list monitoringv1.PrometheusRuleList
	var namespaces corev1.NamespaceList
	for _, l := range []client.ObjectList{&list, &namespaces} {
		if err := w.server.List(w.Context(), l); err != nil {
			w.Fatal(err)
		}
	}
	cache := newClient(spoke.Scheme).WithIndex(&monitoringv1.PrometheusRule{}, ruleIndex, ruleKeys(hubID))
	for i := range namespaces.Items {
		cache.WithObjects(&namespaces.Items[i])
	}
	before := w.cached
	w.cached = map[types.NamespacedName]*monitoringv1.PrometheusRule{}
	for i := range list.Items {
		o := &list.Items[i]
		cache.WithObjects(o.DeepCopy())
		w.cached[hub.Key(o)] = o
	}
	w.spoke.Reader = cache.Build()

	handler := w.onPrometheusRule("s", nil)
	for key, o := range w.cached {
		switch old := before[key]; {
		case old == nil:
			handler.Create(w.Context(), event.TypedCreateEvent[client.Object]{Object: o}, w.queue)
		case old.ResourceVersion != o.ResourceVersion:
			handler.Update(w.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: old, ObjectNew: o}, w.queue)
		}
	}
	for key, old := range before {
		if w.cached[key] == nil {
			old.ResourceVersion += "0" // a deletion has a version of its own, which is later
			handler.Delete(w.Context(), event.TypedDeleteEvent[client.Object]{Object: old}, w.queue)
		}
	}
}

// enqueued returns the keys that the handlers have enqueued since the last call.
func (w *world) enqueued() []string {
	var out []string
	for w.queue.Len() > 0 {
		req, _ := w.queue.Get()
		w.queue.Done(req)
		out = append(out, req.Name+" in "+req.ClusterName.String())
	}
	slices.Sort(out)
	return out
}

func (w *world) put(c client.Client, o client.Object) {
	w.Helper()
	o = w.ofKind(o)
	if _, ok := o.(*monitoringv1.PrometheusRule); ok { // as an API server does
		o.SetCreationTimestamp(metav1.NewTime(w.clock.Now()))
	}
	if err := c.Create(w.Context(), o); err != nil {
		w.Fatal(err)
	}
}

// alertRule is a rule for the spoke.
func alertRule() *v1alpha1.AlertRule {
	return &v1alpha1.AlertRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "down", UID: "down", Generation: 1},
		Spec: v1alpha1.AlertRuleSpec{
			AlertSpec: v1alpha1.AlertSpec{Alert: "Down", Expr: "up == 0", For: "1m"},
			Placement: v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"s"}},
		},
	}
}

// edit changes the rule on the hub.
func (w *world) edit(change func(*v1alpha1.AlertRule)) {
	w.Helper()
	ar := asAlertRule(w.stored())
	change(ar)
	ar.Generation++
	if err := w.hub.Update(w.Context(), w.ofKind(ar)); err != nil {
		w.Fatal(err)
	}
}

// stored returns the rule as it is on the hub.
func (w *world) stored() client.Object {
	w.Helper()
	o := w.ofKind(theRule())
	if err := w.hub.Get(w.Context(), hub.Key(o), o); err != nil {
		w.Fatal(err)
	}
	return o
}

// object returns the rule's PrometheusRule in the spoke's namespace shop, or nil.
func (w *world) object() *monitoringv1.PrometheusRule {
	w.Helper()
	o := &monitoringv1.PrometheusRule{}
	err := w.server.Get(w.Context(), types.NamespacedName{Namespace: "shop", Name: w.objectName()}, o)
	if client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return o
}

var objectName = rule.ObjectName(hubID, rule.AlertRuleKey("shop", "down"))

// key returns the key of a rule of that name.
func (w *world) key(name string) rule.Key {
	return rule.Key{Kind: cmp.Or(w.kind, v1alpha1.AlertRuleKind), Namespace: "shop", Name: name}
}

func (w *world) objectName() string { return rule.ObjectName(hubID, w.key("down")) }

// ofKind returns an AlertRule as a RulePack, if the world's rule is one. Other objects stay.
func (w *world) ofKind(o client.Object) client.Object {
	if ar, ok := o.(*v1alpha1.AlertRule); ok {
		return inKind(w.kind, ar)
	}
	return o
}

// inKind returns an AlertRule, as a RulePack if that is the kind.
func inKind(kind string, ar *v1alpha1.AlertRule) client.Object {
	if kind != v1alpha1.RulePackKind {
		return ar
	}
	p := &v1alpha1.RulePack{ObjectMeta: ar.ObjectMeta, Status: ar.Status, Spec: v1alpha1.RulePackSpec{
		Placement: ar.Spec.Placement, RuleNamespace: ar.Spec.RuleNamespace, State: ar.Spec.State, Suspend: ar.Spec.Suspend,
	}}
	r := monitoringv1.Rule{Alert: ar.Spec.Alert, Expr: intstr.FromString(ar.Spec.Expr)}
	if ar.Spec.For != "" {
		r.For = new(monitoringv1.Duration(ar.Spec.For))
	}
	record := monitoringv1.Rule{Record: "up:sum", Expr: intstr.FromString("sum(up)")}
	p.Spec.Groups = []monitoringv1.RuleGroup{{Name: "g", Rules: []monitoringv1.Rule{r, record}}}
	return p
}

// asAlertRule is the reverse of inKind.
func asAlertRule(o client.Object) *v1alpha1.AlertRule {
	p, ok := o.(*v1alpha1.RulePack)
	if !ok {
		return o.(*v1alpha1.AlertRule)
	}
	ar := &v1alpha1.AlertRule{ObjectMeta: p.ObjectMeta, Status: p.Status, Spec: v1alpha1.AlertRuleSpec{
		Placement: p.Spec.Placement, RuleNamespace: p.Spec.RuleNamespace, State: p.Spec.State, Suspend: p.Spec.Suspend,
	}}
	ar.Spec.AlertSpec = *delivery.AlertOf(&p.Spec.Groups[0].Rules[0])
	return ar
}

// ofAlertRules are the tests of overrides and placeholders, which RulePacks do not have.
var ofAlertRules = []string{
	"an override's state", "it is disabled here, and names a spoke that was lost", "disabled in this spoke by an override",
	"enabled in this spoke alone", "not valid for this spoke: what is there stays",
}

// forKinds runs a test for each kind of sources that it is about.
func forKinds(t *testing.T, name string, test func(w *world)) {
	t.Helper()
	kinds := []string{v1alpha1.AlertRuleKind, v1alpha1.RulePackKind}
	if slices.Contains(ofAlertRules, name) {
		kinds = kinds[:1]
	}
	t.Run(name, func(t *testing.T) {
		for _, kind := range kinds {
			t.Run(kind, func(t *testing.T) {
				w := newWorld(t)
				w.kind = kind
				test(w)
			})
		}
	})
}

// touch changes that object in the spoke.
func (w *world) touch(change func(*monitoringv1.PrometheusRule)) {
	w.Helper()
	o := w.object()
	change(o)
	if err := w.server.Update(w.Context(), o, client.FieldOwner(them)); err != nil {
		w.Fatal(err)
	}
}

// want reconciles the rule, and checks the writes to the spoke.
func (w *world) want(writes ...string) reconcile.Result {
	w.Helper()
	result, err := w.reconcile(writes...)
	if err != nil {
		w.Fatal(err)
	}
	return result
}

func (w *world) wantError(writes ...string) {
	w.Helper()
	if _, err := w.reconcile(writes...); err == nil {
		w.Error("no error")
	}
}

func (w *world) reconcile(writes ...string) (reconcile.Result, error) {
	w.Helper()
	w.rules.ClearActions()
	clear(w.reports)
	w.liveClock.Step(time.Second) // what is remembered of a read is none of this reconcile's
	result, err := w.Reconcile(w.Context(), hub.Request("s", w.key("down")))
	var got []string
	for _, a := range w.rules.Actions() {
		got = append(got, a.GetVerb()+" "+a.GetNamespace())
	}
	if !slices.Equal(got, writes) {
		w.Fatalf("sent %q, want %q", got, writes)
	}
	return result, err
}

// wantRow checks the report: phase/reason, "forgotten", or "" for none.
func (w *world) wantRow(want string) *v1alpha1.ClusterStatus {
	w.Helper()
	row, told := w.reports["down in s"]
	got := ""
	switch {
	case told && row == nil:
		got = "forgotten"
	case told:
		got = strings.TrimSuffix(string(row.Phase)+"/"+row.Reason, "/")
	}
	if got != want || len(w.reports) > 1 {
		w.Fatalf("reported %q, want %q (%v)", got, want, slices.Collect(maps.Keys(w.reports)))
	}
	if row != nil && (row.Rule != "shop/"+w.objectName() && row.Rule != "monitoring/"+w.objectName() && row.Reason != v1alpha1.ReasonInvalidSpec) {
		w.Errorf("the row's rule is %q", row.Rule)
	}
	return row
}

// applied returns a world where the spoke and its cache have the rule.
func applied(t *testing.T) *world {
	t.Helper()
	return newWorld(t).apply()
}

// apply writes the rule to the spoke, and updates the cache.
func (w *world) apply() *world {
	w.Helper()
	w.put(w.hub, alertRule())
	if result := w.want("create shop"); result.RequeueAfter <= 0 {
		w.Error("it does not check whether the event of the creation came")
	}
	w.wantRow("Applied")
	w.sync()
	w.want()
	w.wantRow("Applied")
	w.enqueued()
	return w
}

// relabel is the change of a mutating webhook.
func relabel(o *monitoringv1.PrometheusRule) {
	o.Spec.Groups[0].Rules[0].Labels["tenant"] = "x"
}

func TestReconcile(t *testing.T) {
	for name, fn := range map[string]func(w *world){
		"nothing differs": func(w *world) {
			for range 3 {
				w.want()
				w.wantRow("Applied")
			}
			w.restart()
			w.want()
			w.wantRow("Applied")
		},
		"the spec changed": func(w *world) {
			w.touch(func(o *monitoringv1.PrometheusRule) {
				o.Labels["release"], o.Annotations["note"], o.Finalizers = "kps", "x", []string{"example.com/f"}
			})
			w.sync()
			w.want() // foreign metadata is no difference
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up < 1" })
			w.want("update shop")
			if row := w.wantRow("Applied"); row.ObservedGeneration != 2 {
				w.Errorf("the row is of generation %d", row.ObservedGeneration)
			}
			o := w.object()
			if o.Spec.Groups[0].Rules[0].Expr.String() != "up < 1" || o.Labels["release"] != "kps" || o.Annotations["note"] != "x" || len(o.Finalizers) != 1 {
				w.Errorf("the spoke has %+v", o)
			}
		},
		"suspended": func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Suspend = new(true) })
			w.want()
			w.wantRow("Applied")
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up < 1" })
			w.want()
			w.wantRow("Applied/Suspended")
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled })
			w.want() // nothing is removed either
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State, ar.Spec.Suspend = v1alpha1.Enabled, new(false) })
			w.want("update shop")
			w.wantRow("Applied")
		},
		"suspended, and deleted": func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Suspend = new(true) })
			w.drop(w.hub, alertRule())
			w.want("delete shop")
		},
		"disabled in this spoke by an override": func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) {
				ar.Spec.Overrides = []v1alpha1.Override{{ClusterSelection: ar.Spec.Placement, State: v1alpha1.Disabled}}
			})
			w.want("delete shop")
			w.wantRow("forgotten")
		},
		"enabled in this spoke alone": func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) {
				ar.Spec.State = v1alpha1.Disabled
				ar.Spec.Overrides = []v1alpha1.Override{{ClusterSelection: ar.Spec.Placement, State: v1alpha1.Enabled, For: "2m"}}
			})
			w.want("update shop")
			w.wantRow("Applied")
		},
		"somebody changed the object": func(w *world) {
			w.touch(func(o *monitoringv1.PrometheusRule) { o.Spec.Groups[0].Rules[0].Expr.StrVal = "vector(0)" })
			w.sync()
			if got := w.enqueued(); !slices.Equal(got, []string{"down in s"}) {
				w.Errorf("enqueued %v", got)
			}
			w.want("update shop")
			w.wantRow("Applied")
		},
		"somebody wrote another rule's name on the object": func(w *world) {
			other := alertRule()
			other.Name, other.UID, other.Spec.State = "other", "other", v1alpha1.Disabled
			w.put(w.hub, other)
			_, note := rule.NamesOf(w.key("other"))
			w.touch(func(o *monitoringv1.PrometheusRule) { maps.Copy(o.Annotations, note) })
			w.sync()
			if got := w.enqueued(); !slices.Equal(got, []string{"down in s", "other in s"}) {
				w.Errorf("enqueued %v", got)
			}
			w.rules.ClearActions()
			if _, err := w.Reconcile(w.Context(), hub.Request("s", w.key("other"))); err != nil || len(w.rules.Actions()) > 0 {
				w.Errorf("for the other rule: %v, %v", w.rules.Actions(), err)
			}
			w.want("update shop")
			w.wantRow("Applied")
			w.sync()
			w.want()
		},
		"somebody deleted the object": func(w *world) {
			w.drop(w.server, w.object())
			w.sync()
			if got := w.enqueued(); !slices.Equal(got, []string{"down in s"}) {
				w.Errorf("enqueued %v", got)
			}
			w.want("create shop")
		},
		"the cache was behind (update)": func(w *world) {
			w.touch(func(o *monitoringv1.PrometheusRule) { o.Labels["x"] = "y" })
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up < 1" })
			if got := w.want("update shop"); got.RequeueAfter != staleRetry {
				w.Errorf("got %+v", got)
			}
			w.wantRow("")
			w.sync()
			w.want("update shop")
			w.wantRow("Applied")
		},
		"the cache was behind (gone)": func(w *world) {
			w.drop(w.server, w.object())
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up < 1" })
			if got := w.want("update shop"); got.RequeueAfter != staleRetry {
				w.Errorf("got %+v", got)
			}
			w.wantRow("")
			w.sync()
			w.want("create shop")
		},
		"the cache does not show our own write yet": func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up < 1" })
			w.want("update shop")
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up < 2" })
			if got := w.want(); got.RequeueAfter <= 0 {
				w.Errorf("got %+v", got)
			}
			w.wantRow("")
			w.sync()
			if got := w.enqueued(); !slices.Equal(got, []string{"down in s"}) {
				w.Errorf("enqueued %v", got)
			}
			w.want("update shop")
		},
		"the cache does not show our own deletion yet": func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled })
			w.want("delete shop")
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Enabled })
			if got := w.want(); got.RequeueAfter <= 0 {
				w.Errorf("got %+v", got)
			}
			w.sync()
			w.want("create shop")
		},

		"the AlertRule was deleted": func(w *world) {
			w.drop(w.hub, alertRule())
			w.want("delete shop")
			w.wantRow("forgotten")
			w.sync()
			w.want()
			w.wantRow("forgotten")
		},
		"the AlertRules' definition is going": func(w *world) {
			w.drop(w.hub, alertRule())
			w.crd = func(o client.Object) error {
				o.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
				return nil
			}
			w.want()
			w.wantRow("")
		},
		"the AlertRules' definition is gone": func(w *world) {
			w.drop(w.hub, alertRule())
			w.crd = func(client.Object) error { return apierrors.NewNotFound(resource, "x") }
			w.want()
		},
		"the definition can't be read": func(w *world) {
			w.drop(w.hub, alertRule())
			w.crd = func(client.Object) error { return errors.New("no answer") }
			w.wantError()
		},
		"the hub's API server can't be asked": func(w *world) {
			w.drop(w.hub, alertRule())
			w.live = func() error { return errors.New("no answer") }
			w.wantError()
			w.wantRow("")
		},
		"the hub's cache lost the AlertRule": func(w *world) {
			cache := w.Hub
			w.Hub = interceptor.NewClient(w.hub.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if _, ok := o.(rule.Source); ok {
						return apierrors.NewNotFound(resource, key.Name)
					}
					return c.Get(ctx, key, o, opts...)
				},
			})
			w.want()
			w.wantRow("")
			w.Hub = cache
			w.want()
			w.wantRow("Applied")
		},
		"the object changed before the deletion": func(w *world) {
			w.drop(w.hub, alertRule())
			w.touch(func(o *monitoringv1.PrometheusRule) { o.Labels["x"] = "y" })
			if got := w.want("delete shop"); got.RequeueAfter != staleRetry {
				w.Errorf("got %+v", got)
			}
			if w.object() == nil {
				w.Error("it was deleted all the same")
			}
			w.sync()
			w.want("delete shop")
		},
		"the object was made anew before the deletion": func(w *world) {
			w.drop(w.hub, alertRule())
			o := w.object()
			w.drop(w.server, o)
			o.UID, o.ResourceVersion = "another", ""
			w.put(w.server, o)
			if got := w.want("delete shop"); got.RequeueAfter != staleRetry || w.object() == nil {
				w.Errorf("got %+v", got)
			}
		},
		"the object was gone before the deletion": func(w *world) {
			w.drop(w.hub, alertRule())
			w.drop(w.server, w.object())
			w.want("delete shop")
			w.wantRow("forgotten")
		},
		"the deletion is forbidden": func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled })
			w.refuse["delete"] = apierrors.NewForbidden(resource, "x", errors.New("RBAC"))
			if got := w.want("delete shop"); got.RequeueAfter != worldRetry {
				w.Errorf("got %+v", got)
			}
			if row := w.wantRow("Pending/left: Forbidden"); !strings.Contains(row.Message, "to be removed") || !strings.Contains(row.Message, "RBAC") {
				w.Errorf("the message is %q", row.Message)
			}
			clear(w.refuse)
			w.want("delete shop")
			w.sync()
			w.want()
			w.wantRow("forgotten")
		},
		"a webhook refuses the deletion, and the AlertRule is gone": func(w *world) {
			w.drop(w.hub, alertRule())
			for reason, err := range map[string]error{
				"Rejected": answer(409, metav1.StatusReasonConflict, `admission webhook "x" denied the request: no`, nil),
				"Error":    apierrors.NewInternalError(errors.New("x")),
			} {
				w.refuse["delete"] = err
				if _, err := w.reconcile("delete shop"); (err != nil) != (reason == "Error") {
					w.Errorf("%s: %v", reason, err)
				}
				w.wantRow("Pending/left: " + reason)
			}
		},
		"a finalizer keeps it": func(w *world) {
			w.touch(func(o *monitoringv1.PrometheusRule) { o.Finalizers = []string{"example.com/keep"} })
			w.sync()
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled })
			w.want("delete shop")
			w.sync()
			w.want()
			if row := w.wantRow("Pending/left: Error"); !strings.Contains(row.Message, "finalizers keep it (example.com/keep)") {
				w.Errorf("the message is %q", row.Message)
			}
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Enabled })
			w.want()
			w.wantRow("Pending/Error")
			w.touch(func(o *monitoringv1.PrometheusRule) { o.Finalizers = nil })
			w.sync()
			w.want("create shop")
			w.wantRow("Applied")
		},
		"another server answers the deletion": func(w *world) {
			w.drop(w.hub, alertRule())
			w.refuse["delete"] = answer(404, metav1.StatusReasonNotFound, "the server could not find the requested resource", nil)
			if got := w.want("delete shop"); got.RequeueAfter != worldRetry {
				w.Errorf("got %+v", got)
			}
			w.wantRow("Pending/left: CRDMissing")
		},
		"it moves to another namespace, and the former one keeps it": func(w *world) {
			w.moveToMonitoring()
			w.refuse["delete"] = apierrors.NewBadRequest("no")
			w.want("create monitoring", "delete shop")
			w.wantRow("Applied/Rejected")
			w.sync()
			w.reports = map[string]*v1alpha1.ClusterStatus{}
			w.want("delete shop") // and never reports that it is complete
			w.wantRow("Applied/Rejected")
			clear(w.refuse)
			w.want("delete shop")
			w.sync()
			w.want()
			w.wantRow("Applied")
		},
		"it moves to another namespace, is changed there, and the former one keeps it": func(w *world) {
			w.moveToMonitoring()
			w.mutate = func(o *monitoringv1.PrometheusRule) { o.Spec.Groups[0].Name = "another" }
			w.refuse["delete"] = apierrors.NewBadRequest("no")
			w.want("create monitoring", "delete shop")
			w.wantRow("Pending/Mutated")
			w.sync()
			w.want("delete shop")
			if row := w.wantRow("Pending/Mutated"); row.AnswerDigest == "" {
				w.Error("the answer is lost")
			}
		},
		"the deletion is not answered": func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled })
			w.refuse["delete"] = context.DeadlineExceeded
			w.wantError("delete shop")
		},

		"disabled": func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled })
			w.want("delete shop")
			w.wantRow("forgotten")
		},
		"disabled, and not valid": func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State, ar.Spec.Expr = v1alpha1.Disabled, "up ==" })
			w.want("delete shop")
		},
		"not placed on the spoke any more": func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Placement.Names = []v1alpha1.ClusterName{"other"} })
			w.want("delete shop")
			w.wantRow("forgotten")
		},
		"the spoke's label changed": func(w *world) {
			selector := &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Placement = v1alpha1.ClusterSelection{Selector: selector} })
			w.want()
			w.wantRow("Applied")
			sc := &v1alpha1.SpokeCluster{}
			if err := w.hub.Get(w.Context(), types.NamespacedName{Name: "s"}, sc); err != nil {
				w.Fatal(err)
			}
			sc.Labels["env"] = "test"
			if err := w.hub.Update(w.Context(), sc); err != nil {
				w.Fatal(err)
			}
			w.want("delete shop")
		},
		"not valid any more: what is there stays": func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up ==" })
			w.want()
			w.wantRow("")
		},
		"not valid for this spoke: what is there stays": func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) {
				ar.Spec.Labels = map[string]v1alpha1.LabelText{"tier": "$(cluster.labels.tier)"}
			})
			w.want()
			if row := w.wantRow("Pending/InvalidSpec"); !strings.Contains(row.Message, "tier") {
				w.Errorf("the message is %q", row.Message)
			}
		},
		"the SpokeCluster is gone: what is there stays": func(w *world) {
			w.drop(w.hub, &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "s"}})
			w.want()
			w.wantRow("")
			w.drop(w.hub, alertRule())
			w.want()
			w.wantRow("")
		},
		"the spoke is not engaged": func(w *world) {
			w.drop(w.hub, alertRule())
			w.spoke = nil
			w.want()
			w.wantRow("")
		},
		"PrometheusRules are not served any more": func(w *world) {
			w.spoke.RulesServed, w.spoke.Reader = false, nil
			w.spoke.WhyNot = spoke.Finding{Reason: v1alpha1.ReasonCRDMissing, Message: "no such resource"}
			w.want()
			if row := w.wantRow("Pending/CRDMissing"); row.Message != "no such resource" {
				w.Errorf("the message is %q", row.Message)
			}
			w.drop(w.hub, alertRule())
			w.want()
			w.wantRow("forgotten")
		},
		"the spoke's cache can't be read": func(w *world) {
			w.spoke.Reader = interceptor.NewClient(w.server, interceptor.Funcs{
				List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
					return errors.New("ended")
				},
			})
			w.drop(w.hub, alertRule())
			w.wantError()
		},
		"it moves to another namespace": func(w *world) {
			w.moveToMonitoring()
			w.want("create monitoring", "delete shop")
			w.wantRow("Applied")
			w.sync()
			w.want()
		},
		"it moves to another namespace, which refuses it": func(w *world) {
			w.moveToMonitoring()
			for reason, err := range map[string]error{
				"Rejected":         apierrors.NewBadRequest("no"),
				"Forbidden":        apierrors.NewForbidden(resource, "x", errors.New("RBAC")),
				"Error":            apierrors.NewInternalError(errors.New("x")),
				"NamespaceMissing": answer(404, metav1.StatusReasonNotFound, `namespaces "x" not found`, &metav1.StatusDetails{Kind: "namespaces", Name: "x"}),
			} {
				w.refuse["create"] = err
				_, err := w.reconcile("create monitoring")
				w.wantRow("Pending/" + reason)
				if (err != nil) != (reason == "Error") {
					w.Errorf("%s: %v", reason, err)
				}
			}
			w.refuse["create"] = context.DeadlineExceeded
			w.wantError("create monitoring")
			w.wantRow("")
			clear(w.refuse)
			w.want("create monitoring", "delete shop")
		},
		"it moves to another namespace, where the name is taken": func(w *world) {
			w.put(w.server, &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: w.objectName()}})
			w.sync()
			w.moveToMonitoring()
			w.want()
			w.wantRow("Pending/Conflict")
		},
		"it moves to a namespace that does not exist": func(w *world) {
			w.drop(w.server, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "monitoring"}})
			w.sync()
			w.moveToMonitoring()
			w.want()
			w.wantRow("Pending/NamespaceMissing")
		},
		"others' objects that claim to be the rule's": func(w *world) {
			o := w.object()
			o.Name, o.UID, o.ResourceVersion, o.Labels[v1alpha1.HubLabel] = "copy", "copy", "", "hub-2"
			w.put(w.server, o)
			w.sync()
			w.drop(w.hub, alertRule())
			w.want("delete shop")
			w.sync()
			if len(w.cached) != 1 || w.cached[types.NamespacedName{Namespace: "shop", Name: "copy"}] == nil {
				w.Errorf("the spoke has %v", w.cached)
			}
		},
		"a copy of the rule's object": func(w *world) {
			o := w.object()
			o.Name, o.UID, o.ResourceVersion = "copy", "copy", ""
			w.put(w.server, o)
			w.sync()
			w.want("delete shop")
			w.wantRow("Applied")
			if w.object() == nil {
				w.Error("the wrong one was deleted")
			}
		},
		"the object is being deleted": func(w *world) {
			w.touch(func(o *monitoringv1.PrometheusRule) { o.Finalizers = []string{"example.com/f"} })
			w.drop(w.server, w.object())
			w.sync()
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up < 1" })
			w.want()
			w.wantRow("Pending/Error")
			w.enqueued()
			w.touch(func(o *monitoringv1.PrometheusRule) { o.Finalizers = nil })
			w.sync()
			if got := w.enqueued(); !slices.Equal(got, []string{"down in s"}) {
				w.Errorf("enqueued %v", got)
			}
			w.want("create shop")
		},
	} {
		forKinds(t, name, func(w *world) { fn(w.apply()) })
	}
}

func (w *world) drop(c client.Client, o client.Object) {
	w.Helper()
	if err := c.Delete(w.Context(), w.ofKind(o)); err != nil {
		w.Fatal(err)
	}
}

// moveToMonitoring moves the rule to another namespace of the spoke, which this AlertRule's tenant may use as
// well.
func (w *world) moveToMonitoring() {
	w.Helper()
	w.ownShop()
	w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.RuleNamespace = "monitoring" })
}

// ownShop makes shop the operator's own namespace, so that its rules may be anywhere, and have no label namespace.
func (w *world) ownShop() {
	w.Validator, w.Render.AdminNamespace = validation.New(validation.Options{AdminNamespace: "shop"}), "shop"
}

// The first write to a spoke.
func TestReconcileNew(t *testing.T) {
	for name, fn := range map[string]func(w *world){
		"once": func(w *world) {
			w.want("create shop")
			o := w.object()
			if o == nil || !rule.Owned(o, hubID) || o.Spec.Groups[0].Rules[0].Labels["cluster"] != "s" {
				w.Errorf("the spoke has %+v", o)
			}
		},
		"the cache does not show it yet": func(w *world) {
			w.want("create shop")
			if got := w.want(); got.RequeueAfter <= 0 {
				w.Errorf("got %+v", got)
			}
			w.wantRow("")
			w.sync()
			w.want()
			w.wantRow("Applied")
		},
		"it can't be looked up": func(w *world) {
			w.spoke.Reader = interceptor.NewClient(w.spoke.Reader.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if _, ok := o.(*monitoringv1.PrometheusRule); ok {
						return errors.New("ended")
					}
					return c.Get(ctx, key, o, opts...)
				},
			})
			w.wantError()
			w.wantRow("")
		},
		"placed by label": func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) {
				ar.Spec.Placement = v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{}}
			})
			w.want("create shop")
		},
		"not placed": func(w *world) {
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Placement.Names = []v1alpha1.ClusterName{"other"} })
			w.want()
			w.wantRow("forgotten")
		},
		"without a SpokeCluster": func(w *world) {
			w.drop(w.hub, &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "s"}})
			w.want()
			w.wantRow("")
		},
		"a foreign object has the name": func(w *world) {
			foreign := &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: w.objectName(), Labels: map[string]string{v1alpha1.HubLabel: "hub-2", v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue},
			}}
			w.put(w.server, foreign)
			w.sync()
			for range 3 {
				w.want()
				w.wantRow("Pending/Conflict")
			}
			w.drop(w.hub, alertRule())
			w.want()
			w.wantRow("forgotten")
			w.put(w.hub, alertRule())
			w.want()
			w.drop(w.server, foreign)
			w.sync()
			if got := w.enqueued(); !slices.Equal(got, []string{"down in s"}) {
				w.Errorf("enqueued %v", got)
			}
			w.want("create shop")
			w.wantRow("Applied")
		},
		"a foreign object that the cache does not show yet": func(w *world) {
			w.put(w.server, &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: w.objectName()}})
			if got := w.want("create shop"); got.RequeueAfter != staleRetry {
				w.Errorf("got %+v", got)
			}
			w.wantRow("")
			w.sync()
			w.want()
			w.wantRow("Pending/Conflict")
		},
		"no namespace": func(w *world) {
			w.drop(w.server, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
			w.sync()
			w.want()
			w.wantRow("Pending/NamespaceMissing")
			w.onNamespace("s", nil).Create(w.Context(), event.TypedCreateEvent[client.Object]{Object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}}, w.queue)
			if got := w.enqueued(); len(got) > 0 {
				w.Errorf("enqueued %v", got)
			}
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
			w.put(w.server, ns)
			w.sync()
			w.onNamespace("s", nil).Create(w.Context(), event.TypedCreateEvent[client.Object]{Object: ns}, w.queue)
			if got := w.enqueued(); !slices.Equal(got, []string{"down in s"}) {
				w.Errorf("enqueued %v", got)
			}
			w.want("create shop")
			if len(w.notes.waiting) > 0 {
				w.Error("somebody waits still")
			}
		},
		"a namespace that is being deleted": func(w *world) {
			ns := &corev1.Namespace{}
			if err := w.server.Get(w.Context(), types.NamespacedName{Name: "shop"}, ns); err != nil {
				w.Fatal(err)
			}
			ns.Finalizers = []string{"example.com/f"}
			if err := w.server.Update(w.Context(), ns); err != nil {
				w.Fatal(err)
			}
			w.drop(w.server, ns)
			w.sync()
			w.want()
			if row := w.wantRow("Pending/NamespaceMissing"); !strings.Contains(row.Message, "being deleted") {
				w.Errorf("the message is %q", row.Message)
			}
		},
		"the namespaces can't be looked up": func(w *world) {
			w.spoke.Reader = interceptor.NewClient(w.spoke.Reader.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if key.Namespace == "" {
						return errors.New("ended")
					}
					return c.Get(ctx, key, o, opts...)
				},
			})
			w.wantError()
			w.wantRow("")
		},
		"the spoke does not answer": func(w *world) {
			w.refuse["create"] = context.DeadlineExceeded
			w.wantError("create shop")
			w.wantRow("")
			clear(w.refuse)
			w.want("create shop")
			w.wantRow("Applied")
		},
		"rejected by a webhook": func(w *world) {
			w.refuse["create"] = answer(400, "", "admission webhook \"x\" denied the request: \x1b[31mno", nil)
			if got := w.want("create shop"); got.RequeueAfter != worldRetry {
				w.Errorf("got %+v", got)
			}
			if row := w.wantRow("Pending/Rejected"); !strings.Contains(row.Message, "denied the request:  [31mno") {
				w.Errorf("the message is %q", row.Message)
			}
		},
		"not valid in the spoke's eyes": func(w *world) {
			w.refuse["create"] = apierrors.NewBadRequest(strings.Repeat("x", 5000))
			if got := w.want("create shop"); got.RequeueAfter != refusalRetry {
				w.Errorf("got %+v", got)
			}
			if row := w.wantRow("Pending/Rejected"); len(row.Message) > maxMessage {
				w.Errorf("the message has %d bytes", len(row.Message))
			}
		},
		"an error of the spoke's": func(w *world) {
			w.refuse["create"] = apierrors.NewInternalError(errors.New("etcd"))
			w.wantError("create shop")
			w.wantRow("Pending/Error")
		},
	} {
		forKinds(t, name, func(w *world) {
			w.put(w.hub, alertRule())
			fn(w)
		})
	}
}

// A spoke that changes what it receives never causes a write loop.
func TestReconcileMutated(t *testing.T) {
	for name, fn := range map[string]func(w *world, digest string){
		"nothing more is sent": func(w *world, digest string) {
			for range 3 {
				w.want()
				if row := w.wantRow("Pending/Mutated"); row.AnswerDigest != digest {
					w.Errorf("the answer is %q, and was %q", row.AnswerDigest, digest)
				}
			}
		},
		"nor after a restart": func(w *world, digest string) {
			w.edit(func(ar *v1alpha1.AlertRule) {
				ar.Status.Clusters = []v1alpha1.ClusterStatus{
					{Name: "other", AnswerDigest: "x"}, {Name: "s", Phase: v1alpha1.PhasePending, Reason: v1alpha1.ReasonMutated, AnswerDigest: digest},
				}
			})
			w.restart()
			for range 2 {
				w.want()
				if row := w.wantRow("Pending/Mutated"); row.AnswerDigest != digest {
					w.Errorf("the answer is %q, and was %q", row.AnswerDigest, digest)
				}
			}
		},
		"once after a restart that lost the status": func(w *world, digest string) {
			w.restart()
			w.want("update shop")
			if row := w.wantRow("Pending/Mutated"); row.AnswerDigest != digest {
				w.Errorf("the answer is %q, and was %q", row.AnswerDigest, digest)
			}
			w.sync()
			w.want()
			w.wantRow("Pending/Mutated")
		},
		"the rule changed": func(w *world, digest string) {
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up < 1" })
			w.want("update shop")
			if row := w.wantRow("Pending/Mutated"); row.AnswerDigest == digest {
				w.Error("the answer is the same")
			}
			w.sync()
			w.want()
		},
		"somebody changed the object": func(w *world, _ string) {
			w.touch(func(o *monitoringv1.PrometheusRule) { o.Spec.Groups[0].Rules[0].Labels["tenant"] = "y" })
			w.sync()
			w.want("update shop")
			w.wantRow("Pending/Mutated")
		},
		"the webhook is gone, and the rule changed": func(w *world, _ string) {
			w.mutate = nil
			w.want() // it is unknown
			w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up < 1" })
			w.want("update shop")
			if row := w.wantRow("Applied"); row.AnswerDigest != "" {
				w.Errorf("the answer is %q", row.AnswerDigest)
			}
			w.sync()
			w.want()
			w.wantRow("Applied")
			if len(w.notes.of) > 0 {
				w.Errorf("it remembers %v", w.notes.of)
			}
		},
		"another cluster has the name, and an object like it": func(w *world, digest string) {
			w.edit(func(ar *v1alpha1.AlertRule) {
				ar.Status.Clusters = []v1alpha1.ClusterStatus{{Name: "s", Phase: v1alpha1.PhasePending, Reason: v1alpha1.ReasonMutated, AnswerDigest: digest}}
			})
			w.drop(w.hub, &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "s"}})
			w.put(w.hub, &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "another", Labels: map[string]string{"env": "prod"}}})
			w.mutate = nil
			w.want("update shop")
			w.wantRow("Applied")
			w.sync()
			w.want()
			w.wantRow("Applied")
		},
		"the AlertRule was deleted": func(w *world, _ string) {
			w.drop(w.hub, alertRule())
			w.want("delete shop")
			if len(w.notes.of) > 0 {
				w.Errorf("it remembers %v", w.notes.of)
			}
		},
	} {
		forKinds(t, name, func(w *world) {
			w.put(w.hub, alertRule())
			w.mutate = relabel
			w.want("create shop")
			digest := w.wantRow("Pending/Mutated").AnswerDigest
			if digest == "" || len(digest) > 64 {
				w.Fatalf("the answer is %q", digest)
			}
			w.sync()
			fn(w, digest)
		})
	}
}

// A rule without a place in its namespace is not written, and what is in the spoke stays as it is.
func TestRuleWithoutAPlace(t *testing.T) {
	forKinds(t, "in order", testRuleWithoutAPlace)
}

func testRuleWithoutAPlace(w *world) {
	room := 1
	if w.kind == v1alpha1.RulePackKind {
		room = 2 // it has two rules
	}
	w.Places = hub.NewPlaces(w.hub, room, admin)
	var changed []string
	w.Changed = func(key rule.Key) { changed = append(changed, key.Name) }
	first := alertRule()
	first.Name, first.UID, first.CreationTimestamp = "first", "first", metav1.NewTime(time.Unix(1, 0))
	w.put(w.hub, first)
	second := alertRule()
	second.CreationTimestamp = metav1.NewTime(time.Unix(2, 0))
	w.put(w.hub, second)
	handler := w.onSource("", nil)
	for _, ar := range []*v1alpha1.AlertRule{first, second} {
		handler.Create(w.Context(), event.TypedCreateEvent[client.Object]{Object: w.ofKind(ar)}, w.queue)
	}
	w.enqueued()
	w.want()
	w.wantRow("")

	// The first one leaves, so there is room.
	w.drop(w.hub, first)
	handler.Delete(w.Context(), event.TypedDeleteEvent[client.Object]{Object: w.ofKind(first)}, w.queue)
	if got := w.enqueued(); !slices.Equal(got, []string{"down in s", "first in s"}) || !slices.Equal(changed, []string{"down"}) {
		w.Errorf("enqueued are %q, and the status of %q", got, changed)
	}
	w.want("create shop")
	w.sync()
	w.want()
	w.wantRow("Applied")

	// It has no place any more, as after a restart with its status lost, and is moved elsewhere.
	w.Places = hub.NewPlaces(w.hub, room, admin)
	older := alertRule()
	older.Name, older.UID = "older", "older"
	w.put(w.hub, older)
	w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.Placement.Names[0] = "elsewhere" })
	w.want()
	if w.object() == nil {
		w.Error("it is removed")
	}
	if rules, _ := w.Doomed(w.Context(), "s"); len(rules) > 0 {
		w.Errorf("to be removed are %q", rules)
	}
	// One that is disabled is removed, whether it has a place or not.
	w.edit(func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled })
	w.want("delete shop")
}

// A rule that spec.tenants does not take is removed on the ordinary path, and one that it takes again is pushed.
func TestTenants(t *testing.T) {
	forKinds(t, "spec.tenants", func(w *world) { testTenants(w.apply()) })
}

func testTenants(w *world) {
	t := w.T
	w.Tenants = hub.NewTenants(t.Context(), nil, admin, "rulefleet-generated")
	tenants := func(s *v1alpha1.TenantSelection) {
		t.Helper()
		sc := &v1alpha1.SpokeCluster{}
		if err := w.hub.Get(t.Context(), client.ObjectKey{Name: "s"}, sc); err != nil {
			t.Fatal(err)
		}
		before := sc.DeepCopy()
		sc.Spec.Tenants = s
		if err := w.hub.Update(t.Context(), sc); err != nil {
			t.Fatal(err)
		}
		w.onSpokeCluster("", nil).Update(t.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: before, ObjectNew: sc}, w.queue)
		w.sync()
		if got := w.enqueued(); !slices.Contains(got, "down in s") {
			t.Errorf("enqueued are %q", got)
		}
	}
	w.want()
	w.wantRow("Applied")
	others := &v1alpha1.TenantSelection{Names: []v1alpha1.NamespaceName{"others"}}
	tenants(others)

	// What only the cache says removes nothing.
	w.live = func() error { return errors.New("no answer") }
	w.wantError()
	w.live = func() error { return nil }
	if rules, _ := w.Doomed(t.Context(), "s"); !slices.Equal(rules, []string{w.key("down").Listed()}) {
		t.Errorf("to be removed are %q", rules)
	}
	w.want("delete shop")
	w.sync()
	w.want()
	w.wantRow("forgotten")
	tenants(&v1alpha1.TenantSelection{Names: []v1alpha1.NamespaceName{"shop"}})
	w.want("create shop")
	w.sync()
	w.want()
	w.wantRow("Applied")

	// The labels of the namespace on the hub are not known, so nothing is decided.
	w.live = func() error { return errors.New("no answer") }
	byLabel := &rule.Cluster{Tenants: &v1alpha1.TenantSelection{Selector: &metav1.LabelSelector{}}}
	past := w.Guard.Live.Reading()
	if known, err := w.Tenants.Ask(t.Context(), past, "shop", byLabel); known || err == nil || !strings.Contains(err.Error(), "reading namespace shop of the hub") {
		t.Errorf("known: %v, %v", known, err)
	}
	own := &rule.Cluster{Tenants: others}
	if known, err := w.Tenants.Ask(t.Context(), past, "rulefleet-generated", own); !known || err != nil || own.Tenant != nil {
		t.Errorf("of the operator: %v, %v, %+v", known, err, own.Tenant)
	}
}
