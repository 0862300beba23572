// Package webhook lets the API server ask whether an AlertRule or AlertRuleTemplate is
// valid before it is stored. It decides nothing by itself: rule.Validate and
// rule.ValidateTemplate do, and a refusal says in the same words what the condition
// Accepted would.
//
// +kubebuilder:webhookconfiguration:mutating=false,name=rulefleet
package webhook
