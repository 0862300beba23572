// Package status is step (3) of the data flow: it writes AlertRule.status, and is
// the only one that does. Verdicts reach it in memory, through the Board; what they
// amount to is decided by rule.Status. One write tells of all that came in within a
// second.
package status

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// debounce is how long the first news of a rule waits for more.
const debounce = time.Second

// Board holds the latest verdict on every rule in every spoke, for as long as the
// process lives. A verdict that is missing is no news: the status keeps what it says.
type Board struct {
	mu       sync.Mutex
	verdicts map[types.NamespacedName]map[string]v1alpha1.ClusterStatus
	notify   func(types.NamespacedName)
}

// NewBoard returns an empty Board.
func NewBoard() *Board {
	return &Board{verdicts: map[types.NamespacedName]map[string]v1alpha1.ClusterStatus{}, notify: func(types.NamespacedName) {}}
}

// Report keeps the latest verdict on a rule in the spoke that the row names.
func (b *Board) Report(key types.NamespacedName, row v1alpha1.ClusterStatus) {
	b.mu.Lock()
	rows := b.verdicts[key]
	if rows == nil {
		rows = map[string]v1alpha1.ClusterStatus{}
		b.verdicts[key] = rows
	}
	old, known := rows[string(row.Name)]
	rows[string(row.Name)] = row
	notify := b.notify
	b.mu.Unlock()
	if !known || !equality.Semantic.DeepEqual(old, row) {
		notify(key)
	}
}

// Forget drops the verdict on a rule that is not meant to be in a spoke.
func (b *Board) Forget(key types.NamespacedName, spoke string) {
	b.mu.Lock()
	_, known := b.verdicts[key][spoke]
	delete(b.verdicts[key], spoke)
	if len(b.verdicts[key]) == 0 {
		delete(b.verdicts, key)
	}
	notify := b.notify
	b.mu.Unlock()
	if known {
		notify(key)
	}
}

// Notify has the status of a rule derived anew.
func (b *Board) Notify(key types.NamespacedName) {
	b.mu.Lock()
	notify := b.notify
	b.mu.Unlock()
	notify(key)
}

// forgetSpoke drops the verdicts on a spoke that is gone. What is shown of them goes with the
// SpokeCluster.
func (b *Board) forgetSpoke(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, rows := range b.verdicts {
		delete(rows, name)
		if len(rows) == 0 {
			delete(b.verdicts, key)
		}
	}
}

// drop forgets all about a rule that is gone.
func (b *Board) drop(key types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.verdicts, key)
}

// rows returns the verdicts on a rule, by spoke.
func (b *Board) rows(key types.NamespacedName) map[string]v1alpha1.ClusterStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.verdicts[key])
}

// onNews sets the function that is told which rule there is news of.
func (b *Board) onNews(fn func(types.NamespacedName)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notify = fn
}
