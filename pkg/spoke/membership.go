package spoke

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
)

// mirrored returns the labels that a SpokeCluster takes from its Secret, and whether they differ from those it
// took before. A label that another client has changed on the SpokeCluster is left to that client.
func mirrored(secret map[string]string, sc *v1alpha1.SpokeCluster, tracking []string) (labels map[string]string, changed bool) {
	ours := ownLabels(sc)
	labels = map[string]string{}
	for key, value := range secret {
		if !mirrors(key, tracking) {
			continue
		}
		current, exists := sc.Labels[key]
		if exists && current != value && !ours.Has(key) {
			continue
		}
		labels[key] = value
		changed = changed || !exists || current != value
	}
	for key := range ours {
		if _, kept := labels[key]; !kept {
			changed = true
		}
	}
	return labels, changed
}

// alters reports whether the mirror changes or removes a label that it has set before.
func alters(labels map[string]string, sc *v1alpha1.SpokeCluster) bool {
	for key := range ownLabels(sc) {
		if value, kept := labels[key]; !kept || sc.Labels[key] != value {
			return true
		}
	}
	return false
}

// trackingDomains are the domains of labels by which tools recognize the objects that they have applied: those of
// Kubernetes itself, Argo CD, Flux, kapp, Rancher Fleet and wrangler. A tool that finds its label on a SpokeCluster,
// which it has not applied, deletes the SpokeCluster, and with it the rules in the spoke.
var trackingDomains = []string{
	"kubernetes.io", "argocd.argoproj.io", "toolkit.fluxcd.io", "kapp.k14s.io", "fleet.cattle.io", "objectset.rio.cattle.io",
}

// mirrors reports whether a Secret's label is used for placement. The registration label and those by which tools
// track objects are not. tracking has further ones: a label, or a domain with its subdomains.
func mirrors(key string, tracking []string) bool {
	if key == v1alpha1.RegistrationLabel || slices.Contains(tracking, key) {
		return false
	}
	domain, _, found := strings.Cut(key, "/")
	return !found || !slices.ContainsFunc(slices.Concat(trackingDomains, tracking), func(of string) bool {
		isDomain := strings.Contains(of, ".") && !strings.Contains(of, "/") // otherwise it is a label
		return isDomain && (domain == of || strings.HasSuffix(domain, "."+of))
	})
}

// ownLabels returns the labels that the mirror applied, from managedFields.
func ownLabels(sc *v1alpha1.SpokeCluster) sets.Set[string] {
	ours := sets.New[string]()
	for _, entry := range sc.ManagedFields {
		if entry.Manager != contest.MirrorManager || entry.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Metadata struct {
				Labels map[string]json.RawMessage `json:"f:labels"`
			} `json:"f:metadata"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for key := range maps.Keys(fields.Metadata.Labels) {
			if name, isField := strings.CutPrefix(key, "f:"); isField {
				ours.Insert(name)
			}
		}
	}
	return ours
}

// news is the input of a SpokeCluster's status.
type news struct {
	// seen is nil until the spoke has been observed after a start of the operator. Until then the status is not
	// changed.
	seen *Observation
	// finding is non-nil if the registration itself is wrong.
	finding *Finding
	// held are the deletions that the brake holds, or nil.
	held *Held
	// doomed are the AlertRules whose PrometheusRules are to be removed and can't be at present.
	doomed      []string
	doomedKnown bool
	// refused is the number of Deployments that lack AlertRules because of maxRules. crowded is a namespace that
	// has its share, if others have not.
	refused int
	crowded string
	// contested is the message about writes for the spoke that another client reverts, or "".
	contested string
}

// away reports whether nothing can be written to the spoke at present.
func (n news) away() bool {
	return n.seen == nil || n.seen.Connected.Status != metav1.ConditionTrue
}

// statusOf derives a SpokeCluster's status.
func statusOf(sc *v1alpha1.SpokeCluster, n news, now metav1.Time) v1alpha1.SpokeClusterStatus {
	out := *sc.Status.DeepCopy()
	suspended := ptr.Deref(sc.Spec.Suspend, false)
	out.PendingDeletions = n.pending(out.PendingDeletions, suspended)
	connected, serves := Finding{}, Finding{}
	if n.seen != nil {
		connected, serves = n.seen.Connected, n.seen.Served
		n.seen.into(&out)
	}
	switch {
	case n.finding == nil:
	case connected.Status == metav1.ConditionTrue:
		// The last good connection stays in use.
		connected.Message = Clip(lastGood+n.finding.Message, maxMessage)
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
		connected = Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonConnecting, Message: "waiting for the first answer of the spoke"}
	}
	out.ObservedGeneration = sc.Generation
	set := func(kind string, f Finding) { setCondition(&out, sc.Generation, kind, f, now) }
	was := meta.FindStatusCondition(out.Conditions, v1alpha1.ConditionConnected)
	if (was == nil || was.Status != connected.Status) && n.seen != nil && !n.seen.Contact.IsZero() {
		out.LastContactTime = metav1.NewTime(n.seen.Contact)
	}
	set(v1alpha1.ConditionConnected, connected)
	if serves = whileConnected(serves, connected, out.Conditions); serves.Status != "" {
		set(v1alpha1.ConditionPrometheusRuleServed, serves)
	}
	set(v1alpha1.ConditionReady, readiness(sc, out.Conditions, n))
	return out
}

// whileConnected returns what is known about whether a spoke serves PrometheusRules. It is unknown while the
// spoke is not connected. A spoke that was never connected has no such condition.
func whileConnected(serves, connected Finding, conditions []metav1.Condition) Finding {
	if connected.Status == metav1.ConditionTrue || meta.FindStatusCondition(conditions, v1alpha1.ConditionPrometheusRuleServed) == nil && serves.Status == "" {
		return serves
	}
	return Finding{
		Status: metav1.ConditionUnknown, Reason: connected.Reason,
		Message: "the spoke is not connected, so it is unknown whether it serves PrometheusRules",
	}
}

// lastGood begins the message of Connected while a new kubeconfig is not in use. refusal depends on it.
const lastGood = "the last good kubeconfig stays in use, but only until the manager restarts or another replica becomes the leader; correct the new one: "

func setCondition(s *v1alpha1.SpokeClusterStatus, generation int64, kind string, f Finding, now metav1.Time) {
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: kind, Status: f.Status, Reason: f.Reason, Message: f.Message,
		ObservedGeneration: generation, LastTransitionTime: now,
	})
}

// into writes an observation into a status.
func (o *Observation) into(s *v1alpha1.SpokeClusterStatus) {
	if o.Version != "" {
		s.KubernetesVersion = o.Version
	}
	if o.Identity != "" {
		s.Identity = o.Identity
	}
	if since := metav1.NewTime(o.IdentityTime).Rfc3339Copy(); s.IdentityTime.Before(&since) {
		s.IdentityTime = since
	}
	o.Counts.into(s)
}

// pending returns what is still to be removed from the spoke. If that is unknown, because the spoke was not
// read since the operator started, it stays as it was.
func (n news) pending(was *v1alpha1.PendingDeletions, suspended bool) *v1alpha1.PendingDeletions {
	out := n.held.pending()
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
func readiness(sc *v1alpha1.SpokeCluster, conditions []metav1.Condition, n news) Finding {
	if ptr.Deref(sc.Spec.Suspend, false) {
		return Finding{
			Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSuspended,
			Message: "the SpokeCluster is suspended: nothing is written to the spoke. To resume: kubectl patch spoke " + sc.Name + ` --type=merge -p '{"spec":{"suspend":false}}'`,
		}
	}
	for _, kind := range []string{v1alpha1.ConditionConnected, v1alpha1.ConditionPrometheusRuleServed} {
		c := meta.FindStatusCondition(conditions, kind)
		if c == nil {
			return Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonConnecting, Message: "the manager has not set condition " + kind + " yet; wait. If this lasts, check that a manager runs and is the leader"}
		}
		if c.Status != metav1.ConditionTrue {
			return Finding{Status: c.Status, Reason: c.Reason, Message: c.Message}
		}
	}
	switch {
	case n.seen != nil && n.seen.Writes.Status != "":
		return n.seen.Writes
	case n.held != nil:
		return Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDeletionsHeld, Message: n.held.Message}
	case n.contested != "":
		return Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonContested, Message: Clip(n.contested, maxMessage)}
	case n.refused > 0:
		return Finding{
			Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonMaxRulesReached,
			Message: deploymentsLack(n.refused) + " AlertRules: " + maxRulesReached(sc.Name, ptr.Deref(sc.Spec.MaxRules, 0), n.refused, n.crowded),
		}
	}
	return Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Message: "the hub manages the rules in the spoke"}
}

// highestMaxRules is the maximum of spec.maxRules in the API.
const highestMaxRules = 100_000

// maxRulesReached describes a limit that keeps Deployments from getting AlertRules, and what to do. crowded is the
// namespace that has its share, if others have not.
func maxRulesReached(spoke string, limit int32, refused int, crowded string) string {
	reached := "is reached"
	if crowded != "" {
		reached = fmt.Sprintf("reserves a part for other namespaces than %s (--spoke-namespace-share)", crowded)
	}
	if limit >= highestMaxRules {
		return fmt.Sprintf("spec.maxRules (%d, the maximum) %s. Existing AlertRules stay. To generate fewer, narrow the templates", limit, reached)
	}
	return fmt.Sprintf("spec.maxRules (%d) %s. Existing AlertRules stay. To generate fewer, narrow the templates."+
		" One Prometheus is supported with at most 2,000 alerting rules. To allow more: kubectl patch spoke %s --type=merge -p '{\"spec\":{\"maxRules\":%d}}'", limit, reached, spoke, more(limit, refused))
}

// more suggests a higher limit: room for at least as many AlertRules as Deployments are refused.
func more(limit int32, refused int) int32 {
	return min(max(2*limit, limit+2*int32(min(refused, 1<<20))), highestMaxRules)
}

func deploymentsLack(n int) string {
	if n == 1 {
		return "1 Deployment lacks"
	}
	return fmt.Sprintf("%d Deployments lack", n)
}
