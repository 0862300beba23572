package rule

import (
	"slices"
	"time"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// A removal follows an event that a running manager saw, or a comparison with something
// newer than the object that would go. Where there is neither, and the object is not younger
// than what would remove it, the removal is suspect: objects of that kind may have been
// lost and made anew, without what people had set in them. Times have seconds, so two that
// are equal may be either way round.

// Seen are former versions of what a decision follows from. A running manager saw the
// change from each of them to what came after it.
type Seen struct {
	// Rules are former versions of the AlertRule, and Templates are those of the template.
	Rules     []*v1alpha1.AlertRule
	Templates []*v1alpha1.AlertRuleTemplate
	// Labels are former labels of the SpokeCluster.
	Labels []map[string]string
	// Left are SpokeClusters of the same cluster that were deleted.
	Left []Cluster
}

// SuspectAbsent tells whether a removal is suspect that follows from the absence of an
// object. made is when that which would go was made, and kindSince is when the object's
// kind was defined. witnessed tells that the object was seen to be deleted.
func SuspectAbsent(made, kindSince time.Time, witnessed bool) bool {
	return !made.After(kindSince) && !witnessed
}

// SuspectUnplaced tells whether the removal is suspect of what stands in a cluster for a
// rule that is not placed there: other labels could place it there, what would go is not
// younger than the SpokeCluster that lacks them, and nothing that was seen took it away.
func SuspectUnplaced(made time.Time, r *v1alpha1.AlertRule, c Cluster, seen Seen) bool {
	return !made.After(c.Created) && placeable(r, c.Name) && !seen.Placed(r, c)
}

// SuspectUnmatched is the same for an AlertRule that a template made for a workload that it
// does not match. templateSince is when the template was made. A built-in one that was made
// after the AlertRule is what the manager brings along: its state is not what a person set
// before it was lost. A workload that turns it off by its own annotations decides that,
// whatever the template was before.
func SuspectUnmatched(made, templateSince time.Time, t *v1alpha1.AlertRuleTemplate, w Workload, seen Seen) bool {
	remade := t.Annotations[v1alpha1.BuiltInAnnotation] != "" && !made.After(templateSince) && !adjust(t, w).off
	unlabeled := !made.After(w.Cluster.Created) && matchable(t, w)
	return (remade || unlabeled) && !seen.Matched(t, w)
}

// placeable tells whether there are labels with which a cluster would have a rule.
func placeable(r *v1alpha1.AlertRule, name string) bool {
	return selectable(r.Spec.Placement, name) && slices.ContainsFunc(possibleStates(r, name), func(s v1alpha1.State) bool {
		return s != v1alpha1.Disabled
	})
}

// selectable tells whether a selection picks a cluster of that name, or may by its labels.
func selectable(s v1alpha1.ClusterSelection, name string) bool {
	return s.Selector != nil || slices.Contains(s.Names, v1alpha1.ClusterName(name))
}

// byLabels tells whether it depends on the labels of a cluster of that name whether a
// selection picks it.
func byLabels(s v1alpha1.ClusterSelection, name string) bool {
	return s.Selector != nil && len(s.Selector.MatchLabels)+len(s.Selector.MatchExpressions) > 0 &&
		!slices.Contains(s.Names, v1alpha1.ClusterName(name))
}

// possibleStates are the states that a rule can have in a cluster of that name, whatever
// the cluster's labels are. As in stateIn, the first override that picks it decides.
func possibleStates(r *v1alpha1.AlertRule, name string) []v1alpha1.State {
	var states []v1alpha1.State
	for i := range r.Spec.Overrides {
		o := &r.Spec.Overrides[i]
		if o.State == "" || !selectable(o.ClusterSelection, name) {
			continue
		}
		states = append(states, o.State)
		if !byLabels(o.ClusterSelection, name) {
			return states
		}
	}
	return append(states, r.Spec.State)
}

// matchable tells whether there are labels of the cluster with which a template would match
// a workload.
func matchable(t *v1alpha1.AlertRuleTemplate, w Workload) bool {
	if t.Spec.Clusters == nil || !byLabels(*t.Spec.Clusters, w.Cluster.Name) {
		return false
	}
	anywhere := *t
	anywhere.Spec.Clusters = nil
	matches, err := Matches(&anywhere, w)
	return err == nil && matches
}

// Placed tells whether a state was seen in which a rule was placed in a cluster.
func (s Seen) Placed(r *v1alpha1.AlertRule, c Cluster) bool {
	clusters := append(s.clusters(c), s.Left...)
	return slices.ContainsFunc(append([]*v1alpha1.AlertRule{r}, s.Rules...), func(r *v1alpha1.AlertRule) bool {
		return slices.ContainsFunc(clusters, func(c Cluster) bool {
			placed, err := PlacedIn(r, c)
			return err == nil && placed
		})
	})
}

// Matched tells whether a state was seen in which a template matched a workload.
func (s Seen) Matched(t *v1alpha1.AlertRuleTemplate, w Workload) bool {
	clusters := s.clusters(w.Cluster)
	return slices.ContainsFunc(append([]*v1alpha1.AlertRuleTemplate{t}, s.Templates...), func(t *v1alpha1.AlertRuleTemplate) bool {
		return slices.ContainsFunc(clusters, func(c Cluster) bool {
			w.Cluster = c
			matches, err := Matches(t, w)
			return err == nil && matches
		})
	})
}

// clusters returns a cluster with its labels, and with each of its former ones.
func (s Seen) clusters(c Cluster) []Cluster {
	out := []Cluster{c}
	for _, labels := range s.Labels {
		c.Labels = labels
		out = append(out, c)
	}
	return out
}
