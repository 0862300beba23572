package rule

import (
	"encoding/json"
	"fmt"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// maxObject limits a PrometheusRule, in bytes of JSON, because prometheus-operator writes several of
// them into one ConfigMap of at most 1 MiB. It also limits the texts of an AlertRule, including
// overrides.
const maxObject = 256 << 10

// checkSpecSize refuses texts that are too large in total, even if each of them is valid.
func checkSpecSize(a v1alpha1.AlertSpec, overrides []v1alpha1.Override) *Invalid {
	size := len(a.Alert) + len(a.Expr) + textBytes(a.Labels) + textBytes(a.Annotations)
	for _, o := range overrides {
		size += len(o.Expr) + textBytes(o.Labels) + textBytes(o.Annotations)
	}
	if size > maxObject {
		return invalid("spec", "the texts have %d bytes in total; at most %d are allowed; shorten them", size, maxObject)
	}
	return nil
}

func textBytes(texts map[string]v1alpha1.LabelText) int {
	n := 0
	for key, text := range texts {
		n += len(key) + len(text)
	}
	return n
}

// checkObjectSize refuses a PrometheusRule that has become too large with its placeholders replaced.
func checkObjectSize(p *monitoringv1.PrometheusRule) *Invalid {
	data, err := json.Marshal(p)
	if err != nil { // impossible for strings, numbers and maps of them
		panic(fmt.Sprintf("rule: size of a PrometheusRule: %v", err))
	}
	if len(data) > maxObject {
		return invalid("spec", "the rule has %d bytes after its placeholders are replaced; at most %d are allowed; shorten its texts", len(data), maxObject)
	}
	return nil
}
