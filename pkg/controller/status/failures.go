package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
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

// Failing implements membership.Failures. The message is about the rules that a person has to fix although the spoke is
// connected.
func (b *Board) Failing(name string) (message string, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.spokeLocked(name)
	return s.told, s.complete
}

func (b *Board) lookLaterLocked(s *reported, after time.Duration) {
	if s.look == nil {
		s.look = time.AfterFunc(b.intervals.Of(after), func() { b.look(s) })
	}
}

// look reports a spoke if its message has changed.
func (b *Board) look(s *reported) {
	b.mu.Lock()
	if b.spokes[s.name] != s {
		b.mu.Unlock()
		return // it is gone
	}
	s.look = nil
	now := time.Now()
	if !s.complete && now.Sub(s.last) < b.intervals.Of(failuresQuiet) && now.Sub(s.began) < b.intervals.Of(failuresPatience) {
		b.lookLaterLocked(s, failuresQuiet)
		b.mu.Unlock()
		return
	}
	message := s.message()
	news := !s.complete || message != s.told
	s.complete, s.told = true, message
	b.mu.Unlock()
	if news {
		b.changed(s.name)
	}
}

// message describes the failures, or is "". It depends only on the failures, so that a restart does not change
// it.
func (s *reported) message() string {
	left, failing := map[rule.Key]*v1alpha1.ClusterStatus{}, map[rule.Key]*v1alpha1.ClusterStatus{}
	for key, v := range s.verdicts {
		switch {
		case v.leftover:
			left[key] = &v.row
		case v.bad():
			failing[key] = &v.row
		}
	}
	var parts []string
	if n := len(left); n == 1 {
		parts = append(parts, "1 rule could not be removed from it: "+summarize(left))
	} else if n > 1 {
		parts = append(parts, fmt.Sprintf("%d rules could not be removed from it: %s", n, summarize(left)))
	}
	if len(failing) > 0 {
		parts = append(parts, fmt.Sprintf("%s not in effect there: %s. To find them, look at columns READY and REASON of: kubectl get alertrules,rulepacks -A", rulesAre(len(failing)), summarize(failing)))
	}
	if len(parts) == 0 {
		return ""
	}
	return "the spoke is connected, but " + strings.Join(parts, ". And ")
}

// summarize counts rows by reason, and quotes one of them.
func summarize(rows map[rule.Key]*v1alpha1.ClusterStatus) string {
	counts := map[string]int{}
	var first rule.Key
	for key := range rows {
		counts[rows[key].Reason]++
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
	message := spoke.Clip(rows[first].Message, maxExample)
	if len(rows) == 1 {
		return fmt.Sprintf("%s (%s): %s", first, rows[first].Reason, message)
	}
	return fmt.Sprintf("%s. For example %s: %s", strings.Join(reasons, ", "), first, message)
}

func rulesAre(n int) string {
	if n == 1 {
		return "1 rule is"
	}
	return fmt.Sprintf("%d rules are", n)
}
