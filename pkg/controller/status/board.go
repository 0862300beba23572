// Package status writes AlertRule.status; nothing else does. Verdicts arrive in memory, through the Board, and
// rule.Status turns them into a status. Changes within a second make one write.
package status

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// debounce is how long the first change of a rule waits for more.
const debounce = time.Second

// Board has the latest verdict on every rule in every spoke since the process started. The status keeps its
// rows where a verdict is missing.
type Board struct {
	mu       sync.Mutex
	verdicts map[types.NamespacedName]map[string]v1alpha1.ClusterStatus
	notify   func(types.NamespacedName)
}

// NewBoard returns an empty Board.
func NewBoard() *Board {
	return &Board{verdicts: map[types.NamespacedName]map[string]v1alpha1.ClusterStatus{}, notify: func(types.NamespacedName) {}}
}

// Report records the latest verdict on a rule in the row's spoke.
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

// Forget drops the verdict on a rule that does not belong in a spoke.
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

// Notify requests an update of a rule's status.
func (b *Board) Notify(key types.NamespacedName) {
	b.mu.Lock()
	notify := b.notify
	b.mu.Unlock()
	notify(key)
}

// forgetSpoke drops the verdicts on a spoke that is gone. The rows are removed with the SpokeCluster.
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

// drop forgets a rule that is gone.
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

// onNews sets the function that is called for changed rules.
func (b *Board) onNews(fn func(types.NamespacedName)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notify = fn
}
