// Package v1alpha1 is version v1alpha1 of Rulefleet's API, group rulefleet.io:
// AlertRule (one alert, placed on spokes), RulePack (groups of alerting and
// recording rules, placed on spokes), AlertRuleTemplate (one AlertRule for every
// workload that matches) and SpokeCluster (the membership of a spoke).
//
// +kubebuilder:object:generate=true
// +groupName=rulefleet.io
package v1alpha1
