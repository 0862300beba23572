package membership

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// news is the input of a SpokeCluster's status.
type news struct {
	// seen is nil until the spoke has been observed after a start of the operator. Until then the status is not
	// changed.
	seen *spoke.Observation
	// finding is non-nil if the registration itself is wrong.
	finding *spoke.Finding
	// renewing is how the manager renews the token, or nil if it does not.
	renewing *renewing
	// held are the deletions that the brake holds, or nil.
	held *brake.Held
	// doomed are the AlertRules whose PrometheusRules are to be removed and can't be at present.
	doomed      []string
	doomedKnown bool
	// lacking is the number of workloads that lack AlertRules because of maxRules. crowded is a namespace that
	// has its share, if others have not.
	lacking int
	crowded string
	// contested is the message about writes for the spoke that another client reverts, or "".
	contested string
}

// away reports whether nothing can be written to the spoke at present.
func (n news) away() bool {
	return n.seen == nil || n.seen.Connected.Status != metav1.ConditionTrue
}

// startup is how long the status of a connected spoke stays as it was after the manager started, while the spoke's
// objects are listed again. With hundreds of spokes, that takes minutes, and two writes for each of them would show
// nothing that a person can act on.
const startup = 5 * time.Minute

// connectsAgain reports whether a spoke is being connected that is connected according to its status, which is about the
// present spec.
func connectsAgain(sc *v1alpha1.SpokeCluster, seen *spoke.Observation) bool {
	if seen == nil || seen.Connected.Reason != v1alpha1.ReasonConnecting || sc.Status.ObservedGeneration != sc.Generation {
		return false
	}
	was := meta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionConnected)
	return was != nil && was.Status == metav1.ConditionTrue && was.Reason == v1alpha1.ReasonConnected
}

// statusOf derives a SpokeCluster's status.
func statusOf(sc *v1alpha1.SpokeCluster, n news, now metav1.Time) v1alpha1.SpokeClusterStatus {
	out := *sc.Status.DeepCopy()
	suspended := ptr.Deref(sc.Spec.Suspend, false)
	out.PendingDeletions = n.pending(out.PendingDeletions, suspended)
	connected, serves := spoke.Finding{}, spoke.Finding{}
	if n.seen != nil {
		connected, serves = n.seen.Connected, n.seen.Served
		n.seen.Into(&out)
	}
	switch {
	case n.finding == nil:
	case connected.Status == metav1.ConditionTrue:
		// The last good connection stays in use.
		connected = spoke.Unused(n.finding.Message)
	default:
		connected = *n.finding
	}
	if connected.Reason == v1alpha1.ReasonDuplicateCluster {
		out.Identity = "" // it belongs to the other spoke
	}
	if connected.Status == "" {
		if meta.FindStatusCondition(out.Conditions, v1alpha1.ConditionConnected) != nil {
			return out
		}
		connected = spoke.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonConnecting, Message: "the spoke has not answered yet"}
	}
	credential := n.validity(sc, now.Time)
	connected = credential.explain(connected)
	out.ObservedGeneration = sc.Generation
	set := func(kind string, f spoke.Finding) { setCondition(&out, sc.Generation, kind, f, now) }
	was := meta.FindStatusCondition(out.Conditions, v1alpha1.ConditionConnected)
	if (was == nil || was.Status != connected.Status) && n.seen != nil && !n.seen.Contact.IsZero() {
		out.LastContactTime = metav1.NewTime(n.seen.Contact)
	}
	set(v1alpha1.ConditionConnected, connected)
	if serves = whileConnected(serves, connected, out.Conditions); serves.Status != "" {
		set(v1alpha1.ConditionPrometheusRuleServed, serves)
	}
	switch {
	case n.seen == nil || n.seen.Connected.Status != metav1.ConditionTrue: // unknown
	case n.seen.Workloads.Status != "":
		set(v1alpha1.ConditionWorkloadsReadable, n.seen.Workloads)
	default:
		meta.RemoveStatusCondition(&out.Conditions, v1alpha1.ConditionWorkloadsReadable)
	}
	credential.into(&out, sc.Generation, connected)
	set(v1alpha1.ConditionReady, readiness(sc, out.Conditions, n))
	return out
}

// whileConnected returns what is known about whether a spoke serves PrometheusRules. It is unknown while the
// spoke is not connected. A spoke that was never connected has no such condition.
func whileConnected(serves, connected spoke.Finding, conditions []metav1.Condition) spoke.Finding {
	if connected.Status == metav1.ConditionTrue || meta.FindStatusCondition(conditions, v1alpha1.ConditionPrometheusRuleServed) == nil && serves.Status == "" {
		return serves
	}
	return spoke.Finding{
		Status: metav1.ConditionUnknown, Reason: connected.Reason,
		Message: "the spoke is not connected, so it is unknown whether it serves PrometheusRules",
	}
}

func setCondition(s *v1alpha1.SpokeClusterStatus, generation int64, kind string, f spoke.Finding, now metav1.Time) {
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: kind, Status: f.Status, Reason: f.Reason, Message: f.Message,
		ObservedGeneration: generation, LastTransitionTime: now,
	})
}

// pending returns what is still to be removed from the spoke. If that is unknown, because the spoke was not
// read since the operator started, it stays as it was.
func (n news) pending(was *v1alpha1.PendingDeletions, suspended bool) *v1alpha1.PendingDeletions {
	out := pendingHeld(n.held)
	switch {
	case !n.away() && !suspended:
		return out
	case !n.doomedKnown:
		if out == nil {
			return was
		}
	case len(n.doomed) > 0:
		held, suspect := int32(0), int32(0)
		if out != nil {
			held, suspect = out.Held, out.Suspect
		}
		pending := pendingOf(n.doomed, held)
		pending.Suspect = suspect
		return pending
	}
	return out
}

// maxPending bounds the names in status.pendingDeletions.
const maxPending = 50

func pendingOf(rules []string, held int32) *v1alpha1.PendingDeletions {
	return &v1alpha1.PendingDeletions{Count: int32(min(len(rules), 1<<30)), Held: held, Names: rules[:min(len(rules), maxPending)]}
}

// readiness returns the condition Ready: the spoke is connected, it serves PrometheusRules, and nothing blocks
// writes.
func readiness(sc *v1alpha1.SpokeCluster, conditions []metav1.Condition, n news) spoke.Finding {
	if ptr.Deref(sc.Spec.Suspend, false) {
		return spoke.Finding{
			Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSuspended,
			Message: "the SpokeCluster is suspended: nothing is written to the spoke. Before you resume, check the deletions in status.pendingDeletions. To resume: kubectl patch spoke " + sc.Name + ` --type=merge -p '{"spec":{"suspend":false}}'`,
		}
	}
	for _, kind := range []string{v1alpha1.ConditionConnected, v1alpha1.ConditionPrometheusRuleServed} {
		c := meta.FindStatusCondition(conditions, kind)
		if c == nil {
			return spoke.Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonConnecting, Message: "the manager has not set condition " + kind + " yet; wait. If this lasts, check that a manager runs and is the leader"}
		}
		if c.Status != metav1.ConditionTrue {
			return spoke.Finding{Status: c.Status, Reason: c.Reason, Message: c.Message}
		}
	}
	switch {
	case n.seen != nil && n.seen.Writes.Status != "":
		return n.seen.Writes
	case n.held != nil:
		return spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDeletionsHeld, Message: n.held.Message}
	case n.contested != "":
		return spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonContested, Message: spoke.Clip(n.contested, spoke.MaxMessage)}
	case n.lacking > 0:
		return spoke.Finding{
			Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonMaxRulesReached,
			Message: workloadsLack(n.lacking) + " AlertRules: " + maxRulesReached(sc.Name, ptr.Deref(sc.Spec.MaxRules, 0), n.lacking, n.crowded),
		}
	}
	return spoke.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Message: "the hub manages the rules in the spoke"}
}

// highestMaxRules is the maximum of spec.maxRules in the API.
const highestMaxRules = 100_000

// supportedRules is the number of rules of Rulefleet with which one Prometheus is supported.
const supportedRules = 2000

// maxRulesReached describes a limit that keeps workloads from getting AlertRules, and what to do. crowded is the
// namespace that has used up its share, if others have not.
func maxRulesReached(spoke string, limit int32, lacking int, crowded string) string {
	const stay = "Existing AlertRules stay. To generate fewer, narrow the templates"
	switch {
	case crowded != "":
		return fmt.Sprintf("namespace %s has used up its share of spec.maxRules (%d); the rest is kept for other namespaces. %s. To allow more for one namespace, raise the chart value spokeLimits.namespaceShare",
			crowded, limit, stay)
	case limit >= highestMaxRules:
		return fmt.Sprintf("spec.maxRules (%d, the maximum) is reached. %s", limit, stay)
	case limit >= supportedRules:
		return fmt.Sprintf("spec.maxRules (%d) is reached. %s. You can raise spec.maxRules, but at most %d rules of Rulefleet are supported in one Prometheus", limit, stay, supportedRules)
	}
	return fmt.Sprintf("spec.maxRules (%d) is reached. %s. To allow more: kubectl patch spoke %s --type=merge -p '{\"spec\":{\"maxRules\":%d}}'", limit, stay, spoke, more(limit, lacking))
}

// more suggests a higher limit: room for at least as many AlertRules as workloads lack, as far as one
// Prometheus is supported with them.
func more(limit int32, lacking int) int32 {
	return min(max(2*limit, limit+2*int32(min(lacking, 1<<20))), supportedRules)
}

func workloadsLack(n int) string {
	if n == 1 {
		return "1 workload lacks"
	}
	return fmt.Sprintf("%d workloads lack", n)
}
