package status

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

func row(spoke string, phase v1alpha1.Phase, reason string) v1alpha1.ClusterStatus {
	return v1alpha1.ClusterStatus{Name: v1alpha1.ClusterName(spoke), Phase: phase, Reason: reason, ObservedGeneration: 1}
}

func TestBoard(t *testing.T) {
	a, b := rule.AlertRuleKey("ns", "a"), rule.AlertRuleKey("ns", "b")
	applied := row("s", v1alpha1.PhaseApplied, "")
	pending := row("s", v1alpha1.PhasePending, v1alpha1.ReasonForbidden)
	left := row("s", v1alpha1.PhasePending, v1alpha1.ReasonRejected)
	for name, tc := range map[string]struct {
		do   func(board *Board)
		news []rule.Key
		rows map[string]v1alpha1.ClusterStatus // of a
		left map[string]v1alpha1.ClusterStatus
		kept []string // although neither has anything
	}{
		"nothing was reported": {do: func(*Board) {}},
		"the first verdict": {
			do:   func(board *Board) { board.Report(a, "1", applied) },
			news: []rule.Key{a}, rows: map[string]v1alpha1.ClusterStatus{"s": applied},
		},
		"the same verdict": {
			do: func(board *Board) {
				board.Report(a, "1", applied)
				board.Report(a, "1", applied)
				board.Report(a, "1", applied)
			},
			news: []rule.Key{a}, rows: map[string]v1alpha1.ClusterStatus{"s": applied},
		},
		"another verdict": {
			do:   func(board *Board) { board.Report(a, "1", applied); board.Report(a, "1", pending) },
			news: []rule.Key{a, a}, rows: map[string]v1alpha1.ClusterStatus{"s": pending},
		},
		"the same verdict on another generation": {
			do: func(board *Board) {
				board.Report(a, "1", applied)
				next := applied
				next.ObservedGeneration = 2
				board.Report(a, "1", next)
			},
			news: []rule.Key{a, a},
			rows: map[string]v1alpha1.ClusterStatus{"s": {Name: "s", Phase: v1alpha1.PhaseApplied, ObservedGeneration: 2}},
		},
		"two spokes": {
			do: func(board *Board) {
				board.Report(a, "1", applied)
				board.Report(a, "1", row("t", v1alpha1.PhaseApplied, ""))
			},
			news: []rule.Key{a, a},
			rows: map[string]v1alpha1.ClusterStatus{"s": applied, "t": row("t", v1alpha1.PhaseApplied, "")},
		},
		"two rules": {
			do: func(board *Board) {
				board.Report(a, "1", applied)
				board.Report(b, "1", applied)
				board.Report(b, "1", pending)
			},
			news: []rule.Key{a, b, b}, rows: map[string]v1alpha1.ClusterStatus{"s": applied},
		},
		"forgotten": {
			do:   func(board *Board) { board.Report(a, "1", applied); board.Forget(a, "s") },
			news: []rule.Key{a, a},
		},
		"forgotten twice": {
			do:   func(board *Board) { board.Report(a, "1", applied); board.Forget(a, "s"); board.Forget(a, "s") },
			news: []rule.Key{a, a},
		},
		"forgotten, and never reported": {do: func(board *Board) { board.Forget(a, "s") }},
		"forgotten in another spoke": {
			do:   func(board *Board) { board.Report(a, "1", applied); board.Forget(a, "t"); board.Forget(b, "s") },
			news: []rule.Key{a}, rows: map[string]v1alpha1.ClusterStatus{"s": applied},
		},
		"reported after it was forgotten": {
			do:   func(board *Board) { board.Report(a, "1", applied); board.Forget(a, "s"); board.Report(a, "1", applied) },
			news: []rule.Key{a, a, a}, rows: map[string]v1alpha1.ClusterStatus{"s": applied},
		},
		"left where it does not belong": {
			do: func(board *Board) {
				board.Report(a, "1", applied)
				board.Leftover(a, left)
				board.Leftover(a, left)
			},
			news: []rule.Key{a, a}, left: map[string]v1alpha1.ClusterStatus{"s": left},
		},
		"left, and removed": {
			do:   func(board *Board) { board.Leftover(a, left); board.Forget(a, "s") },
			news: []rule.Key{a, a},
		},
		"left, and placed again": {
			do:   func(board *Board) { board.Leftover(a, left); board.Report(a, "1", applied) },
			news: []rule.Key{a, a}, rows: map[string]v1alpha1.ClusterStatus{"s": applied},
		},
		"left, and the rule is gone": {
			do:   func(board *Board) { board.Leftover(a, left); board.drop(a, "") },
			news: []rule.Key{a}, kept: []string{"s"}, // for the message about the spoke
		},
		"left, the rule is gone, and it is removed": {
			do:   func(board *Board) { board.Leftover(a, left); board.drop(a, ""); board.Forget(a, "s") },
			news: []rule.Key{a},
		},
		"left, and there is a rule of that name again": {
			do: func(board *Board) {
				board.Leftover(a, left)
				board.drop(a, "")
				board.Leftover(a, left)
			},
			news: []rule.Key{a, a}, left: map[string]v1alpha1.ClusterStatus{"s": left},
		},
		"left, and the spoke is gone": {
			do:   func(board *Board) { board.Leftover(a, left); board.forgetSpoke("s") },
			news: []rule.Key{a},
		},
		"dropped, which is no news: the rule is gone": {
			do:   func(board *Board) { board.Report(a, "1", applied); board.drop(a, "") },
			news: []rule.Key{a},
		},
		"of a rule that was deleted and created again": {
			do: func(board *Board) {
				board.Report(a, "0", applied)
				board.Report(a, "0", row("t", v1alpha1.PhaseApplied, ""))
				board.Report(a, "1", applied)
			},
			news: []rule.Key{a, a, a}, rows: map[string]v1alpha1.ClusterStatus{"s": applied},
		},
		"the former of two rules dropped": {
			do: func(board *Board) {
				board.Report(a, "0", row("t", v1alpha1.PhaseApplied, ""))
				board.Report(a, "1", applied)
				board.drop(a, "1")
				if kept := board.kept(a); len(kept) != 1 {
					t.Errorf("kept is %v", kept)
				}
			},
			news: []rule.Key{a, a}, rows: map[string]v1alpha1.ClusterStatus{"s": applied},
		},
		"another rule dropped": {
			do:   func(board *Board) { board.Report(a, "1", applied); board.drop(b, "") },
			news: []rule.Key{a}, rows: map[string]v1alpha1.ClusterStatus{"s": applied},
		},
	} {
		t.Run(name, func(t *testing.T) {
			board := newBoard()
			var news []rule.Key
			board.news.Listen(func(key rule.Key) {
				news = append(news, key)
				board.rows(key, "1") // would never return if the lock were held
			})
			tc.do(board)
			if !slices.Equal(news, tc.news) {
				t.Errorf("news of %v, want %v", news, tc.news)
			}
			if got := board.rows(a, "1"); !maps.EqualFunc(got, tc.rows, func(a, b v1alpha1.ClusterStatus) bool { return reflect.DeepEqual(a, b) }) {
				t.Errorf("the rows are %v, want %v", got, tc.rows)
			}
			if got := board.leftover(a); !reflect.DeepEqual(got, tc.left) {
				t.Errorf("left are %v, want %v", got, tc.left)
			}
			if len(tc.rows)+len(tc.left) == 0 {
				board.drop(b, "")
				if got := slices.Concat(board.kept(a), board.kept(b)); !slices.Equal(got, tc.kept) {
					t.Errorf("something is left in %v", got)
				}
			}
		})
	}
}

func TestBoardRowsAreACopy(t *testing.T) {
	board, key := newBoard(), rule.AlertRuleKey("", "a")
	board.Report(key, "1", row("s", v1alpha1.PhaseApplied, ""))
	delete(board.rows(key, "1"), "s")
	if len(board.rows(key, "1")) != 1 {
		t.Error("a reader changed the board")
	}
}

func TestBoardByManyAtOnce(t *testing.T) {
	board := newBoard()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			spoke := fmt.Sprintf("s%d", i)
			for j := range 200 {
				key := rule.AlertRuleKey("", fmt.Sprintf("r%d", j%10))
				board.Report(key, "1", row(spoke, v1alpha1.PhaseApplied, ""))
				board.rows(key, "1")
				board.Forget(key, spoke)
			}
		})
	}
	all.Wait()
	for j := range 10 {
		if kept := board.kept(rule.AlertRuleKey("", fmt.Sprintf("r%d", j))); len(kept) > 0 {
			t.Errorf("something is left in %v", kept)
		}
	}
}

// Sources of two kinds with one name have rows of their own, also if they were to have one UID.
func TestBoardKinds(t *testing.T) {
	t.Parallel()
	board := newBoard()
	t.Cleanup(func() { board.forgetSpoke("a") })
	ar, pack := rule.AlertRuleKey("shop", "down"), rule.Key{Kind: "RulePack", Namespace: "shop", Name: "down"}
	board.Report(ar, "1", failed("a", v1alpha1.ReasonRejected, "no"))
	board.Report(pack, "1", applied("a"))
	board.drop(pack, "")
	if len(board.rows(ar, "1")) != 1 || len(board.rows(pack, "1")) != 0 {
		t.Errorf("the rows are %v and %v", board.rows(ar, "1"), board.rows(pack, "1"))
	}
	if got := board.spokes["a"].message(); !strings.Contains(got, "1 rule is not in effect there: AlertRule shop/down (Rejected): no") {
		t.Errorf("the spoke says %q", got)
	}
}
