package delivery

import (
	"encoding/json"
	"fmt"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// Digest returns a short digest of the parts of a PrometheusRule that this hub defines: its spec, and
// the labels and annotations that Render sets. Objects with the same digest need no write. Annotations and labels
// that are neither own nor extra belong to others.
func Digest(p *monitoringv1.PrometheusRule) string {
	content := struct {
		Spec        monitoringv1.PrometheusRuleSpec
		Labels      []string
		Annotations []string
	}{Spec: p.Spec}
	for _, key := range rule.OwnLabels {
		content.Labels = appendOwn(content.Labels, p.Labels, key)
	}
	for _, key := range rule.OwnAnnotations {
		content.Annotations = appendOwn(content.Annotations, p.Annotations, key)
	}
	for _, key := range rule.ExtraLabels(p) {
		content.Labels = append(content.Labels, key, p.Labels[key])
	}
	// JSON sorts the keys of maps, and omits nil and empty values alike.
	data, err := json.Marshal(content)
	if err != nil { // impossible for strings, numbers and maps of them
		panic(fmt.Sprintf("rule: digest of a PrometheusRule: %v", err))
	}
	return rule.Hash(string(data))
}

// appendOwn appends the value of a key. Those of RulePacks are left out if they are not set: digests of AlertRules, which
// are in statuses, do not depend on them.
func appendOwn(to []string, from map[string]string, key string) []string {
	value, set := from[key]
	if !set && (key == v1alpha1.RulePackHashLabel || key == v1alpha1.RulePackAnnotation) {
		return to
	}
	return append(to, value)
}

// AnswerDigest identifies the object that was sent to a spoke and the object that the spoke made of
// it.
func AnswerDigest(sent, got *monitoringv1.PrometheusRule) string {
	return Digest(sent) + "/" + Digest(got)
}
