package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// State says whether something takes part.
// +kubebuilder:validation:Enum=Enabled;Disabled
type State string

const (
	// Enabled takes part. It is the default.
	Enabled State = "Enabled"
	// Disabled is kept, and has no effect: what came from it is removed.
	Disabled State = "Disabled"
)

// Severity is the value of an alert's label "severity".
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9]([a-zA-Z0-9_.-]*[a-zA-Z0-9])?$')",message="a severity is letters and digits, with -, _ or . between them"
type Severity string

// Duration is a duration as Prometheus writes it: 30s, 5m, 1h30m, 0s.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?)$')",message="it is no duration as Prometheus writes it, such as 30s, 5m or 1h30m"
type Duration string

// ClusterName is the name of a spoke: that of its SpokeCluster and of its Secret.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
type ClusterName string

// NamespaceName is the name of a namespace.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
type NamespaceName string

// LabelText is the value of an alert's label or annotation before Prometheus
// renders it.
// +kubebuilder:validation:MaxLength=8192
type LabelText string

// AlertSpec is the alert itself: what an AlertRule and an AlertRuleTemplate have
// in common. Its texts may hold $(…) placeholders, but for the alert's name, which is
// what routes match on; $$( stands for a literal $(.
type AlertSpec struct {
	// alert is the alert's name, the value of its label alertname.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!self.contains('$(')",message="an alert's name holds no placeholder, so that routes can match it: put what differs into labels"
	Alert string `json:"alert,omitempty"`

	// expr is the PromQL expression: the alert is active for every series that
	// it returns. Placeholders may stand in its string literals alone.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Expr string `json:"expr,omitempty"`

	// for is how long the expression must hold before the alert fires.
	// +optional
	For Duration `json:"for,omitempty"`

	// keepFiringFor is how long the alert keeps firing after the expression held
	// last. It needs Prometheus 2.42.
	// +optional
	KeepFiringFor Duration `json:"keepFiringFor,omitempty"`

	// interval is how often the expression is evaluated. It defaults to the
	// Prometheus' own evaluation interval.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(0+[a-z]*)*$')",message="an interval of zero evaluates nothing: leave it out to have Prometheus' own"
	Interval Duration `json:"interval,omitempty"`

	// severity becomes the alert's label severity. Giving the label too is refused.
	// +optional
	Severity Severity `json:"severity,omitempty"`

	// labels are added to the alert. Prometheus renders their values as templates.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^[a-zA-Z_][a-zA-Z0-9_]*$'))",message="the name is not valid: letters, digits and _, with no digit first",messageExpression="self.filter(k, !k.matches('^[a-zA-Z_][a-zA-Z0-9_]*$'))[0] + ': the name is not valid: letters, digits and _, with no digit first'"
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 1024)",message="the name has more than 1024 characters"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('__'))",message="names that begin with __ are Prometheus' own",messageExpression="self.filter(k, k.startsWith('__'))[0] + ': names that begin with __ are Prometheus\\' own'"
	// +kubebuilder:validation:XValidation:rule="!('alertname' in self)",message="the label alertname is the alert's name: set spec.alert"
	Labels map[string]LabelText `json:"labels,omitempty"`

	// annotations are added to the alert. Prometheus renders their values as templates.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^[a-zA-Z_][a-zA-Z0-9_]*$'))",message="the name is not valid: letters, digits and _, with no digit first",messageExpression="self.filter(k, !k.matches('^[a-zA-Z_][a-zA-Z0-9_]*$'))[0] + ': the name is not valid: letters, digits and _, with no digit first'"
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 1024)",message="the name has more than 1024 characters"
	Annotations map[string]LabelText `json:"annotations,omitempty"`
}

// ClusterSelection picks spokes: those named, and those whose SpokeCluster's
// labels match the selector.
// +kubebuilder:validation:XValidation:rule="has(self.names) || has(self.selector)",message="name the clusters in names, or select them by label in selector; an empty selector ({}) is every cluster"
type ClusterSelection struct {
	// names lists clusters by name. A name that is not registered yet is waited for.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	Names []ClusterName `json:"names,omitempty"`

	// selector picks clusters by the labels of their SpokeCluster. An empty
	// selector, {}, is every cluster.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}
