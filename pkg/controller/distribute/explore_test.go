package distribute

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	monitoringfake "github.com/prometheus-operator/prometheus-operator/pkg/client/versioned/fake"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/metrics"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/testing/model"
	"github.com/rulefleet/rulefleet/pkg/testing/oracle"
)

var exploredRender = delivery.Options{HubID: hubID, AdminNamespace: admin, RuleNamespace: "monitoring", ClusterLabel: "cluster"}

// exploration is a hub and a spoke, what people and others do there, and what must hold whatever happens.
type exploration struct {
	*model.Schedule

	leader *process
	// kind is that of all rules.
	kind string

	// lost are the rules that were lost with their kind: nobody asked for the removal of what was in the spoke
	// then.
	lost    map[types.NamespacedName]types.UID
	backup  []rule.Source
	version int
	undo    func() // called after each write, unless it is nil
	denies  bool   // an admission webhook in the spoke denies each write
	// ahead is how far the spoke's clock was ahead when an object was created.
	ahead map[types.UID]time.Duration
	// decisions are what people decided, by versions of a rule and of the SpokeCluster.
	decisions map[[2]client.Object]*decision
}

// decision is what belongs in the spoke.
type decision struct {
	o         *monitoringv1.PrometheusRule
	suspended bool
	err       error
}

// process is a manager with the Reconciler.
type process struct {
	*model.Process

	reconciler *Reconciler
	e          *exploration
	spoke      *spoke.Spoke
	reports    map[types.NamespacedName]*v1alpha1.ClusterStatus
	leftovers  map[types.NamespacedName]*v1alpha1.ClusterStatus
	// ahead is how far it has seen the spoke's clock to be ahead.
	ahead time.Duration
}

// Spoke and the following methods implement Spokes.
func (p *process) Spoke(name string) *spoke.Spoke {
	if name != p.spoke.Name || p.Process.Away {
		return nil
	}
	return p.spoke
}
func (p *process) Spokes() []*spoke.Spoke {
	if p.Process.Away {
		return nil
	}
	return []*spoke.Spoke{p.spoke}
}
func (p *process) Predecessors(string) []string       { return nil }
func (p *process) Successor(string) string            { return "" }
func (p *process) Away(string) bool                   { return false }
func (p *process) AwaySince(string, time.Time) bool   { return false }
func (p *process) ChangedSoon(string)                 {}
func (p *process) Evaluators(string) spoke.Evaluators { return spoke.Evaluators{Known: true} }

// Report and the following methods implement Reporter.
func (p *process) Report(of rule.Key, _ types.UID, row v1alpha1.ClusterStatus) {
	p.reports[of.NamespacedName()] = &row
	delete(p.leftovers, of.NamespacedName())
}

func (p *process) Leftover(of rule.Key, row v1alpha1.ClusterStatus) {
	p.leftovers[of.NamespacedName()] = &row
	delete(p.reports, of.NamespacedName())
}

func (p *process) Forget(of rule.Key, _ string) {
	delete(p.reports, of.NamespacedName())
	delete(p.leftovers, of.NamespacedName())
}

// explore starts a hub with a spoke.
func explore(s *model.Schedule) *exploration {
	kind := rapid.SampledFrom([]string{v1alpha1.AlertRuleKind, v1alpha1.RulePackKind}).Draw(s.T, "kind")
	e := &exploration{Schedule: s, kind: kind, lost: map[types.NamespacedName]types.UID{}, ahead: map[types.UID]time.Duration{}, decisions: map[[2]client.Object]*decision{}}
	for _, ns := range []string{"shop", "monitoring"} {
		o := spoke.NamespaceMetadata()
		o.Name = ns
		e.Create(e.Spoke, o)
	}
	e.Register(map[string]string{"env": "prod"})
	e.Start = e.start
	e.Managed = func() map[types.NamespacedName]client.Object { return e.Spoke.Objects("PrometheusRule") }
	e.Broken = func() []string {
		if e.denies {
			return []string{"denied"}
		}
		return nil
	}
	e.Mend = func() {
		e.denies = false
		if e.suspended() {
			e.personSuspendsTheSpoke(nil)
		}
	}
	e.Undo = e.hubIsRestored
	e.Begin()
	if rapid.Bool().Draw(e.T, "with rules") {
		e.Say("a person has applied rules, and they have arrived")
		for _, name := range exploredRules {
			e.apply(types.NamespacedName{Namespace: "shop", Name: name}, exploredPlacements["by label"], v1alpha1.Enabled, "up == 0")
		}
		e.Live(time.Minute, e.observe)
	}
	return e
}

// start starts a process.
func (e *exploration) start(of *model.Process) {
	p := &process{Process: of, e: e, reports: map[types.NamespacedName]*v1alpha1.ClusterStatus{}, leftovers: map[types.NamespacedName]*v1alpha1.ClusterStatus{}}
	ctx := context.Background()
	if err := hub.SetupIndexes(ctx, p.OnHub, hubID, "rulefleet-generated"); err != nil {
		e.Fatal(err)
	}
	_ = p.InSpoke.IndexField(ctx, &monitoringv1.PrometheusRule{}, ruleIndex, ruleKeys(hubID))
	rules := &monitoringfake.Clientset{}
	rules.AddReactor("*", "prometheusrules", p.serve)
	p.spoke = &spoke.Spoke{Name: model.SpokeName, Reader: p.InSpoke, Rules: rules, RulesServed: true, Since: time.Now(), Clock: &spoke.Clock{}}
	r := NewReconciler(Options{
		Hub: p.OnHub, Guard: hub.Guard{Kinds: e.Kinds()},
		Witness: hub.NewWitness(), Brake: e.Hold(of, brake.Distribute), Spokes: p, Reporter: p,
		Render: exploredRender, Validator: exploredValidator, Generated: "rulefleet-generated", Contests: contest.New(clock.RealClock{}, 0),
		Evaluations: unasked{}, Propagation: metrics.NewPropagation(clock.RealClock{}),
	})
	p.reconciler, p.SawOnHub, p.SawInSpoke, p.Process.Reconcile = r, p.sawOnHub, p.sawInSpoke, r.Reconcile
	p.Begins = func() { // an answer would be used for another second, in which people may change anything
		r.Guard.Live, p.spoke.Live = live.New(e.Reads(e.Hub), clock.RealClock{}), live.New(e.Reads(e.Spoke), clock.RealClock{})
		p.spoke.Clock.Saw(http.Header{"Date": {e.Spoke.Now().UTC().Format(http.TimeFormat)}}, time.Now(), time.Now())
		p.ahead = max(p.ahead, e.Spoke.Ahead)
	}
	p.Process.Forget = func(name string) {
		r.Forget(name)
		r.Contests.ForgetSpoke(name)
	}
	p.Restored = func() { r.Contests.ForgetSpoke(model.SpokeName) }
	p.Engaged = func() {
		p.spoke.Since = time.Now()
		r.onEngaged(ctx, model.SpokeName, p.Queue)
	}
	e.leader = p
}

var exploredValidator = validation.New(validation.Options{AdminNamespace: admin, GeneratedNamespace: "rulefleet-generated"})

// sawOnHub handles an event of the hub as the controller does.
func (p *process) sawOnHub(c model.Change) {
	switch c.Kind {
	case p.e.kind:
		p.Deliver(p.reconciler.onSource("", nil), c, hub.Edited.Update)
	case "SpokeCluster":
		p.Deliver(p.reconciler.onSpokeCluster("", nil), c, hub.Decided.Update)
	}
}

func (p *process) sawInSpoke(c model.Change) {
	all := func(event.UpdateEvent) bool { return true }
	switch c.Kind {
	case "PrometheusRule":
		p.Deliver(p.reconciler.onPrometheusRule(model.SpokeName, nil), c, all)
	case "Namespace":
		p.Deliver(p.reconciler.onNamespace(model.SpokeName, nil), c, all)
	}
}

// key is the key of the rule of a name.
func (e *exploration) key(name types.NamespacedName) rule.Key {
	return rule.Key{Kind: e.kind, Namespace: name.Namespace, Name: name.Name}
}

func (e *exploration) objectName(name types.NamespacedName) string {
	return rule.ObjectName(hubID, e.key(name))
}

// plural is the plural of the kind of all rules.
func (e *exploration) plural() string { return strings.ToLower(e.kind) + "s" }

// source returns a rule of the hub, or nil.
func (e *exploration) source(name types.NamespacedName) rule.Source {
	s, _ := e.Hub.Find(model.Ref{Kind: e.kind, NamespacedName: name}).(rule.Source)
	return s
}

// wants returns what the hub wants of a rule in the spoke: nil for nothing. known is false if that can't be
// said.
func (e *exploration) wants(key types.NamespacedName) (o *monitoringv1.PrometheusRule, known bool) {
	o, suspended, err := e.decided(key)
	return o, err == nil && !suspended
}

// decided returns what people decided about a rule in the spoke, whether it is written there or not.
func (e *exploration) decided(key types.NamespacedName) (o *monitoringv1.PrometheusRule, suspended bool, err error) {
	source, sc := e.source(key), e.Hub.Find(model.Ref{Kind: "SpokeCluster", NamespacedName: types.NamespacedName{Name: model.SpokeName}})
	if sc == nil {
		return nil, false, errNoCluster
	}
	of := [2]client.Object{source, sc}
	is := e.decisions[of]
	if is == nil {
		c := hub.ClusterOf(sc.(*v1alpha1.SpokeCluster))
		hub.WithEvaluators(c, nil, "")
		o, err := oracle.Wanted(source, *c, exploredRender)
		is = &decision{o, c.Suspended, err}
		e.decisions[of] = is
	}
	return is.o, is.suspended, is.err
}

var errNoCluster = errors.New("there is no SpokeCluster")

func find(s *model.Server, namespace, name string) *monitoringv1.PrometheusRule {
	o, _ := s.Find(model.Ref{Kind: "PrometheusRule", NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}).(*monitoringv1.PrometheusRule)
	return o
}

// serve is the spoke's API server. It checks each write.
func (p *process) serve(action clienttesting.Action) (_ bool, out runtime.Object, err error) {
	if action.GetVerb() == "get" {
		if err = p.e.ReadFault(); err == nil {
			out, err = p.write(action)
		}
		return true, out, err
	}
	if p.e.denies {
		return true, nil, errDenied
	}
	err = p.e.Write(p.Process, action.GetVerb()+" in "+action.GetNamespace(), func() error {
		out, err = p.write(action)
		if p.e.undo != nil {
			p.e.undo()
		}
		return err
	})
	return true, out, err
}

var errDenied = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: `admission webhook "deny.example.org" denied the request: not now`,
}}

func (p *process) write(action clienttesting.Action) (runtime.Object, error) {
	e := p.e
	switch a := action.(type) {
	case clienttesting.CreateActionImpl:
		o := a.GetObject().(*monitoringv1.PrometheusRule)
		e.CountWrite(hub.Key(o).String())
		out, err := e.Spoke.Create(o)
		if err == nil {
			e.ahead[out.GetUID()] = e.Spoke.Ahead
		}
		return asRule(out, err)
	case clienttesting.UpdateActionImpl:
		o := a.GetObject().(*monitoringv1.PrometheusRule)
		if now := find(e.Spoke, o.Namespace, o.Name); now != nil && now.ResourceVersion == o.ResourceVersion {
			if !rule.Owned(now, hubID) {
				e.Violation("the foreign PrometheusRule %s is overwritten", hub.Key(o))
			}
			if now.Annotations[othersNote] != o.Annotations[othersNote] {
				e.Violation("the annotation of another client is removed from %s", hub.Key(o))
			}
		}
		if o.ResourceVersion == "" {
			e.Violation("%s is written whatever was written meanwhile", hub.Key(o))
		}
		e.CountWrite(hub.Key(o).String())
		return asRule(e.Spoke.Update(o))
	case clienttesting.GetActionImpl:
		if o := find(e.Spoke, a.Namespace, a.Name); o != nil {
			return o.DeepCopy(), nil
		}
		return nil, apierrors.NewNotFound(resource, a.Name)
	case clienttesting.DeleteActionImpl:
		if o := find(e.Spoke, a.Namespace, a.Name); o != nil {
			conditions := a.DeleteOptions.Preconditions
			if conditions == nil || conditions.UID == nil || conditions.ResourceVersion == nil {
				e.Violation("%s is deleted, whatever it is by now", hub.Key(o))
			} else if *conditions.UID == o.UID && *conditions.ResourceVersion == o.ResourceVersion {
				e.removes(p, o)
			}
		}
		return nil, e.Spoke.Delete(model.Ref{Kind: "PrometheusRule", NamespacedName: types.NamespacedName{Namespace: a.Namespace, Name: a.Name}}, a.DeleteOptions.Preconditions)
	}
	e.Fatalf("an unexpected %T", action)
	return nil, nil
}

// named returns the rule that an object's annotation names.
func named(o *monitoringv1.PrometheusRule) rule.Key {
	key, _ := rule.ParseRuleKey(o)
	return key
}

func asRule(o client.Object, err error) (runtime.Object, error) {
	if err != nil {
		return nil, err
	}
	return o.DeepCopyObject(), nil
}

// removes checks the removal of a PrometheusRule.
func (e *exploration) removes(p *process, o *monitoringv1.PrometheusRule) {
	if !rule.Owned(o, hubID) {
		e.Violation("the foreign PrometheusRule %s is removed", hub.Key(o))
	}
	of, stands := rule.StandsFor(o, hubID)
	key := of.NamespacedName()
	if !stands {
		return // somebody else made it
	}
	want, known := e.wants(key)
	switch {
	case !known:
		e.Violation("%s is removed, and what the hub wants is unknown", key)
	case want != nil && want.Namespace == o.Namespace && want.Name == o.Name:
		e.Violation("%s is removed, and the hub wants it", key)
	case e.Released(of): // a person asked for it
	case e.ahead[o.UID] > p.ahead: // this process can't know that the object is older than it seems
	case want == nil && e.lost[key] == o.UID:
		e.Violation("%s is removed, and its rule was lost with its kind", key)
	case want == nil && e.Unlabeled[o.UID] && e.byLabel(key):
		e.Violation("%s is removed, and the labels that placed it were lost", key)
	}
	if want != nil {
		return
	}
	holds := 0
	for _, o := range e.Spoke.Objects("PrometheusRule") {
		if _, stands := rule.StandsFor(o, hubID); stands {
			holds++
		}
	}
	if !e.Released(of) {
		e.CountRemoval(p.Process, key.String(), holds)
	}
}

// byLabel reports whether the lost labels would place a rule in the spoke.
func (e *exploration) byLabel(key types.NamespacedName) bool {
	source := e.source(key)
	if source == nil || !rule.MaybeEnabled(source) {
		return false
	}
	placed, err := rule.PlacedIn(source, rule.Cluster{Name: "s", Labels: e.Lost})
	return err == nil && placed
}

// observe notes which rules in the spoke are wanted.
func (e *exploration) observe() {
	wanted := map[string]bool{}
	for _, o := range e.Spoke.Objects("PrometheusRule") {
		of, stands := rule.StandsFor(o, hubID)
		key := of.NamespacedName()
		if !stands {
			continue
		}
		want, known := e.wants(key)
		wanted[key.String()] = !known || want != nil
		if meant, _, err := e.decided(key); err == nil && meant != nil {
			delete(e.lost, key)             // from now on, people decide
			delete(e.Unlabeled, o.GetUID()) // it does not depend on the labels that were lost
		} else if e.source(key) != nil && !e.byLabel(key) {
			delete(e.Unlabeled, o.GetUID()) // a person decided against it
		}
	}
	e.Observe(wanted)
}

// The operations of people, of others in the spoke, of time, and of what is between the processes.

func (e *exploration) rules() map[types.NamespacedName]client.Object {
	return e.Hub.Objects(e.kind)
}

func (e *exploration) pick(label string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: rapid.SampledFrom(exploredRules).Draw(e.T, label)}
}

var exploredRules = []string{"a", "b", "c"}

func (e *exploration) apply(key types.NamespacedName, placement v1alpha1.ClusterSelection, state v1alpha1.State, expr string) {
	ar := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	ar.Spec.AlertSpec = v1alpha1.AlertSpec{Alert: "Down", Expr: expr, For: "1m"}
	ar.Spec.State, ar.Spec.Placement = state, placement
	delete(e.lost, key)
	if now, ok := e.rules()[key]; ok {
		ar.ResourceVersion = now.GetResourceVersion()
		if _, err := e.Hub.Update(inKind(e.kind, ar)); err != nil {
			e.Fatal(err)
		}
		return
	}
	e.Create(e.Hub, inKind(e.kind, ar))
}

var exploredPlacements = map[string]v1alpha1.ClusterSelection{
	"by name":        {Names: []v1alpha1.ClusterName{"s"}},
	"elsewhere":      {Names: []v1alpha1.ClusterName{"other"}},
	"by label":       {Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}},
	"by other label": {Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "dev"}}},
	"everywhere":     {Selector: &metav1.LabelSelector{}},
}

func (e *exploration) personAppliesARule(*rapid.T) {
	if !e.Defined(e.plural()) {
		e.Skip("the kind is lost")
	}
	key := e.pick("rule")
	where := rapid.SampledFrom(slices.Sorted(maps.Keys(exploredPlacements))).Draw(e.T, "placement")
	state := rapid.SampledFrom([]v1alpha1.State{v1alpha1.Enabled, v1alpha1.Enabled, v1alpha1.Disabled}).Draw(e.T, "state")
	e.version++
	e.Budget.Edits++
	e.Say("a person applies rule %s, version %d, placed %s, %s", key.Name, e.version, where, state)
	e.apply(key, exploredPlacements[where], state, fmt.Sprintf("up == %d", e.version))
}

// personEditsTwice applies rules, and once more before the spoke's cache shows the first.
func (e *exploration) personEditsTwice(t *rapid.T) {
	for range 2 {
		e.personAppliesARule(t)
		e.observe()
		e.HubNews(t)
		e.observe()
	}
}

func (e *exploration) personDeletesARule(*rapid.T) {
	key := e.pick("rule")
	if e.rules()[key] == nil {
		e.Skip("there is none")
	}
	e.Say("a person deletes rule %s", key.Name)
	delete(e.lost, key)
	_ = e.Hub.Delete(model.Ref{Kind: e.kind, NamespacedName: key}, nil)
}

func (e *exploration) personAppliesMany(*rapid.T) {
	if !e.Defined(e.plural()) || e.rules()[model.Many(0)] != nil {
		e.Skip("not now")
	}
	e.Say("a person applies %d rules", model.Crowd)
	for i := range model.Crowd {
		e.apply(model.Many(i), exploredPlacements["by label"], v1alpha1.Enabled, "up == 0")
	}
}

func (e *exploration) personDeletesMany(*rapid.T) {
	if e.rules()[model.Many(0)] == nil {
		e.Skip("there are none")
	}
	e.Say("a person deletes %d rules", model.Crowd)
	for i := range model.Crowd {
		delete(e.lost, model.Many(i))
		_ = e.Hub.Delete(model.Ref{Kind: e.kind, NamespacedName: model.Many(i)}, nil)
	}
}

func (e *exploration) suspended() bool {
	sc, ok := e.Hub.Find(model.Ref{Kind: "SpokeCluster", NamespacedName: types.NamespacedName{Name: model.SpokeName}}).(*v1alpha1.SpokeCluster)
	return ok && ptr.Deref(sc.Spec.Suspend, false)
}

func (e *exploration) personSuspendsTheSpoke(*rapid.T) {
	sc, on := e.SpokeCluster(), !e.suspended()
	e.Say("a person suspends the spoke: %v", on)
	sc.Spec.Suspend = &on
	e.Budget.Edits++
	_, _ = e.Hub.Update(sc)
}

func (e *exploration) hubLosesRules(*rapid.T) {
	if !e.Defined(e.plural()) || e.backup != nil {
		e.Skip("they are lost")
	}
	e.Say("the hub loses the kind %s", e.kind)
	e.backup = []rule.Source{}
	e.Lose(e.plural(), e.kind, func(key types.NamespacedName, o client.Object) {
		want, known := e.wants(key)
		unwanted := known && want == nil || !rule.MaybeEnabled(o.(rule.Source)) // a person decided that
		if o := find(e.Spoke, "shop", e.objectName(key)); o != nil && !unwanted {
			e.lost[key] = o.UID
		}
		e.backup = append(e.backup, o.(rule.Source))
	})
}

func (e *exploration) hubDefinesRulesAgain(*rapid.T) { e.DefineAgain(e.plural()) }

func (e *exploration) personRestoresRules(*rapid.T) {
	if !e.Defined(e.plural()) || e.backup == nil {
		e.Skip("nothing to restore")
	}
	whole := rapid.Bool().Draw(e.T, "whole")
	e.Say("a person restores the backup of rules, whole: %v", whole)
	slices.SortFunc(e.backup, func(a, b rule.Source) int { return oracle.CompareKeys(hub.Key(a), hub.Key(b)) })
	for i, was := range e.backup {
		if (!whole && i%2 == 1) || e.rules()[hub.Key(was)] != nil {
			continue
		}
		is := asAlertRule(was.DeepCopyObject().(client.Object))
		is.ObjectMeta, is.Status = metav1.ObjectMeta{Namespace: was.GetNamespace(), Name: was.GetName()}, v1alpha1.RuleStatus{}
		e.Create(e.Hub, inKind(e.kind, is))
		delete(e.lost, hub.Key(was))
	}
	e.backup = nil
	e.Budget.Edits++
}

// hubIsRestored records the rules that a restore removes, disables, or places elsewhere. Nobody asked for their removal.
func (e *exploration) hubIsRestored() (done func()) {
	before := map[types.NamespacedName]types.UID{}
	var labels map[string]string
	for _, sc := range e.Hub.Objects("SpokeCluster") {
		labels = sc.GetLabels()
	}
	unlabeled := map[types.UID]bool{}
	for _, o := range e.Spoke.Objects("PrometheusRule") {
		of, stands := rule.StandsFor(o, hubID)
		key := of.NamespacedName()
		if meant, _, err := e.decided(key); stands && (err != nil || meant != nil || e.lost[key] == o.GetUID()) {
			before[key] = o.GetUID()
		}
		unlabeled[o.GetUID()] = true
	}
	return func() {
		clear(e.lost)
		for key, uid := range before {
			if meant, _, err := e.decided(key); err != nil || meant == nil {
				e.lost[key] = uid
			}
		}
		for _, sc := range e.Hub.Objects("SpokeCluster") {
			if len(labels) > 0 && !maps.Equal(labels, sc.GetLabels()) {
				e.Lost, e.Unlabeled = labels, unlabeled
			}
		}
	}
}

// ours picks an object of a rule in the spoke.
func (e *exploration) ours() *monitoringv1.PrometheusRule {
	key := e.pick("rule")
	o := find(e.Spoke, "shop", e.objectName(key))
	if o == nil || !rule.Owned(o, hubID) {
		e.Skip("there is none")
	}
	return o.DeepCopy()
}

func (e *exploration) otherWrites(*rapid.T) {
	o := e.ours()
	e.Disturbed = true
	switch what := rapid.SampledFrom([]string{"expression", "hub", "rule", "note"}).Draw(e.T, "what"); what {
	case "expression":
		e.Say("another client changes the expression of %s", named(o))
		o = reverted(o)
	case "hub":
		e.Say("another client takes the hub's label from %s", named(o))
		delete(o.Labels, v1alpha1.HubLabel)
	case "rule":
		e.Say("another client writes another rule's name on %s", named(o))
		_, annotations := rule.NamesOf(e.key(e.pick("other")))
		maps.Copy(o.Annotations, annotations)
	case "note":
		e.Say("another client adds an annotation to %s, and changes its expression", named(o))
		o = reverted(o)
		o.Annotations[othersNote] = "another's"
	}
	_, _ = e.Spoke.Update(o)
}

// othersNote is the key of an annotation of another client.
const othersNote = "example.org/note"

// otherInsists has another client undo each write of an object for some minutes.
func (e *exploration) otherInsists(*rapid.T) {
	o := e.ours()
	e.Disturbed = true
	key, deletes := hub.Key(o), rapid.Bool().Draw(e.T, "deletes")
	e.Say("another client undoes each write of %s for 5 minutes, by deleting it: %v", key.Name, deletes)
	e.undo = func() {
		switch now := find(e.Spoke, key.Namespace, key.Name); {
		case now == nil:
		case deletes:
			_ = e.Spoke.Delete(model.RefOf(now), nil)
		default:
			_, _ = e.Spoke.Update(reverted(now))
		}
	}
	e.undo()
	e.Live(5*time.Minute, e.observe)
	e.undo = nil
}

// reverted returns an object with another expression.
func reverted(o *monitoringv1.PrometheusRule) *monitoringv1.PrometheusRule {
	o = o.DeepCopy()
	for i := range o.Spec.Groups {
		for j := range o.Spec.Groups[i].Rules {
			o.Spec.Groups[i].Rules[j].Expr.StrVal = "vector(1)"
		}
	}
	return o
}

// webhookDenies has an admission webhook in the spoke deny each write for some minutes. What can't be removed meanwhile is
// reported as such.
func (e *exploration) webhookDenies(*rapid.T) {
	e.denies = !e.denies
	e.Say("an admission webhook in the spoke denies writes: %v", e.denies)
	e.Disturbed = true
}

// checkLeftovers checks, after everything arrived, what is reported of rules that could not be removed. If the spoke was
// suspended, and all that runs knew it, nothing is written there meanwhile.
func (e *exploration) checkLeftovers(*rapid.T) {
	before, suspended := maps.Clone(e.Spoke.Objects("PrometheusRule")), e.suspended() && e.UpToDate() && e.Former == nil
	e.Say("everything arrives, for five minutes")
	e.Live(5*time.Minute, e.observe)
	for name, o := range e.Spoke.Objects("PrometheusRule") {
		if was := before[name]; suspended && (was == nil || was.GetResourceVersion() != o.GetResourceVersion()) {
			e.Violation("PrometheusRule %s is written, and the spoke is suspended", name)
		}
	}
	if !e.denies || e.ReadsFail() || !e.Defined(e.plural()) || !e.UpToDate() || e.Former != nil {
		return
	}
	for name, o := range e.Spoke.Objects("PrometheusRule") {
		of, stands := rule.StandsFor(o, hubID)
		key := of.NamespacedName()
		if want, known := e.wants(key); !stands || !known || want != nil || !rule.Owned(o, hubID) || len(e.leader.reconciler.Brake.Owners(brake.Distribute, model.SpokeName)) > 0 {
			continue // it is wanted, or its removal is held, or was and is about to be tried again
		}
		if row := e.leader.leftovers[key]; row == nil || row.Reason != v1alpha1.ReasonRejected {
			e.Violation("PrometheusRule %s of %s can't be removed, and what is reported is %+v", name, key, row)
		}
	}
}

func (e *exploration) otherDeletes(*rapid.T) {
	o := e.ours()
	e.Disturbed = true
	e.Say("another client deletes the PrometheusRule of %s", named(o))
	_ = e.Spoke.Delete(model.RefOf(o), nil)
}

func (e *exploration) otherCreates(*rapid.T) {
	key := e.pick("rule")
	name := e.objectName(key)
	if find(e.Spoke, "shop", name) != nil {
		e.Skip("it is taken")
	}
	e.Disturbed = true
	e.Say("another client creates a PrometheusRule with the name of rule %s's", key.Name)
	e.Create(e.Spoke, &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}})
}

// check compares the spoke with the hub.
func (e *exploration) check() {
	sc, err := hub.Cluster(context.Background(), e.Hub, "s")
	if err != nil {
		e.Fatal(err)
	}
	if sc.Suspended {
		return
	}
	hub.WithEvaluators(sc, nil, "")
	state := &oracle.Spoke{
		Cluster: *sc, Options: exploredRender, Rules: map[types.NamespacedName]rule.Source{}, Holds: map[types.NamespacedName]*monitoringv1.PrometheusRule{},
		Row:     func(key types.NamespacedName) *v1alpha1.ClusterStatus { return e.leader.reports[key] },
		Excused: func(key types.NamespacedName, _ *monitoringv1.PrometheusRule) bool { return e.Pending(e.key(key)) },
	}
	for key, o := range e.rules() {
		state.Rules[key] = o.(rule.Source)
	}
	for key, o := range e.Spoke.Objects("PrometheusRule") {
		state.Holds[key] = o.(*monitoringv1.PrometheusRule)
	}
	for key, row := range e.leader.leftovers {
		if !e.Pending(e.key(key)) {
			e.Violation("nothing of %s is left, and this is reported: %+v", key, row)
		}
	}
	if faults := state.Faults(); len(faults) > 0 {
		e.Violation("%s", strings.Join(faults, "; "))
	}
}

// TestExplore runs random schedules of operations and faults, and checks what must hold at any time and after
// quiet: see explore.Run.
func TestExplore(t *testing.T) {
	model.Explore(t, func(s *model.Schedule) {
		e := explore(s)
		e.Run(map[string]func(*rapid.T){
			"apply": e.personAppliesARule, "applyTwice": e.personEditsTwice, "delete": e.personDeletesARule,
			"applyMany": e.personAppliesMany, "deleteMany": e.personDeletesMany,
			"suspend":   e.personSuspendsTheSpoke,
			"loseRules": e.hubLosesRules, "defineRules": e.hubDefinesRulesAgain, "restore": e.personRestoresRules,
			"deny": e.webhookDenies, "arriveAndLeave": e.checkLeftovers,
			"otherWrites": e.otherWrites, "otherDeletes": e.otherDeletes, "otherInsists": e.otherInsists, "otherCreates": e.otherCreates,
		}, e.observe, e.check)
	})
}
