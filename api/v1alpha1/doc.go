// Package v1alpha1 is Rulefleet's API, version v1alpha1 of group rulefleet.io:
// AlertRule (one alert, placed on spokes), AlertRuleTemplate (an AlertRule for
// every Deployment that matches) and SpokeCluster (the membership of a spoke).
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +groupName=rulefleet.io
package v1alpha1
