package membership

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
)

// pendingHeld shows held deletions in a status.
func pendingHeld(h *brake.Held) *v1alpha1.PendingDeletions {
	if h == nil {
		return nil
	}
	n := int32(min(h.Count, 1<<30))
	return &v1alpha1.PendingDeletions{Count: n, Held: n, Suspect: int32(min(h.Suspects, 1<<30)), Names: h.Names}
}

// heldIn returns the held deletions in a status, or nil.
func heldIn(s *v1alpha1.SpokeClusterStatus) *brake.Held {
	if s.PendingDeletions == nil || s.PendingDeletions.Held == 0 {
		return nil
	}
	held := &brake.Held{Count: int(s.PendingDeletions.Held), Suspects: int(s.PendingDeletions.Suspect), Names: s.PendingDeletions.Names}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); c != nil && c.Reason == v1alpha1.ReasonDeletionsHeld {
		held.Message = c.Message
	}
	return held
}
