package model

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
	"github.com/rulefleet/rulefleet/pkg/testing/explore"
	"github.com/rulefleet/rulefleet/pkg/testing/oracle"
)

const (
	// SpokeName is the name of the spoke.
	SpokeName = "s"
	// oldestList is how many changes a first list may be behind.
	oldestList = 12
	// maxRuns bounds how often requests are reconciled until there is quiet.
	maxRuns = 5000
)

// Schedule is a hub, a spoke, and the processes that manage them, to which things happen in a random order.
type Schedule struct {
	*explore.Script
	// Budget bounds what the processes write.
	Budget *oracle.Budget

	Hub, Spoke *Server
	// Start returns a process with these caches.
	Start func(p *Process)
	// Leader is the process that leads. Former is one that does not know yet that it no longer leads; it may be
	// nil.
	Leader, Former *Process
	// Managed returns the objects that the processes manage, and possibly others.
	Managed func() map[types.NamespacedName]client.Object
	// Disturbed reports whether a write may rightly fail.
	Disturbed bool
	// Lost has the labels of the SpokeCluster that were lost with its kind, and Unlabeled the managed objects of
	// that time: nobody asked for the removal of those that are not wanted without the labels.
	Lost      map[string]string
	Unlabeled map[types.UID]bool

	// Undo is called before the hub is restored from a backup. The function it returns is called afterwards. If Undo is
	// nil, the hub is never restored.
	Undo func() (done func())

	// Broken returns what else is broken at present, and Mend mends it. They may be nil.
	Broken func() []string
	Mend   func()

	fault    string          // of the next write
	unread   int             // how many of the next reads past the caches fail
	lagged   time.Duration   // how long the leader's caches have been behind
	released map[string]bool // the rules whose removal a person acknowledged, as a SpokeCluster lists them
	// hubBegin and spokeBegin are how many changes there were at the start.
	hubBegin, spokeBegin int
}

// kinds are those of the API.
var kinds = []struct{ plural, kind string }{
	{"alertrules", "AlertRule"}, {"rulepacks", "RulePack"}, {"alertruletemplates", "AlertRuleTemplate"}, {"spokeclusters", "SpokeCluster"},
}

// Explore checks a property of random schedules: see explore.Run.
func Explore(t *testing.T, property func(*Schedule)) {
	t.Helper()
	explore.Run(t, usual, func(s *explore.Script) { property(newSchedule(s)) })
}

// newSchedule returns a Schedule whose hub has the kinds of the API.
func newSchedule(script *explore.Script) *Schedule {
	s := &Schedule{Script: script, Budget: oracle.NewBudget(Hold), Hub: NewServer(time.Now), Spoke: NewServer(time.Now), released: map[string]bool{}}
	for _, k := range kinds {
		s.Define(k.plural)
	}
	s.recordKinds()
	return s
}

// Begin starts the first process.
func (s *Schedule) Begin() {
	s.Pass(time.Minute)
	s.hubBegin, s.spokeBegin = s.Hub.Length(), s.Spoke.Length()
	s.lead(s.hubBegin, s.spokeBegin)
}

// lead makes another process the leader. Its caches begin with a number of changes.
func (s *Schedule) lead(hubAt, spokeAt int) {
	p := &Process{OnHub: NewCache(s.Hub, hubAt), InSpoke: NewCache(s.Spoke, spokeAt), Away: true, Queue: &Queue{due: map[queue.Request]time.Time{}}}
	s.Leader = p
	s.Start(p)
	for _, c := range p.OnHub.First() {
		p.SawOnHub(c)
	}
	p.engage()
}

// patience is how long a process waits until its cache shows its own write. Then it may write from what is old.
const patience = 10 * time.Second

// Pass lets time pass. What timers do then is done when it returns.
func (s *Schedule) Pass(d time.Duration) {
	if p := s.Leader; p != nil && p.OnHub.Behind()+p.InSpoke.Behind() > 0 {
		s.lagged += d
		s.Disturbed = s.Disturbed || s.lagged >= patience
	} else {
		s.lagged = 0
	}
	time.Sleep(d) //nolint:forbidigo // of the bubble's clock
	synctest.Wait()
}

// Create creates an object that does not exist.
func (s *Schedule) Create(on *Server, o client.Object) {
	if _, err := on.Create(o); err != nil {
		s.Fatal(err)
	}
}

func definition(name string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.APIVersion, o.Kind = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
	o.Name = name + "." + v1alpha1.Group
	return o
}

// Define creates the CustomResourceDefinition of a kind, by its plural.
func (s *Schedule) Define(plural string) { s.Create(s.Hub, definition(plural)) }

// Defined reports whether a kind is defined.
func (s *Schedule) Defined(plural string) bool { return s.Hub.Find(RefOf(definition(plural))) != nil }

// Lose deletes a kind with all its objects, and calls each for them.
func (s *Schedule) Lose(plural, kind string, each func(types.NamespacedName, client.Object)) {
	s.Terminate(plural, kind, each)
	s.Undefine(plural, kind)
}

// Terminate begins to delete a kind: it deletes all objects, and calls each for them. Until Undefine is called, an apply
// still creates objects.
func (s *Schedule) Terminate(plural, kind string, each func(types.NamespacedName, client.Object)) {
	terminating := definition(plural)
	now := metav1.Now()
	terminating.DeletionTimestamp = &now
	_, _ = s.Hub.Update(terminating)
	s.empty(kind, each)
}

// Undefine ends the deletion of a kind: it deletes the objects that were created since Terminate, and the definition.
func (s *Schedule) Undefine(plural, kind string) {
	s.empty(kind, func(types.NamespacedName, client.Object) {})
	_ = s.Hub.Delete(RefOf(definition(plural)), nil)
}

func (s *Schedule) empty(kind string, each func(types.NamespacedName, client.Object)) {
	objects := s.Hub.Objects(kind)
	for _, key := range slices.SortedFunc(maps.Keys(objects), oracle.CompareKeys) {
		each(key, objects[key])
		_ = s.Hub.Delete(Ref{Kind: kind, NamespacedName: key}, nil)
	}
}

// Terminating reports whether a kind is being deleted.
func (s *Schedule) Terminating(plural string) bool {
	d := s.Hub.Find(RefOf(definition(plural)))
	return d != nil && !d.GetDeletionTimestamp().IsZero()
}

// DefineAgain defines a lost kind again. It waits first, because an object of the same second counts as older than
// the kind.
func (s *Schedule) DefineAgain(plural string) {
	if s.Defined(plural) {
		s.Skip("it is defined")
	}
	s.Pass(2 * time.Second)
	s.Say("the kind %s is defined again", plural)
	s.Define(plural)
}

// Register creates the SpokeCluster.
func (s *Schedule) Register(labels map[string]string) {
	s.Create(s.Hub, &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: SpokeName, Labels: labels}})
}

// SpokeCluster returns a copy of the SpokeCluster. It skips the operation if there is none.
func (s *Schedule) SpokeCluster() *v1alpha1.SpokeCluster {
	sc, ok := s.Hub.Find(Ref{"SpokeCluster", types.NamespacedName{Name: SpokeName}}).(*v1alpha1.SpokeCluster)
	if !ok {
		s.Skip("the kind is lost")
	}
	return sc.DeepCopy()
}

func (s *Schedule) personLabelsTheSpoke(*rapid.T) {
	sc := s.SpokeCluster()
	env := rapid.SampledFrom([]string{"prod", "dev"}).Draw(s.T, "env")
	s.Say("a person labels the spoke env=%s", env)
	sc.Labels = map[string]string{"env": env}
	s.Unlabeled = nil
	s.Budget.Edits++
	_, _ = s.Hub.Update(sc)
}

func (s *Schedule) hubLosesSpokes(*rapid.T) {
	if !s.Defined("spokeclusters") {
		s.Skip("it is lost")
	}
	s.Say("the hub loses the kind SpokeCluster")
	s.Lose("spokeclusters", "SpokeCluster", func(_ types.NamespacedName, sc client.Object) {
		if len(sc.GetLabels()) > 0 { // otherwise they were lost before
			s.Lost = sc.GetLabels()
		}
	})
	s.Unlabeled = map[types.UID]bool{}
	for _, o := range s.Managed() {
		s.Unlabeled[o.GetUID()] = true
	}
}

func (s *Schedule) defineSpokesAgain(*rapid.T) {
	s.DefineAgain("spokeclusters")
	s.Pass(time.Second)
	s.registerAgain()
}

// registerAgain creates the SpokeCluster after it was lost, as package membership does. Its labels and its identity are lost.
func (s *Schedule) registerAgain() {
	s.Say("the manager creates the SpokeCluster")
	s.Create(s.Hub, &v1alpha1.SpokeCluster{
		ObjectMeta: metav1.ObjectMeta{Name: SpokeName}, Status: v1alpha1.SpokeClusterStatus{IdentityTime: metav1.Now()},
	})
}

// Write makes a write of a process, which may fail. When nobody else writes, and nothing is broken, it has to succeed.
func (s *Schedule) Write(p *Process, what string, write func() error) error {
	return s.attempt(func() error {
		err := write()
		if err != nil && !s.Disturbed && p == s.Leader {
			s.Violation("nobody else writes, and %s fails: %v", what, err)
		}
		return err
	})
}

// attempt makes a write that may fail.
func (s *Schedule) attempt(write func() error) error {
	fault := s.fault
	s.fault = ""
	if fault == "refused" {
		return apierrors.NewInternalError(errors.New("refused"))
	}
	err := write()
	switch fault {
	case "unanswered":
		return context.DeadlineExceeded
	case "dies":
		panic(errDied)
	}
	return err
}

func (s *Schedule) writeFails(*rapid.T) {
	s.fault = rapid.SampledFrom([]string{"refused", "unanswered", "dies"}).Draw(s.T, "how")
	s.Disturbed = true
	s.Say("the next write: %s", s.fault)
}

func (s *Schedule) readFails(*rapid.T) {
	s.unread = rapid.SampledFrom([]int{1, 3, 1000}).Draw(s.T, "reads")
	s.Say("the next %d reads past the caches fail", s.unread)
}

// spokeIsRestored restores the spoke's etcd from a backup. The sessions of all processes end. The leader may
// start its next session later.
func (s *Schedule) spokeIsRestored(*rapid.T) {
	changes := s.Spoke.Length() - s.spokeBegin
	if s.Leader.Forget == nil || changes == 0 {
		s.Skip("nothing is lost")
	}
	n := rapid.IntRange(1, changes).Draw(s.T, "changes")
	s.Say("the spoke is restored: its last %d changes are lost", n)
	s.Spoke.Restore(s.Spoke.Length() - n)
	s.spokeBegin, s.Disturbed = s.Spoke.Length(), true
	for _, p := range []*Process{s.Leader, s.Former} {
		if p == nil {
			continue
		}
		p.Away = true
		if p.Restored != nil {
			p.Restored()
		}
		if p == s.Former || rapid.Bool().Draw(s.T, "at once") {
			s.engageAgain(p)
		}
	}
}

// hubIsRestored restores the hub's etcd from a backup. A process notices it, records it and ends, and another starts.
func (s *Schedule) hubIsRestored(*rapid.T) {
	changes := s.Hub.Length() - s.hubBegin
	if s.Undo == nil || changes == 0 {
		s.Skip("nothing is lost")
	}
	n := rapid.IntRange(1, changes).Draw(s.T, "changes")
	s.Say("the hub is restored: its last %d changes are lost", n)
	done := s.Undo()
	s.Hub.Restore(s.Hub.Length() - n)
	for _, k := range kinds {
		if crd := s.Hub.Find(RefOf(definition(k.plural))); crd != nil && crd.GetDeletionTimestamp() != nil {
			s.Lose(k.plural, k.kind, func(types.NamespacedName, client.Object) {}) // the API server goes on with the deletion
		}
	}
	if s.Defined("spokeclusters") && len(s.Hub.Objects("SpokeCluster")) == 0 {
		s.registerAgain()
	}
	done()
	s.hubBegin, s.Former, s.Disturbed, s.unread = s.Hub.Length(), nil, true, 0
	s.Budget.Edits++
	if err := s.Kinds().RecordRestore(context.Background()); err != nil {
		s.Fatal(err)
	}
	s.leadSome()
}

func (s *Schedule) allArrives(*rapid.T) {
	s.Say("everything arrives, for a minute")
	s.Live(time.Minute, func() {})
}

func (s *Schedule) timePasses(*rapid.T) {
	d := rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second, time.Minute, 11 * time.Minute}).Draw(s.T, "time")
	s.Say("%v pass", d)
	s.Pass(d)
}

// some is a process that runs.
func (s *Schedule) some() (p *Process, name string) {
	if s.Former != nil && rapid.Bool().Draw(s.T, "former") {
		return s.Former, "the former leader"
	}
	return s.Leader, "the leader"
}

func (s *Schedule) hubEventsArrive(*rapid.T) {
	p, name := s.some()
	s.eventsArrive(name, "hub", p.OnHub, p.OnHub.Behind(), p.saw)
}

func (s *Schedule) spokeEventsArrive(*rapid.T) {
	p, name := s.some()
	s.eventsArrive(name, "spoke", p.InSpoke, p.behindInSpoke(), p.SawInSpoke)
}

func (s *Schedule) eventsArrive(name, where string, from *Cache, behind int, saw func(Change)) {
	if behind == 0 {
		s.Skip("none")
	}
	n := rapid.IntRange(1, behind).Draw(s.T, "events")
	s.Say("%s sees %d events of the %s", name, n, where)
	for range n {
		saw(from.Next())
	}
}

func (s *Schedule) watchesExpire(*rapid.T) {
	p, name := s.some()
	s.Say("%s lists again", name)
	p.relist()
}

func (s *Schedule) reconciles(*rapid.T) {
	p, name := s.some()
	ready := p.Queue.ready()
	if len(ready) == 0 {
		s.Skip("nothing is due")
	}
	n := 1
	if rapid.Bool().Draw(s.T, "all") {
		n = len(ready)
	}
	first := rapid.IntRange(0, len(ready)-1).Draw(s.T, "first")
	s.Say("%s reconciles %d of %d, beginning with %s", name, n, len(ready), ready[first].Name)
	for i := range n {
		if p.dead {
			break
		}
		p.run(ready[(first+i)%len(ready)])
	}
	s.bury()
}

// HubNews and spokeNews let the leader follow one side, while the watches of the other lag.
func (s *Schedule) HubNews(*rapid.T) { s.news("hub", s.Leader.OnHub, s.Leader.saw) }

func (s *Schedule) spokeNews(*rapid.T) {
	if s.Leader.Away {
		s.Skip("it is not engaged")
	}
	s.news("spoke", s.Leader.InSpoke, s.Leader.SawInSpoke)
}

// sessionEnds disengages the spoke, and engages it again. What changes meanwhile comes with the replay.
func (s *Schedule) sessionEnds(*rapid.T) {
	p := s.Leader
	if p.Forget == nil {
		s.Skip("nothing is read from spokes here")
	}
	if !p.Away {
		s.Say("the leader's session with the spoke ends")
		p.Away = true
		return
	}
	s.Say("the leader engages the spoke again")
	s.engageAgain(p)
}

func (s *Schedule) engageAgain(p *Process) {
	p.InSpoke.begin(s.Spoke.Length()) // the lists of a session are consistent reads
	p.engage()
}

func (s *Schedule) news(where string, from *Cache, saw func(Change)) {
	p := s.Leader
	if from.Behind() == 0 && len(p.Queue.ready()) == 0 {
		s.Skip("there is none")
	}
	s.Say("the leader sees all of the %s, and reconciles all that is due", where)
	for from.Behind() > 0 {
		saw(from.Next())
	}
	for _, req := range p.Queue.ready() {
		if !p.dead {
			p.run(req)
		}
	}
	s.bury()
}

// bury replaces a process that died.
func (s *Schedule) bury() {
	if s.Former != nil && s.Former.dead {
		s.Former = nil
	}
	if s.Leader.dead {
		s.Say("the leader died; another starts")
		s.leadSome()
	}
}

// leadSome starts a process whose first lists may be old, but not older than the start.
func (s *Schedule) leadSome() {
	at := func(on *Server, begin int, label string) int {
		return on.Length() - rapid.IntRange(0, min(oldestList, on.Length()-begin)).Draw(s.T, label)
	}
	s.lead(at(s.Hub, s.hubBegin, "hub list is old"), at(s.Spoke, s.spokeBegin, "spoke list is old"))
}

func (s *Schedule) leaderChanges(*rapid.T) {
	s.Disturbed = true
	was := s.Leader
	if keep := rapid.Bool().Draw(s.T, "it goes on"); keep {
		s.Say("another process leads, and the leader goes on for a while")
		s.Former = was
	} else {
		s.Say("the leader ends, and another starts")
		s.Former = nil
	}
	s.leadSome()
}

func (s *Schedule) formerEnds(*rapid.T) {
	if s.Former == nil {
		s.Skip("there is none")
	}
	s.Say("the former leader ends")
	s.Former = nil
}

// Run runs operations in a random order, beside those of the SpokeCluster, time, faults and processes, and calls
// after each of them. Then it lets everything arrive and be processed until nothing more is written, and calls check,
// once more when a person has acknowledged all that is held.
func (s *Schedule) Run(operations map[string]func(*rapid.T), after, check func()) {
	all := map[string]func(*rapid.T){
		"label": s.personLabelsTheSpoke, "acknowledge": s.personAcknowledges, "loseSpokes": s.hubLosesSpokes, "defineSpokes": s.defineSpokesAgain,
		"fault": s.writeFails, "readFault": s.readFails, "restoreSpoke": s.spokeIsRestored, "restoreHub": s.hubIsRestored, "time": s.timePasses, "allArrives": s.allArrives,
		"hubEvents": s.hubEventsArrive, "spokeEvents": s.spokeEventsArrive, "relist": s.watchesExpire,
		"reconcile": s.reconciles, "reconcileMore": s.reconciles, "hubNews": s.HubNews, "spokeNews": s.spokeNews,
		"leader": s.leaderChanges, "formerEnds": s.formerEnds, "session": s.sessionEnds, "clock": s.clockIsSet,
	}
	maps.Copy(all, operations)
	s.Steps(all, s.faults, func() {
		after()
		if s.Former == nil && s.fault == "" && s.UpToDate() {
			s.Disturbed = false // what was written meanwhile is known
		}
	})
	s.settle(after)
	check()
	for range 5 { // what is released may lead to more, and not all are named at once
		if s.Leader.holding == nil || len(pending(s.SpokeCluster())) == 0 {
			return
		}
		s.personAcknowledges(nil)
		s.quiet(after)
		check()
	}
	s.Violation("after five acknowledgements, the SpokeCluster still shows %v", pending(s.SpokeCluster()))
}

// faults returns what is broken at present.
func (s *Schedule) faults() []string {
	var out []string
	add := func(is bool, what string) {
		if is {
			out = append(out, what)
		}
	}
	add(s.fault != "", "a write "+s.fault)
	add(s.unread > 0, "reads fail")
	add(s.Former != nil, "two leaders")
	add(s.Leader.Away, "no session")
	add(s.Hub.Ahead != 0, "wrong hub clock")
	add(s.Spoke.Ahead != 0, "wrong spoke clock")
	add(s.Leader.OnHub.Behind() > 0, "old hub cache")
	add(s.Leader.InSpoke.Behind() > 0, "old spoke cache")
	for _, k := range kinds {
		add(!s.Defined(k.plural), "no "+k.plural)
		add(s.Terminating(k.plural), "terminating "+k.plural)
	}
	if s.Broken != nil {
		out = append(out, s.Broken()...)
	}
	return out
}

func (s *Schedule) settle(after func()) {
	s.Say("nothing is broken any more")
	s.Former, s.fault, s.unread = nil, "", 0
	s.Hub.Ahead, s.Spoke.Ahead = 0, 0
	if s.Mend != nil {
		s.Mend()
	}
	if s.Leader.Away {
		s.engageAgain(s.Leader)
	}
	for _, k := range kinds {
		if s.Terminating(k.plural) {
			s.Undefine(k.plural, k.kind)
		}
		if !s.Defined(k.plural) {
			s.Pass(2 * time.Second)
			s.Define(k.plural)
		}
	}
	if len(s.Hub.Objects("SpokeCluster")) == 0 {
		s.Pass(time.Second)
		s.registerAgain()
	}
	s.quiet(after)
}

// quiet lets everything arrive and be processed for two hours. Nothing may be written at their end.
func (s *Schedule) quiet(after func()) {
	if quiet := time.Since(s.Live(2*time.Hour, after)); quiet < 30*time.Minute {
		s.Violation("it writes still, %v ago", quiet)
	}
}

// Live lets the leader see and process everything as soon as it arrives, and returns the time of its last write.
func (s *Schedule) Live(d time.Duration, after func()) (last time.Time) {
	p, end, runs := s.Leader, time.Now().Add(d), 0
	for time.Now().Before(end) && !p.dead {
		p.catchUp()
		after()
		for _, req := range p.Queue.ready() {
			runs++
			if runs > maxRuns {
				s.Violation("it reconciles again and again, now %s", req)
			}
			before := s.written()
			p.run(req)
			if s.written() != before {
				last = time.Now()
			}
			if p.dead {
				break
			}
			p.catchUp()
		}
		s.Pass(p.Queue.untilNext(end))
	}
	s.bury()
	return last
}

// UpToDate reports whether the leader has seen and processed everything.
func (s *Schedule) UpToDate() bool {
	p := s.Leader
	return p.OnHub.Behind() == 0 && !p.Away && p.InSpoke.Behind() == 0 && len(p.Queue.ready()) == 0
}

func (s *Schedule) written() int { return s.Hub.Length() + s.Spoke.Length() }
