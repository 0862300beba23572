// Package status writes AlertRule.status; nothing else does. Verdicts arrive in memory, through the Board, and
// rollup.Status turns them into a status. Changes within a second make one write.
package status

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	spokequeue "github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// debounce is how long the first change of a rule waits for more.
const debounce = time.Second

// Board has the latest verdict on every rule in every spoke since the process started. The status keeps its
// rows where a verdict is missing.
type Board struct {
	mu       sync.Mutex
	verdicts verdicts
	// leftovers are the rows of spokes that still have a rule that does not belong there.
	leftovers verdicts

	// news passes on the changed rules.
	news spokequeue.Feed[types.NamespacedName]
}

// verdict is a row, and the UID of the AlertRule that it is about: the rule may have been deleted and created again
// since. Leftovers have no UID, because their AlertRule may be gone.
type verdict struct {
	of  types.UID
	row v1alpha1.ClusterStatus
}

// verdicts are rows by rule and spoke.
type verdicts map[types.NamespacedName]map[string]verdict

// put reports whether a row is new.
func (v verdicts) put(key types.NamespacedName, of types.UID, row v1alpha1.ClusterStatus) bool {
	rows := v[key]
	if rows == nil {
		rows = map[string]verdict{}
		v[key] = rows
	}
	old, known := rows[string(row.Name)]
	rows[string(row.Name)] = verdict{of, row}
	return !known || old.of != of || !equality.Semantic.DeepEqual(old.row, row)
}

// rows returns the rows of the AlertRule with a UID, by spoke.
func (v verdicts) rows(key types.NamespacedName, of types.UID) map[string]v1alpha1.ClusterStatus {
	var out map[string]v1alpha1.ClusterStatus
	for spoke := range v[key] {
		if known := v[key][spoke]; known.of == of {
			if out == nil {
				out = make(map[string]v1alpha1.ClusterStatus, len(v[key]))
			}
			out[spoke] = known.row
		}
	}
	return out
}

// remove reports whether there was a row.
func (v verdicts) remove(key types.NamespacedName, spoke string) bool {
	_, known := v[key][spoke]
	delete(v[key], spoke)
	if len(v[key]) == 0 {
		delete(v, key)
	}
	return known
}

// NewBoard returns an empty Board.
func NewBoard() *Board {
	return &Board{verdicts: verdicts{}, leftovers: verdicts{}}
}

// Report records the latest verdict on the AlertRule with a UID in the row's spoke.
func (b *Board) Report(key types.NamespacedName, of types.UID, row v1alpha1.ClusterStatus) {
	b.record(key, func() bool {
		left := b.leftovers.remove(key, string(row.Name))
		return b.verdicts.put(key, of, row) || left
	})
}

// Leftover records that the row's spoke still has a rule that does not belong there.
func (b *Board) Leftover(key types.NamespacedName, row v1alpha1.ClusterStatus) {
	b.record(key, func() bool {
		known := b.verdicts.remove(key, string(row.Name))
		return b.leftovers.put(key, "", row) || known
	})
}

// Forget drops the verdict on a rule that does not belong in a spoke.
func (b *Board) Forget(key types.NamespacedName, spoke string) {
	b.record(key, func() bool {
		left := b.leftovers.remove(key, spoke)
		return b.verdicts.remove(key, spoke) || left
	})
}

// record requests an update of a rule's status if its rows change.
func (b *Board) record(key types.NamespacedName, change func() bool) {
	b.mu.Lock()
	changed := change()
	b.mu.Unlock()
	if changed {
		b.Notify(key)
	}
}

// Notify requests an update of a rule's status.
func (b *Board) Notify(key types.NamespacedName) { b.news.Send(key) }

// forgetSpoke drops the verdicts on a spoke that is gone. The rows are removed with the SpokeCluster.
func (b *Board) forgetSpoke(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range []verdicts{b.verdicts, b.leftovers} {
		for key := range v {
			v.remove(key, name)
		}
	}
}

// drop forgets the AlertRules that had a name, except the one with the UID. "" means that all are gone.
func (b *Board) drop(key types.NamespacedName, except types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if except == "" {
		delete(b.leftovers, key)
	}
	for spoke, known := range b.verdicts[key] {
		if except == "" || known.of != except {
			b.verdicts.remove(key, spoke)
		}
	}
}

// rows returns the verdicts on the AlertRule with a UID, by spoke.
func (b *Board) rows(key types.NamespacedName, of types.UID) map[string]v1alpha1.ClusterStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.verdicts.rows(key, of)
}

// leftover returns the rows of the spokes that still have a rule that does not belong there, by spoke.
func (b *Board) leftover(key types.NamespacedName) map[string]v1alpha1.ClusterStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.leftovers.rows(key, "")
}
