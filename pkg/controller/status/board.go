// Package status writes AlertRule.status; nothing else does. Verdicts arrive in memory, through the Board, and
// rollup.Status turns them into a status. Changes within a second make one write.
package status

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/reasons"
	"github.com/rulefleet/rulefleet/pkg/rule"
	spokequeue "github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// debounce is how long the first change of a rule waits for more.
const debounce = time.Second

// Board has the latest verdict on every rule in every spoke since the process started. The status keeps its
// rows where a verdict is missing. The Board also limits how often a spoke changes rows back and forth (flaps.go), and
// describes which rules fail in a spoke (failures.go).
type Board struct {
	intervals interval.Scale
	rate      int
	changed   func(spoke string)
	// news passes on the changed rules.
	news spokequeue.Feed[rule.Key]
	// firing limits the writes about firing alerts of the whole fleet (firing.go).
	firing *rate.Limiter

	mu     sync.Mutex
	spokes map[string]*reported
	// holders are the spokes with a verdict on a rule. Most rules have one, and there are many spokes.
	holders map[rule.Key][]*reported
}

// reported is what is known of one spoke.
type reported struct {
	name     string
	verdicts map[rule.Key]*verdict

	// complete means that practically all verdicts have arrived. told is the last message about failures since then.
	complete bool
	told     string
	// began is when the spoke was first seen, and last is the time of the last verdict.
	began, last time.Time
	look        *time.Timer // nil unless a check of the failures is scheduled

	// bucket limits the changes back and forth.
	bucket *rate.Limiter
	again  *time.Timer // nil unless rows wait
	// turn counts the rows that waited and were released. served is the turn of each namespace that still has rows that
	// wait.
	turn   int
	served map[string]int
}

// verdict is a row, and the UID of the AlertRule that it is about: the rule may have been deleted and created again
// since.
type verdict struct {
	of  types.UID
	row v1alpha1.ClusterStatus
	// leftover means that the spoke still has a rule that does not belong there. A leftover has no UID, because its
	// AlertRule may be gone. If it is, orphan is true, and only the message about the spoke mentions it.
	leftover, orphan bool
	history
}

// bad reports whether a person has to do something about it in the spoke.
func (v *verdict) bad() bool {
	return v != nil && (v.leftover || reasons.Is(v.row.Reason, reasons.NotInEffect))
}

// NewBoard returns an empty Board. intervals scales the check interval of failures. perSecond is how many rows of a
// spoke per second may change back and forth. changed is called without a lock when the message about a spoke's failures
// changes.
func NewBoard(intervals interval.Scale, perSecond int, changed func(spoke string)) *Board {
	return &Board{intervals: intervals, rate: perSecond, changed: changed, firing: rate.NewLimiter(firingRate, firingBurst), spokes: map[string]*reported{}, holders: map[rule.Key][]*reported{}}
}

// Report records the latest verdict on the AlertRule with a UID in the row's spoke.
func (b *Board) Report(key rule.Key, of types.UID, row v1alpha1.ClusterStatus) {
	b.notifyIf(key, func() bool {
		return b.admitLocked(key, of, &row) && b.recordLocked(key, of, row, false)
	})
}

// Leftover records that the row's spoke still has a rule that does not belong there.
func (b *Board) Leftover(key rule.Key, row v1alpha1.ClusterStatus) {
	b.notifyIf(key, func() bool { return b.recordLocked(key, "", row, true) })
}

// Forget drops the verdict on a rule that does not belong in a spoke.
func (b *Board) Forget(key rule.Key, spoke string) {
	b.notifyIf(key, func() bool {
		s := b.spokes[spoke]
		if s == nil || s.verdicts[key] == nil {
			return false
		}
		shown := !s.verdicts[key].orphan
		b.removeLocked(s, key)
		return shown
	})
}

// notifyIf requests an update of a rule's status if its rows change.
func (b *Board) notifyIf(key rule.Key, change func() bool) {
	b.mu.Lock()
	changed := change()
	b.mu.Unlock()
	if changed {
		b.Notify(key)
	}
}

// Notify requests an update of a rule's status.
func (b *Board) Notify(key rule.Key) { b.news.Send(key) }

// recordLocked records a verdict, and reports whether the rows of the rule change.
func (b *Board) recordLocked(key rule.Key, of types.UID, row v1alpha1.ClusterStatus, leftover bool) bool {
	s := b.spokeLocked(string(row.Name))
	s.last = time.Now()
	v := s.verdicts[key]
	same := v != nil && v.leftover == leftover && v.of == of && equality.Semantic.DeepEqual(v.row, row)
	news, wasBad := !same || v.orphan, v.bad()
	if v == nil {
		b.holders[key] = append(b.holders[key], s)
	}
	if leftover || !v.continues(of, &row) {
		v = &verdict{of: of, leftover: leftover}
		s.verdicts[key] = v
	}
	v.row, v.orphan = row, false
	if !leftover {
		v.reported(&row)
	}
	if !same && (wasBad || v.bad()) {
		b.lookLaterLocked(s, failuresInterval)
	}
	return news
}

func (b *Board) removeLocked(s *reported, key rule.Key) {
	if s.verdicts[key].bad() {
		b.lookLaterLocked(s, failuresInterval)
	}
	delete(s.verdicts, key)
	b.releaseLocked(s, key)
}

// releaseLocked removes a spoke from the holders of a rule.
func (b *Board) releaseLocked(s *reported, key rule.Key) {
	left := slices.DeleteFunc(b.holders[key], func(h *reported) bool { return h == s })
	if len(left) == 0 {
		delete(b.holders, key)
		return
	}
	b.holders[key] = left
}

// spokeLocked returns what is known of a spoke. The first call starts the wait for its verdicts, of which there
// may be none.
func (b *Board) spokeLocked(name string) *reported {
	s, ok := b.spokes[name]
	if !ok {
		s = &reported{
			name: name, verdicts: map[rule.Key]*verdict{}, began: time.Now(),
			bucket: rate.NewLimiter(rate.Limit(b.rate), flapBurst*b.rate), served: map[string]int{},
		}
		b.spokes[name] = s
		b.lookLaterLocked(s, failuresInterval)
	}
	return s
}

// forgetSpoke drops what is known of a spoke that is gone. The rows are removed with the SpokeCluster.
func (b *Board) forgetSpoke(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.spokes[name]; s != nil {
		for _, timer := range []*time.Timer{s.look, s.again} {
			if timer != nil {
				timer.Stop()
			}
		}
		for key := range s.verdicts {
			b.releaseLocked(s, key)
		}
	}
	delete(b.spokes, name)
}

// drop forgets the AlertRules that had a name, except the one with the UID. "" means that all are gone.
func (b *Board) drop(key rule.Key, except types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range slices.Clone(b.holders[key]) {
		switch v := s.verdicts[key]; {
		case except != "" && (v.leftover || v.of == except):
		case v.leftover:
			v.orphan = true
		default:
			b.removeLocked(s, key)
		}
	}
}

// rows returns the verdicts on the AlertRule with a UID, by spoke.
func (b *Board) rows(key rule.Key, of types.UID) map[string]v1alpha1.ClusterStatus {
	return b.collect(key, func(v *verdict) bool { return !v.leftover && v.of == of })
}

// leftover returns the rows of the spokes that still have a rule that does not belong there, by spoke.
func (b *Board) leftover(key rule.Key) map[string]v1alpha1.ClusterStatus {
	return b.collect(key, func(v *verdict) bool { return v.leftover && !v.orphan })
}

func (b *Board) collect(key rule.Key, which func(*verdict) bool) map[string]v1alpha1.ClusterStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out map[string]v1alpha1.ClusterStatus
	for _, s := range b.holders[key] {
		if v := s.verdicts[key]; which(v) {
			if out == nil {
				out = map[string]v1alpha1.ClusterStatus{}
			}
			out[s.name] = v.row
		}
	}
	return out
}
