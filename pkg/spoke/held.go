package spoke

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Held are deletions that the brake holds because they may be a mistake.
type Held struct {
	// Count is their number. Names are the AlertRules of the first of them.
	Count int
	Names []string
	// Suspects is how many of them are held until they are acknowledged.
	Suspects int
	// Message says what is held, until when, and what to do.
	Message string
}

// Deletions reports which deletions are held.
type Deletions interface {
	// Held returns what is held for a spoke, or nil.
	Held(spoke string) *Held
	// Recall restores the deletions that a SpokeCluster's status shows as held, and the time when the spoke
	// became another cluster or was confirmed, or zero. It is called before the first spoke is served.
	Recall(spoke string, held *Held, identified time.Time)
}

// Equal reports whether two are the same.
func (h *Held) Equal(other *Held) bool {
	if h == nil || other == nil {
		return h == other
	}
	return h.Count == other.Count && h.Suspects == other.Suspects && h.Message == other.Message && slices.Equal(h.Names, other.Names)
}

func (h *Held) pending() *v1alpha1.PendingDeletions {
	if h == nil {
		return nil
	}
	n := int32(min(h.Count, 1<<30))
	return &v1alpha1.PendingDeletions{Count: n, Held: n, Suspect: int32(min(h.Suspects, 1<<30)), Names: h.Names}
}

// heldIn returns the held deletions in a status, or nil.
func heldIn(s *v1alpha1.SpokeClusterStatus) *Held {
	if s.PendingDeletions == nil || s.PendingDeletions.Held == 0 {
		return nil
	}
	held := &Held{Count: int(s.PendingDeletions.Held), Suspects: int(s.PendingDeletions.Suspect), Names: s.PendingDeletions.Names}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); c != nil && c.Reason == v1alpha1.ReasonDeletionsHeld {
		held.Message = c.Message
	}
	return held
}
