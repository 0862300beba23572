// Package rule is being written; this file holds the signatures that are not filled yet.
package rule

import (
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/prometheus/promql/parser"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

var _ = parser.Options{}

type Cluster struct {
	Name   string
	Labels map[string]string
}

const MaxNameLength = 147

func ObjectName(hubID, namespace, name string) string                    { return "" }
func GeneratedName(template, cluster, namespace, workload string) string { return "" }
func Hash(namespace, name string) string                                 { return "" }

type RenderOptions struct{ HubID, AdminNamespace, RuleNamespace, ClusterLabel string }

func TargetNamespace(r *v1alpha1.AlertRule, o RenderOptions) string { return "" }
func Render(r *v1alpha1.AlertRule, c Cluster, o RenderOptions) (*monitoringv1.PrometheusRule, error) {
	return nil, nil
}
func Digest(p *monitoringv1.PrometheusRule) string { return "" }

func Places(s v1alpha1.ClusterSelection, c Cluster) (bool, error)     { return false, nil }
func PlacedOn(r *v1alpha1.AlertRule, cs []Cluster) ([]Cluster, error) { return nil, nil }

type Workload struct {
	Cluster             Cluster
	Namespace           string
	NamespaceLabels     map[string]string
	Name                string
	Labels, Annotations map[string]string
}

func Matches(t *v1alpha1.AlertRuleTemplate, w Workload) (bool, error) { return false, nil }
func Generate(t *v1alpha1.AlertRuleTemplate, w Workload, namespace string) (*v1alpha1.AlertRule, error) {
	return nil, nil
}
func BuiltIns() []*v1alpha1.AlertRuleTemplate { return nil }

type Invalid struct{ Reason, Field, Message string }

func (i *Invalid) Error() string { return i.Field + ": " + i.Message }

type ValidateOptions struct{ AdminNamespace, GeneratedNamespace string }

func Validate(r *v1alpha1.AlertRule, o ValidateOptions) *Invalid { return nil }
func ValidateTemplate(t *v1alpha1.AlertRuleTemplate) *Invalid    { return nil }

type Action string

const (
	None        Action = "None"
	Keep        Action = "Keep"
	Create      Action = "Create"
	Update      Action = "Update"
	Conflict    Action = "Conflict"
	Mutated     Action = "Mutated"
	Terminating Action = "Terminating"
)

type Plan struct {
	Action Action
	Object *monitoringv1.PrometheusRule
	Delete []*monitoringv1.PrometheusRule
}

func Owned(o metav1.Object, hubID string) bool { return false }
func Decide(desired, existing *monitoringv1.PrometheusRule, claimed []*monitoringv1.PrometheusRule, hubID, answerDigest string) Plan {
	return Plan{}
}
func AnswerDigest(sent, got *monitoringv1.PrometheusRule) string { return "" }
func ParseRuleKey(o metav1.Object) (types.NamespacedName, bool)  { return types.NamespacedName{}, false }

type SpokeState struct {
	Cluster
	Connected       metav1.ConditionStatus
	Reason, Message string
}

type StatusInput struct {
	Rule     *v1alpha1.AlertRule
	Invalid  *Invalid
	Clusters []SpokeState
	Verdicts map[string]v1alpha1.ClusterStatus
	Now      metav1.Time
}

func Status(in StatusInput) v1alpha1.AlertRuleStatus { return v1alpha1.AlertRuleStatus{} }
