package validation

import (
	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// checkSpecSize refuses texts that are too large in total, even if each of them is valid.
func checkSpecSize(a v1alpha1.AlertSpec, overrides []v1alpha1.Override) *rule.Invalid {
	size := len(a.Alert) + len(a.Expr) + textBytes(a.Labels) + textBytes(a.Annotations)
	for _, o := range overrides {
		size += len(o.Expr) + textBytes(o.Labels) + textBytes(o.Annotations)
	}
	if size > rule.MaxObject {
		return rule.NewInvalid("spec", "the texts have %d bytes in total; at most %d are allowed; shorten them", size, rule.MaxObject)
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
