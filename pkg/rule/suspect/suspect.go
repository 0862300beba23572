package suspect

import (
	"slices"
	"time"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
)

// A removal is based on an event that a running manager saw, or the object to remove is newer than the objects and the
// kind on which the decision depends. A removal without either is suspect: objects of that kind may have
// been lost and created again, without the changes that users had made to them. Times are in seconds,
// so the order of two equal times is not known.

// Seen contains former versions of the objects on which a decision depends. A running manager saw the
// change from each of them to the next.
type Seen struct {
	// Sources are former versions of the source, and Templates are those of the template.
	Sources   []rule.Source
	Templates []*v1alpha1.AlertRuleTemplate
	// Spokes are former states of the SpokeCluster.
	Spokes []FormerSpoke
	// Left are SpokeClusters of the same cluster that were deleted.
	Left []rule.Cluster
}

// FormerSpoke has the former labels and spec.tenants of a SpokeCluster.
type FormerSpoke struct {
	Labels  map[string]string
	Tenants *v1alpha1.TenantSelection
}

// Absent reports whether a removal because of the absence of an object is suspect. made is the
// creation time of the object to remove, and kindSince the time at which the CustomResourceDefinition
// of the absent object's kind was created. witnessed is true if the deletion of the absent object was
// seen.
func Absent(made, kindSince time.Time, witnessed bool) bool {
	return !made.After(kindSince) && !witnessed
}

// Unplaced reports whether the removal of a source's object from a cluster in which it is not
// placed is suspect: other labels could place it there, the object is not younger than the
// SpokeCluster that lacks these labels, and no change was seen that explains the removal. The same holds for
// labels of the namespace on the hub.
func Unplaced(made time.Time, s rule.Source, c rule.Cluster, seen Seen) bool {
	since := c.Created
	if c.Tenant != nil && c.ByTenantLabels(c.Tenant.Name) && c.Tenant.Created.After(since) {
		since = c.Tenant.Created
	}
	return !made.After(since) && Placeable(s, c.Name) && !seen.Placed(s, c)
}

// Unmatched is the same for an AlertRule from a template that does not match its workload.
// templateSince is the creation time of the template. A built-in template that was created after the
// AlertRule was created by the manager: its state may differ from the one that a user set before the
// template was lost. If the annotations of the workload disable the alert, they decide, whatever the
// template was before.
func Unmatched(made, templateSince time.Time, t *v1alpha1.AlertRuleTemplate, w templating.Workload, seen Seen) bool {
	remade := t.Annotations[v1alpha1.BuiltInAnnotation] != "" && !made.After(templateSince) && !templating.TurnedOff(t, w)
	unlabeled := !made.After(w.Cluster.Created) && matchable(t, w)
	return (remade || unlabeled) && !seen.matched(t, w)
}

// Placeable reports whether there are labels with which a cluster would have a source.
func Placeable(s rule.Source, name string) bool {
	return rule.Selectable(s.GetPlacement(), name) && slices.ContainsFunc(rule.PossibleStates(s.GetState(), slices.Values(s.GetOverrides()), name), func(state v1alpha1.State) bool {
		return state != v1alpha1.Disabled
	})
}

// matchable reports whether a template would match a workload if its cluster had other labels.
func matchable(t *v1alpha1.AlertRuleTemplate, w templating.Workload) bool {
	if !templating.ByLabels(t, w.Cluster.Name) {
		return false
	}
	anywhere := *t
	anywhere.Spec.Placement, anywhere.Spec.Overrides, anywhere.Spec.State = nil, nil, v1alpha1.Enabled
	matches, err := templating.Matches(&anywhere, w)
	return err == nil && matches
}

// Placed reports whether a state was seen in which a source was placed in a cluster.
func (s Seen) Placed(source rule.Source, c rule.Cluster) bool {
	clusters := s.clusters(c)
	for _, left := range s.Left {
		left.Tenant = c.Tenant
		clusters = append(clusters, left)
	}
	return slices.ContainsFunc(append([]rule.Source{source}, s.Sources...), func(source rule.Source) bool {
		return slices.ContainsFunc(clusters, func(c rule.Cluster) bool {
			placed, err := rule.PlacedIn(source, c)
			return err == nil && placed
		})
	})
}

// matched reports whether a state was seen in which a template matched a workload.
func (s Seen) matched(t *v1alpha1.AlertRuleTemplate, w templating.Workload) bool {
	clusters := s.clusters(w.Cluster)
	return slices.ContainsFunc(append([]*v1alpha1.AlertRuleTemplate{t}, s.Templates...), func(t *v1alpha1.AlertRuleTemplate) bool {
		return slices.ContainsFunc(clusters, func(c rule.Cluster) bool {
			w.Cluster = c
			matches, err := templating.Matches(t, w)
			return err == nil && matches
		})
	})
}

// Clusters returns a cluster in its present state, and in each of its former ones.
func (s Seen) clusters(c rule.Cluster) []rule.Cluster {
	out := []rule.Cluster{c}
	for _, former := range s.Spokes {
		c.Labels, c.Tenants = former.Labels, former.Tenants
		out = append(out, c)
	}
	return out
}
