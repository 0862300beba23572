package rule

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Cluster is a spoke as placement and rendering see it.
type Cluster struct {
	// Name, UID and Labels are those of its SpokeCluster.
	Name   string
	UID    types.UID
	Labels map[string]string
	// RuleLabels are put on the PrometheusRules there, as labels of the objects.
	RuleLabels map[string]string
	// Suspended tells that nothing is to be written there.
	Suspended bool
	// AdoptHubIDs are the ids of the former hubs whose PrometheusRules are to be taken over.
	AdoptHubIDs []string
	// MaxRules bounds the AlertRules that templates make for its Deployments; nil is no
	// bound.
	MaxRules *int32
	// Evaluators are the Prometheus and ThanosRulers there, as far as they are known.
	Evaluators []Evaluator
	// EvaluatorRefs names those of them that are to evaluate the rules, as a person said.
	EvaluatorRefs []v1alpha1.EvaluatorReference
	// EvaluatorsUnknown says why it is not known whether there are others; "" where it is.
	EvaluatorsUnknown string
}

// Places tells whether a selection picks a cluster: by name or by label. No selector
// picks nothing, an empty one everything.
func Places(s v1alpha1.ClusterSelection, c Cluster) (bool, error) {
	selector, err := selectorOf(s.Selector)
	if err != nil {
		return false, err
	}
	return places(s.Names, selector, c), nil
}

// PlacedOn returns the clusters that a rule's placement picks, by name.
func PlacedOn(r *v1alpha1.AlertRule, cs []Cluster) ([]Cluster, error) {
	selector, err := selectorOf(r.Spec.Placement.Selector)
	if err != nil {
		return nil, err
	}
	var placed []Cluster
	for _, c := range cs {
		if places(r.Spec.Placement.Names, selector, c) {
			placed = append(placed, c)
		}
	}
	slices.SortFunc(placed, func(a, b Cluster) int { return cmp.Compare(a.Name, b.Name) })
	return placed, nil
}

func places(names []v1alpha1.ClusterName, selector labels.Selector, c Cluster) bool {
	return slices.Contains(names, v1alpha1.ClusterName(c.Name)) || selector.Matches(labels.Set(c.Labels))
}

// selectorOf is metav1's conversion (nil: nothing, empty: everything) with an error
// that a person can read.
func selectorOf(s *metav1.LabelSelector) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, fmt.Errorf("the label selector is not valid: %w", err)
	}
	return selector, nil
}
