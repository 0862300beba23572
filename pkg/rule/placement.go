package rule

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Cluster is a spoke as placement and rendering see it.
type Cluster struct {
	// Name and Labels are those of its SpokeCluster.
	Name   string
	Labels map[string]string
	// UID and Created are those of its SpokeCluster, which may be younger than the objects in the
	// spoke. Identity is the identity of the cluster, if it is known.
	UID      types.UID
	Created  time.Time
	Identity string
	// RuleLabels are added to the PrometheusRules in the spoke, as labels of the objects.
	RuleLabels map[string]string
	// Suspended is true if nothing may be written to the spoke.
	Suspended bool
	// Tenants are spec.tenants of its SpokeCluster: the namespaces of the hub whose sources it takes. Tenant
	// is the namespace of the source in question, or nil for the operator's own two, which are always taken.
	Tenants *v1alpha1.TenantSelection
	Tenant  *Tenant
	// AdoptHubIDs are the ids of the former hubs whose PrometheusRules this hub takes over.
	AdoptHubIDs []string
	// MaxRules limits the number of AlertRules that templates generate for its Deployments. nil means
	// no limit.
	MaxRules *int32
	// Evaluators are the known Prometheus and ThanosRulers in the spoke.
	Evaluators []Evaluator
	// EvaluatorRefs are spec.evaluatorRefs of its SpokeCluster.
	EvaluatorRefs []v1alpha1.EvaluatorReference
	// EvaluatorsUnknown explains why there may be further evaluators that are not known. It is "" if
	// all are known.
	EvaluatorsUnknown string
}

// Places reports whether a selection selects a cluster, by name or by label, and does not exclude it. A nil
// selector selects nothing, and an empty one selects everything.
func Places(s v1alpha1.ClusterSelection, c Cluster) (bool, error) {
	selection, err := SelectionOf(s)
	if err != nil {
		return false, err
	}
	return selection.Selects(c), nil
}

// Selection is a ClusterSelection with parsed selectors.
type Selection struct{ included, excluded part }

// SelectionOf parses the selectors of a selection.
func SelectionOf(s v1alpha1.ClusterSelection) (Selection, error) {
	included, err := partOf(s.Names, s.Selector)
	if err != nil || s.Exclude == nil {
		return Selection{included: included}, err
	}
	excluded, err := partOf(s.Exclude.Names, s.Exclude.Selector)
	return Selection{included, excluded}, err
}

// Selects reports whether the selection selects a cluster.
func (s Selection) Selects(c Cluster) bool { return s.included.has(c) && !s.excluded.has(c) }

// part is the names and the selector of a selection, or of its exclusion.
type part struct {
	names    []v1alpha1.ClusterName
	selector labels.Selector
}

func partOf(names []v1alpha1.ClusterName, s *metav1.LabelSelector) (part, error) {
	selector, err := SelectorOf(s)
	return part{names, selector}, err
}

func (p part) has(c Cluster) bool {
	return slices.Contains(p.names, v1alpha1.ClusterName(c.Name)) || p.selector != nil && p.selector.Matches(labels.Set(c.Labels))
}

// SelectorOf converts a selector as metav1 does (nil: nothing, empty: everything), with a readable
// error.
func SelectorOf(s *metav1.LabelSelector) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, fmt.Errorf("the label selector is not valid: %w", err)
	}
	return selector, nil
}

// Selectable reports whether a selection selects a cluster of that name with some labels.
func Selectable(s v1alpha1.ClusterSelection, name string) bool {
	e := s.Exclude
	return (s.Selector != nil || slices.Contains(s.Names, v1alpha1.ClusterName(name))) &&
		(e == nil || !slices.Contains(e.Names, v1alpha1.ClusterName(name)) && !MatchesAll(e.Selector))
}

// ByLabels reports whether the labels of a cluster of that name determine whether a selection selects
// it.
func ByLabels(s v1alpha1.ClusterSelection, name string) bool {
	return Selectable(s, name) &&
		(s.Exclude != nil && s.Exclude.Selector != nil || !MatchesAll(s.Selector) && !slices.Contains(s.Names, v1alpha1.ClusterName(name)))
}

// SeesLabels reports whether a selection may depend on the labels of clusters.
func SeesLabels(s v1alpha1.ClusterSelection) bool {
	return s.Selector != nil || s.Exclude != nil && s.Exclude.Selector != nil
}

// MatchesAll reports whether a selector is {}, which matches everything.
func MatchesAll(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0
}

// PlacedIn reports whether a source belongs in a spoke: its placement selects the spoke, the spoke takes
// sources of its namespace, and it is enabled there. It returns an error for an invalid selector.
func PlacedIn(s Source, c Cluster) (bool, error) {
	for _, decide := range []func() (bool, error){
		func() (bool, error) { return Places(s.GetPlacement(), c) },
		c.Takes,
	} {
		if placed, err := decide(); err != nil || !placed {
			return false, err
		}
	}
	return StateIn(s, c) != v1alpha1.Disabled, nil
}

// StateIn returns the state of a source in one spoke, with its overrides.
func StateIn(s Source, c Cluster) v1alpha1.State {
	return StateOf(s.GetState(), slices.Values(s.GetOverrides()), c)
}

// MaybeEnabled reports whether there can be a spoke in which a source is enabled.
func MaybeEnabled(s Source) bool {
	return s.GetState() != v1alpha1.Disabled || slices.ContainsFunc(s.GetOverrides(), func(o v1alpha1.Override) bool {
		return o.State == v1alpha1.Enabled
	})
}
