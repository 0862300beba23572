package membership

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

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
// Kubernetes itself, Argo CD, Flux, Helm, kapp, Rancher Fleet and wrangler. A tool that finds its label on a SpokeCluster,
// which it has not applied, deletes the SpokeCluster, and with it the rules in the spoke.
var trackingDomains = []string{
	"kubernetes.io", "argocd.argoproj.io", "toolkit.fluxcd.io", "helm.sh", "kapp.k14s.io", "fleet.cattle.io", "objectset.rio.cattle.io",
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
