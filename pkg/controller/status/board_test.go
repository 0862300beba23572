package status

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

func row(spoke string, phase v1alpha1.Phase, reason string) v1alpha1.ClusterStatus {
	return v1alpha1.ClusterStatus{Name: v1alpha1.ClusterName(spoke), Phase: phase, Reason: reason, ObservedGeneration: 1}
}

func TestBoard(t *testing.T) {
	a, b := types.NamespacedName{Namespace: "ns", Name: "a"}, types.NamespacedName{Namespace: "ns", Name: "b"}
	applied := row("s", v1alpha1.PhaseApplied, "")
	pending := row("s", v1alpha1.PhasePending, v1alpha1.ReasonForbidden)
	left := row("s", v1alpha1.PhasePending, v1alpha1.ReasonRejected)
	for name, tc := range map[string]struct {
		do   func(board *Board)
		news []types.NamespacedName
		rows map[string]v1alpha1.ClusterStatus // of a
		left map[string]v1alpha1.ClusterStatus
	}{
		"nothing was reported": {do: func(*Board) {}},
		"the first verdict": {
			do:   func(board *Board) { board.Report(a, "1", applied) },
			news: []types.NamespacedName{a}, rows: map[string]v1alpha1.ClusterStatus{"s": applied},
		},
		"the same verdict": {
			do: func(board *Board) {
				board.Report(a, "1", applied)
				board.Report(a, "1", applied)
				board.Report(a, "1", applied)
			},
			news: []types.NamespacedName{a}, rows: map[string]v1alpha1.ClusterStatus{"s": applied},
		},
		"another verdict": {
			do:   func(board *Board) { board.Report(a, "1", applied); board.Report(a, "1", pending) },
			news: []types.NamespacedName{a, a}, rows: map[string]v1alpha1.ClusterStatus{"s": pending},
		},
		"the same verdict on another generation": {
			do: func(board *Board) {
				board.Report(a, "1", applied)
				next := applied
				next.ObservedGeneration = 2
				board.Report(a, "1", next)
			},
			news: []types.NamespacedName{a, a},
			rows: map[string]v1alpha1.ClusterStatus{"s": {Name: "s", Phase: v1alpha1.PhaseApplied, ObservedGeneration: 2}},
		},
		"two spokes": {
			do: func(board *Board) {
				board.Report(a, "1", applied)
				board.Report(a, "1", row("t", v1alpha1.PhaseApplied, ""))
			},
			news: []types.NamespacedName{a, a},
			rows: map[string]v1alpha1.ClusterStatus{"s": applied, "t": row("t", v1alpha1.PhaseApplied, "")},
		},
		"two rules": {
			do: func(board *Board) {
				board.Report(a, "1", applied)
				board.Report(b, "1", applied)
				board.Report(b, "1", pending)
			},
			news: []types.NamespacedName{a, b, b}, rows: map[string]v1alpha1.ClusterStatus{"s": applied},
		},
		"forgotten": {
			do:   func(board *Board) { board.Report(a, "1", applied); board.Forget(a, "s") },
			news: []types.NamespacedName{a, a},
		},
		"forgotten twice": {
			do:   func(board *Board) { board.Report(a, "1", applied); board.Forget(a, "s"); board.Forget(a, "s") },
			news: []types.NamespacedName{a, a},
		},
		"forgotten, and never reported": {do: func(board *Board) { board.Forget(a, "s") }},
		"forgotten in another spoke": {
			do:   func(board *Board) { board.Report(a, "1", applied); board.Forget(a, "t"); board.Forget(b, "s") },
			news: []types.NamespacedName{a}, rows: map[string]v1alpha1.ClusterStatus{"s": applied},
		},
		"reported after it was forgotten": {
			do:   func(board *Board) { board.Report(a, "1", applied); board.Forget(a, "s"); board.Report(a, "1", applied) },
			news: []types.NamespacedName{a, a, a}, rows: map[string]v1alpha1.ClusterStatus{"s": applied},
		},
		"left where it does not belong": {
			do: func(board *Board) {
				board.Report(a, "1", applied)
				board.Leftover(a, left)
				board.Leftover(a, left)
			},
			news: []types.NamespacedName{a, a}, left: map[string]v1alpha1.ClusterStatus{"s": left},
		},
		"left, and removed": {
			do:   func(board *Board) { board.Leftover(a, left); board.Forget(a, "s") },
			news: []types.NamespacedName{a, a},
		},
		"left, and placed again": {
			do:   func(board *Board) { board.Leftover(a, left); board.Report(a, "1", applied) },
			news: []types.NamespacedName{a, a}, rows: map[string]v1alpha1.ClusterStatus{"s": applied},
		},
		"left, and the rule is gone": {
			do:   func(board *Board) { board.Leftover(a, left); board.drop(a, "") },
			news: []types.NamespacedName{a},
		},
		"left, and the spoke is gone": {
			do:   func(board *Board) { board.Leftover(a, left); board.forgetSpoke("s") },
			news: []types.NamespacedName{a},
		},
		"dropped, which is no news: the rule is gone": {
			do:   func(board *Board) { board.Report(a, "1", applied); board.drop(a, "") },
			news: []types.NamespacedName{a},
		},
		"of a rule that was deleted and created again": {
			do: func(board *Board) {
				board.Report(a, "0", applied)
				board.Report(a, "0", row("t", v1alpha1.PhaseApplied, ""))
				board.Report(a, "1", applied)
			},
			news: []types.NamespacedName{a, a, a}, rows: map[string]v1alpha1.ClusterStatus{"s": applied},
		},
		"the former of two rules dropped": {
			do: func(board *Board) {
				board.Report(a, "0", row("t", v1alpha1.PhaseApplied, ""))
				board.Report(a, "1", applied)
				board.drop(a, "1")
				if len(board.verdicts[a]) != 1 {
					t.Errorf("kept is %v", board.verdicts[a])
				}
			},
			news: []types.NamespacedName{a, a}, rows: map[string]v1alpha1.ClusterStatus{"s": applied},
		},
		"another rule dropped": {
			do:   func(board *Board) { board.Report(a, "1", applied); board.drop(b, "") },
			news: []types.NamespacedName{a}, rows: map[string]v1alpha1.ClusterStatus{"s": applied},
		},
	} {
		t.Run(name, func(t *testing.T) {
			board := NewBoard()
			var news []types.NamespacedName
			board.news.Listen(func(key types.NamespacedName) {
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
				if len(board.verdicts)+len(board.leftovers) > 0 {
					t.Errorf("something is left: %v, %v", board.verdicts, board.leftovers)
				}
			}
		})
	}
}

func TestBoardRowsAreACopy(t *testing.T) {
	board, key := NewBoard(), types.NamespacedName{Name: "a"}
	board.Report(key, "1", row("s", v1alpha1.PhaseApplied, ""))
	delete(board.rows(key, "1"), "s")
	if len(board.rows(key, "1")) != 1 {
		t.Error("a reader changed the board")
	}
}

func TestBoardByManyAtOnce(t *testing.T) {
	board := NewBoard()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			spoke := fmt.Sprintf("s%d", i)
			for j := range 200 {
				key := types.NamespacedName{Name: fmt.Sprintf("r%d", j%10)}
				board.Report(key, "1", row(spoke, v1alpha1.PhaseApplied, ""))
				board.rows(key, "1")
				board.Forget(key, spoke)
			}
		})
	}
	all.Wait()
	if len(board.verdicts) > 0 {
		t.Errorf("something is left: %v", board.verdicts)
	}
}
