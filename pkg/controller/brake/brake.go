// Package brake holds mass deletions that follow from absent objects. A successful read can be wrong: an empty
// list, a restored backup or a template that was disabled by mistake look like thousands of decisions and are
// one at most. So when more is to be deleted for one spoke within a span of time than is usual, the rest is
// held until the span is over or a person acknowledges it.
//
// The Brake keeps all wanted deletions in memory: those released and those held. The Reconciler shows them on
// the SpokeCluster and processes the acknowledgement.
package brake

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// Hop is one of the two steps that delete objects. Each has its own count per spoke.
type Hop string

const (
	// Generate deletes AlertRules on the hub that are no longer required.
	Generate Hop = "generate"
	// Distribute deletes PrometheusRules in the spoke. It counts their AlertRules.
	Distribute Hop = "distribute"
)

// hops are both, in the order of the data flow.
var hops = []Hop{Generate, Distribute}

// what names the objects that a hop deletes, cause says why, and restore says how to keep them.
var (
	what    = map[Hop]string{Generate: "AlertRule", Distribute: "PrometheusRule"}
	cause   = map[Hop]string{Generate: "workloads or templates are gone or no longer match", Distribute: "rules on the hub are gone, disabled or no longer placed on the spoke"}
	restore = map[Hop]string{Generate: "restore the workloads or templates", Distribute: "restore the rules on the hub, or their state and placement"}
)

const (
	// settling is how long the deletions held before a start are shown: by then they are held again or no longer
	// wanted.
	settling = time.Minute
	// maxNames bounds the names in the status.
	maxNames = 50
)

// Deletion is an object to delete, identified by its AlertRule.
type Deletion struct {
	Key rule.Key
	// Suspect deletions are held, whatever the count, until a person acknowledges them: the objects from which
	// they follow may have been lost with their CustomResourceDefinition.
	Suspect bool
}

// Question lists the deletions that a reconcile wants to make.
type Question struct {
	Hop   Hop
	Spoke string
	// Owner is the key of the reconcile. It is enqueued when its deletions are released.
	Owner rule.Key
	// Deletions are all that the owner wants to delete now. An empty list withdraws earlier ones.
	Deletions []Deletion
	// UID is that of the owner's AlertRule, if there is one. A deletion vouched for with this UID is under way,
	// even if the cache does not show it yet.
	UID types.UID
	// Holds returns the keys of the rules in the spoke. It is called only when needed, without a lock.
	Holds func() (sets.Set[rule.Key], error)
}

// Answer lists the deletions that are held, by key, and when to ask again.
type Answer struct {
	Held sets.Set[rule.Key]
	Wait time.Duration
}

// Brake decides which deletions are held. Use New to create one.
type Brake struct {
	clock clock.PassiveClock
	span  time.Duration

	// changed passes on the spokes whose held deletions changed, and released the keys whose deletions are released.
	changed  queue.Feed[string]
	released map[Hop]*queue.Feed[woken]

	mu     sync.Mutex
	spokes map[string]*account
}

// woken are keys of a hop that concern a spoke.
type woken struct {
	spoke  string
	owners []rule.Key
}

// account is the state of one spoke.
type account struct {
	ledgers map[Hop]*ledger
	// shown is what the SpokeCluster shows.
	shown *Held
	// settled is when the deletions held before a start no longer count.
	settled time.Time
}

// New returns a Brake that counts the deletions of the last span, and holds excess deletions for one span.
// With a span of 0 it holds only suspects.
func New(c clock.PassiveClock, span time.Duration) *Brake {
	return &Brake{
		clock: c, span: span, spokes: map[string]*account{},
		released: map[Hop]*queue.Feed[woken]{Generate: {}, Distribute: {}},
	}
}

// Ask returns the deletions that are held. The error is that of Holds.
func (b *Brake) Ask(q Question) (Answer, error) {
	toCount, mayHold := false, func(d Deletion) bool { return d.Suspect || b.span > 0 }
	need := slices.ContainsFunc(q.Deletions, mayHold)
	b.with(q.Spoke, need, func(a *account, now time.Time) {
		l := a.ledger(q.Hop, b.span)
		l.roll(now)
		toCount = l.toCount(now, q.Owner, q.Deletions)
	})
	var holds sets.Set[rule.Key]
	if toCount {
		var err error
		if holds, err = q.Holds(); err != nil {
			return Answer{}, fmt.Errorf("counting the rules in spoke %s: %w", q.Spoke, err)
		}
	}
	var answer Answer
	b.with(q.Spoke, need, func(a *account, now time.Time) {
		l := a.ledger(q.Hop, b.span)
		if toCount {
			l.count(now, holds)
		}
		answer.Held, answer.Wait = l.ask(now, q.Owner, q.Deletions, q.UID)
	})
	return answer, nil
}

// with calls a function with a spoke's account, then notifies those concerned, without the lock. need creates
// a missing account.
func (b *Brake) with(name string, need bool, fn func(a *account, now time.Time)) {
	b.mu.Lock()
	a := b.spokes[name]
	if a == nil && !need {
		b.mu.Unlock()
		return
	}
	if a == nil {
		a = &account{ledgers: map[Hop]*ledger{}}
		b.spokes[name] = a
	}
	before := a.mark()
	fn(a, b.clock.Now())
	changed := a.mark() != before
	owners := map[Hop][]rule.Key{}
	for hop, l := range a.ledgers {
		owners[hop] = l.takeWoken()
	}
	b.mu.Unlock()
	for hop, of := range owners {
		if len(of) > 0 {
			b.released[hop].Send(woken{name, of})
		}
	}
	if changed {
		b.changed.Send(name)
	}
}

// mark changes whenever the set of held deletions changes.
func (a *account) mark() (m [2]struct {
	held, suspects int
	until          time.Time
}) {
	for i, hop := range hops {
		if l := a.ledgers[hop]; l != nil {
			m[i].held, m[i].suspects, m[i].until = l.held, l.suspects, l.until
		}
	}
	return m
}

func (a *account) ledger(hop Hop, span time.Duration) *ledger {
	if a.ledgers[hop] == nil {
		a.ledgers[hop] = newLedger(span)
	}
	return a.ledgers[hop]
}

func (a *account) held() int {
	n := 0
	for _, l := range a.ledgers {
		n += l.held
	}
	return n
}

// Vouch releases the PrometheusRules of an AlertRule that Generate is about to delete: they have the same
// cause, which was counted and, if needed, acknowledged. With a span of 0 this still matters, because suspects
// need an acknowledgement.
func (b *Brake) Vouch(spoke string, of rule.Key, uid types.UID) {
	b.with(spoke, true, func(a *account, now time.Time) { a.ledger(Distribute, b.span).vouch(now, of, uid) })
}

// Withdraw withdraws a vouch: the AlertRule was not deleted.
func (b *Brake) Withdraw(spoke string, of rule.Key, uid types.UID) {
	b.with(spoke, false, func(a *account, _ time.Time) { a.ledger(Distribute, b.span).withdraw(of, uid) })
}

// Acknowledge releases all deletions of a spoke that are held because of the count, and the suspects whose
// AlertRules are named, as namespace/name. The status can name only some suspects, and a person can't decide
// on those that are not named. It returns the number of released deletions.
func (b *Brake) Acknowledge(spoke string, named []string) int {
	n, names := 0, sets.New(named...)
	b.with(spoke, false, func(a *account, _ time.Time) {
		for _, l := range a.ledgers {
			n += l.acknowledge(names)
		}
		a.settled = time.Time{}
	})
	return n
}

// Owners returns the keys of the reconciles whose deletions a hop holds for a spoke.
func (b *Brake) Owners(hop Hop, name string) (owners []rule.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.spokes[name]; a != nil && a.ledgers[hop] != nil {
		owners = slices.Collect(maps.Keys(a.ledgers[hop].owners))
	}
	return owners
}

// suspects returns the number of suspects held for a spoke.
func (b *Brake) suspects(name string) (n int) {
	b.with(name, false, func(a *account, _ time.Time) {
		for _, l := range a.ledgers {
			n += l.suspects
		}
	})
	return n
}

// drop forgets a spoke.
func (b *Brake) drop(spoke string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.spokes, spoke)
}

// Held returns what the SpokeCluster shows, or nil.
func (b *Brake) Held(name string) *Held {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.spokes[name]; a != nil {
		return a.shown
	}
	return nil
}

// unsettled reports whether the start is so recent that earlier deletions may not be held again yet.
func (b *Brake) unsettled(name string) (unsettled bool) {
	b.with(name, false, func(a *account, now time.Time) { unsettled = a.unsettled(now) })
	return unsettled
}

func (a *account) unsettled(now time.Time) bool { return a.held() == 0 && now.Before(a.settled) }

// publication is a change of what a SpokeCluster shows.
type publication struct {
	was, is *Held
	ended   outcome
	// held is the number of held deletions by hop.
	held map[Hop]int
	// next is when to check again; zero means on the next change.
	next time.Duration
}

// publish updates what the SpokeCluster shows. While the spoke is not engaged, nothing is asked, so the
// deletions held at the last stop stay.
func (b *Brake) publish(name string, engaged bool) publication {
	var p publication
	b.with(name, false, func(a *account, now time.Time) {
		if !engaged && !a.settled.IsZero() {
			a.recall(now, b.span)
		}
		p = a.publish(name, now)
	})
	return p
}

func (a *account) publish(name string, now time.Time) publication {
	p := publication{was: a.shown, is: a.shown, held: map[Hop]int{}}
	for hop, l := range a.ledgers {
		l.roll(now)
		if p.held[hop] = l.held; l.held == 0 && l.ended != "" {
			p.ended = l.ended
		}
	}
	if a.unsettled(now) {
		p.next = a.settled.Sub(now)
		return p
	}
	a.settled = time.Time{}
	a.shown, p.next = a.show(name, now)
	p.is = a.shown
	return p
}

// show describes what is held in a condition's message, and returns when to check it again.
func (a *account) show(name string, now time.Time) (*Held, time.Duration) {
	if a.held() == 0 {
		return nil, 0
	}
	held := &Held{Count: a.held()}
	var parts, remedies []string
	var next time.Duration
	why, remedy := "", ""
	for _, hop := range hops {
		l := a.ledgers[hop]
		if l == nil || l.held == 0 {
			continue
		}
		held.Suspects += l.suspects
		if n := l.counting(); n > 0 {
			why, remedy = l.whyAll(now)
			if left := max(l.until.Sub(now), time.Millisecond); next == 0 || left < next {
				next = left
			}
			parts = append(parts, doomed(hop, n, len(l.gone), l.until))
			remedies = append(remedies, restore[hop])
		}
		if l.suspects > 0 {
			parts = append(parts, "The deletion of "+plural(l.suspects, what[hop])+" waits until you decide, without a time limit")
		}
	}
	held.Names = a.names()
	if why != "" {
		parts = append(parts, "Every deletion is held, because "+why)
	}
	if held.Suspects > 0 {
		parts = append(parts, "The objects from which these rules were created may have been lost, because the hub was restored, or a CustomResourceDefinition or this SpokeCluster was recreated")
		remedies = []string{"restore or recreate the AlertRules, RulePacks, templates and labels of SpokeClusters"}
	}
	if remedy != "" {
		remedies = append(remedies, remedy)
	}
	which := "them now"
	if held.Suspects > maxNames {
		which = fmt.Sprintf("the %d in status.pendingDeletions.names", maxNames)
		if held.Count > held.Suspects {
			which += ", and all that have a time limit"
		}
	}
	held.Message = advised(fmt.Sprintf("%s. To keep the rules, %s.", strings.Join(parts, ". "), strings.Join(remedies, ", and ")), name, which, next > 0)
	return held, next
}

// advised appends to a message how to gain time, if there is a time limit and an Event has room for it, and how to
// release which deletions. The command comes last so that it can be copied.
func advised(message, name, which string, limited bool) string {
	release := fmt.Sprintf(" To delete %s: kubectl annotate spoke %s %s=true", which, name, v1alpha1.AcknowledgeDeletionsAnnotation)
	pause := fmt.Sprintf(` To gain time, stop deletions in the spoke (AlertRules on the hub can still be deleted): kubectl patch spoke %s --type=merge -p '{"spec":{"suspend":true}}'.`, name)
	if limited && len(message)+len(pause)+len(release) <= spoke.MaxNote {
		message += pause
	}
	return message + release
}

// doomed says what a hop will delete, and how many deletions it did not hold.
func doomed(hop Hop, n, gone int, until time.Time) string {
	out := fmt.Sprintf("%s will be deleted at %s, because %s", plural(n, what[hop]), until.UTC().Format(time.RFC3339), cause[hop])
	if gone > 0 {
		out += fmt.Sprintf(" (%d others were deleted before, within the limit)", gone)
	}
	return out
}

func plural(n int, kind string) string {
	if n == 1 {
		return "1 " + kind
	}
	return fmt.Sprintf("%d %ss", n, kind)
}

// names returns the names to show. Suspects come first, because those not named can't be acknowledged.
func (a *account) names() []string {
	var names []string
	for _, suspect := range []bool{true, false} {
		for _, hop := range hops {
			if l := a.ledgers[hop]; l != nil {
				for _, k := range l.names(suspect) {
					names = append(names, k.Listed())
				}
			}
		}
	}
	return names[:min(len(names), maxNames)]
}
