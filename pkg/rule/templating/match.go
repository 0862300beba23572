package templating

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// Workload is a workload in a spoke, as templates see it.
type Workload struct {
	Cluster         rule.Cluster
	Kind            v1alpha1.WorkloadKind
	Namespace       string
	NamespaceLabels map[string]string
	Name            string
	Labels          map[string]string
	Annotations     map[string]string
	// Templates are the names of all templates, and Parameters those of all their parameters. They are used to
	// detect unknown names in annotations. If Templates is nil, unknown names are not detected.
	Templates, Parameters []string

	// fault is the reason why adjusting annotations are ignored, or nil.
	fault *rule.Invalid
}

// Key returns the key of the workload in its spoke.
func (w Workload) Key() rule.Key {
	return rule.Key{Kind: string(w.Kind), Namespace: w.Namespace, Name: w.Name}
}

// Unadjusted returns the workload without the annotations that adjust its AlertRules, because the
// AlertRule with these annotations is not valid.
func (w Workload) Unadjusted(bad *rule.Invalid) Workload {
	w.fault = bad
	return w
}

// Know records the names of all templates and of their parameters.
func (w *Workload) Know(templates ...*v1alpha1.AlertRuleTemplate) {
	for _, t := range templates {
		w.Templates = append(w.Templates, t.Name)
		for i := range t.Spec.Parameters {
			w.Parameters = append(w.Parameters, t.Spec.Parameters[i].Name)
		}
	}
}

// adjusted reports whether the workload has annotations that adjust its AlertRules.
func (w Workload) adjusted() bool {
	for key := range w.Annotations {
		if strings.HasPrefix(key, v1alpha1.AdjustmentPrefix) {
			return true
		}
	}
	return false
}

// systemNamespaces are only selected by templates that list them by name.
var systemNamespaces = []v1alpha1.NamespaceName{
	metav1.NamespaceSystem, metav1.NamespacePublic, "kube-node-lease",
}

// Matches reports whether a template generates an AlertRule for a workload: it selects the workload,
// and the workload's annotations don't disable it. It returns an error for an invalid selector.
func Matches(t *v1alpha1.AlertRuleTemplate, w Workload) (bool, error) {
	ok, err := SelectsWorkload(t, w)
	return ok && !TurnedOff(t, w), err
}

// SelectsWorkload reports whether a template selects a workload, whose annotations may disable it. It returns an
// error for an invalid selector.
func SelectsWorkload(t *v1alpha1.AlertRuleTemplate, w Workload) (bool, error) {
	if ok, err := reaches(t, w); !ok || err != nil {
		return false, err
	}
	if s := t.Spec.Namespaces; s != nil && !slices.Contains(s.Names, v1alpha1.NamespaceName(w.Namespace)) {
		if ok, err := selects(s.Selector, w.NamespaceLabels); !ok || err != nil {
			return false, err
		}
	}
	return selected(t.Spec.Workloads, w)
}

// TurnedOff reports whether the annotations of a workload disable the alert of a template.
func TurnedOff(t *v1alpha1.AlertRuleTemplate, w Workload) bool {
	a := adjust(t, t.Spec.Labels, w)
	return a.off
}

// selected reports whether the labels and the name of a workload select it. reaches checks its kind.
func selected(s *v1alpha1.WorkloadSelection, w Workload) (bool, error) {
	if s == nil {
		return true, nil
	}
	if ok, err := selects(s.Selector, w.Labels); !ok || err != nil || s.Exclude == nil {
		return ok, err
	}
	if slices.Contains(s.Exclude.Names, w.Name) {
		return false, nil
	}
	if s.Exclude.Selector == nil {
		return true, nil
	}
	excluded, err := selects(s.Exclude.Selector, w.Labels)
	return !excluded, err
}

// selects reports whether a selector matches labels. A nil selector matches everything.
func selects(s *metav1.LabelSelector, set map[string]string) (bool, error) {
	if s == nil {
		return true, nil
	}
	selector, err := rule.SelectorOf(s)
	return err == nil && selector.Matches(labels.Set(set)), err
}

// EnabledIn reports whether a template is placed and enabled in a cluster. It returns an error for an invalid selector.
func EnabledIn(t *v1alpha1.AlertRuleTemplate, c rule.Cluster) (bool, error) {
	if t.Spec.Placement != nil {
		if ok, err := rule.Places(*t.Spec.Placement, c); !ok || err != nil {
			return false, err
		}
	}
	return stateIn(t, c) != v1alpha1.Disabled, nil
}

// reaches reports whether a template may select a workload, according to the template, the
// SpokeCluster and the workload's kind and names. The labels and annotations in the spoke decide the rest.
func reaches(t *v1alpha1.AlertRuleTemplate, w Workload) (bool, error) {
	if !slices.Contains(rule.KindsOf(t), w.Kind) {
		return false, nil
	}
	if ok, err := EnabledIn(t, w.Cluster); !ok || err != nil {
		return false, err
	}
	name, s := v1alpha1.NamespaceName(w.Namespace), t.Spec.Namespaces
	if s == nil {
		s = &v1alpha1.NamespaceSelection{}
	}
	switch {
	case slices.Contains(s.Exclude, name):
		return false, nil
	case slices.Contains(s.Names, name):
		return true, nil
	case slices.Contains(systemNamespaces, name):
		return false, nil
	}
	return s.Selector != nil || len(s.Names) == 0, nil
}

// DecidedInSpoke reports whether the labels and annotations of a workload and of its namespace
// influence the removal of its AlertRule, or whether the removal is suspect. made and templateSince
// are the creation times of the AlertRule and of the template. Otherwise only objects on the hub and
// the workload's names decide.
func DecidedInSpoke(made, templateSince time.Time, t *v1alpha1.AlertRuleTemplate, w Workload) bool {
	reached, err := reaches(t, w)
	remade := t.Annotations[v1alpha1.BuiltInAnnotation] != "" && !made.After(templateSince)
	unlabeled := ByLabels(t, w.Cluster.Name) && !made.After(w.Cluster.Created)
	return reached || err != nil || remade || unlabeled
}
