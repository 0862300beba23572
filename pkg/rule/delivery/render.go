package delivery

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/compat"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/rule/gotemplate"
	"github.com/rulefleet/rulefleet/pkg/rule/placeholder"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
)

// Options are the settings of the hub that a rendered rule depends on.
type Options struct {
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
	Tenancy rule.Tenancy
}

// TargetNamespace returns the namespace of a source's PrometheusRule in a spoke.
func TargetNamespace(s rule.Source, c rule.Cluster, o Options) string {
	w := s.GetWorkloadRef()
	switch {
	case s.GetRuleNamespace() != "":
		return string(s.GetRuleNamespace())
	case w != nil && !s.InOperatorNamespace():
		return string(w.Namespace)
	case !Anywhere(s, o):
		return s.GetNamespace()
	}
	return cmp.Or(evaluation.OnlyNamespace(&c), o.RuleNamespace, o.AdminNamespace)
}

// Anywhere reports whether nothing in a source determines the namespace of its PrometheusRule, which goes into the
// namespace of the spoke's Prometheus.
func Anywhere(s rule.Source, o Options) bool {
	return s.GetRuleNamespace() == "" && (s.InOperatorNamespace() || s.GetWorkloadRef() == nil && s.GetNamespace() == o.AdminNamespace)
}

// LabelNamespace returns the value of the label namespace of a source's alerts in a spoke, unless the source is from the
// admin namespace: the namespace of the workload or, without one, that of the PrometheusRule.
func LabelNamespace(s rule.Source, c rule.Cluster, o Options) string {
	if w := s.GetWorkloadRef(); w != nil && s.InOperatorNamespace() {
		return string(w.Namespace)
	}
	return TargetNamespace(s, c, o)
}

// Render returns the PrometheusRule of a source for one spoke in which it is enabled. The source has
// passed validation. An error is an *Invalid that explains why it can't be rendered for this spoke, such
// as a label that its SpokeCluster lacks.
func Render(s rule.Source, c rule.Cluster, o Options) (*monitoringv1.PrometheusRule, error) {
	groups, err := groupsOf(s, c, o)
	if err != nil {
		return nil, err
	}
	labels := objectLabels(s, c, o)
	object := &monitoringv1.PrometheusRule{
		TypeMeta: metav1.TypeMeta{
			APIVersion: monitoring.GroupName + "/" + monitoringv1.Version,
			Kind:       monitoringv1.PrometheusRuleKind,
		},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   TargetNamespace(s, c, o),
			Name:        rule.ObjectName(o.HubID, rule.KeyOf(s)),
			Labels:      labels,
			Annotations: objectAnnotations(s, labels),
		},
		Spec: monitoringv1.PrometheusRuleSpec{Groups: groups},
	}
	if bad := checkObjectSize(s, object); bad != nil {
		return nil, bad
	}
	return object, nil
}

// groupsOf returns the rules of a source for one spoke. This is where kinds of sources differ.
func groupsOf(s rule.Source, c rule.Cluster, o Options) ([]monitoringv1.RuleGroup, error) {
	switch s := s.(type) {
	case *v1alpha1.AlertRule:
		return groupOf(s, c, o)
	case *v1alpha1.RulePack:
		return packGroups(s, c, o)
	}
	return nil, fmt.Errorf("rendering %s: unknown kind of sources", rule.KeyOf(s))
}

// groupOf returns the group of an AlertRule for one spoke.
func groupOf(r *v1alpha1.AlertRule, c rule.Cluster, o Options) ([]monitoringv1.RuleGroup, error) {
	e := rule.Merge(r.Spec.AlertSpec, slices.Values(r.Spec.Overrides), c)
	alert, bad := placeholder.ForCluster(c.Name, c.Labels).Alert(e.Alert)
	if bad != nil {
		return nil, e.Blame(bad)
	}
	// A rule that Prometheus can't parse fails the reload of all of them, and what a
	// label of a spoke may hold is known only now. CheckChosen checks the syntax of a known Prometheus.
	if alert.Expr != e.Alert.Expr {
		if _, f := promql.ParseAlert(alert.Expr, promql.Any); f != nil {
			bad := rule.InvalidExpr(alert.Expr, f)
			bad.Message = fmt.Sprintf("after its placeholders are replaced with the values of SpokeCluster %s: %s; correct the labels of the SpokeCluster, or the expression", c.Name, bad.Message)
			return nil, e.Blame(bad)
		}
	}
	if o.Tenancy.EnforceNamespace && o.tenant(r.Namespace) {
		expr, f := promql.Enforce(alert.Expr, r.Namespace)
		if f != nil {
			return nil, e.Blame(rule.InvalidExpr(alert.Expr, &f.Fault))
		}
		alert.Expr = expr
	}
	if bad := compat.CheckChosen(alert, c); bad != nil {
		return nil, e.Blame(bad)
	}
	return []monitoringv1.RuleGroup{{
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
	}}, nil
}

// objectLabels returns the labels of the PrometheusRule itself: those of the hub, spec.ruleLabels of
// the SpokeCluster, and those that the spoke's evaluators need in addition.
func objectLabels(s rule.Source, c rule.Cluster, o Options) map[string]string {
	own, _ := rule.NamesOf(rule.KeyOf(s))
	own[v1alpha1.ManagedByLabel], own[v1alpha1.HubLabel] = v1alpha1.ManagedByValue, o.HubID
	out := rule.WithKeys(maps.Clone(c.RuleLabels), own, rule.OwnLabels)
	needed, _ := evaluation.DemandedLabels(&c, evaluation.WithOwn(out))
	maps.Copy(out, needed)
	return out
}

// objectAnnotations returns the annotations of the PrometheusRule itself, which has these labels.
func objectAnnotations(s rule.Source, labels map[string]string) map[string]string {
	_, out := rule.NamesOf(rule.KeyOf(s))
	rule.NoteExtra(out, labels)
	return out
}

func duration[T ~string](d v1alpha1.Duration) *T {
	if d == "" {
		return nil
	}
	return new(T(d))
}

// ruleLabels returns the labels of an alert of a source. Labels that identify the spoke, or that decide who is paged,
// are set last, so that nothing in the rule can override them.
func ruleLabels(s rule.Source, alert v1alpha1.AlertSpec, c rule.Cluster, o Options) map[string]string {
	labels := plainMap(alert.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	if alert.Severity != "" {
		labels[rule.SeverityLabel] = gotemplate.Literal(string(alert.Severity))
	}
	if s.GetNamespace() != o.AdminNamespace {
		maps.Copy(labels, forced(o.Tenancy, LabelNamespace(s, c, o)))
	}
	if o.ClusterLabel != "" {
		labels[o.ClusterLabel] = gotemplate.Literal(evaluation.LabelValue(&c))
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

// checkObjectSize refuses a PrometheusRule that has become too large with its placeholders replaced, or its patches.
func checkObjectSize(s rule.Source, p *monitoringv1.PrometheusRule) *rule.Invalid {
	data, err := json.Marshal(p)
	if err != nil { // impossible for strings, numbers and maps of them
		return rule.NewInvalid("spec", "%v", err)
	}
	if s.SourceKind() == v1alpha1.RulePackKind {
		return checkPackSize(p, len(data))
	}
	if len(data) > rule.MaxObject {
		return rule.NewInvalid("spec", "the rule has %d bytes after its placeholders are replaced; at most %d are allowed; shorten its texts", len(data), rule.MaxObject)
	}
	return nil
}

// checkPackSize refuses a PrometheusRule of a RulePack that is too large, given its size as JSON. prometheus-operator writes
// YAML, in which each line of a text is indented.
func checkPackSize(p *monitoringv1.PrometheusRule, size int) *rule.Invalid {
	if size > rule.MaxPack/16 {
		text, err := yaml.Marshal(p.Spec)
		if err != nil { // as above
			return rule.NewInvalid("spec", "%v", err)
		}
		size = max(size, len(text))
	}
	if size > rule.MaxPack {
		return rule.NewInvalid("spec", "the PrometheusRule has %d bytes; at most %d are allowed; split the RulePack", size, rule.MaxPack)
	}
	return nil
}

// forced returns the labels that every alert gets that is not from the admin namespace. Prometheus
// takes a label of the rule over one of the series. An empty one removes that of the series.
func forced(t rule.Tenancy, namespace string) map[string]string {
	out := make(map[string]string, 1+len(t.ProtectedLabels))
	for _, name := range t.ProtectedLabels {
		out[name] = ""
	}
	out[rule.NamespaceLabel] = gotemplate.Literal(namespace)
	return out
}

// tenant reports whether a namespace of the hub is a tenant's.
func (o Options) tenant(namespace string) bool {
	return namespace != o.AdminNamespace && namespace != o.GeneratedNamespace
}

// Readable returns the expression of a PrometheusRule as far as the author of its AlertRule, in a namespace
// of the hub, may read its series. Anybody in the spoke may have changed it since it was written. It returns
// "" if it can't be restricted.
func (o Options) Readable(namespace, expr string) string {
	if !o.Tenancy.EnforceNamespace || !o.tenant(namespace) {
		return expr
	}
	out, _ := promql.Enforce(expr, namespace)
	return out
}
