package spoke

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// mirrorManager is the field manager of the labels that are mirrored from a Secret
// onto its SpokeCluster. What others put there stays theirs.
const mirrorManager = "rulefleet-registrar"

// mirrored returns the labels that a SpokeCluster takes over from its Secret, and
// whether that differs from what it took over before. A label that somebody else
// has set to another value on the SpokeCluster is left to them.
func mirrored(secret map[string]string, sc *v1alpha1.SpokeCluster) (labels map[string]string, changed bool) {
	ours := ownLabels(sc)
	labels = map[string]string{}
	for key, value := range secret {
		if !mirrors(key) {
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

// mirrors tells whether a Secret's label is meant for placement: neither the
// registration itself, nor what Kubernetes and its tools keep for themselves.
func mirrors(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	return key != v1alpha1.RegistrationLabel &&
		!(found && (domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io")))
}

// ownLabels reads out of managedFields which labels the mirror applied.
func ownLabels(sc *v1alpha1.SpokeCluster) sets.Set[string] {
	ours := sets.New[string]()
	for _, entry := range sc.ManagedFields {
		if entry.Manager != mirrorManager || entry.FieldsV1 == nil {
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

// statusOf derives a SpokeCluster's status. seen is nil when nothing was seen of
// the spoke since the operator started: then the status stays, because a restart of
// the operator is no news of the spoke. finding is non-nil where the registration
// itself is at fault. held is what the brake holds, or nil.
func statusOf(sc *v1alpha1.SpokeCluster, seen *Observation, finding *Finding, held *Held, now metav1.Time) v1alpha1.SpokeClusterStatus {
	out := *sc.Status.DeepCopy()
	out.PendingDeletions = held.pending()
	connected, serves := Finding{}, Finding{}
	if seen != nil {
		connected, serves = seen.Connected, seen.Served
		if seen.Version != "" {
			out.KubernetesVersion = seen.Version
		}
		if seen.Identity != "" {
			out.Identity = seen.Identity
		}
		seen.Counts.into(&out)
	}
	switch {
	case finding == nil:
	case connected.Status == metav1.ConditionTrue:
		// The last good connection stays in use.
		connected.Message = Clip("the last good kubeconfig stays in use; the new one is at fault: "+finding.Message, maxMessage)
	default:
		connected = *finding
	}
	if connected.Reason == v1alpha1.ReasonDuplicateCluster {
		out.Identity = "" // the other spoke's
	}
	if connected.Status == "" {
		if meta.FindStatusCondition(out.Conditions, v1alpha1.ConditionConnected) != nil {
			return out
		}
		connected = Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonConnecting, Message: "waiting for the spoke's first answer"}
	}
	out.ObservedGeneration = sc.Generation
	set := func(kind string, f Finding) {
		meta.SetStatusCondition(&out.Conditions, metav1.Condition{
			Type: kind, Status: f.Status, Reason: f.Reason, Message: f.Message,
			ObservedGeneration: sc.Generation, LastTransitionTime: now,
		})
	}
	was := meta.FindStatusCondition(out.Conditions, v1alpha1.ConditionConnected)
	if (was == nil || was.Status != connected.Status) && seen != nil && !seen.Contact.IsZero() {
		out.LastContactTime = metav1.NewTime(seen.Contact)
	}
	set(v1alpha1.ConditionConnected, connected)
	if serves.Status != "" {
		set(v1alpha1.ConditionPrometheusRuleServed, serves)
	}
	set(v1alpha1.ConditionReady, readiness(out.Conditions, held))
	return out
}

// readiness is Ready: connected, PrometheusRules are served, and no deletion is held.
func readiness(conditions []metav1.Condition, held *Held) Finding {
	for _, kind := range []string{v1alpha1.ConditionConnected, v1alpha1.ConditionPrometheusRuleServed} {
		c := meta.FindStatusCondition(conditions, kind)
		if c == nil {
			return Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonConnecting, Message: fmt.Sprintf("%s is not known yet", kind)}
		}
		if c.Status != metav1.ConditionTrue {
			return Finding{Status: c.Status, Reason: c.Reason, Message: c.Message}
		}
	}
	if held != nil {
		return Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDeletionsHeld, Message: held.Message}
	}
	return Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady, Message: "rules are kept in the spoke"}
}
