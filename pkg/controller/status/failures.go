package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/reasons"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

const (
	// failuresInterval is the minimum time between two changes of a spoke's message.
	failuresInterval = 10 * time.Second
	// After a restart, the verdicts on a spoke's rules arrive one by one. The previous message stays until none
	// has arrived for failuresQuiet, at most for failuresPatience.
	failuresQuiet    = 5 * time.Second
	failuresPatience = 25 * time.Second
	// maxExample bounds the quoted message, in bytes.
	maxExample = 256
)

// Failures passes verdicts on to the Board, and records which rules fail in each spoke: those that a person
// has to fix although the spoke is connected.
type Failures struct {
	board     *Board
	intervals interval.Scale
	changed   func(spoke string)
	flaps     *flaps

	mu     sync.Mutex
	spokes map[string]*failing
}

// failing is the state of one spoke.
type failing struct {
	rules map[types.NamespacedName]verdict
	// leftovers are rules that could not be removed. Their AlertRules may be gone.
	leftovers map[types.NamespacedName]verdict
	// complete means that practically all verdicts have arrived. told is the last message since then.
	complete bool
	told     string
	// began is when the spoke was first seen, and last is the time of the last verdict.
	began, last time.Time
	timer       *time.Timer // nil unless a check is scheduled
}

// NewFailures returns Failures that pass all verdicts on to a Board. intervals scales the check interval.
// changed is called without a lock when a spoke's message changes. perSecond is how many rows of a spoke per second may
// change back and forth.
func NewFailures(board *Board, intervals interval.Scale, perSecond int, changed func(spoke string)) *Failures {
	f := &Failures{board: board, intervals: intervals, changed: changed, spokes: map[string]*failing{}}
	f.flaps = newFlaps(perSecond, f.report)
	return f
}

// Report records the latest verdict on the AlertRule with a UID in the row's spoke.
func (f *Failures) Report(key types.NamespacedName, of types.UID, row v1alpha1.ClusterStatus) {
	if f.flaps.admit(key, of, &row) {
		f.report(key, of, row)
	}
}

func (f *Failures) report(key types.NamespacedName, of types.UID, row v1alpha1.ClusterStatus) {
	f.board.Report(key, of, row)
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.spokeLocked(string(row.Name))
	s.last = time.Now()
	f.dropLocked(string(row.Name), s, s.leftovers, key)
	was, failed := s.rules[key]
	switch fails := reasons.Is(row.Reason, reasons.NotInEffect); {
	case fails && was.of == of && equality.Semantic.DeepEqual(was.row, row), !fails && !failed:
		return
	case fails:
		s.rules[key] = verdict{of, row}
	default:
		delete(s.rules, key)
	}
	f.lookLaterLocked(string(row.Name), s, failuresInterval)
}

// Leftover records that the row's spoke still has a rule that does not belong there.
func (f *Failures) Leftover(key types.NamespacedName, row v1alpha1.ClusterStatus) {
	f.flaps.forget(key, string(row.Name))
	f.board.Leftover(key, row)
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.spokeLocked(string(row.Name))
	s.last = time.Now()
	delete(s.rules, key)
	if was, known := s.leftovers[key]; known && equality.Semantic.DeepEqual(was.row, row) {
		return
	}
	s.leftovers[key] = verdict{row: row}
	f.lookLaterLocked(string(row.Name), s, failuresInterval)
}

// Forget drops the verdict on a rule that does not belong in a spoke.
func (f *Failures) Forget(key types.NamespacedName, spoke string) {
	f.flaps.forget(key, spoke)
	f.board.Forget(key, spoke)
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.spokes[spoke]; s != nil {
		f.dropLocked(spoke, s, s.leftovers, key)
		f.dropLocked(spoke, s, s.rules, key)
	}
}

// drop forgets the AlertRules that had a name, except the one with the UID. "" means that all are gone.
func (f *Failures) drop(key types.NamespacedName, except types.UID) {
	if f == nil {
		return
	}
	if except == "" {
		f.flaps.forget(key, "")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, s := range f.spokes {
		if except == "" || s.rules[key].of != except {
			f.dropLocked(name, s, s.rules, key)
		}
	}
}

// dropLocked deletes a rule from the rules or the leftovers of a spoke.
func (f *Failures) dropLocked(spoke string, s *failing, from map[types.NamespacedName]verdict, key types.NamespacedName) {
	if _, known := from[key]; known {
		delete(from, key)
		f.lookLaterLocked(spoke, s, failuresInterval)
	}
}

// forgetSpoke forgets a spoke that is gone. The Board does so separately.
func (f *Failures) forgetSpoke(name string) {
	if f == nil {
		return
	}
	f.flaps.forgetSpoke(name)
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.spokes[name]; s != nil && s.timer != nil {
		s.timer.Stop()
	}
	delete(f.spokes, name)
}

// Failing implements membership.Failures.
func (f *Failures) Failing(name string) (message string, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.spokeLocked(name)
	return s.told, s.complete
}

// spokeLocked returns the state of a spoke. The first call starts the wait for its verdicts, of which there
// may be none.
func (f *Failures) spokeLocked(name string) *failing {
	s, ok := f.spokes[name]
	if !ok {
		s = &failing{
			rules: map[types.NamespacedName]verdict{}, leftovers: map[types.NamespacedName]verdict{}, began: time.Now(),
		}
		f.spokes[name] = s
		f.lookLaterLocked(name, s, failuresInterval)
	}
	return s
}

func (f *Failures) lookLaterLocked(name string, s *failing, after time.Duration) {
	if s.timer == nil {
		s.timer = time.AfterFunc(f.intervals.Of(after), func() { f.look(name, s) })
	}
}

// look reports a spoke if its message has changed.
func (f *Failures) look(name string, s *failing) {
	f.mu.Lock()
	if f.spokes[name] != s {
		f.mu.Unlock()
		return // it is gone
	}
	s.timer = nil
	now := time.Now()
	if !s.complete && now.Sub(s.last) < f.intervals.Of(failuresQuiet) && now.Sub(s.began) < f.intervals.Of(failuresPatience) {
		f.lookLaterLocked(name, s, failuresQuiet)
		f.mu.Unlock()
		return
	}
	message := s.message()
	news := !s.complete || message != s.told
	s.complete, s.told = true, message
	f.mu.Unlock()
	if news {
		f.changed(name)
	}
}

// message describes the failures, or is "". It depends only on the failures, so that a restart does not change
// it.
func (s *failing) message() string {
	var parts []string
	if n := len(s.leftovers); n == 1 {
		parts = append(parts, "1 rule could not be removed from it: "+summarize(s.leftovers))
	} else if n > 1 {
		parts = append(parts, fmt.Sprintf("%d rules could not be removed from it: %s", n, summarize(s.leftovers)))
	}
	if len(s.rules) > 0 {
		parts = append(parts, fmt.Sprintf("%s not in effect there: %s. To find them, look at columns READY and REASON of: kubectl get ar -A", rulesAre(len(s.rules)), summarize(s.rules)))
	}
	if len(parts) == 0 {
		return ""
	}
	return "the spoke is connected, but " + strings.Join(parts, ". And ")
}

// summarize counts rows by reason, and quotes one of them.
func summarize(rows map[types.NamespacedName]verdict) string {
	counts := map[string]int{}
	var first types.NamespacedName
	for key := range rows {
		counts[rows[key].row.Reason]++
		if first.Name == "" || key.String() < first.String() {
			first = key
		}
	}
	reasons := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%d %s", counts[reason], reason)
	}
	message := spoke.Clip(rows[first].row.Message, maxExample)
	if len(rows) == 1 {
		return fmt.Sprintf("AlertRule %s (%s): %s", first, rows[first].row.Reason, message)
	}
	return fmt.Sprintf("%s. For example AlertRule %s: %s", strings.Join(reasons, ", "), first, message)
}

func rulesAre(n int) string {
	if n == 1 {
		return "1 rule is"
	}
	return fmt.Sprintf("%d rules are", n)
}
