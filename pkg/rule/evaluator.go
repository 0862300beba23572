package rule

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Evaluator is a Prometheus or ThanosRuler that evaluates rules. One rule that it can't parse makes
// the reload of all of its rules fail.
type Evaluator struct {
	// Kind, Namespace and Name identify its object in the spoke.
	Kind, Namespace, Name string
	// Chosen is true if it is chosen to evaluate the rules. See evaluation.Choose and evaluation.ApplyRefs.
	Chosen bool
	// Missing is true if it was chosen and has disappeared. The other fields have their last known
	// values.
	Missing bool
	// RuleSelector and RuleNamespaceSelector select its PrometheusRules. As in prometheus-operator, a
	// nil RuleSelector selects none and an empty one selects all; a nil RuleNamespaceSelector selects
	// its own namespace, and an empty one selects all namespaces.
	RuleSelector, RuleNamespaceSelector *metav1.LabelSelector
	// EnforcedNamespaceLabel is the label that restricts PrometheusRules to their own namespace, except
	// those that ExcludedFromEnforcement lists, as namespace/name or namespace/*.
	EnforcedNamespaceLabel  string
	ExcludedFromEnforcement []string
	// Namespaces are the namespaces from which prometheus-operator reads PrometheusRules, or nil for
	// all. DeniedNamespaces are those from which it does not, whatever RuleNamespaceSelector selects.
	Namespaces, DeniedNamespaces []string
	// ClusterLabel is its external label cluster, or empty.
	ClusterLabel string
	// Version is the version of Prometheus, such as v2.53.1. Versions that are not a release of
	// Prometheus are not checked. Leave it empty for a ThanosRuler, which has versions of Thanos.
	Version string
	// Features are the names in --enable-feature.
	Features []string
}

// String returns the name of an evaluator in statuses: kind namespace/name.
func (e *Evaluator) String() string { return e.Kind + " " + e.Namespace + "/" + e.Name }

// EvaluatorOf returns the Evaluator for an entry of a SpokeCluster's status.
func EvaluatorOf(e *v1alpha1.Evaluator) Evaluator {
	out := Evaluator{
		Kind: e.Kind, Namespace: e.Namespace, Name: e.Name,
		RuleSelector: e.RuleSelector, RuleNamespaceSelector: e.RuleNamespaceSelector,
		EnforcedNamespaceLabel: e.EnforcedNamespaceLabel, ExcludedFromEnforcement: e.ExcludedFromEnforcement,
		Namespaces: e.Namespaces, DeniedNamespaces: e.DeniedNamespaces, ClusterLabel: e.ClusterLabel,
		Chosen: e.Chosen, Missing: !e.MissingTime.IsZero(),
	}
	if e.Kind == KindPrometheus {
		out.Version, out.Features = e.Version, e.Features // a ThanosRuler has a version of Thanos
	}
	return out
}

// Kinds of evaluators.
const (
	KindPrometheus  = "Prometheus"
	KindThanosRuler = "ThanosRuler"
)

// Chosen returns the evaluators of a spoke that are chosen to evaluate its rules.
func (c *Cluster) Chosen() []*Evaluator {
	var out []*Evaluator
	for i := range c.Evaluators {
		if c.Evaluators[i].Chosen {
			out = append(out, &c.Evaluators[i])
		}
	}
	return out
}
