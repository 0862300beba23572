package status

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/rollup"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	spokequeue "github.com/rulefleet/rulefleet/pkg/spoke/queue"
	"github.com/rulefleet/rulefleet/pkg/testing/model"
	"github.com/rulefleet/rulefleet/pkg/testing/oracle"
)

// exploration is a hub with spokes, which say something about rules, and what must hold whatever happens.
type exploration struct {
	*model.Schedule

	leader *explorer
	// says is what spokes say about rules, and down which do not answer, both by the UID of the SpokeCluster: another
	// cluster of the same name says something else.
	says    map[types.UID]map[types.NamespacedName]v1alpha1.ClusterStatus
	down    map[types.UID]bool
	writes  map[string]int // of statuses
	version int
	// unknown are the rows of former clusters that a process can't know to be such: see confuses and claims.
	unknown map[string]bool
	// said has the AlertRules about which a spoke has said something, by the UIDs of both.
	said map[[2]types.UID]bool
}

// explorer is a process with the Reconciler, and with what reports verdicts.
type explorer struct {
	*model.Process

	e *exploration
	// parked are the requests that wait until a spoke answers.
	parked map[spokequeue.Request]bool
	// seen are the SpokeClusters that it has seen.
	seen    map[string]bool
	rules   *Reconciler
	spokes  *spokes
	onSpoke eventHandler
	queue   queue
}

// ruleQueue is the queue of AlertRules.
type ruleQueue struct {
	queue // what is not needed

	of *model.Queue
}

// AddAfter implements queue.
func (q *ruleQueue) AddAfter(key rule.Key, after time.Duration) {
	q.of.AddAfter(hub.Request("", key), after)
}

// aboutSpokes marks the keys of the reconciler of SpokeClusters. Keys with another cluster are those of verdicts.
const aboutSpokes = multicluster.ClusterName("status-spokes")

// hubClient checks what is written.
type hubClient struct {
	model.Client

	e *exploration
}

// Status implements client.StatusClient.
func (c *hubClient) Status() client.SubResourceWriter {
	return &checkedWriter{SubResourceWriter: c.Client.Status(), c: c}
}

type checkedWriter struct {
	client.SubResourceWriter

	c *hubClient
}

// Patch implements client.SubResourceWriter.
func (w *checkedWriter) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	w.c.e.writes[o.GetName()]++
	w.c.e.claims(w.c.Process, o.(*v1alpha1.AlertRule))
	return w.SubResourceWriter.Patch(ctx, o, patch, opts...) //nolint:wrapcheck // it is the client's
}

var (
	exploredRules  = []string{"a", "b"}
	exploredSpokes = []string{model.SpokeName, "r"}
)

func explore(s *model.Schedule) *exploration {
	e := &exploration{
		Schedule: s, says: map[types.UID]map[types.NamespacedName]v1alpha1.ClusterStatus{}, down: map[types.UID]bool{}, writes: map[string]int{}, unknown: map[string]bool{}, said: map[[2]types.UID]bool{},
	}
	e.Start = e.start
	e.Managed = func() map[types.NamespacedName]client.Object { return nil }
	e.Broken = func() []string {
		for _, sc := range e.Hub.Objects("SpokeCluster") {
			if e.down[sc.GetUID()] {
				return []string{"a spoke is down"}
			}
		}
		return nil
	}
	for _, name := range exploredSpokes {
		e.Create(e.Hub, &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"env": "prod"}}})
	}
	e.connect()
	e.Begin()
	return e
}

func (e *exploration) start(p *model.Process) {
	ctx := context.Background()
	if err := hub.SetupIndexes(ctx, p.OnHub, "hub", "generated"); err != nil {
		e.Fatal(err)
	}
	board := newBoard()
	x := &explorer{Process: p, e: e, parked: map[spokequeue.Request]bool{}, seen: map[string]bool{}, queue: &ruleQueue{of: p.Queue}}
	x.rules = &Reconciler{
		Client: &hubClient{Client: model.Client{Schedule: e.Schedule, Process: p}, e: e}, Board: board, Recorder: model.NoEvents{},
		Validator: validation.New(validate), Contests: contest.New(clock.RealClock{}, 0),
	}
	board.news.Listen(func(key rule.Key) { x.queue.AddAfter(key, debounce) })
	x.rules.rules.Store(&x.queue)
	x.onSpoke = x.rules.onSpokeCluster()
	x.spokes = &spokes{reader: p.OnHub, damper: &x.rules.damper, board: board, notify: x.rules.onShown}
	p.SawOnHub, p.SawInSpoke, p.Begins, p.Reconcile = x.saw, func(model.Change) {}, func() {}, x.reconcile
	p.Engaged = func() {}
	e.leader = x
	for _, o := range e.Hub.Objects("AlertRule") {
		e.confuses(o.(*v1alpha1.AlertRule))
	}
}

// confuses notes the rows of former clusters in a status that was written since. After a restart, the time of the last
// write decides, whoever made it.
func (e *exploration) confuses(ar *v1alpha1.AlertRule) {
	for i := range ar.Status.Clusters {
		row := &ar.Status.Clusters[i]
		if sc := e.registered(string(row.Name)); sc != nil && row.Rule != of(sc) && !rollup.Predates(ar, sc.CreationTimestamp) {
			e.unknown[ar.Name+row.Rule] = true
		}
	}
}

func (e *exploration) registered(name string) *v1alpha1.SpokeCluster {
	sc, _ := e.Hub.Find(model.Ref{Kind: "SpokeCluster", NamespacedName: types.NamespacedName{Name: name}}).(*v1alpha1.SpokeCluster)
	return sc
}

// of stands for the name of an object, by which the clusters of a name are told apart.
func of(sc *v1alpha1.SpokeCluster) string { return "of/" + string(sc.UID) }

// saw handles an event as the controllers do.
func (x *explorer) saw(c model.Change) {
	ctx := context.Background()
	h := eventHandler(later{})
	if c.Kind == "SpokeCluster" {
		h = x.onSpoke
		if sc, ok := c.New.(*v1alpha1.SpokeCluster); ok {
			x.seen[of(sc)] = true
		}
	} else if c.Kind != "AlertRule" {
		return
	}
	edited := true
	switch {
	case c.New == nil:
		h.Delete(ctx, event.DeleteEvent{Object: c.Old}, x.queue)
	case c.Old == nil:
		h.Create(ctx, event.CreateEvent{Object: c.New}, x.queue)
	default:
		update := event.UpdateEvent{ObjectOld: c.Old, ObjectNew: c.New}
		edited = hub.Decided.Update(update)
		h.Update(ctx, update, x.queue)
	}
	switch {
	case c.Kind == "AlertRule" && edited:
		for _, name := range exploredSpokes {
			x.judge(name, c.NamespacedName)
		}
	case c.Kind == "SpokeCluster":
		x.Queue.Add(spokequeue.Request{ClusterName: aboutSpokes, Request: reconcile.Request{NamespacedName: c.NamespacedName}})
		if edited || c.New == nil || x.e.connected(c.Old) != x.e.connected(c.New) { // it is engaged again
			x.judgeAll(c.Name)
		}
	}
}

// judge enqueues the verdict on a rule in a spoke.
func (x *explorer) judge(spoke string, key types.NamespacedName) {
	x.Queue.Add(hub.Request(spoke, rule.AlertRuleKey(key.Namespace, key.Name)))
}

func (x *explorer) judgeAll(spoke string) {
	for _, name := range exploredRules {
		x.judge(spoke, types.NamespacedName{Namespace: "shop", Name: name})
	}
}

func (x *explorer) reconcile(ctx context.Context, req spokequeue.Request) (reconcile.Result, error) {
	switch req.ClusterName {
	case "":
		return x.rules.Reconcile(ctx, hub.KeyOf(req))
	case aboutSpokes:
		return x.spokes.Reconcile(ctx, req.Request)
	}
	return reconcile.Result{}, x.report(ctx, req)
}

// report stands for package distribute: it reports what a spoke says about a rule, as long as it answers.
func (x *explorer) report(ctx context.Context, req spokequeue.Request) error {
	sc, ar := &v1alpha1.SpokeCluster{}, &v1alpha1.AlertRule{}
	name := req.ClusterName.String()
	err := x.OnHub.Get(ctx, client.ObjectKey{Name: name}, sc)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if x.e.down[sc.UID] {
		x.parked[req] = true
		return nil
	}
	err = client.IgnoreNotFound(x.OnHub.Get(ctx, req.NamespacedName, ar))
	if err != nil {
		return err
	}
	switch placed, err := rule.PlacedIn(ar, rule.Cluster{Name: sc.Name, Labels: sc.Labels}); {
	case ar.Name == "", err == nil && !placed:
		x.rules.Board.Forget(hub.KeyOf(req), name)
	case err == nil && x.rules.Validator.Validate(ar) == nil:
		row := x.e.row(sc, ar)
		x.e.said[[2]types.UID{sc.UID, ar.UID}] = true
		x.rules.Board.Report(hub.KeyOf(req), ar.UID, row)
	}
	return nil
}

// row is what a spoke says about a rule.
func (e *exploration) row(sc *v1alpha1.SpokeCluster, ar *v1alpha1.AlertRule) v1alpha1.ClusterStatus {
	row, said := e.says[sc.UID][hub.Key(ar)]
	if !said {
		row.Phase = v1alpha1.PhaseApplied
	}
	row.Name, row.Rule, row.ObservedGeneration = v1alpha1.ClusterName(sc.Name), of(sc), ar.Generation
	return row
}

// connected returns the status of condition Connected.
func (e *exploration) connected(o client.Object) metav1.ConditionStatus {
	if sc, ok := o.(*v1alpha1.SpokeCluster); ok && sc != nil {
		if c := apimeta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionConnected); c != nil {
			return c.Status
		}
	}
	return ""
}

// connect stands for the registrar: it shows which spokes answer.
func (e *exploration) connect() {
	for _, o := range e.Hub.Objects("SpokeCluster") {
		sc := o.DeepCopyObject().(*v1alpha1.SpokeCluster)
		is := metav1.Condition{Type: v1alpha1.ConditionConnected, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConnected}
		if e.down[sc.UID] {
			is.Status, is.Reason = metav1.ConditionFalse, v1alpha1.ReasonUnreachable
		}
		is.LastTransitionTime = metav1.NewTime(time.Now())
		if apimeta.SetStatusCondition(&sc.Status.Conditions, is) {
			_, _ = e.Hub.UpdateStatus(sc)
		}
		if x := e.leader; x != nil && !e.down[sc.UID] {
			maps.DeleteFunc(x.parked, func(req spokequeue.Request, _ bool) bool {
				answers := req.ClusterName.String() == sc.Name
				if answers {
					x.Queue.Add(req)
				}
				return answers
			})
		}
	}
}

// claims checks a status that a process is about to write: it has no row of a cluster that, as the process knows, does
// not have the name any more. What a former leader writes, which does not know it yet, is new to the leader.
func (e *exploration) claims(p *model.Process, ar *v1alpha1.AlertRule) {
	for i := range ar.Status.Clusters {
		row := &ar.Status.Clusters[i]
		sc := &v1alpha1.SpokeCluster{}
		switch {
		case p.OnHub.Get(context.Background(), client.ObjectKey{Name: string(row.Name)}, sc) != nil || row.Rule == "":
		case p != e.Leader:
			e.unknown[ar.Name+row.Rule] = true
		case row.Rule != of(sc) && !e.leader.seen[row.Rule] && !rollup.Predates(ar, sc.CreationTimestamp):
			e.unknown[ar.Name+row.Rule] = true // the former cluster left before this process started, and the hub's clock was set back
		case row.Rule != of(sc) && !e.unknown[ar.Name+row.Rule]:
			e.Violation("%s is about to be written with a row of a former cluster: %+v, and not %s", ar.Name, row, of(sc))
		}
	}
}

func (e *exploration) check() {
	validator := validation.New(validate)
	all := e.Hub.Objects("AlertRule")
	var faults []string
	for _, key := range slices.SortedFunc(maps.Keys(all), oracle.CompareKeys) {
		ar := all[key].(*v1alpha1.AlertRule)
		want := map[string]oracle.Delivery{}
		for _, name := range exploredSpokes {
			sc := e.registered(name)
			registered := sc != nil
			if !registered {
				sc = &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
			}
			placed, err := rule.PlacedIn(ar, rule.Cluster{Name: name, Labels: sc.Labels})
			if err == nil && placed && (registered || ar.Spec.Placement.Selector == nil) && ar.Spec.State != v1alpha1.Disabled {
				want[name] = oracle.Delivery{Registered: registered, Down: e.down[sc.UID], Silent: !e.said[[2]types.UID{sc.UID, ar.UID}], Row: e.row(sc, ar), Stale: func(object string) bool { return e.unknown[ar.Name+object] }}
			}
		}
		faults = append(faults, oracle.StatusFaults(ar, validator.Validate(ar) == nil, want)...)
	}
	if len(faults) > 0 {
		e.Violation("%s", strings.Join(faults, "; "))
	}
}

// The operations of people, of spokes, and of other clients.

func (e *exploration) pick() types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: rapid.SampledFrom(exploredRules).Draw(e.T, "rule")}
}

func (e *exploration) spoke() *v1alpha1.SpokeCluster {
	name := rapid.SampledFrom(exploredSpokes).Draw(e.T, "spoke")
	sc := e.registered(name)
	if sc == nil {
		e.Skip("there is none")
	}
	return sc
}

var exploredPlacements = map[string]v1alpha1.ClusterSelection{
	"everywhere": {Selector: &metav1.LabelSelector{}},
	"by label":   {Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}},
	"by name":    {Names: []v1alpha1.ClusterName{"s"}},
	"by names":   {Names: []v1alpha1.ClusterName{"s", "r"}},
}

func (e *exploration) personAppliesARule(*rapid.T) {
	if !e.Defined("alertrules") {
		e.Skip("the kind is lost")
	}
	key := e.pick()
	where := rapid.SampledFrom(slices.Sorted(maps.Keys(exploredPlacements))).Draw(e.T, "placement")
	state := rapid.SampledFrom([]v1alpha1.State{v1alpha1.Enabled, v1alpha1.Enabled, v1alpha1.Disabled}).Draw(e.T, "state")
	valid := rapid.IntRange(0, 4).Draw(e.T, "valid") < 4
	e.version++
	e.Budget.Edits++
	expr := fmt.Sprintf("up == %d", e.version)
	if !valid {
		expr = fmt.Sprintf("up == (%d", e.version)
	}
	e.Say("a person applies %s: %s, placed %s, %s", key.Name, expr, where, state)
	ar := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	ar.Spec.AlertSpec = v1alpha1.AlertSpec{Alert: "Down", Expr: expr}
	ar.Spec.State, ar.Spec.Placement = state, exploredPlacements[where]
	if e.Hub.Find(model.RefOf(ar)) == nil {
		e.Create(e.Hub, ar)
		return
	}
	_, _ = e.Hub.Update(ar)
}

func (e *exploration) personDeletesARule(*rapid.T) {
	r := model.Ref{Kind: "AlertRule", NamespacedName: e.pick()}
	if e.Hub.Find(r) == nil {
		e.Skip("there is none")
	}
	e.Say("a person deletes %s", r.Name)
	_ = e.Hub.Delete(r, nil)
}

// clusterIsReplaced registers another cluster by the same name.
func (e *exploration) clusterIsReplaced(*rapid.T) {
	sc, answers, between := e.spoke(), rapid.Bool().Draw(e.T, "answers"), rapid.Bool().Draw(e.T, "all notice")
	e.Say("another cluster is registered as %s, and answers: %v", sc.Name, answers)
	e.Budget.Edits++
	_ = e.Hub.Delete(model.RefOf(sc), nil)
	if between {
		e.Live(time.Minute, e.connect)
	}
	e.Pass(2 * time.Second)
	next := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: sc.Name, Labels: sc.Labels}}
	e.Create(e.Hub, next)
	e.down[e.Hub.Find(model.RefOf(next)).GetUID()] = !answers
}

func (e *exploration) spokeGoesDownOrUp(*rapid.T) { e.turn(e.spoke()) }

func (e *exploration) turn(sc *v1alpha1.SpokeCluster) {
	e.down[sc.UID] = !e.down[sc.UID]
	e.Say("spoke %s answers: %v", sc.Name, !e.down[sc.UID])
	e.Budget.Edits++
	e.connect()
}

// maxFlapWrites is how often the status of a rule may be written while a spoke goes down and up for 10 minutes.
const maxFlapWrites = 8

func (e *exploration) spokeFlaps(*rapid.T) {
	sc := e.spoke()
	e.Say("spoke %s goes down and up for 10 minutes", sc.Name)
	e.Live(time.Minute, e.connect) // what was before is written
	before := maps.Clone(e.writes)
	for range 20 {
		e.turn(sc)
		e.Live(30*time.Second, e.connect)
	}
	for name, n := range e.writes {
		if n -= before[name]; n > maxFlapWrites {
			e.Violation("while a spoke goes down and up for 10 minutes, the status of %s is written %d times", name, n)
		}
	}
}

var exploredRows = map[string]v1alpha1.ClusterStatus{
	"applied":    {Phase: v1alpha1.PhaseApplied},
	"evaluating": {Phase: v1alpha1.PhaseEvaluating},
	"firing":     {Phase: v1alpha1.PhaseEvaluating, Firing: 1},
	"loading":    {Phase: v1alpha1.PhaseSelected, Reason: v1alpha1.ReasonLoading, Message: "it is about to be loaded"},
	"refused":    {Phase: v1alpha1.PhasePending, Reason: v1alpha1.ReasonRejected, Message: "refused"},
}

func (e *exploration) spokeSaysSomethingElse(*rapid.T) {
	key, sc := e.pick(), e.spoke()
	what := rapid.SampledFrom(slices.Sorted(maps.Keys(exploredRows))).Draw(e.T, "row")
	e.Say("spoke %s says of %s: %s", sc.Name, key.Name, what)
	e.Budget.Edits++
	if e.says[sc.UID] == nil {
		e.says[sc.UID] = map[types.NamespacedName]v1alpha1.ClusterStatus{}
	}
	e.says[sc.UID][key] = exploredRows[what]
	for _, p := range []*model.Process{e.Leader, e.Former} {
		if p != nil {
			p.Queue.Add(hub.Request(sc.Name, rule.AlertRuleKey(key.Namespace, key.Name)))
		}
	}
}

// clockIsSet makes the times at which spokes went down or came back look earlier or later, as when the clock of the
// process that wrote them was wrong.
func (e *exploration) clockIsSet(*rapid.T) {
	by := rapid.SampledFrom([]time.Duration{-24 * time.Hour, -time.Hour, time.Hour, 24 * time.Hour}).Draw(e.T, "by")
	e.Say("the times of outages are %v later", by)
	e.Budget.Edits++
	for _, o := range e.Hub.Objects("SpokeCluster") {
		sc := o.DeepCopyObject().(*v1alpha1.SpokeCluster)
		if c := apimeta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionConnected); c != nil {
			c.LastTransitionTime = metav1.NewTime(c.LastTransitionTime.Add(by))
			_, _ = e.Hub.UpdateStatus(sc)
		}
	}
}

func (e *exploration) otherWritesAStatus(*rapid.T) {
	ar, ok := e.Hub.Find(model.Ref{Kind: "AlertRule", NamespacedName: e.pick()}).(*v1alpha1.AlertRule)
	if !ok {
		e.Skip("there is none")
	}
	ar = ar.DeepCopy()
	empty := rapid.Bool().Draw(e.T, "empty")
	e.Say("another client writes the status of %s, empty: %v", ar.Name, empty)
	if ar.Status.Conditions = nil; empty {
		ar.Status = v1alpha1.RuleStatus{}
	}
	if written, err := e.Hub.UpdateStatus(ar); err == nil {
		e.confuses(written.(*v1alpha1.AlertRule))
	}
}

// TestExplore runs random schedules of operations and faults, and checks what must hold at any time and after
// quiet: see explore.Run.
func TestExplore(t *testing.T) {
	model.Explore(t, func(s *model.Schedule) {
		e := explore(s)
		e.Run(map[string]func(*rapid.T){
			"apply": e.personAppliesARule, "delete": e.personDeletesARule, "replace": e.clusterIsReplaced,
			"downOrUp": e.spokeGoesDownOrUp, "flap": e.spokeFlaps, "say": e.spokeSaysSomethingElse, "sayMore": e.spokeSaysSomethingElse,
			"otherWrites": e.otherWritesAStatus, "outageTimes": e.clockIsSet,
		}, e.connect, e.check)
	})
}
