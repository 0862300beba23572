package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AlertRule is one alert, and the spokes that it is placed on. The operator pushes
// it to each of them as a PrometheusRule, and tells in the status how far it got.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +genclient
// +kubebuilder:resource:shortName=ar,categories=rulefleet
// +kubebuilder:printcolumn:name="Alert",type=string,JSONPath=`.spec.alert`
// +kubebuilder:printcolumn:name="Severity",type=string,JSONPath=`.spec.severity`
// +kubebuilder:printcolumn:name="Clusters",type=integer,JSONPath=`.status.summary.desired`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.summary.ready`
// +kubebuilder:printcolumn:name="Firing",type=integer,JSONPath=`.status.summary.firing`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AlertRule struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the alert, and where it goes.
	// +required
	Spec AlertRuleSpec `json:"spec,omitzero"`

	// status tells how far the alert got in every spoke.
	// +optional
	// +default={"observedGeneration":-1}
	Status AlertRuleStatus `json:"status,omitzero"`
}

// AlertRuleList is a list of AlertRules.
//
// +kubebuilder:object:root=true
type AlertRuleList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	// items are the AlertRules.
	Items []AlertRule `json:"items"`
}

// AlertRuleSpec is one alert, and where it goes. Its texts may hold $(cluster.name) and
// $(cluster.labels.KEY), but for the alert's name; $$( stands for a literal $(.
//
// +kubebuilder:validation:XValidation:rule="!has(self.severity) || !has(self.labels) || !('severity' in self.labels)",message="give the severity in severity or in labels.severity, not in both",fieldPath=".severity"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.workloadRef) || (has(self.workloadRef) && self.workloadRef == oldSelf.workloadRef)",message="workloadRef can't be changed: delete the AlertRule, and make another",fieldPath=".workloadRef"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.workloadRef) || self.placement == oldSelf.placement",message="the placement of an AlertRule with a workloadRef can't be changed: it belongs where its workload is",fieldPath=".placement"
type AlertRuleSpec struct {
	AlertSpec `json:",inline"`

	// workloadRef names the workload that the alert is about. It is set on
	// AlertRules that a template made, and can be left out by hand. Once it is set,
	// neither it nor the placement can be changed.
	// +optional
	WorkloadRef *WorkloadReference `json:"workloadRef,omitempty"`

	// placement picks the spokes.
	// +required
	Placement ClusterSelection `json:"placement,omitzero"`

	// ruleNamespace is the namespace of the PrometheusRule in the spokes. It
	// defaults to the workload's namespace; else to the AlertRule's own; and for
	// AlertRules of the operator's own namespace to the one that the operator's
	// flag --rule-namespace names.
	// +optional
	RuleNamespace NamespaceName `json:"ruleNamespace,omitempty"`

	// overrides change the alert in some of the spokes. They are read in order: of
	// those that pick a spoke, the first that sets a field wins. Labels and
	// annotations are merged key by key; an empty value removes the key.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Overrides []Override `json:"overrides,omitempty"`

	// state says whether the alert is pushed. Disabled removes it from the spokes.
	// +optional
	// +default="Enabled"
	State State `json:"state,omitempty"`

	// suspend leaves the spokes as they are: nothing is written there or removed
	// because of this AlertRule until it is false again. Deleting the AlertRule still
	// removes it.
	// +optional
	Suspend *bool `json:"suspend,omitempty"` //nolint:apiconventions // as in Jobs and Flux: there is no third way
}

// Override changes an AlertRule in some of the spokes that it is placed on: those
// that are named, and those whose labels match the selector.
//
// +kubebuilder:validation:XValidation:rule="has(self.state) || has(self.expr) || has(self.for) || has(self.severity) || has(self.labels) || has(self.annotations)",message="an override has to change something: set state, expr, for, severity, labels or annotations"
// +kubebuilder:validation:XValidation:rule="!has(self.severity) || !has(self.labels) || !('severity' in self.labels)",message="give the severity in severity or in labels.severity, not in both",fieldPath=".severity"
type Override struct {
	ClusterSelection `json:",inline"`

	// state says whether the alert is pushed to these spokes.
	// +optional
	State State `json:"state,omitempty"`

	// expr replaces the expression.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Expr string `json:"expr,omitempty"`

	// for replaces how long the expression must hold before the alert fires.
	// +optional
	For Duration `json:"for,omitempty"`

	// severity replaces the alert's label severity.
	// +optional
	Severity Severity `json:"severity,omitempty"`

	// labels are merged into those of the alert. An empty value removes the label.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^[a-zA-Z_][a-zA-Z0-9_]*$'))",message="the name is not valid: letters, digits and _, with no digit first",messageExpression="self.filter(k, !k.matches('^[a-zA-Z_][a-zA-Z0-9_]*$'))[0] + ': the name is not valid: letters, digits and _, with no digit first'"
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 1024)",message="the name has more than 1024 characters"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('__'))",message="names that begin with __ are Prometheus' own",messageExpression="self.filter(k, k.startsWith('__'))[0] + ': names that begin with __ are Prometheus\\' own'"
	// +kubebuilder:validation:XValidation:rule="!('alertname' in self)",message="the label alertname is the alert's name: set spec.alert"
	Labels map[string]LabelText `json:"labels,omitempty"`

	// annotations are merged into those of the alert. An empty value removes the annotation.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^[a-zA-Z_][a-zA-Z0-9_]*$'))",message="the name is not valid: letters, digits and _, with no digit first",messageExpression="self.filter(k, !k.matches('^[a-zA-Z_][a-zA-Z0-9_]*$'))[0] + ': the name is not valid: letters, digits and _, with no digit first'"
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 1024)",message="the name has more than 1024 characters"
	Annotations map[string]LabelText `json:"annotations,omitempty"`
}

// WorkloadReference names a workload in a spoke.
type WorkloadReference struct {
	// cluster is the spoke that holds the workload.
	// +required
	Cluster ClusterName `json:"cluster,omitempty"`

	// kind is the workload's kind.
	// +required
	// +kubebuilder:validation:Enum=Deployment
	Kind string `json:"kind,omitempty"`

	// namespace is the workload's namespace.
	// +required
	Namespace NamespaceName `json:"namespace,omitempty"`

	// name is the workload's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// Phase is how far a rule was proven to be in a spoke.
// +kubebuilder:validation:Enum=Pending;Applied;Selected;Evaluating
type Phase string

const (
	// PhasePending is not known to be in the spoke.
	PhasePending Phase = "Pending"
	// PhaseApplied is what the spoke's API server holds as it should.
	PhaseApplied Phase = "Applied"
	// PhaseSelected is what a Prometheus or ThanosRuler of the spoke selects: by its
	// selectors (reason Predicted), or by what prometheus-operator or itself says.
	PhaseSelected Phase = "Selected"
	// PhaseEvaluating is what it has loaded as the AlertRule says, and evaluates without an error.
	PhaseEvaluating Phase = "Evaluating"
)

// AlertRuleStatus tells how far an AlertRule got.
type AlertRuleStatus struct {
	// observedGeneration is the generation of the spec that this status tells of; -1
	// is none, as long as the operator has not seen the object.
	// +optional
	// +kubebuilder:validation:Minimum=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Accepted (the spec is valid), Ready (the alert is as far as can be
	// proven in every spoke that it is placed on), Stalled (a person has to act first) and,
	// where a spoke's Prometheus can be asked, MetricsPresent (it has what the expression
	// selects).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// summary counts the spokes by how far the alert got there.
	// +optional
	Summary *RuleSummary `json:"summary,omitempty"`

	// overriddenFields lists the fields of the spec of a generated AlertRule that
	// people have made their own, such as for or labels.team: the template no longer
	// changes them. The annotation rulefleet.io/reset-fields gives them back.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=512
	OverriddenFields []string `json:"overriddenFields,omitempty"`

	// clusters lists the spokes. Above 100 of them, only those are listed that are not at
	// their top phase, or where the alert fires or lacks a metric, up to 100 and the worst
	// first: one that is absent is at the top, for the generation in observedGeneration, or, while the rule is not
	// accepted, for the last one that was. Where unlistedClusters is not zero, some
	// that are absent are not.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Clusters []ClusterStatus `json:"clusters,omitempty"`

	// unlistedClusters is the number of spokes that are not at their top phase, and
	// that clusters has no room for.
	// +optional
	// +kubebuilder:validation:Minimum=0
	UnlistedClusters int32 `json:"unlistedClusters,omitempty"`
}

// RuleSummary counts spokes by how far a rule got there.
type RuleSummary struct {
	// desired is the number of spokes that the rule is placed on.
	// +required
	// +kubebuilder:validation:Minimum=0
	Desired int32 `json:"desired"`

	// applied is the number of spokes whose API server holds the rule as it should.
	// +required
	// +kubebuilder:validation:Minimum=0
	Applied int32 `json:"applied"`

	// selected is the number of spokes where a Prometheus or ThanosRuler selects the rule.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Selected int32 `json:"selected,omitempty"`

	// evaluating is the number of spokes where it is proven to be evaluated.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Evaluating int32 `json:"evaluating,omitempty"`

	// firing is the number of alerts of the rule that fire, over all spokes whose
	// Prometheus can be asked. It is absent where none can. It follows within a minute, and
	// changes at most once in 30 s.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Firing *int32 `json:"firing,omitempty"`

	// failing is the number of spokes that refused the rule, or hold something
	// else in its place.
	// +required
	// +kubebuilder:validation:Minimum=0
	Failing int32 `json:"failing"`

	// unreachable is the number of spokes that can't be reached at present.
	// +required
	// +kubebuilder:validation:Minimum=0
	Unreachable int32 `json:"unreachable"`

	// ready is the spokes at their top phase out of those desired, as in 3/3.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=23
	Ready string `json:"ready,omitempty"`
}

// ClusterStatus is how far a rule got in one spoke.
type ClusterStatus struct {
	// name is the spoke's name.
	// +required
	Name ClusterName `json:"name,omitempty"`

	// phase is how far the rule was proven to be.
	// +required
	Phase Phase `json:"phase,omitempty"`

	// reason says why the rule is not further, in one word.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// message says the same in a sentence, and what to change.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// rule is the namespace/name of the PrometheusRule in the spoke.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	Rule string `json:"rule,omitempty"`

	// evaluators are the Prometheus and ThanosRulers of the spoke that select the rule, as
	// kind namespace/name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=329
	Evaluators []string `json:"evaluators,omitempty"`

	// firing is the number of alerts of the rule that fire there.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Firing int32 `json:"firing,omitempty"`

	// missingMetrics are selectors in the rule's expression that match no series in the
	// spoke's Prometheus: the first three of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:MaxLength=256
	MissingMetrics []string `json:"missingMetrics,omitempty"`

	// answerDigest tells, for reason Mutated, what was sent and what the spoke
	// made of it, so that the same is not sent again.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	AnswerDigest string `json:"answerDigest,omitempty"`

	// observedGeneration is the generation of the spec that this row tells of.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// lastTransitionTime is when phase or reason last changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
}

// GetConditions returns the conditions of the AlertRule.
func (r *AlertRule) GetConditions() []metav1.Condition { return r.Status.Conditions }
