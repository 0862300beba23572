package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AlertRuleTemplate makes one AlertRule for every Deployment that it matches, in
// every spoke that it matches.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:resource:scope=Cluster,shortName=art,categories=rulefleet
// +kubebuilder:printcolumn:name="Alert",type=string,JSONPath=`.spec.alert`
// +kubebuilder:printcolumn:name="Severity",type=string,JSONPath=`.spec.severity`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.spec.state`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="a template's name has at most 63 characters: it is the value of a label"
type AlertRuleTemplate struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the alert, and the Deployments that get it.
	// +required
	Spec AlertRuleTemplateSpec `json:"spec,omitzero"`

	// status tells whether the template is valid.
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

// AlertRuleTemplateSpec is an alert, and the Deployments that get it. Beside the
// placeholders of an AlertRule, its texts may hold $(deployment.name),
// $(deployment.namespace), $(deployment.labels.KEY) and
// $(deployment.annotations.KEY). The labels namespace and deployment are added to
// those of the alert.
//
// +kubebuilder:validation:XValidation:rule="!has(self.severity) || !has(self.labels) || !('severity' in self.labels)",message="give the severity in severity or in labels.severity, not in both",fieldPath=".severity"
// +kubebuilder:validation:XValidation:rule="!has(self.labels) || size(self.labels) <= 62",message="a template has at most 62 labels: namespace and deployment are added to them",fieldPath=".labels"
type AlertRuleTemplateSpec struct {
	AlertSpec `json:",inline"`

	// clusters picks the spokes whose Deployments get the alert. Left out, it is
	// every spoke.
	// +optional
	Clusters *ClusterSelection `json:"clusters,omitempty"`

	// namespaces picks the namespaces. Left out, it is every namespace but the
	// system's.
	// +optional
	Namespaces *NamespaceSelection `json:"namespaces,omitempty"`

	// workloads picks the Deployments by their labels. Left out, it is every
	// Deployment.
	// +optional
	Workloads *metav1.LabelSelector `json:"workloads,omitempty"`

	// allow lists which annotations of a Deployment may adjust its AlertRule:
	// rulefleet.io/alerts, /disable, /severity, /for and /labels. Left out, it is all
	// of them; an empty list is none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=5
	// +default=["alerts","disable","severity","for","labels"]
	Allow []Adjustment `json:"allow,omitzero"`

	// state says whether the template makes AlertRules. Disabled removes those
	// that it made.
	// +optional
	// +default="Enabled"
	State State `json:"state,omitempty"`
}

// Adjustment is what an annotation of a Deployment may adjust: the part of the
// annotation's key after rulefleet.io/.
// +kubebuilder:validation:Enum=alerts;disable;severity;for;labels
type Adjustment string

const (
	// AdjustAlerts is rulefleet.io/alerts: disabled, which turns every template off.
	AdjustAlerts Adjustment = "alerts"
	// AdjustDisable is rulefleet.io/disable: a,b, which turns templates off by name.
	AdjustDisable Adjustment = "disable"
	// AdjustSeverity is rulefleet.io/severity: warning.
	AdjustSeverity Adjustment = "severity"
	// AdjustFor is rulefleet.io/for: 10m.
	AdjustFor Adjustment = "for"
	// AdjustLabels is rulefleet.io/labels: team=shop,tier=1.
	AdjustLabels Adjustment = "labels"
)

// NamespaceSelection picks namespaces in a spoke: those that are named or match
// the selector (with neither, every one), less those excluded. System namespaces
// (kube-system, kube-public, kube-node-lease) take part only where names has them.
type NamespaceSelection struct {
	// names lists namespaces.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Names []NamespaceName `json:"names,omitempty"`

	// selector picks namespaces by their labels.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// exclude lists namespaces that are left out, whatever else picks them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Exclude []NamespaceName `json:"exclude,omitempty"`
}

// AlertRuleTemplateStatus tells whether a template is valid.
type AlertRuleTemplateStatus struct {
	// observedGeneration is the generation of the spec that this status tells of; -1
	// is none, as long as the operator has not seen the object.
	// +optional
	// +kubebuilder:validation:Minimum=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Accepted (the spec is valid), and Ready and Stalled, which say the
	// same to tools that know of no other.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
