// Package oracle says what must hold of a hub and its spokes, whatever happened before. Random schedules are checked
// by it, in memory and on real control planes. All that it needs is passed to it.
package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
)

// Wanted returns the PrometheusRule that an AlertRule or a RulePack must have in a spoke, or nil if it must have none.
// The source may be nil. It returns the error of one that can't be placed or rendered.
func Wanted(source rule.Source, c rule.Cluster, o delivery.Options) (*monitoringv1.PrometheusRule, error) {
	if source == nil || !rule.MaybeEnabled(source) {
		return nil, nil
	}
	placed, err := rule.PlacedIn(source, c)
	if err != nil || !placed {
		return nil, err
	}
	return delivery.Render(source, c, o)
}

// Generated returns the AlertRules that a Deployment must have, by name. Templates that are not valid for it are left
// out.
func Generated(w templating.Workload, templates []*v1alpha1.AlertRuleTemplate, namespace string) map[string]*v1alpha1.AlertRule {
	w.Know(templates...)
	out := map[string]*v1alpha1.AlertRule{}
	for _, t := range templates {
		if matches, err := templating.Matches(t, w); err != nil || !matches {
			continue
		}
		if ar, err := templating.Rule(t, w, namespace); err == nil {
			out[ar.Name] = ar
		}
	}
	return out
}

// Spoke is a spoke and what the hub says about it.
type Spoke struct {
	Cluster rule.Cluster
	Options delivery.Options
	// Rules are the AlertRules or RulePacks of the hub, and Holds the PrometheusRules in the spoke.
	Rules map[types.NamespacedName]rule.Source
	Holds map[types.NamespacedName]*monitoringv1.PrometheusRule
	// Row returns the spoke's row in the status of a rule, or nil.
	Row func(key types.NamespacedName) *v1alpha1.ClusterStatus
	// Excused reports whether a PrometheusRule may stay that its source does not want. nil excuses none.
	Excused func(key types.NamespacedName, o *monitoringv1.PrometheusRule) bool
}

// Faults returns what is wrong in a spoke that is connected, when nothing is broken and all is processed.
func (s *Spoke) Faults() []string {
	var faults []string
	wanted := map[types.NamespacedName]types.NamespacedName{} // the source, by object
	for _, key := range slices.SortedFunc(maps.Keys(s.Rules), CompareKeys) {
		want, err := Wanted(s.Rules[key], s.Cluster, s.Options)
		if err != nil || want == nil {
			continue
		}
		name := types.NamespacedName{Namespace: want.Namespace, Name: want.Name}
		wanted[name] = key
		if fault := s.fault(key, want, s.Holds[name]); fault != "" {
			faults = append(faults, fault)
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(s.Holds), CompareKeys) {
		o := s.Holds[name]
		of, stands := rule.StandsFor(o, s.Options.HubID)
		key := of.NamespacedName()
		if !stands || wanted[name] == key || s.unknown(key) || (s.Excused != nil && s.Excused(key, o)) {
			continue
		}
		faults = append(faults, fmt.Sprintf("PrometheusRule %s of %s stays in spoke %s", name, key, s.Cluster.Name))
	}
	return faults
}

func (s *Spoke) fault(key types.NamespacedName, want, is *monitoringv1.PrometheusRule) string {
	row := s.Row(key)
	switch {
	case is == nil:
		return fmt.Sprintf("%s is missing in spoke %s: %+v", key, s.Cluster.Name, row)
	case !rule.Owned(is, s.Options.HubID):
		if row == nil || row.Reason != v1alpha1.ReasonConflict {
			return fmt.Sprintf("%s is somebody else's in spoke %s, and the row is %+v", key, s.Cluster.Name, row)
		}
	case delivery.Digest(is) != delivery.Digest(want):
		return fmt.Sprintf("%s in spoke %s is not what the hub wants: %+v", key, s.Cluster.Name, is.Spec)
	case row == nil || row.Phase != v1alpha1.PhaseApplied:
		return fmt.Sprintf("%s is in spoke %s, and the row is %+v", key, s.Cluster.Name, row)
	}
	return ""
}

// unknown reports whether a source can't be placed or rendered, so that what it has stays.
func (s *Spoke) unknown(key types.NamespacedName) bool {
	_, err := Wanted(s.Rules[key], s.Cluster, s.Options)
	return err != nil
}

// CompareKeys compares two keys, for a fixed order.
func CompareKeys(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }
