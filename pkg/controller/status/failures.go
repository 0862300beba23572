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
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

const (
	// failuresInterval is the least time between two changes of what is told of a spoke.
	failuresInterval = 10 * time.Second
	// After a restart, the verdicts on a spoke's rules come in one by one. What its status
	// said before stands until none came for failuresQuiet, and for failuresPatience at most.
	failuresQuiet    = 5 * time.Second
	failuresPatience = 25 * time.Second
	// maxExample bounds the message that is quoted, in bytes.
	maxExample = 256
)

// Failures takes the verdicts on their way to the Board, and keeps, for every spoke, which
// rules failed there: what is for people to put right, though the spoke can be served.
type Failures struct {
	board     *Board
	intervals interval.Scale
	changed   func(spoke string)

	mu     sync.Mutex
	spokes map[string]*failing
}

// failing is what is known of one spoke.
type failing struct {
	rules map[types.NamespacedName]v1alpha1.ClusterStatus
	// settled tells that verdicts are as good as complete, and told is what was told since.
	settled bool
	told    string
	// began is when the spoke was first heard of, and last is the time of the last verdict.
	began, last time.Time
	timer       *time.Timer // nil unless what is told is to be looked at
}

// NewFailures returns Failures that pass all verdicts on to a Board. intervals scales how often
// they are looked at. changed is called, with no lock held, when something else is to be told of a
// spoke.
func NewFailures(board *Board, intervals interval.Scale, changed func(spoke string)) *Failures {
	return &Failures{board: board, intervals: intervals, changed: changed, spokes: map[string]*failing{}}
}

// Report keeps the latest verdict on a rule in the spoke that the row names.
func (f *Failures) Report(key types.NamespacedName, row v1alpha1.ClusterStatus) {
	f.board.Report(key, row)
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.spokeLocked(string(row.Name))
	s.last = time.Now()
	was, failed := s.rules[key]
	switch fails := failure(&row); {
	case fails && equality.Semantic.DeepEqual(was, row), !fails && !failed:
		return
	case fails:
		s.rules[key] = row
	default:
		delete(s.rules, key)
	}
	f.lookLaterLocked(string(row.Name), s, failuresInterval)
}

// Forget drops the verdict on a rule that is not meant to be in a spoke.
func (f *Failures) Forget(key types.NamespacedName, spoke string) {
	f.board.Forget(key, spoke)
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.spokes[spoke]; s != nil {
		f.dropLocked(spoke, s, key)
	}
}

// drop forgets a rule that is gone.
func (f *Failures) drop(key types.NamespacedName) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, s := range f.spokes {
		f.dropLocked(name, s, key)
	}
}

func (f *Failures) dropLocked(spoke string, s *failing, key types.NamespacedName) {
	if _, failed := s.rules[key]; failed {
		delete(s.rules, key)
		f.lookLaterLocked(spoke, s, failuresInterval)
	}
}

// forgetSpoke forgets a spoke that is gone. The Board does so by itself.
func (f *Failures) forgetSpoke(name string) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.spokes[name]; s != nil && s.timer != nil {
		s.timer.Stop()
	}
	delete(f.spokes, name)
}

// Failing implements spoke.Failures.
func (f *Failures) Failing(name string) (message string, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.spokeLocked(name)
	return s.told, s.settled
}

// spokeLocked returns what is known of a spoke. The first time it is heard of begins the
// wait for its verdicts: there may be none.
func (f *Failures) spokeLocked(name string) *failing {
	s, ok := f.spokes[name]
	if !ok {
		s = &failing{rules: map[types.NamespacedName]v1alpha1.ClusterStatus{}, began: time.Now()}
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

// look tells of a spoke if there is something else to be told.
func (f *Failures) look(name string, s *failing) {
	f.mu.Lock()
	if f.spokes[name] != s {
		f.mu.Unlock()
		return // it is gone
	}
	s.timer = nil
	now := time.Now()
	if !s.settled && now.Sub(s.last) < f.intervals.Of(failuresQuiet) && now.Sub(s.began) < f.intervals.Of(failuresPatience) {
		f.lookLaterLocked(name, s, failuresQuiet)
		f.mu.Unlock()
		return
	}
	message := s.message()
	news := !s.settled || message != s.told
	s.settled, s.told = true, message
	f.mu.Unlock()
	if news {
		f.changed(name)
	}
}

// failure tells whether a verdict says that a person has something to put right for the
// rule. What concerns the spoke as a whole has a condition of its own.
func failure(row *v1alpha1.ClusterStatus) bool {
	switch row.Reason {
	case "", v1alpha1.ReasonWaiting, v1alpha1.ReasonSuspended, v1alpha1.ReasonContested, v1alpha1.ReasonUnreachable, v1alpha1.ReasonCRDMissing,
		v1alpha1.ReasonNoEvaluator, v1alpha1.ReasonAmbiguous, v1alpha1.ReasonEvaluatorsUnknown, v1alpha1.ReasonPredicted, v1alpha1.ReasonConfirmed,
		v1alpha1.ReasonLoading, rule.ReasonUnproven, v1alpha1.ReasonEvaluatorUnreachable:
		return false
	}
	return true
}

// message says what failed, or "". It is the same for the same failures, so that a restart
// is no news.
func (s *failing) message() string {
	if len(s.rules) == 0 {
		return ""
	}
	counts := map[string]int{}
	var first types.NamespacedName
	for key := range s.rules {
		counts[s.rules[key].Reason]++
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
	return fmt.Sprintf("the spoke is connected, but %s not in effect there: %s. For example %s: %s. To list them: kubectl get ar -A",
		rulesAre(len(s.rules)), strings.Join(reasons, ", "), first, spoke.Clip(s.rules[first].Message, maxExample))
}

func rulesAre(n int) string {
	if n == 1 {
		return "1 rule is"
	}
	return fmt.Sprintf("%d rules are", n)
}
