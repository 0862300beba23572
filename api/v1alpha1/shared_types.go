package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// State defines whether an alert or a template is active.
// +kubebuilder:validation:Enum=Enabled;Disabled
type State string

const (
	// Enabled means that the alert or template is active. It is the default.
	Enabled State = "Enabled"
	// Disabled means that the alert or template stays on the hub, but is not active. Everything that was
	// created from it is removed.
	Disabled State = "Disabled"
)

// Severity is the value of the alert's label "severity".
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9]([a-zA-Z0-9_.-]*[a-zA-Z0-9])?$')",message="invalid severity; use letters and digits, with -, _ or . between them"
type Severity string

// Duration is a Prometheus duration, such as 30s, 5m, 1h30m or 0s.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?)$')",message="not a Prometheus duration; use a form such as 30s, 5m or 1h30m"
type Duration string

// ClusterName is the name of a spoke, of its SpokeCluster and of its Secret.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
type ClusterName string

// NamespaceName is the name of a namespace.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
type NamespaceName string

// LabelText is the value of a label or annotation of an alert, before Prometheus renders it.
// +kubebuilder:validation:MaxLength=8192
type LabelText string

// AlertSpec defines the alert itself. AlertRule and AlertRuleTemplate share its fields. The expression, and
// the values of labels and annotations, can contain $(…) placeholders. The name of the alert can't, because
// routes match on it. Write $$( for a literal $(.
type AlertSpec struct {
	// alert is the name of the alert, the value of its label alertname.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!self.contains('$(')",message="the name of an alert must not contain placeholders, because Alertmanager routes match it; put values that differ by cluster into labels"
	Alert string `json:"alert,omitempty"`

	// expr is the PromQL expression. The alert is active for every series that the expression returns.
	// Placeholders are only allowed in string literals of the expression, except $(params.NAME) in a template.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Expr string `json:"expr,omitempty"`

	// for is the time for which the expression must return a result before the alert fires.
	// +optional
	For Duration `json:"for,omitempty"`

	// keepFiringFor is the time for which the alert keeps firing after the expression last returned a
	// result. It requires Prometheus 2.42 or later.
	// +optional
	KeepFiringFor Duration `json:"keepFiringFor,omitempty"`

	// interval is the time between two evaluations of the expression. It defaults to the evaluation
	// interval of the Prometheus.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(0+[a-z]*)*$')",message="the interval must not be zero; leave it out to use the interval of Prometheus"
	Interval Duration `json:"interval,omitempty"`

	// severity is the value of the alert's label severity. It is an error to set the label in labels as
	// well.
	// +optional
	Severity Severity `json:"severity,omitempty"`

	// labels are added to the alert. Prometheus renders their values as templates.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^[a-zA-Z_][a-zA-Z0-9_]*$'))",message="invalid name; use letters, digits and _, not beginning with a digit",messageExpression="self.filter(k, !k.matches('^[a-zA-Z_][a-zA-Z0-9_]*$'))[0] + ': invalid name; use letters, digits and _, not beginning with a digit'"
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 1024)",message="the name of a label is longer than 1024 characters; shorten it"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('__'))",message="names that begin with __ are reserved for Prometheus; use another name",messageExpression="self.filter(k, k.startsWith('__'))[0] + ': names that begin with __ are reserved for Prometheus; use another name'"
	// +kubebuilder:validation:XValidation:rule="!('alertname' in self)",message="label alertname holds the name of the alert; set spec.alert instead"
	Labels map[string]LabelText `json:"labels,omitempty"`

	// annotations are added to the alert. Prometheus renders their values as templates.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^[a-zA-Z_][a-zA-Z0-9_]*$'))",message="invalid name; use letters, digits and _, not beginning with a digit",messageExpression="self.filter(k, !k.matches('^[a-zA-Z_][a-zA-Z0-9_]*$'))[0] + ': invalid name; use letters, digits and _, not beginning with a digit'"
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 1024)",message="the name of an annotation is longer than 1024 characters; shorten it"
	Annotations map[string]LabelText `json:"annotations,omitempty"`
}

// ClusterSelection selects spokes: those that are listed by name, and those whose SpokeCluster has
// labels that match the selector. The spokes that exclude selects are left out.
// +kubebuilder:validation:XValidation:rule="has(self.names) || has(self.selector)",message="no cluster is selected; list names, or set a label selector; an empty selector ({}) selects every cluster"
type ClusterSelection struct {
	// names lists clusters by name. You can list a cluster before it is registered. It is selected as soon
	// as it is registered.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	Names []ClusterName `json:"names,omitempty"`

	// selector selects clusters by the labels of their SpokeCluster. An empty selector, {}, selects
	// every cluster.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// exclude selects clusters that are left out even if names or selector select them.
	// +optional
	Exclude *ClusterExclusion `json:"exclude,omitempty"`
}

// ClusterExclusion selects spokes that a ClusterSelection leaves out: those that are listed by name, and
// those whose SpokeCluster has labels that match the selector.
// +kubebuilder:validation:XValidation:rule="has(self.names) || has(self.selector)",message="no cluster is excluded; list names, set a label selector, or remove exclude"
type ClusterExclusion struct {
	// names lists clusters by name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	Names []ClusterName `json:"names,omitempty"`

	// selector selects clusters by the labels of their SpokeCluster.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}
