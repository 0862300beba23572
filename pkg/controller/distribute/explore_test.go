package distribute

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	monitoringfake "github.com/prometheus-operator/prometheus-operator/pkg/client/versioned/fake"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/testing/model"
)

const (
	exploredHold = 10 * time.Minute
	// crowd is a number of rules that the brake counts.
	crowd = 40
	// oldestList is how many changes a first list may be behind.
	oldestList = 12
)

var exploredRender = rule.RenderOptions{HubID: hubID, AdminNamespace: admin, RuleNamespace: "monitoring", ClusterLabel: "cluster"}

// exploration is a hub and a spoke, what people and others do there, and what must hold whatever happens.
type exploration struct {
	*rapid.T

	hub, server *model.Server
	leader      *process
	former      *process // a leader that does not know yet that it is none; it may be nil

	// lost are the AlertRules that were lost with their kind, and unlabeled the objects in the spoke when the
	// SpokeCluster's labels were: nobody asked for the removal of what was in the spoke then.
	lost      map[types.NamespacedName]types.UID
	backup    []*v1alpha1.AlertRule
	unlabeled map[types.UID]bool
	labels    map[string]string // that were lost
	// unwanted is since when the hub does not want a rule in the spoke.
	unwanted map[types.NamespacedName]time.Time
	removals []time.Time
	writes   map[types.NamespacedName][]time.Time
	edits    int
	// disturbed reports whether a write may rightly fail.
	disturbed bool
	fault     string // of the next write
	version   int
	// hubBegin and spokeBegin are how many changes there were at the start.
	hubBegin, spokeBegin int
}

// process is a manager: its caches, its queue, and the Reconciler.
type process struct {
	*Reconciler

	e       *exploration
	onHub   *model.Cache
	inSpoke *model.Cache
	queue   *pending
	spoke   *spoke.Spoke
	reports map[types.NamespacedName]*v1alpha1.ClusterStatus
	dead    bool
}

// pending is a queue without goroutines.
type pending struct {
	spoke.WorkQueue

	due map[mcreconcile.Request]time.Time
}

func (q *pending) Add(req mcreconcile.Request) { q.AddAfter(req, 0) }

func (q *pending) AddAfter(req mcreconcile.Request, after time.Duration) {
	at := time.Now().Add(after)
	if was, ok := q.due[req]; !ok || at.Before(was) {
		q.due[req] = at
	}
}

// ready returns the requests that are due, in a fixed order.
func (q *pending) ready() []mcreconcile.Request {
	var out []mcreconcile.Request
	for req, at := range q.due {
		if !at.After(time.Now()) {
			out = append(out, req)
		}
	}
	slices.SortFunc(out, func(a, b mcreconcile.Request) int {
		return compareKeys(a.NamespacedName, b.NamespacedName)
	})
	return out
}

func compareKeys(a, b types.NamespacedName) int {
	return strings.Compare(a.String(), b.String())
}

// Spoke and the following methods implement Spokes.
func (p *process) Spoke(name string) *spoke.Spoke {
	if name != p.spoke.Name {
		return nil
	}
	return p.spoke
}
func (p *process) Spokes() []*spoke.Spoke             { return []*spoke.Spoke{p.spoke} }
func (p *process) Predecessors(string) []string       { return nil }
func (p *process) Successor(string) string            { return "" }
func (p *process) Away(string) bool                   { return false }
func (p *process) AwaySince(string, time.Time) bool   { return false }
func (p *process) ChangedSoon(string)                 {}
func (p *process) Evaluators(string) spoke.Evaluators { return spoke.Evaluators{Known: true} }

// Report and Forget implement Reporter.
func (p *process) Report(key types.NamespacedName, row v1alpha1.ClusterStatus) { p.reports[key] = &row }
func (p *process) Forget(key types.NamespacedName, _ string)                   { delete(p.reports, key) }

// explore starts a hub with a spoke.
func explore(t *rapid.T) *exploration {
	e := &exploration{
		T: t, hub: model.NewServer(time.Now), server: model.NewServer(time.Now),
		lost: map[types.NamespacedName]types.UID{}, unwanted: map[types.NamespacedName]time.Time{}, writes: map[types.NamespacedName][]time.Time{},
	}
	for _, kind := range []string{"alertrules", "alertruletemplates", "spokeclusters"} {
		e.defineKind(kind)
	}
	for _, ns := range []string{"shop", "monitoring"} {
		o := spoke.NamespaceMetadata()
		o.Name = ns
		e.create(e.server, o)
	}
	e.register(map[string]string{"env": "prod"})
	e.pass(time.Minute)
	e.hubBegin, e.spokeBegin = e.hub.Length(), e.server.Length()
	e.start(e.hubBegin, e.spokeBegin)
	return e
}

func (e *exploration) say(format string, args ...any) {
	e.Helper()
	e.Logf(format, args...)
}

func (e *exploration) violation(format string, args ...any) {
	e.Fatalf("VIOLATION: "+format, args...)
}

func (e *exploration) pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // of the bubble's clock

func (e *exploration) create(s *model.Server, o client.Object) {
	if _, err := s.Create(o); err != nil {
		e.Fatal(err)
	}
}

func crd(name string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.APIVersion, o.Kind = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
	o.Name = name + "." + v1alpha1.Group
	return o
}

func (e *exploration) defineKind(name string) { e.create(e.hub, crd(name)) }

func (e *exploration) register(labels map[string]string) {
	e.create(e.hub, &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "s", Labels: labels}})
}

// start makes another process the leader. Its caches begin with a number of changes.
func (e *exploration) start(hubAt, spokeAt int) {
	p := &process{
		e: e, onHub: model.NewCache(e.hub, hubAt), inSpoke: model.NewCache(e.server, spokeAt),
		queue: &pending{due: map[mcreconcile.Request]time.Time{}}, reports: map[types.NamespacedName]*v1alpha1.ClusterStatus{},
	}
	ctx := context.Background()
	if err := hub.SetupIndexes(ctx, p.onHub, hubID, "rulefleet-generated"); err != nil {
		e.Fatal(err)
	}
	_ = p.inSpoke.IndexField(ctx, &monitoringv1.PrometheusRule{}, ruleIndex, ruleKeys(hubID))
	rules := &monitoringfake.Clientset{}
	rules.AddReactor("*", "prometheusrules", p.serve)
	p.spoke = &spoke.Spoke{Name: "s", Reader: p.inSpoke, Rules: rules, RulesServed: true, Live: live.New(e.server, clock.RealClock{}), Since: time.Now()}
	p.Reconciler = NewReconciler(Options{
		Hub: p.onHub, Guard: hub.Guard{Live: live.New(e.hub, clock.RealClock{}), Kinds: hub.NewKinds(e.hub, nil, hub.RecordKeys{}, clock.RealClock{})},
		Witness: hub.NewWitness(), Brake: brake.New(clock.RealClock{}, exploredHold), Spokes: p, Reporter: p,
		Render: exploredRender, Validator: exploredValidator, Generated: "rulefleet-generated", Contests: contest.New(clock.RealClock{}, 0),
	})
	e.leader = p
	for _, c := range p.onHub.First() {
		p.deliverHub(c)
	}
	for _, c := range p.inSpoke.First() {
		p.deliverSpoke(c)
	}
	p.onEngaged(ctx, "s", p.queue)
}

var exploredValidator = rule.NewValidator(rule.ValidateOptions{AdminNamespace: admin, GeneratedNamespace: "rulefleet-generated"})

// deliverHub handles an event of the hub as the controller does.
func (p *process) deliverHub(c model.Change) {
	switch c.Kind {
	case "AlertRule":
		p.deliver(p.onAlertRule("", nil), c, hub.Edited.Update)
	case "SpokeCluster":
		p.deliver(p.onSpokeCluster("", nil), c, hub.Decided.Update)
	}
}

func (p *process) deliverSpoke(c model.Change) {
	all := func(event.UpdateEvent) bool { return true }
	switch c.Kind {
	case "PrometheusRule":
		p.deliver(p.onPrometheusRule("s", nil), c, all)
	case "Namespace":
		p.deliver(p.onNamespace("s", nil), c, all)
	}
}

func (p *process) deliver(h spoke.EventHandler, c model.Change, passes func(event.UpdateEvent) bool) {
	ctx := context.Background()
	switch {
	case c.New == nil:
		h.Delete(ctx, event.TypedDeleteEvent[client.Object]{Object: c.Old}, p.queue)
	case c.Old == nil:
		h.Create(ctx, event.TypedCreateEvent[client.Object]{Object: c.New}, p.queue)
	case passes(event.UpdateEvent{ObjectOld: c.Old, ObjectNew: c.New}):
		h.Update(ctx, event.TypedUpdateEvent[client.Object]{ObjectOld: c.Old, ObjectNew: c.New}, p.queue)
	}
}

// errDied is what ends a process at a write.
var errDied = errors.New("the process died")

// run reconciles a request.
func (p *process) run(req mcreconcile.Request) {
	delete(p.queue.due, req)
	defer func() {
		if got := recover(); got != nil {
			if got != any(errDied) {
				panic(got)
			}
			p.dead = true
		}
	}()
	result, err := p.Reconcile(context.Background(), req)
	switch {
	case err != nil:
		p.queue.AddAfter(req, 5*time.Second)
	case result.RequeueAfter > 0:
		p.queue.AddAfter(req, result.RequeueAfter)
	}
}

// wants returns what the hub wants of a rule in the spoke: nil for nothing. known is false if that can't be
// said.
func (e *exploration) wants(key types.NamespacedName) (o *monitoringv1.PrometheusRule, known bool) {
	ctx := context.Background()
	c, err := hub.Cluster(ctx, e.hub, "s")
	if err != nil || c == nil || c.Suspended {
		return nil, false
	}
	ar, ok := e.hub.Find(model.Ref{Kind: "AlertRule", NamespacedName: key}).(*v1alpha1.AlertRule)
	if !ok || !rule.MaybeEnabled(ar) {
		return nil, true
	}
	hub.WithEvaluators(c, nil, "")
	if placed, err := rule.PlacedIn(ar, *c); err != nil || !placed {
		return nil, err == nil
	}
	o, err = rule.Render(ar, *c, exploredRender)
	return o, err == nil
}

func find(s *model.Server, namespace, name string) *monitoringv1.PrometheusRule {
	o, _ := s.Find(model.Ref{Kind: "PrometheusRule", NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}).(*monitoringv1.PrometheusRule)
	return o
}

// serve is the spoke's API server. It checks each write.
func (p *process) serve(action clienttesting.Action) (bool, runtime.Object, error) {
	fault := p.e.fault
	if action.GetVerb() != "get" {
		p.e.fault = ""
	}
	if fault == "refused" {
		return true, nil, apierrors.NewInternalError(errors.New("refused"))
	}
	o, err := p.write(action)
	if err != nil && !p.e.disturbed && p == p.e.leader && action.GetVerb() != "get" {
		p.e.violation("nobody else writes, and %s of %s fails: %v", action.GetVerb(), action.GetNamespace(), err)
	}
	switch fault {
	case "unanswered":
		return true, nil, context.DeadlineExceeded
	case "dies":
		panic(errDied)
	}
	return true, o, err
}

func (p *process) write(action clienttesting.Action) (runtime.Object, error) {
	e := p.e
	switch a := action.(type) {
	case clienttesting.CreateActionImpl:
		o := a.GetObject().(*monitoringv1.PrometheusRule)
		e.count(o)
		return asRule(e.server.Create(o))
	case clienttesting.UpdateActionImpl:
		o := a.GetObject().(*monitoringv1.PrometheusRule)
		if now := find(e.server, o.Namespace, o.Name); now != nil && now.ResourceVersion == o.ResourceVersion && !rule.Owned(now, hubID) {
			e.violation("the foreign PrometheusRule %s is overwritten", hub.Key(o))
		}
		if o.ResourceVersion == "" {
			e.violation("%s is written whatever was written meanwhile", hub.Key(o))
		}
		e.count(o)
		return asRule(e.server.Update(o))
	case clienttesting.GetActionImpl:
		if o := find(e.server, a.Namespace, a.Name); o != nil {
			return o.DeepCopy(), nil
		}
		return nil, apierrors.NewNotFound(resource, a.Name)
	case clienttesting.DeleteActionImpl:
		if o := find(e.server, a.Namespace, a.Name); o != nil {
			conditions := a.DeleteOptions.Preconditions
			if conditions == nil || conditions.UID == nil || conditions.ResourceVersion == nil {
				e.violation("%s is deleted, whatever it is by now", hub.Key(o))
			} else if *conditions.UID == o.UID && *conditions.ResourceVersion == o.ResourceVersion {
				e.removes(o)
			}
		}
		return nil, e.server.Delete(model.Ref{Kind: "PrometheusRule", NamespacedName: types.NamespacedName{Namespace: a.Namespace, Name: a.Name}}, a.DeleteOptions.Preconditions)
	}
	e.Fatalf("an unexpected %T", action)
	return nil, nil
}

func asRule(o client.Object, err error) (runtime.Object, error) {
	if err != nil {
		return nil, err
	}
	return o.DeepCopyObject(), nil
}

// count checks that an object is not written again and again.
func (e *exploration) count(o *monitoringv1.PrometheusRule) {
	key := hub.Key(o)
	recent := slices.DeleteFunc(e.writes[key], func(at time.Time) bool { return time.Since(at) >= time.Minute })
	e.writes[key] = append(recent, time.Now())
	if n := len(e.writes[key]); n > 12+e.edits {
		e.violation("%s is written %d times in a minute", key, n)
	}
}

// removes checks the removal of a PrometheusRule.
func (e *exploration) removes(o *monitoringv1.PrometheusRule) {
	if !rule.Owned(o, hubID) {
		e.violation("the foreign PrometheusRule %s is removed", hub.Key(o))
	}
	key, stands := rule.StandsFor(o, hubID)
	if !stands {
		return // somebody else made it
	}
	want, known := e.wants(key)
	switch {
	case !known:
		e.violation("%s is removed, and what the hub wants is unknown", key)
	case want != nil && want.Namespace == o.Namespace && want.Name == o.Name:
		e.violation("%s is removed, and the hub wants it", key)
	case want == nil && e.lost[key] == o.UID:
		e.violation("%s is removed, and its AlertRule was lost with its kind", key)
	case want == nil && e.unlabeled[o.UID] && e.byLabel(key):
		e.violation("%s is removed, and the labels that placed it were lost", key)
	}
	if want != nil {
		return
	}
	now := time.Now()
	e.removals = slices.DeleteFunc(e.removals, func(at time.Time) bool { return now.Sub(at) >= exploredHold })
	holds := 0
	for _, o := range e.server.Objects("PrometheusRule") {
		if _, stands := rule.StandsFor(o, hubID); stands {
			holds++
		}
	}
	if n := len(e.removals) + 1; n > 20 && n*4 > holds+len(e.removals) && now.Sub(e.unwanted[key]) < exploredHold {
		e.violation("%s is the %dth rule of %d that is removed within %v", key, n, holds+len(e.removals), exploredHold)
	}
	e.removals = append(e.removals, now)
}

// byLabel reports whether the lost labels would place a rule in the spoke.
func (e *exploration) byLabel(key types.NamespacedName) bool {
	ar, ok := e.hub.Find(model.Ref{Kind: "AlertRule", NamespacedName: key}).(*v1alpha1.AlertRule)
	if !ok || !rule.MaybeEnabled(ar) {
		return false
	}
	placed, err := rule.PlacedIn(ar, rule.Cluster{Name: "s", Labels: e.labels})
	return err == nil && placed
}

// observe notes since when a rule is unwanted.
func (e *exploration) observe() {
	for _, o := range e.server.Objects("PrometheusRule") {
		key, stands := rule.StandsFor(o, hubID)
		if !stands {
			continue
		}
		if want, known := e.wants(key); !known || want != nil {
			delete(e.unwanted, key)
		} else if _, ok := e.unwanted[key]; !ok {
			e.unwanted[key] = time.Now()
		}
	}
}

// The operations of people, of others in the spoke, of time, and of what is between the processes.

func (e *exploration) kindServed(name string) bool {
	return e.hub.Find(model.RefOf(crd(name))) != nil
}

func (e *exploration) rules() map[types.NamespacedName]client.Object {
	return e.hub.Objects("AlertRule")
}

func (e *exploration) pick(label string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(e.T, label)}
}

func (e *exploration) apply(key types.NamespacedName, placement v1alpha1.ClusterSelection, state v1alpha1.State, expr string) {
	ar := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	ar.Spec.AlertSpec = v1alpha1.AlertSpec{Alert: "Down", Expr: expr, For: "1m"}
	ar.Spec.State, ar.Spec.Placement = state, placement
	delete(e.lost, key)
	if now, ok := e.rules()[key]; ok {
		ar.ResourceVersion = now.GetResourceVersion()
		if _, err := e.hub.Update(ar); err != nil {
			e.Fatal(err)
		}
		return
	}
	e.create(e.hub, ar)
}

var exploredPlacements = map[string]v1alpha1.ClusterSelection{
	"by name":        {Names: []v1alpha1.ClusterName{"s"}},
	"elsewhere":      {Names: []v1alpha1.ClusterName{"other"}},
	"by label":       {Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}},
	"by other label": {Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "dev"}}},
	"everywhere":     {Selector: &metav1.LabelSelector{}},
}

func (e *exploration) personAppliesARule(*rapid.T) {
	if !e.kindServed("alertrules") {
		e.Skip("the kind is lost")
	}
	key := e.pick("rule")
	where := rapid.SampledFrom(slices.Sorted(maps.Keys(exploredPlacements))).Draw(e.T, "placement")
	state := rapid.SampledFrom([]v1alpha1.State{v1alpha1.Enabled, v1alpha1.Enabled, v1alpha1.Disabled}).Draw(e.T, "state")
	e.version++
	e.edits++
	e.say("a person applies rule %s, version %d, placed %s, %s", key.Name, e.version, where, state)
	e.apply(key, exploredPlacements[where], state, fmt.Sprintf("up == %d", e.version))
}

func (e *exploration) personDeletesARule(*rapid.T) {
	key := e.pick("rule")
	if e.rules()[key] == nil {
		e.Skip("there is none")
	}
	e.say("a person deletes rule %s", key.Name)
	_ = e.hub.Delete(model.Ref{Kind: "AlertRule", NamespacedName: key}, nil)
}

func many(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: fmt.Sprintf("many-%02d", i)}
}

func (e *exploration) personAppliesMany(*rapid.T) {
	if !e.kindServed("alertrules") || e.rules()[many(0)] != nil {
		e.Skip("not now")
	}
	e.say("a person applies %d rules", crowd)
	for i := range crowd {
		e.apply(many(i), exploredPlacements["by label"], v1alpha1.Enabled, "up == 0")
	}
}

func (e *exploration) personDeletesMany(*rapid.T) {
	if e.rules()[many(0)] == nil {
		e.Skip("there are none")
	}
	e.say("a person deletes %d rules", crowd)
	for i := range crowd {
		_ = e.hub.Delete(model.Ref{Kind: "AlertRule", NamespacedName: many(i)}, nil)
	}
}

func (e *exploration) spokeCluster() *v1alpha1.SpokeCluster {
	sc, ok := e.hub.Find(model.Ref{Kind: "SpokeCluster", NamespacedName: types.NamespacedName{Name: "s"}}).(*v1alpha1.SpokeCluster)
	if !ok {
		e.Skip("the kind is lost")
	}
	return sc.DeepCopy()
}

func (e *exploration) personLabelsTheSpoke(*rapid.T) {
	sc := e.spokeCluster()
	env := rapid.SampledFrom([]string{"prod", "dev"}).Draw(e.T, "env")
	e.say("a person labels the spoke env=%s", env)
	sc.Labels = map[string]string{"env": env}
	e.unlabeled = nil
	e.edits++
	_, _ = e.hub.Update(sc)
}

func (e *exploration) personSuspendsTheSpoke(*rapid.T) {
	sc := e.spokeCluster()
	on := sc.Spec.Suspend == nil || !*sc.Spec.Suspend
	e.say("a person suspends the spoke: %v", on)
	sc.Spec.Suspend = &on
	e.edits++
	_, _ = e.hub.Update(sc)
}

func (e *exploration) hubLosesRules(*rapid.T) {
	if !e.kindServed("alertrules") || e.backup != nil {
		e.Skip("they are lost")
	}
	e.say("the hub loses the kind AlertRule")
	e.backup = []*v1alpha1.AlertRule{}
	e.loseKind("alertrules", "AlertRule", func(key types.NamespacedName, o client.Object) {
		if o := find(e.server, "shop", rule.ObjectName(hubID, key.Namespace, key.Name)); o != nil {
			e.lost[key] = o.UID
		}
		e.backup = append(e.backup, o.(*v1alpha1.AlertRule))
	})
}

func (e *exploration) loseKind(name, kind string, each func(types.NamespacedName, client.Object)) {
	terminating := crd(name)
	now := metav1.Now()
	terminating.DeletionTimestamp = &now
	_, _ = e.hub.Update(terminating)
	objects := e.hub.Objects(kind)
	for _, key := range slices.SortedFunc(maps.Keys(objects), compareKeys) {
		each(key, objects[key])
		_ = e.hub.Delete(model.Ref{Kind: kind, NamespacedName: key}, nil)
	}
	_ = e.hub.Delete(model.RefOf(terminating), nil)
}

func (e *exploration) hubDefinesRulesAgain(*rapid.T) {
	if e.kindServed("alertrules") {
		e.Skip("they are defined")
	}
	e.pass(2 * time.Second)
	e.say("the kind AlertRule is defined again")
	e.defineKind("alertrules")
}

func (e *exploration) personRestoresRules(*rapid.T) {
	if !e.kindServed("alertrules") || e.backup == nil {
		e.Skip("nothing to restore")
	}
	whole := rapid.Bool().Draw(e.T, "whole")
	e.say("a person restores the backup of rules, whole: %v", whole)
	slices.SortFunc(e.backup, func(a, b *v1alpha1.AlertRule) int { return compareKeys(hub.Key(a), hub.Key(b)) })
	for i, was := range e.backup {
		if (!whole && i%2 == 1) || e.rules()[hub.Key(was)] != nil {
			continue
		}
		ar := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: was.Namespace, Name: was.Name}, Spec: *was.Spec.DeepCopy()}
		e.create(e.hub, ar)
		delete(e.lost, hub.Key(was))
	}
	e.backup = nil
	e.edits++
}

func (e *exploration) hubLosesSpokes(*rapid.T) {
	if !e.kindServed("spokeclusters") {
		e.Skip("they are lost")
	}
	e.say("the hub loses the kind SpokeCluster")
	e.loseKind("spokeclusters", "SpokeCluster", func(_ types.NamespacedName, sc client.Object) {
		if len(sc.GetLabels()) > 0 { // otherwise they were lost before
			e.labels = sc.GetLabels()
		}
	})
	e.unlabeled = map[types.UID]bool{}
	for _, o := range e.server.Objects("PrometheusRule") {
		e.unlabeled[o.GetUID()] = true
	}
}

func (e *exploration) hubDefinesSpokesAgain(*rapid.T) {
	if e.kindServed("spokeclusters") {
		e.Skip("they are defined")
	}
	e.pass(2 * time.Second)
	e.say("the kind SpokeCluster is defined again, and the manager creates that of the spoke")
	e.defineKind("spokeclusters")
	e.pass(time.Second)
	e.register(nil)
}

// ours picks an object of a rule in the spoke.
func (e *exploration) ours() *monitoringv1.PrometheusRule {
	key := e.pick("rule")
	o := find(e.server, "shop", rule.ObjectName(hubID, key.Namespace, key.Name))
	if o == nil || !rule.Owned(o, hubID) {
		e.Skip("there is none")
	}
	return o.DeepCopy()
}

func (e *exploration) otherWrites(*rapid.T) {
	o := e.ours()
	e.disturbed = true
	switch what := rapid.SampledFrom([]string{"expression", "hub", "rule"}).Draw(e.T, "what"); what {
	case "expression":
		e.say("another client changes the expression of %s", o.Annotations[v1alpha1.AlertRuleAnnotation])
		for i := range o.Spec.Groups {
			for j := range o.Spec.Groups[i].Rules {
				o.Spec.Groups[i].Rules[j].Expr.StrVal = "vector(1)"
			}
		}
	case "hub":
		e.say("another client takes the hub's label from %s", o.Annotations[v1alpha1.AlertRuleAnnotation])
		delete(o.Labels, v1alpha1.HubLabel)
	case "rule":
		e.say("another client writes another rule's name on %s", o.Annotations[v1alpha1.AlertRuleAnnotation])
		o.Annotations[v1alpha1.AlertRuleAnnotation] = "shop/" + e.pick("other").Name
	}
	_, _ = e.server.Update(o)
}

func (e *exploration) otherDeletes(*rapid.T) {
	o := e.ours()
	e.disturbed = true
	e.say("another client deletes the PrometheusRule of %s", o.Annotations[v1alpha1.AlertRuleAnnotation])
	_ = e.server.Delete(model.RefOf(o), nil)
}

func (e *exploration) otherCreates(*rapid.T) {
	key := e.pick("rule")
	name := rule.ObjectName(hubID, key.Namespace, key.Name)
	if find(e.server, "shop", name) != nil {
		e.Skip("it is taken")
	}
	e.disturbed = true
	e.say("another client creates a PrometheusRule with the name of rule %s's", key.Name)
	e.create(e.server, &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}})
}

func (e *exploration) writeFails(*rapid.T) {
	e.fault = rapid.SampledFrom([]string{"refused", "unanswered", "dies"}).Draw(e.T, "how")
	e.disturbed = true
	e.say("the next write: %s", e.fault)
}

func (e *exploration) timePasses(*rapid.T) {
	d := rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second, time.Minute, 11 * time.Minute}).Draw(e.T, "time")
	e.say("%v pass", d)
	e.pass(d)
}

// some is a process that runs.
func (e *exploration) some() *process {
	if e.former != nil && rapid.Bool().Draw(e.T, "former") {
		return e.former
	}
	return e.leader
}

func (p *process) name() string {
	if p == p.e.former {
		return "the former leader"
	}
	return "the leader"
}

func (e *exploration) hubEventArrives(*rapid.T) {
	p := e.some()
	e.eventsArrive(p, "hub", p.onHub, p.deliverHub)
}

func (e *exploration) spokeEventArrives(*rapid.T) {
	p := e.some()
	e.eventsArrive(p, "spoke", p.inSpoke, p.deliverSpoke)
}

func (e *exploration) eventsArrive(p *process, where string, from *model.Cache, deliver func(model.Change)) {
	if from.Behind() == 0 {
		e.Skip("none")
	}
	n := rapid.IntRange(1, from.Behind()).Draw(e.T, "events")
	e.say("%s sees %d events of the %s", p.name(), n, where)
	for range n {
		deliver(from.Next())
	}
}

func (e *exploration) watchesExpire(*rapid.T) {
	p := e.some()
	e.say("%s lists again", p.name())
	p.relist()
}

func (p *process) relist() {
	for _, c := range p.onHub.Relist() {
		p.deliverHub(c)
	}
	for _, c := range p.inSpoke.Relist() {
		p.deliverSpoke(c)
	}
}

func (e *exploration) reconciles(*rapid.T) {
	p := e.some()
	ready := p.queue.ready()
	if len(ready) == 0 {
		e.Skip("nothing is due")
	}
	n := 1
	if rapid.Bool().Draw(e.T, "all") {
		n = len(ready)
	}
	first := rapid.IntRange(0, len(ready)-1).Draw(e.T, "first")
	e.say("%s reconciles %d of %d, beginning with %s", p.name(), n, len(ready), ready[first].Name)
	for i := range n {
		if p.dead {
			break
		}
		p.run(ready[(first+i)%len(ready)])
	}
	e.bury()
}

// bury replaces a process that died.
func (e *exploration) bury() {
	if e.former != nil && e.former.dead {
		e.former = nil
	}
	if e.leader.dead {
		e.say("the leader died; another starts")
		e.startSome()
	}
}

// startSome starts a process whose first lists may be old, but not older than the start.
func (e *exploration) startSome() {
	at := func(s *model.Server, begin int, label string) int {
		return s.Length() - rapid.IntRange(0, min(oldestList, s.Length()-begin)).Draw(e.T, label)
	}
	e.start(at(e.hub, e.hubBegin, "hub list is old"), at(e.server, e.spokeBegin, "spoke list is old"))
}

func (e *exploration) leaderChanges(*rapid.T) {
	e.disturbed = true
	was := e.leader
	if keep := rapid.Bool().Draw(e.T, "it goes on"); keep {
		e.say("another process leads, and the leader goes on for a while")
		e.former = was
	} else {
		e.say("the leader ends, and another starts")
		e.former = nil
	}
	e.startSome()
}

func (e *exploration) formerEnds(*rapid.T) {
	if e.former == nil {
		e.Skip("there is none")
	}
	e.say("the former leader ends")
	e.former = nil
}

// settle lets everything arrive and be processed, and checks the result.
func (e *exploration) settle() {
	e.say("nothing is broken any more")
	e.former, e.fault = nil, ""
	for _, kind := range []string{"alertrules", "spokeclusters"} {
		if !e.kindServed(kind) {
			e.pass(2 * time.Second)
			e.defineKind(kind)
		}
	}
	if len(e.hub.Objects("SpokeCluster")) == 0 {
		e.pass(time.Second)
		e.register(nil)
	}
	p, end := e.leader, time.Now().Add(2*time.Hour)
	var last time.Time
	runs := 0
	for time.Now().Before(end) {
		p.relistIfBehind()
		e.observe()
		for _, req := range p.queue.ready() {
			runs++
			if runs > 5000 {
				e.violation("it reconciles again and again, now %s", req)
			}
			before := e.server.Length()
			p.run(req)
			if e.server.Length() != before {
				last = time.Now()
			}
			p.relistIfBehind()
		}
		e.pass(p.untilNext(end))
	}
	if quiet := time.Since(last); quiet < 30*time.Minute {
		e.violation("it writes still, %v ago", quiet)
	}
	e.check()
}

func (p *process) relistIfBehind() {
	for p.onHub.Behind() > 0 {
		p.deliverHub(p.onHub.Next())
	}
	for p.inSpoke.Behind() > 0 {
		p.deliverSpoke(p.inSpoke.Next())
	}
}

func (p *process) untilNext(end time.Time) time.Duration {
	next := end
	for _, at := range p.queue.due {
		if at.Before(next) {
			next = at
		}
	}
	return max(time.Until(next), time.Millisecond)
}

// check compares the spoke with the hub.
func (e *exploration) check() {
	sc, _ := hub.Cluster(context.Background(), e.hub, "s")
	if sc.Suspended {
		return
	}
	for _, key := range slices.SortedFunc(maps.Keys(e.rules()), compareKeys) {
		want, known := e.wants(key)
		if !known || want == nil {
			continue
		}
		is := find(e.server, want.Namespace, want.Name)
		row := e.leader.reports[key]
		switch {
		case is == nil:
			e.violation("%s is missing in the spoke: %+v", key, row)
		case !rule.Owned(is, hubID):
			if row == nil || row.Reason != v1alpha1.ReasonConflict {
				e.violation("%s is somebody else's, and the row is %+v", key, row)
			}
		case rule.Digest(is) != rule.Digest(want):
			e.violation("%s is not what the hub wants: %+v", key, is.Spec)
		case row == nil || row.Phase != v1alpha1.PhaseApplied:
			e.violation("%s is in the spoke, and the row is %+v", key, row)
		}
	}
	for key, o := range e.server.Objects("PrometheusRule") {
		owner, stands := rule.StandsFor(o, hubID)
		if !stands {
			continue
		}
		if want, known := e.wants(owner); known && want == nil && e.lost[owner] != o.GetUID() && !(e.unlabeled[o.GetUID()] && e.byLabel(owner)) && !e.suspected(owner) {
			e.violation("%s stays in the spoke", key)
		}
	}
}

// suspected reports whether the removal of a rule waits for a person.
func (e *exploration) suspected(key types.NamespacedName) bool {
	return slices.Contains(e.leader.Brake.Owners(brake.Distribute, "s"), key)
}

// TestExplore runs random schedules of operations and faults, and checks what must hold at any time and after
// quiet. The environment variable SEED chooses the schedules; with 0 they are new each time. When one fails, the
// shortest schedule that fails in the same way is printed, with the seed that repeats it.
func TestExplore(t *testing.T) {
	if err := flag.Set("rapid.seed", cmp.Or(os.Getenv("SEED"), "1")); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, inBubble(t, func(t *rapid.T) {
		e := explore(t)
		step := func(fn func(*rapid.T)) func(*rapid.T) { return func(t *rapid.T) { e.T = t; fn(t); e.observe() } }
		t.Repeat(map[string]func(*rapid.T){
			"apply": step(e.personAppliesARule), "delete": step(e.personDeletesARule),
			"applyMany": step(e.personAppliesMany), "deleteMany": step(e.personDeletesMany),
			"label": step(e.personLabelsTheSpoke), "suspend": step(e.personSuspendsTheSpoke),
			"loseRules": step(e.hubLosesRules), "defineRules": step(e.hubDefinesRulesAgain), "restore": step(e.personRestoresRules),
			"loseSpokes": step(e.hubLosesSpokes), "defineSpokes": step(e.hubDefinesSpokesAgain),
			"otherWrites": step(e.otherWrites), "otherDeletes": step(e.otherDeletes), "otherCreates": step(e.otherCreates),
			"fault": step(e.writeFails), "time": step(e.timePasses),
			"hubEvent": step(e.hubEventArrives), "spokeEvent": step(e.spokeEventArrives), "relist": step(e.watchesExpire),
			"reconcile": step(e.reconciles), "reconcileMore": step(e.reconciles), "reconcileAgain": step(e.reconciles),
			"leader": step(e.leaderChanges), "formerEnds": step(e.formerEnds),
		})
		e.settle()
	}))
}

// inBubble runs each schedule with a clock of its own. A failure ends the goroutine that rapid runs.
func inBubble(t *testing.T, property func(*rapid.T)) func(*rapid.T) {
	t.Helper()
	return func(rt *rapid.T) {
		var failure any
		synctest.Test(t, func(*testing.T) {
			defer func() { failure = recover() }()
			property(rt)
		})
		switch {
		case failure == nil:
		case fmt.Sprintf("%T", failure) == "rapid.invalidData":
			panic(failure) // from a place of its own, by which rapid tells one failure from another
		default:
			panic(failure)
		}
	}
}
