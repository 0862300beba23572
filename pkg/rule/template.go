package rule

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Workload is a Deployment in a spoke, as templates see it.
type Workload struct {
	Cluster         Cluster
	Namespace       string
	NamespaceLabels map[string]string
	Name            string
	Labels          map[string]string
	Annotations     map[string]string
	// Templates are the names of all templates, which tell a mistake in the annotation
	// rulefleet.io/disable. Nil tells none.
	Templates []string

	// fault is why the annotations that adjust are ignored; nil while they are not.
	fault *Invalid
}

// Unadjusted returns the workload as it is without the annotations that adjust its
// AlertRules, because together with them a template made what is not valid.
func (w Workload) Unadjusted(bad *Invalid) Workload {
	w.fault = bad
	return w
}

// adjusted tells whether the workload has annotations that adjust its AlertRules.
func (w Workload) adjusted() bool {
	for key := range w.Annotations {
		if strings.HasPrefix(key, v1alpha1.AdjustmentPrefix) {
			return true
		}
	}
	return false
}

func (w Workload) describe() string {
	return fmt.Sprintf("Deployment %s/%s in cluster %s", w.Namespace, w.Name, w.Cluster.Name)
}

// systemNamespaces take part in a template only where it names them.
var systemNamespaces = []v1alpha1.NamespaceName{
	metav1.NamespaceSystem, metav1.NamespacePublic, "kube-node-lease",
}

// Matches tells whether a template makes an AlertRule for a workload: it picks it, and
// the workload's annotations don't turn it off. An error is a selector that is not valid.
func Matches(t *v1alpha1.AlertRuleTemplate, w Workload) (bool, error) {
	if ok, err := reaches(t, w); !ok || err != nil {
		return false, err
	}
	if s := t.Spec.Namespaces; s != nil && !slices.Contains(s.Names, v1alpha1.NamespaceName(w.Namespace)) {
		if ok, err := selects(s.Selector, w.NamespaceLabels); !ok || err != nil {
			return false, err
		}
	}
	if ok, err := selects(t.Spec.Workloads, w.Labels); !ok || err != nil {
		return false, err
	}
	return !adjust(t, w).off, nil
}

// selects tells whether a selector picks labels. No selector picks everything.
func selects(s *metav1.LabelSelector, set map[string]string) (bool, error) {
	if s == nil {
		return true, nil
	}
	selector, err := selectorOf(s)
	return err == nil && selector.Matches(labels.Set(set)), err
}

// reaches tells whether a template may pick a workload, by the template, the SpokeCluster and
// the workload's names. The labels and annotations in the spoke decide the rest.
func reaches(t *v1alpha1.AlertRuleTemplate, w Workload) (bool, error) {
	if t.Spec.State == v1alpha1.Disabled {
		return false, nil
	}
	if t.Spec.Clusters != nil {
		if ok, err := Places(*t.Spec.Clusters, w.Cluster); !ok || err != nil {
			return false, err
		}
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

// DecidedInSpoke tells whether the labels and annotations of a workload and of its namespace
// have a say in the removal of an AlertRule that a template made for it, or in whether the
// removal is suspect. made is when the AlertRule was made, and templateSince is when the template
// was. Otherwise what is on the hub decides, and the workload's names.
func DecidedInSpoke(made, templateSince time.Time, t *v1alpha1.AlertRuleTemplate, w Workload) bool {
	reached, err := reaches(t, w)
	remade := t.Annotations[v1alpha1.BuiltInAnnotation] != "" && !made.After(templateSince)
	unlabeled := t.Spec.Clusters != nil && byLabels(*t.Spec.Clusters, w.Cluster.Name) && !made.After(w.Cluster.Created)
	return reached || err != nil || remade || unlabeled
}
