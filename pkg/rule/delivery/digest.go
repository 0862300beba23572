package delivery

import (
	"encoding/json"
	"fmt"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"

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
		content.Labels = append(content.Labels, p.Labels[key])
	}
	for _, key := range rule.OwnAnnotations {
		content.Annotations = append(content.Annotations, p.Annotations[key])
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

// AnswerDigest identifies the object that was sent to a spoke and the object that the spoke made of
// it.
func AnswerDigest(sent, got *monitoringv1.PrometheusRule) string {
	return Digest(sent) + "/" + Digest(got)
}
