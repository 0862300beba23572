package v1alpha1

import (
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RulePack defines groups of alerting and recording rules, and the spokes on which they are placed. Rulefleet writes
// it to each of these spokes as one PrometheusRule, and reports the delivery to each spoke in the status.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=rp,categories=rulefleet
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.summary.ready`
// +kubebuilder:printcolumn:name="Firing",type=integer,JSONPath=`.status.summary.firing`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RulePack struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec defines the groups of rules and the spokes on which they are placed.
	// +required
	Spec RulePackSpec `json:"spec,omitzero"`

	// status shows the delivery status of the rules in every spoke. Each update replaces it as a whole.
	// +optional
	// +structType=atomic
	// +default={"observedGeneration":-1}
	Status RuleStatus `json:"status,omitzero"`
}

// RulePackList is a list of RulePacks.
//
// +kubebuilder:object:root=true
type RulePackList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	// items are the RulePacks.
	Items []RulePack `json:"items"`
}

// RulePackSpec defines groups of rules and the spokes on which they are placed. A RulePack has at most 500 rules. Its
// spec and its PrometheusRule have at most 512 KiB.
type RulePackSpec struct {
	// groups are the groups of a PrometheusRule. They are written to the spokes as they are, without placeholders.
	// Every alert also gets the label cluster, or the one that the chart value clusterLabel names. In a RulePack
	// outside of Rulefleet's own namespace, every rule also gets the label namespace.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=500
	Groups []monitoringv1.RuleGroup `json:"groups,omitempty"`

	// placement selects the spokes.
	// +required
	Placement ClusterSelection `json:"placement,omitzero"`

	// ruleNamespace is the namespace of the PrometheusRule in the spokes. It defaults to the namespace of
	// the RulePack. For a RulePack in Rulefleet's own namespace, it defaults to the namespace of the spoke's
	// chosen Prometheus or, if that is not known, to the chart value ruleNamespace (flag --rule-namespace of
	// the manager).
	// +optional
	RuleNamespace NamespaceName `json:"ruleNamespace,omitempty"`

	// patches change or remove rules in some of the spokes. They are read in order: for each field, the
	// first patch that selects the spoke and the rule, and sets the field, takes precedence. Labels and
	// annotations are merged key by key, and an empty value removes a key. A patch cannot add rules or
	// change fields of a group.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Patches []RulePatch `json:"patches,omitempty"`

	// state defines whether the rules are written to the spokes. Disabled removes them from the spokes.
	// +optional
	// +default="Enabled"
	State State `json:"state,omitempty"`

	// suspend leaves the rules unchanged in all spokes: while suspend is true, Rulefleet does not create,
	// change or remove them in any spoke. If you delete the RulePack, its PrometheusRules are still removed.
	// +optional
	Suspend *bool `json:"suspend,omitempty"` //nolint:apiconventions // as in Jobs and Flux: there is no third way
}

// RulePatch changes or removes rules in some of the spokes on which the RulePack is placed: those that are listed by
// name, and those whose labels match the selector.
//
// +kubebuilder:validation:XValidation:rule="has(self.disabled) || has(self.expr) || has(self.for) || has(self.keepFiringFor) || has(self.severity) || has(self.labels) || has(self.annotations)",message="a patch must change something; set disabled, expr, for, keepFiringFor, severity, labels or annotations"
// +kubebuilder:validation:XValidation:rule="!has(self.severity) || !has(self.labels) || !('severity' in self.labels)",message="the severity is set twice; set either severity or labels.severity",fieldPath=".severity"
type RulePatch struct {
	ClusterSelection `json:",inline"`

	// group is the name of the group that contains the rules. By default, the patch applies to all groups.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Group string `json:"group,omitempty"`

	// rule selects rules by name: the value of alert or record.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Rule string `json:"rule,omitempty"`

	// matchLabels selects rules by labels that they have in the RulePack, without the labels of the group.
	// It distinguishes rules of the same name, such as those of two severities.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	MatchLabels map[string]LabelText `json:"matchLabels,omitempty"`

	// disabled removes the rules from these spokes. False keeps them even if a later patch disables them.
	// +optional
	Disabled *bool `json:"disabled,omitempty"` //nolint:apiconventions // there is no third way

	// expr replaces the expression.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Expr string `json:"expr,omitempty"`

	// for replaces the time for which the expression must return a result before the alert fires.
	// For an alert that fires at once, set 0s.
	// +optional
	For Duration `json:"for,omitempty"`

	// keepFiringFor replaces the time for which the alert keeps firing after the expression last returned a
	// result. It requires Prometheus 2.42 or later.
	// +optional
	KeepFiringFor Duration `json:"keepFiringFor,omitempty"`

	// severity sets the label severity.
	// +optional
	Severity Severity `json:"severity,omitempty"`

	// labels are merged into the labels of the rules. An empty value removes the label.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]LabelText `json:"labels,omitempty"`

	// annotations are merged into the annotations of the alerts. An empty value removes the annotation.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]LabelText `json:"annotations,omitempty"`
}
