package rule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// severityLabel is the alert's label for spec.severity.
const severityLabel = "severity"

// RenderOptions are the settings of the hub that a rendered rule depends on.
type RenderOptions struct {
	// HubID is this hub's id.
	HubID string
	// AdminNamespace is the operator's own namespace.
	AdminNamespace string
	// RuleNamespace is the namespace for AlertRules of the admin namespace that don't name one, such as
	// "monitoring", in spokes whose evaluators don't determine it.
	RuleNamespace string
	// ClusterLabel is the alert's label for the spoke's name, or for the evaluator's external label
	// cluster. Empty means no label.
	ClusterLabel string
	// GeneratedNamespace is the hub's namespace for generated AlertRules.
	GeneratedNamespace string
	// Tenancy has the limits of AlertRules outside of the admin namespace.
	Tenancy Tenancy
}

// TargetNamespace returns the namespace of a rule's PrometheusRule in a spoke.
func TargetNamespace(r *v1alpha1.AlertRule, c Cluster, o RenderOptions) string {
	switch {
	case r.Spec.RuleNamespace != "":
		return string(r.Spec.RuleNamespace)
	case r.Spec.WorkloadRef != nil:
		return string(r.Spec.WorkloadRef.Namespace)
	case !Anywhere(r, o):
		return r.Namespace
	}
	return cmp.Or(onlyNamespace(&c), o.RuleNamespace, r.Namespace)
}

// Anywhere reports whether nothing in a rule determines the namespace that it is about. Its
// PrometheusRule goes into the namespace of the spoke's Prometheus.
func Anywhere(r *v1alpha1.AlertRule, o RenderOptions) bool {
	return r.Spec.RuleNamespace == "" && r.Spec.WorkloadRef == nil && r.Namespace == o.AdminNamespace
}

// Render returns the PrometheusRule of an AlertRule for one spoke in which it is enabled. The rule has
// passed Validate. An error is an *Invalid that explains why it can't be rendered for this spoke, such
// as a label that its SpokeCluster lacks.
func Render(r *v1alpha1.AlertRule, c Cluster, o RenderOptions) (*monitoringv1.PrometheusRule, error) {
	e := effective(r, c)
	alert, bad := renderStage(c.Name, c.Labels).alert(e.alert)
	if bad != nil {
		return nil, e.blame(bad)
	}
	// A rule that Prometheus can't parse fails the reload of all of them, and what a
	// label of a spoke may hold is known only now.
	if alert.Expr != e.alert.Expr {
		if bad := checkExpr(alert.Expr); bad != nil {
			bad.Message = fmt.Sprintf("after its placeholders are replaced with the values of SpokeCluster %s: %s; correct the labels of the SpokeCluster, or the expression", c.Name, bad.Message)
			return nil, e.blame(bad)
		}
	}
	if o.Tenancy.EnforceNamespace && o.tenant(r.Namespace) {
		expr, f := enforcedExpr(alert.Expr, r.Namespace)
		if f != nil {
			return nil, e.blame(invalidExpr(alert.Expr, &f.fault))
		}
		alert.Expr = expr
	}
	if bad := checkEvaluators(alert, c); bad != nil {
		return nil, e.blame(bad)
	}
	labels := objectLabels(r, c, o)
	object := &monitoringv1.PrometheusRule{
		TypeMeta: metav1.TypeMeta{
			APIVersion: monitoring.GroupName + "/" + monitoringv1.Version,
			Kind:       monitoringv1.PrometheusRuleKind,
		},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   TargetNamespace(r, c, o),
			Name:        ObjectName(o.HubID, r.Namespace, r.Name),
			Labels:      labels,
			Annotations: objectAnnotations(r, labels),
		},
		Spec: monitoringv1.PrometheusRuleSpec{Groups: []monitoringv1.RuleGroup{{
			// Stable: Prometheus keeps an alert's "for" under group and alert names.
			Name:     r.Namespace + "/" + r.Name,
			Interval: duration[monitoringv1.Duration](alert.Interval),
			Rules: []monitoringv1.Rule{{
				Alert:         alert.Alert,
				Expr:          intstr.FromString(alert.Expr),
				For:           duration[monitoringv1.Duration](alert.For),
				KeepFiringFor: duration[monitoringv1.NonEmptyDuration](alert.KeepFiringFor),
				Labels:        ruleLabels(r, alert, c, o),
				Annotations:   plainMap(alert.Annotations),
			}},
		}}},
	}
	if bad := checkObjectSize(object); bad != nil {
		return nil, bad
	}
	return object, nil
}

// objectLabels returns the labels of the PrometheusRule itself: those of the hub, spec.ruleLabels of
// the SpokeCluster, and those that the spoke's evaluators need in addition.
func objectLabels(r *v1alpha1.AlertRule, c Cluster, o RenderOptions) map[string]string {
	out := withKeys(maps.Clone(c.RuleLabels), map[string]string{
		v1alpha1.ManagedByLabel:     v1alpha1.ManagedByValue,
		v1alpha1.HubLabel:           o.HubID,
		v1alpha1.AlertRuleHashLabel: Hash(r.Namespace, r.Name),
	}, ownLabels)
	needed, _ := demandedLabels(&c, out)
	maps.Copy(out, needed)
	return out
}

// objectAnnotations returns the annotations of the PrometheusRule itself, which has these labels.
func objectAnnotations(r *v1alpha1.AlertRule, labels map[string]string) map[string]string {
	out := map[string]string{v1alpha1.AlertRuleAnnotation: r.Namespace + "/" + r.Name}
	noteExtra(out, labels)
	return out
}

// noteExtra records in annotations of a PrometheusRule which of its labels it has for the spoke's
// evaluators. See extraLabels.
func noteExtra(annotations, labels map[string]string) {
	extra := slices.DeleteFunc(slices.Sorted(maps.Keys(labels)), func(key string) bool { return slices.Contains(ownLabels, key) })
	if len(extra) > 0 {
		annotations[v1alpha1.RuleLabelsAnnotation] = strings.Join(extra, ",")
	}
}

func duration[T ~string](d v1alpha1.Duration) *T {
	if d == "" {
		return nil
	}
	return new(T(d))
}

// ruleLabels returns the alert's labels. Labels that identify the spoke, or that decide who is paged,
// are set last, so that nothing in the rule can override them.
func ruleLabels(r *v1alpha1.AlertRule, alert v1alpha1.AlertSpec, c Cluster, o RenderOptions) map[string]string {
	labels := plainMap(alert.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	if alert.Severity != "" {
		labels[severityLabel] = dataText(string(alert.Severity))
	}
	if r.Namespace != o.AdminNamespace {
		maps.Copy(labels, forced(o.Tenancy, TargetNamespace(r, c, o)))
	}
	if o.ClusterLabel != "" {
		labels[o.ClusterLabel] = dataText(labelValue(&c))
	}
	if len(labels) == 0 {
		return nil
	}
	return labels
}

func plainMap(in map[string]v1alpha1.LabelText) map[string]string {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]string, len(in))
	for k, v := range in {
		out[k] = string(v)
	}
	return out
}
