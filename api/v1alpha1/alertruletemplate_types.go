package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AlertRuleTemplate generates one AlertRule for every workload that it matches, in every spoke that it
// matches. Workloads are Deployments, StatefulSets, DaemonSets and CronJobs.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=art,categories=rulefleet
// +kubebuilder:printcolumn:name="Alert",type=string,JSONPath=`.spec.alert`
// +kubebuilder:printcolumn:name="Severity",type=string,JSONPath=`.spec.severity`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.spec.state`
// +kubebuilder:printcolumn:name="Matched",type=integer,JSONPath=`.status.summary.matched`
// +kubebuilder:printcolumn:name="Generated",type=integer,JSONPath=`.status.summary.generated`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name of a template has at most 63 characters, because it is used as a label value; shorten it"
type AlertRuleTemplate struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec defines the alert, and the workloads for which it is generated.
	// +required
	Spec AlertRuleTemplateSpec `json:"spec,omitzero"`

	// status shows whether the template is valid, and counts the workloads that it matches.
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

// AlertRuleTemplateSpec defines an alert, and the workloads for which it is generated. In addition to the
// placeholders of an AlertRule, its texts can contain $(workload.kind), $(workload.name),
// $(workload.namespace), $(workload.labels.KEY), $(workload.annotations.KEY) and $(params.NAME). The expression
// can contain $(params.NAME) also outside of string literals. The label namespace, and a label with the name of
// the workload, are added to the labels of the alert. The second one is named after the kind: deployment,
// statefulset, daemonset or cronjob.
//
// +kubebuilder:validation:XValidation:rule="!has(self.severity) || !has(self.labels) || !('severity' in self.labels)",message="the severity is set twice; set either severity or labels.severity",fieldPath=".severity"
// +kubebuilder:validation:XValidation:rule="!has(self.labels) || size(self.labels) <= 62",message="a template has at most 62 labels, because two labels that identify the workload are added; remove some",fieldPath=".labels"
// +kubebuilder:validation:XValidation:rule="!has(self.clusters)",message="clusters was renamed; move its content to spec.placement",fieldPath=".clusters"
// +kubebuilder:validation:XValidation:rule="!has(self.workloads) || (!has(self.workloads.matchLabels) && !has(self.workloads.matchExpressions))",message="matchLabels and matchExpressions were moved; move them to spec.workloads.selector",fieldPath=".workloads"
type AlertRuleTemplateSpec struct {
	AlertSpec `json:",inline"`

	// placement selects the spokes whose workloads get the alert. It defaults to every spoke.
	// +optional
	Placement *ClusterSelection `json:"placement,omitempty"`

	// clusters was the name of placement before version 0.1.0. A template that has it is not accepted, and its
	// AlertRules stay as they are; move its content to placement. The field will be removed with v1alpha1.
	// +optional
	Clusters *ClusterSelection `json:"clusters,omitempty"`

	// namespaces selects the namespaces of the workloads. It defaults to every namespace except the system
	// namespaces.
	// +optional
	Namespaces *NamespaceSelection `json:"namespaces,omitempty"`

	// workloads selects the workloads by their kind, labels and names. It defaults to every Deployment.
	// +optional
	// +structType=atomic
	Workloads *WorkloadSelection `json:"workloads,omitempty"`

	// parameters are values that you use as $(params.NAME) in the expression, labels and annotations. They can
	// differ by cluster (overrides) and, if allow contains params, by workload.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Parameters []Parameter `json:"parameters,omitempty"`

	// overrides change the alert in some of the spokes. They are evaluated in order: of the overrides that
	// select a spoke, the first one that sets a field takes precedence. Parameters, labels and annotations are
	// merged key by key. An empty value removes a label or an annotation.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Overrides []TemplateOverride `json:"overrides,omitempty"`

	// allow lists the annotations with which a workload can adjust its AlertRule, without their prefix
	// rulefleet.io/: alerts, disable, for, params, severity and labels. The default is [alerts, disable, for].
	// If you add severity or labels, everyone who can edit a workload decides who is notified. An empty list
	// allows no annotation.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=6
	// +default=["alerts","disable","for"]
	Allow []Adjustment `json:"allow,omitzero"`

	// ruleNamespace defines the namespace of the PrometheusRules in the spokes. With Workload, which is the
	// default, it is the namespace of the workload. With Operator, it is the namespace of the spoke's chosen Prometheus or, if
	// that is not known, the chart value ruleNamespace (flag --rule-namespace of the manager).
	// +optional
	RuleNamespace TemplateRuleNamespace `json:"ruleNamespace,omitempty"`

	// suspend leaves the generated AlertRules unchanged: while suspend is true, the template does not create,
	// change or remove any. If you delete the template or a workload, its AlertRules are still removed.
	// +optional
	Suspend *bool `json:"suspend,omitempty"` //nolint:apiconventions // as in Jobs and Flux: there is no third way

	// state defines whether the template generates AlertRules. Disabled removes those that it has
	// generated.
	// +optional
	// +default="Enabled"
	State State `json:"state,omitempty"`
}

// TemplateRuleNamespace defines the namespace of the PrometheusRules of a template in the spokes.
// +kubebuilder:validation:Enum=Workload;Operator
type TemplateRuleNamespace string

const (
	// InWorkloadNamespace is the namespace of the workload. It is the default.
	InWorkloadNamespace TemplateRuleNamespace = "Workload"
	// InOperatorNamespace is the namespace of the spoke's chosen Prometheus, as for an AlertRule in Rulefleet's
	// own namespace.
	InOperatorNamespace TemplateRuleNamespace = "Operator"
)

// WorkloadKind is a kind of workloads.
// +kubebuilder:validation:Enum=Deployment;StatefulSet;DaemonSet;CronJob
type WorkloadKind string

// The kinds of workloads.
const (
	DeploymentKind  WorkloadKind = "Deployment"
	StatefulSetKind WorkloadKind = "StatefulSet"
	DaemonSetKind   WorkloadKind = "DaemonSet"
	CronJobKind     WorkloadKind = "CronJob"
)

// WorkloadSelection selects workloads: those of the listed kinds that match the selector. The workloads in
// exclude are left out.
type WorkloadSelection struct {
	// kinds lists the kinds of the workloads. The default is [Deployment]. For other kinds, the account of the
	// spoke needs the permission to read them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	Kinds []WorkloadKind `json:"kinds,omitempty"`

	// selector selects workloads by their labels. It defaults to every workload.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// exclude selects workloads that are left out even if kinds and selector select them.
	// +optional
	Exclude *WorkloadExclusion `json:"exclude,omitempty"`

	// matchLabels was the place of selector.matchLabels before version 0.1.0. A template that has it is not
	// accepted, and its AlertRules stay as they are; move its content to selector.matchLabels. The field will be
	// removed with v1alpha1.
	// +optional
	// +kubebuilder:validation:MaxProperties=1024
	MatchLabels map[string]RuleLabelValue `json:"matchLabels,omitempty"`

	// matchExpressions was the place of selector.matchExpressions before version 0.1.0. A template that has it
	// is not accepted, and its AlertRules stay as they are; move its content to selector.matchExpressions. The
	// field will be removed with v1alpha1.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	MatchExpressions []metav1.LabelSelectorRequirement `json:"matchExpressions,omitempty"`
}

// WorkloadExclusion selects workloads that a WorkloadSelection leaves out: those that are listed by name, and
// those that match the selector.
// +kubebuilder:validation:XValidation:rule="has(self.names) || has(self.selector)",message="no workload is excluded; list names, set a label selector, or remove exclude"
type WorkloadExclusion struct {
	// names lists workloads by name, in all namespaces that the template selects.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Names []string `json:"names,omitempty"`

	// selector selects workloads by their labels.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// ParameterType is the type of a parameter.
// +kubebuilder:validation:Enum=number;duration;quantity
type ParameterType string

// The types of parameters.
const (
	// NumberParameter is a decimal number, such as 0.99 or -5.
	NumberParameter ParameterType = "number"
	// DurationParameter is a Prometheus duration, such as 5m or 1h30m.
	DurationParameter ParameterType = "duration"
	// QuantityParameter is a quantity of Kubernetes, such as 500m or 2Gi. In an expression, it becomes a number.
	QuantityParameter ParameterType = "quantity"
)

// ParameterValue is the value of a parameter: a number, a Prometheus duration or a quantity.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self.matches('^[-+]?[0-9.][0-9a-zA-Z.]*([eE][-+]?[0-9]+)?$')",message="not a number, duration or quantity; use a form such as 0.99, 5m or 2Gi"
type ParameterValue string

// Parameter is a value that a template uses as $(params.NAME) in the expression, labels and annotations.
type Parameter struct {
	// name is the name of the parameter.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-zA-Z][a-zA-Z0-9_-]*$`
	Name string `json:"name,omitempty"`

	// type defines which values are valid: number (such as 0.99), duration (such as 5m) or quantity (such as
	// 500m or 2Gi, which becomes a number in an expression).
	// +required
	Type ParameterType `json:"type,omitempty"`

	// default is the value where neither an override nor a workload sets another one.
	// +required
	Default ParameterValue `json:"default,omitempty"`

	// minimum is the smallest value that an override or a workload can set.
	// +optional
	Minimum ParameterValue `json:"minimum,omitempty"`

	// maximum is the largest value that an override or a workload can set.
	// +optional
	Maximum ParameterValue `json:"maximum,omitempty"`
}

// TemplateOverride changes the alert of a template in some of the spokes: those that are listed by name, and
// those whose labels match the selector.
//
// +kubebuilder:validation:XValidation:rule="has(self.state) || has(self.expr) || has(self.for) || has(self.keepFiringFor) || has(self.interval) || has(self.severity) || has(self.labels) || has(self.annotations) || has(self.parameters)",message="an override must change something; set state, expr, for, keepFiringFor, interval, severity, labels, annotations or parameters"
// +kubebuilder:validation:XValidation:rule="!has(self.severity) || !has(self.labels) || !('severity' in self.labels)",message="the severity is set twice; set either severity or labels.severity",fieldPath=".severity"
type TemplateOverride struct {
	ClusterSelection `json:",inline"`

	// state defines whether the template generates AlertRules for workloads of these spokes.
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
	// +kubebuilder:validation:MaxProperties=62
	Labels map[string]LabelText `json:"labels,omitempty"`

	// annotations are merged into the annotations of the alert. An empty value removes the annotation.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]LabelText `json:"annotations,omitempty"`

	// parameters sets values of parameters, by name.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	Parameters map[string]ParameterValue `json:"parameters,omitempty"`
}

// Adjustment is an annotation of a workload that adjusts its AlertRules, without the prefix rulefleet.io/.
// +kubebuilder:validation:Enum=alerts;disable;severity;for;labels;params
type Adjustment string

const (
	// AdjustAlerts is the annotation rulefleet.io/alerts. The value "disabled" disables every template for
	// the workload.
	AdjustAlerts Adjustment = "alerts"
	// AdjustDisable is the annotation rulefleet.io/disable. Its value lists the templates to disable for
	// the workload, by name, such as a,b.
	AdjustDisable Adjustment = "disable"
	// AdjustSeverity is the annotation rulefleet.io/severity. Its value, such as warning, replaces the
	// severity.
	AdjustSeverity Adjustment = "severity"
	// AdjustFor is the annotation rulefleet.io/for. Its value, such as 10m, replaces spec.for of the AlertRule.
	AdjustFor Adjustment = "for"
	// AdjustLabels is the annotation rulefleet.io/labels. Its value lists labels to add to the alert, such as
	// tier=1,owner=shop. It can't replace labels that the template sets.
	AdjustLabels Adjustment = "labels"

	// AdjustParams is the annotation rulefleet.io/params. Its value sets parameters of templates, such as
	// threshold=5,window=10m.
	AdjustParams Adjustment = "params"
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

// AlertRuleTemplateStatus shows whether a template is valid, and counts the workloads that it matches.
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

	// summary counts the workloads that the template matches. A change shows within a minute. A spoke that is
	// unreachable is counted with its last known numbers. After a restart, the summary stays as it was until the
	// workloads of all spokes are processed, or 10 minutes have passed. Then it leaves out spokes that are still
	// unreachable.
	// +optional
	Summary *TemplateSummary `json:"summary,omitempty"`
}

// TemplateSummary counts the workloads that a template matches.
type TemplateSummary struct {
	// matched is the number of workloads that the template selects. It is the sum of the other fields. If the
	// template is suspended or not accepted, it is the number of workloads that have an AlertRule from it.
	// +required
	// +kubebuilder:validation:Minimum=0
	Matched int32 `json:"matched"`

	// generated is the number of workloads that have an AlertRule of the current version of the template.
	// +required
	// +kubebuilder:validation:Minimum=0
	Generated int32 `json:"generated"`

	// disabled is the number of workloads whose annotations disable the template.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Disabled int32 `json:"disabled,omitempty"`

	// refused is the number of workloads without an AlertRule because spec.maxRules of the SpokeCluster, or the
	// share of their namespace, is reached.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Refused int32 `json:"refused,omitempty"`

	// failed is the number of workloads whose AlertRule cannot be generated or updated. An AlertRule that exists
	// already stays as it is. Events of the template, or the manager's log, name the workloads and the cause.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed,omitempty"`
}
