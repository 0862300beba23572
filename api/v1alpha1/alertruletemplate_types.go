package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AlertRuleTemplate generates one AlertRule for every Deployment that it matches, in every spoke that
// it matches.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=art,categories=rulefleet
// +kubebuilder:printcolumn:name="Alert",type=string,JSONPath=`.spec.alert`
// +kubebuilder:printcolumn:name="Severity",type=string,JSONPath=`.spec.severity`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.spec.state`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name of a template has at most 63 characters, because it is used as a label value; shorten it"
type AlertRuleTemplate struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec defines the alert, and the Deployments for which it is generated.
	// +required
	Spec AlertRuleTemplateSpec `json:"spec,omitzero"`

	// status shows whether the template is valid.
	// +optional
	// +default={"observedGeneration":-1}
	Status AlertRuleTemplateStatus `json:"status,omitzero"`
}

// AlertRuleTemplateList is a list of AlertRuleTemplates.
//
// +kubebuilder:object:root=true
type AlertRuleTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	// items are the AlertRuleTemplates.
	Items []AlertRuleTemplate `json:"items"`
}

// AlertRuleTemplateSpec defines an alert, and the Deployments for which it is generated. In addition
// to the placeholders of an AlertRule, its texts can contain $(deployment.name),
// $(deployment.namespace), $(deployment.labels.KEY) and $(deployment.annotations.KEY). The labels
// namespace and deployment are added to the labels of the alert.
//
// +kubebuilder:validation:XValidation:rule="!has(self.severity) || !has(self.labels) || !('severity' in self.labels)",message="the severity is set twice; set either severity or labels.severity",fieldPath=".severity"
// +kubebuilder:validation:XValidation:rule="!has(self.labels) || size(self.labels) <= 62",message="a template has at most 62 labels, because the labels namespace and deployment are added; remove some",fieldPath=".labels"
type AlertRuleTemplateSpec struct {
	AlertSpec `json:",inline"`

	// clusters selects the spokes whose Deployments get the alert. It defaults to every spoke.
	// +optional
	Clusters *ClusterSelection `json:"clusters,omitempty"`

	// namespaces selects the namespaces of the Deployments. It defaults to every namespace except the
	// system namespaces.
	// +optional
	Namespaces *NamespaceSelection `json:"namespaces,omitempty"`

	// workloads selects the Deployments by their labels. It defaults to every Deployment.
	// +optional
	Workloads *metav1.LabelSelector `json:"workloads,omitempty"`

	// allow lists the annotations with which a Deployment can adjust its AlertRule, without their prefix
	// rulefleet.io/: alerts, disable, for, severity and labels. The default is [alerts, disable, for]. If you
	// add severity or labels, everyone who can edit a Deployment decides who is notified. An empty list
	// allows no annotation.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=5
	// +default=["alerts","disable","for"]
	Allow []Adjustment `json:"allow,omitzero"`

	// state defines whether the template generates AlertRules. Disabled removes those that it has
	// generated.
	// +optional
	// +default="Enabled"
	State State `json:"state,omitempty"`
}

// Adjustment is an annotation of a Deployment that adjusts its AlertRules, without the prefix
// rulefleet.io/.
// +kubebuilder:validation:Enum=alerts;disable;severity;for;labels
type Adjustment string

const (
	// AdjustAlerts is the annotation rulefleet.io/alerts. The value "disabled" disables every template for
	// the Deployment.
	AdjustAlerts Adjustment = "alerts"
	// AdjustDisable is the annotation rulefleet.io/disable. Its value lists the templates to disable for
	// the Deployment, by name, such as a,b.
	AdjustDisable Adjustment = "disable"
	// AdjustSeverity is the annotation rulefleet.io/severity. Its value, such as warning, replaces the
	// severity.
	AdjustSeverity Adjustment = "severity"
	// AdjustFor is the annotation rulefleet.io/for. Its value, such as 10m, replaces spec.for of the AlertRule.
	AdjustFor Adjustment = "for"
	// AdjustLabels is the annotation rulefleet.io/labels. Its value lists labels to add to the alert, such as
	// tier=1,owner=shop. It can't replace labels that the template sets.
	AdjustLabels Adjustment = "labels"
)

// NamespaceSelection selects namespaces in a spoke: those that are listed by name, and those that
// match the selector. If neither is set, it selects every namespace. The namespaces in exclude are
// left out. The system namespaces (kube-system, kube-public, kube-node-lease) are selected only if
// they are listed in names.
type NamespaceSelection struct {
	// names lists namespaces by name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Names []NamespaceName `json:"names,omitempty"`

	// selector selects namespaces by their labels.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// exclude lists namespaces that are left out even if names or selector select them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Exclude []NamespaceName `json:"exclude,omitempty"`
}

// AlertRuleTemplateStatus shows whether a template is valid.
type AlertRuleTemplateStatus struct {
	// observedGeneration is the generation of the spec that this status describes. It is -1 until
	// Rulefleet has processed the object.
	// +optional
	// +kubebuilder:validation:Minimum=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Accepted (the spec is valid), Ready (the same status, for tools that do not read Accepted)
	// and, only if the spec is not valid, Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
