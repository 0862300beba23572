// Package webhook is the admission webhook that validates AlertRules and AlertRuleTemplates before
// they are stored. validation.Validator decides, and a refusal has the same message as the condition
// Accepted.
//
// +kubebuilder:webhookconfiguration:mutating=false,name=rulefleet
package webhook
