package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AlertRule defines one alert and the spokes on which it is placed. Rulefleet writes it to each of these
// spokes as a PrometheusRule, and reports the delivery to each spoke in the status.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ar,categories=rulefleet
// +kubebuilder:printcolumn:name="Alert",type=string,JSONPath=`.spec.alert`
// +kubebuilder:printcolumn:name="Severity",type=string,JSONPath=`.spec.severity`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.summary.ready`
// +kubebuilder:printcolumn:name="Firing",type=integer,JSONPath=`.status.summary.firing`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Cluster",type=string,priority=1,JSONPath=`.spec.workloadRef.cluster`
// +kubebuilder:printcolumn:name="Workload",type=string,priority=1,JSONPath=`.spec.workloadRef.name`
// +kubebuilder:selectablefield:JSONPath=`.spec.alert`
// +kubebuilder:selectablefield:JSONPath=`.spec.severity`
// +kubebuilder:selectablefield:JSONPath=`.spec.workloadRef.cluster`
type AlertRule struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec defines the alert and the spokes on which it is placed.
	// +required
	Spec AlertRuleSpec `json:"spec,omitzero"`

	// status shows the delivery status of the alert in every spoke. Each update replaces it as a whole.
	// +optional
	// +structType=atomic
	// +default={"observedGeneration":-1}
	Status RuleStatus `json:"status,omitzero"`
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

// AlertRuleSpec defines one alert and the spokes on which it is placed. The expression, and the values of
// labels and annotations, can contain the placeholders $(cluster.name) and $(cluster.labels.KEY). Write $$(
// for a literal $(.
//
// +kubebuilder:validation:XValidation:rule="!has(self.severity) || !has(self.labels) || !('severity' in self.labels)",message="the severity is set twice; set either severity or labels.severity",fieldPath=".severity"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.workloadRef) || (has(self.workloadRef) && self.workloadRef == oldSelf.workloadRef)",message="workloadRef is immutable; delete the AlertRule and create another one",fieldPath=".workloadRef"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.workloadRef) || self.placement == oldSelf.placement",message="placement is immutable when workloadRef is set, because the rule belongs to the cluster of its workload; delete the AlertRule and create another one or, if a template generated it, change spec.placement of the template",fieldPath=".placement"
type AlertRuleSpec struct {
	AlertSpec `json:",inline"`

	// workloadRef names the workload that the alert is about. It is set on AlertRules that a template
	// generates, and is optional on others. Once it is set, workloadRef and placement are immutable.
	// +optional
	// +structType=atomic
	WorkloadRef *WorkloadReference `json:"workloadRef,omitempty"`

	// placement selects the spokes.
	// +required
	Placement ClusterSelection `json:"placement,omitzero"`

	// ruleNamespace is the namespace of the PrometheusRule in the spokes. It defaults to the namespace
	// of the workload if workloadRef is set, and otherwise to the namespace of the AlertRule. For an
	// AlertRule in Rulefleet's own namespace without a workloadRef, it defaults to the namespace of the
	// spoke's chosen Prometheus or, if that is not known, to the chart value ruleNamespace (flag
	// --rule-namespace of the manager).
	// +optional
	RuleNamespace NamespaceName `json:"ruleNamespace,omitempty"`

	// ruleNamespaceFrom defines the default of ruleNamespace for an AlertRule with a workloadRef. With Workload, it
	// is the namespace of the workload. With Operator, it is the namespace of the spoke's chosen Prometheus or, if
	// that is not known, the chart value ruleNamespace (flag --rule-namespace of the manager). Only AlertRules in
	// Rulefleet's own namespace, and AlertRules that a template with ruleNamespace Operator generates, can set
	// Operator.
	// +optional
	RuleNamespaceFrom TemplateRuleNamespace `json:"ruleNamespaceFrom,omitempty"`

	// overrides change the alert in some of the spokes. They are evaluated in order: of the overrides
	// that select a spoke, the first one that sets a field takes precedence. Labels and annotations
	// are merged key by key. An empty value removes the key.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Overrides []Override `json:"overrides,omitempty"`

	// state defines whether the alert is written to the spokes. Disabled removes it from them.
	// +optional
	// +default="Enabled"
	State State `json:"state,omitempty"`

	// suspend leaves the rule unchanged in all spokes: while suspend is true, Rulefleet does not create,
	// change or remove the rule in any spoke. If you delete the AlertRule, its PrometheusRules are still
	// removed.
	// +optional
	Suspend *bool `json:"suspend,omitempty"` //nolint:apiconventions // as in Jobs and Flux: there is no third way
}

// Override changes an AlertRule in some of the spokes on which it is placed: those that are listed by
// name, and those whose labels match the selector.
//
// +kubebuilder:validation:XValidation:rule="has(self.state) || has(self.expr) || has(self.for) || has(self.keepFiringFor) || has(self.interval) || has(self.severity) || has(self.labels) || has(self.annotations)",message="an override must change something; set state, expr, for, keepFiringFor, interval, severity, labels or annotations"
// +kubebuilder:validation:XValidation:rule="!has(self.severity) || !has(self.labels) || !('severity' in self.labels)",message="the severity is set twice; set either severity or labels.severity",fieldPath=".severity"
type Override struct {
	ClusterSelection `json:",inline"`

	// state defines whether the alert is written to these spokes.
	// +optional
	State State `json:"state,omitempty"`

	// expr replaces the expression.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Expr string `json:"expr,omitempty"`

	// for replaces the time for which the expression must return a result before the alert fires.
	// +optional
	For Duration `json:"for,omitempty"`

	// keepFiringFor replaces the time for which the alert keeps firing after the expression last returned a
	// result. It requires Prometheus 2.42 or later.
	// +optional
	KeepFiringFor Duration `json:"keepFiringFor,omitempty"`

	// interval replaces the time between two evaluations of the expression.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(0+[a-z]*)*$')",message="the interval must not be zero; leave it out to use the interval of Prometheus"
	Interval Duration `json:"interval,omitempty"`

	// severity replaces the value of the alert's label severity.
	// +optional
	Severity Severity `json:"severity,omitempty"`

	// labels are merged into the labels of the alert. An empty value removes the label.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^[a-zA-Z_][a-zA-Z0-9_]*$'))",message="invalid name; use letters, digits and _, not beginning with a digit",messageExpression="self.filter(k, !k.matches('^[a-zA-Z_][a-zA-Z0-9_]*$'))[0] + ': invalid name; use letters, digits and _, not beginning with a digit'"
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 1024)",message="the name of a label is longer than 1024 characters; shorten it"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('__'))",message="names that begin with __ are reserved for Prometheus; use another name",messageExpression="self.filter(k, k.startsWith('__'))[0] + ': names that begin with __ are reserved for Prometheus; use another name'"
	// +kubebuilder:validation:XValidation:rule="!('alertname' in self)",message="label alertname holds the name of the alert; set spec.alert instead"
	Labels map[string]LabelText `json:"labels,omitempty"`

	// annotations are merged into the annotations of the alert. An empty value removes the annotation.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^[a-zA-Z_][a-zA-Z0-9_]*$'))",message="invalid name; use letters, digits and _, not beginning with a digit",messageExpression="self.filter(k, !k.matches('^[a-zA-Z_][a-zA-Z0-9_]*$'))[0] + ': invalid name; use letters, digits and _, not beginning with a digit'"
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 1024)",message="the name of an annotation is longer than 1024 characters; shorten it"
	Annotations map[string]LabelText `json:"annotations,omitempty"`
}

// WorkloadReference names a workload in a spoke.
type WorkloadReference struct {
	// cluster is the name of the spoke in which the workload runs.
	// +required
	Cluster ClusterName `json:"cluster,omitempty"`

	// kind is the kind of the workload.
	// +required
	Kind WorkloadKind `json:"kind,omitempty"`

	// namespace is the namespace of the workload.
	// +required
	Namespace NamespaceName `json:"namespace,omitempty"`

	// name is the name of the workload.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// Phase is the furthest state of a rule in a spoke that Rulefleet has verified. A rule is ready in a spoke
// if its phase is the furthest that can be verified there. This is normally Evaluating. If Rulefleet
// cannot query Prometheus, it is Selected. If the spoke has no Prometheus and ThanosRuler objects, or
// they can't be read, it is Applied. While a spoke is unreachable, the phase is the last known one.
// +kubebuilder:validation:Enum=Pending;Applied;Selected;Evaluating
type Phase string

const (
	// PhasePending means that the spoke is not known to hold the current version of the rule. It can hold
	// an earlier version.
	PhasePending Phase = "Pending"
	// PhaseApplied means that the spoke's API server holds the current version of the rule or, with reason
	// Suspended, another version.
	PhaseApplied Phase = "Applied"
	// PhaseSelected means that a Prometheus or ThanosRuler of the spoke selects the rule. This was computed
	// from its selectors (reason Predicted), or reported by prometheus-operator (reason Confirmed) or by
	// the Prometheus or ThanosRuler itself.
	PhaseSelected Phase = "Selected"
	// PhaseEvaluating means that the current version of the rule is loaded and evaluated without an error:
	// by each Prometheus and ThanosRuler in spec.evaluatorRefs of the SpokeCluster or, if that list is
	// empty, by a chosen one.
	PhaseEvaluating Phase = "Evaluating"
)

// RuleStatus is the delivery status of an AlertRule or a RulePack.
type RuleStatus struct {
	// observedGeneration is the generation of the spec that this status describes. It is -1 until
	// Rulefleet has processed the object.
	// +optional
	// +kubebuilder:validation:Minimum=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Accepted (the spec is valid), Ready (the rule has reached the furthest state that
	// can be verified in every spoke on which it is placed), Stalled (only if the rule makes no progress until
	// you act) and MetricsPresent (only if a Prometheus lacks series that the expression selects).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// summary counts the spokes by the state of the rule in them.
	// +optional
	Summary *RuleSummary `json:"summary,omitempty"`

	// overriddenFields lists the fields of a generated AlertRule that were edited, such as for or
	// labels.team. The template no longer changes them. The annotation rulefleet.io/reset-fields
	// returns them to the template.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=512
	OverriddenFields []string `json:"overriddenFields,omitempty"`

	// clusters lists the state of the rule in each spoke. With more than 100 spokes, it lists only spokes
	// in which the rule is not ready, its alert fires or a metric is missing. If there are more than 100
	// of them, it lists the 100 worst. While the spec is not accepted, the rows describe the last
	// accepted spec.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Clusters []ClusterStatus `json:"clusters,omitempty"`

	// groups counts the spokes that clusters does not list, by the state of the rule in them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Groups []ClusterGroup `json:"groups,omitempty"`
}

// ClusterGroup counts spokes in which the state of a rule is the same.
type ClusterGroup struct {
	// phase is the furthest state of the rule that Rulefleet has verified.
	// +required
	Phase Phase `json:"phase,omitempty"`

	// reason is the reason of the phase, as in clusters.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// outage is true while the spokes can't be reached, as in clusters.
	// +optional
	Outage bool `json:"outage,omitempty"` //nolint:apiconventions // a plain fact, as in clusters

	// observedGeneration is the generation of the spec in these spokes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// count is the number of these spokes.
	// +required
	// +kubebuilder:validation:Minimum=1
	Count int32 `json:"count,omitempty"`
}

// RuleSummary counts spokes by the state of a rule in them.
type RuleSummary struct {
	// desired is the number of spokes on which the rule is placed.
	// +required
	// +kubebuilder:validation:Minimum=0
	Desired int32 `json:"desired"`

	// applied is the number of spokes whose API server holds the current version of the rule.
	// +required
	// +kubebuilder:validation:Minimum=0
	Applied int32 `json:"applied"`

	// selected is the number of spokes in which a Prometheus or ThanosRuler selects the rule.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Selected int32 `json:"selected,omitempty"`

	// evaluating is the number of spokes in which the rule is verified to be evaluated: its phase is
	// Evaluating.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Evaluating int32 `json:"evaluating,omitempty"`

	// firing is the number of firing alerts of the rule, over all spokes whose Prometheus can be
	// queried. It is absent if none can be queried. It is updated within a minute, and at most every 30
	// seconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Firing *int32 `json:"firing,omitempty"`

	// failing is the number of spokes that refuse the rule, hold another object or another version in its
	// place, or don't evaluate it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failing int32 `json:"failing,omitempty"`

	// unreachable is the number of spokes that are currently unreachable.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Unreachable int32 `json:"unreachable,omitempty"`

	// ready is the number of spokes in which the rule is ready, out of the number of desired spokes, such
	// as 3/3. A rule is ready in a spoke if its phase is the furthest that can be verified there.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=23
	Ready string `json:"ready,omitempty"`
}

// ClusterStatus is the state of a rule in one spoke.
type ClusterStatus struct {
	// name is the name of the spoke.
	// +required
	Name ClusterName `json:"name,omitempty"`

	// phase is the furthest state of the rule that Rulefleet has verified.
	// +required
	Phase Phase `json:"phase,omitempty"`

	// reason is a CamelCase word that explains why the rule has not reached the next phase or, as with
	// Unreachable, why the phase is only the last known one.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// message explains the reason, and says what to change.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// outage is true while the entry shows that the spoke can't be reached. The reason is then the reason of the
	// condition Connected of the SpokeCluster, and the phase is the last known one.
	// +optional
	Outage bool `json:"outage,omitempty"` //nolint:apiconventions // a plain fact, as in a Pod's containerStatuses

	// rule is the namespace and name of the PrometheusRule in the spoke, as namespace/name.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	Rule string `json:"rule,omitempty"`

	// evaluators are the Prometheus and ThanosRuler objects of the spoke that select the rule, each as
	// "KIND namespace/name".
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=329
	Evaluators []string `json:"evaluators,omitempty"`

	// firing is the number of firing alerts of the rule in the spoke.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Firing int32 `json:"firing,omitempty"`

	// missingMetrics lists the first three selectors of the rule's expression that match no series in
	// the spoke's Prometheus. For a RulePack, it also lists recording rules that have no result although the
	// series that they read exist.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:MaxLength=256
	MissingMetrics []string `json:"missingMetrics,omitempty"`

	// answerDigest is set with reason Mutated. It is a digest of the object that Rulefleet sent and of the
	// object that the spoke stored. Rulefleet uses it to avoid sending the same object again.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	AnswerDigest string `json:"answerDigest,omitempty"`

	// observedGeneration is the generation of the spec that this entry describes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// lastTransitionTime is the time of the last change of phase or reason.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
}
