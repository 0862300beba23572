package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SpokeCluster is the membership of one spoke. Rulefleet creates it once for a registered Secret of the
// same name, and never changes its spec afterwards. You can also create it before the Secret, for example
// with GitOps. Placement selects spokes by the labels of their SpokeCluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=spoke;spokes,categories=rulefleet
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.kubernetesVersion`
// +kubebuilder:printcolumn:name="Deployments",type=integer,JSONPath=`.status.deployments`
// +kubebuilder:printcolumn:name="Rules",type=integer,JSONPath=`.status.rules`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Credential Expires",type=string,priority=1,JSONPath=`.status.credential.expirationTime`
type SpokeCluster struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the object's metadata. Placement selects spokes by its labels.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec holds your settings for the spoke.
	// +optional
	Spec SpokeClusterSpec `json:"spec,omitzero"`

	// status shows the observed state of the spoke.
	// +optional
	// +default={"observedGeneration":-1}
	Status SpokeClusterStatus `json:"status,omitzero"`
}

// SpokeClusterList is a list of SpokeClusters.
//
// +kubebuilder:object:root=true
type SpokeClusterList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	// items are the SpokeClusters.
	Items []SpokeCluster `json:"items"`
}

// SpokeClusterSpec holds the settings for a spoke. Rulefleet never changes it.
type SpokeClusterSpec struct {
	// suspend stops all writes to the spoke: Rulefleet creates, changes and removes nothing there, not even
	// when the SpokeCluster is deleted. It continues to watch the spoke.
	// +optional
	Suspend *bool `json:"suspend,omitempty"` //nolint:apiconventions // as in Jobs and Flux: there is no third way

	// deletionPolicy defines what happens to the rules in the spoke when the SpokeCluster is deleted.
	// Delete removes them if the spoke can be reached in time. Orphan leaves them there.
	// +optional
	// +default="Delete"
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// evaluatorRefs name the Prometheus and ThanosRuler objects of the spoke that evaluate the rules. Every
	// PrometheusRule gets the labels that their selectors require. A rule is ready only when all of them
	// evaluate it, as far as Rulefleet can query them. If the list is empty and exactly one
	// Prometheus or ThanosRuler of the spoke has a ruleSelector, Rulefleet chooses it, and keeps that choice
	// when others are added. If several have a ruleSelector from the beginning, Rulefleet chooses none
	// (reason Ambiguous).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	EvaluatorRefs []EvaluatorReference `json:"evaluatorRefs,omitempty"`

	// ruleLabels are added to every PrometheusRule in the spoke so that it matches the ruleSelector of
	// a Prometheus, for example release: monitoring. They are labels of the object, not of the alert.
	// The labels that the selectors of the chosen Prometheus require are added without this field.
	// Labels in this field take precedence over them.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="invalid label name; use at most 63 letters, digits, -, _ and ., with an optional DNS prefix and /",messageExpression="self.filter(k, !(size(k) <= 317 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')))[0] + ': invalid label name; use at most 63 letters, digits, -, _ and ., with an optional DNS prefix and /'"
	// +kubebuilder:validation:XValidation:rule="self.all(k, self[k].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'))",message="invalid label value; use letters and digits, with -, _ or . between them",messageExpression="self.filter(k, !self[k].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'))[0] + ': invalid label value; use letters and digits, with -, _ or . between them'"
	// +kubebuilder:validation:XValidation:rule="self.all(k, k != 'app.kubernetes.io/managed-by' && !k.startsWith('rulefleet.io/'))",message="app.kubernetes.io/managed-by and labels of rulefleet.io are reserved for Rulefleet; remove them"
	RuleLabels map[string]RuleLabelValue `json:"ruleLabels,omitempty"`

	// maxRules is the maximum number of AlertRules that templates generate for workloads of the spoke, so
	// that one spoke can't overload the hub. At the limit, existing AlertRules stay, and no more are
	// generated.
	// +optional
	// +default=10000
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	MaxRules *int32 `json:"maxRules,omitempty"`

	// tenants selects the namespaces of the hub whose AlertRules and RulePacks the spoke takes. By default, it
	// takes those of all namespaces except platform namespaces: openshift, and those whose names begin with kube-
	// or openshift-. Those in Rulefleet's own namespace and generated AlertRules are always taken. If you narrow tenants,
	// rules that are no longer taken are removed from the spoke. To add a platform
	// namespace to the default, list it in names together with an empty selector ({}).
	// +optional
	Tenants *TenantSelection `json:"tenants,omitempty"`

	// adoptHubIDs are the ids of former hubs whose PrometheusRules in the spoke this hub takes over. It
	// takes over a PrometheusRule if this hub has an AlertRule or RulePack with the same namespace and name as
	// the one from which the former hub created it. Make sure that the former hub no longer writes to the
	// spoke.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	AdoptHubIDs []HubID `json:"adoptHubIDs,omitempty"`
}

// TenantSelection selects namespaces of the hub: those that are listed by name, and those that match the
// selector. Platform namespaces (openshift, and those whose names begin with kube- or openshift-) are selected
// only if they are listed in names.
// +kubebuilder:validation:XValidation:rule="has(self.names) || has(self.selector)",message="no namespace is selected; list names, or set a label selector; an empty list of names selects none, and an empty selector ({}) selects all namespaces except platform namespaces"
type TenantSelection struct {
	// names lists namespaces of the hub by name. An empty list selects none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	Names []NamespaceName `json:"names,omitzero"`

	// selector selects namespaces of the hub by their labels.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// DeletionPolicy defines what happens to the rules in a spoke when its SpokeCluster is deleted.
// +kubebuilder:validation:Enum=Delete;Orphan
type DeletionPolicy string

const (
	// DeletionPolicyDelete removes the rules. It is the default.
	DeletionPolicyDelete DeletionPolicy = "Delete"
	// DeletionPolicyOrphan leaves the rules in the spoke.
	DeletionPolicyOrphan DeletionPolicy = "Orphan"
)

// RuleLabelValue is the value of a label.
// +kubebuilder:validation:MaxLength=63
type RuleLabelValue string

// HubID is the id of a hub. It is a valid label value.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
type HubID string

// EvaluatorReference names a Prometheus or ThanosRuler in a spoke.
type EvaluatorReference struct {
	// kind is the kind of the object, Prometheus or ThanosRuler.
	// +required
	// +kubebuilder:validation:Enum=Prometheus;ThanosRuler
	Kind string `json:"kind,omitempty"`

	// namespace is the namespace of the object in the spoke.
	// +required
	Namespace NamespaceName `json:"namespace,omitempty"`

	// name is the name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// url is the address at which the hub queries the Prometheus or ThanosRuler directly, such as
	// https://prometheus.eu-1.example.com. It is the part of the address before /api/v1, without
	// credentials. If it is empty, the hub sends queries through the spoke's API server, which requires
	// the permission to get services/proxy.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^(https?://[^/?#@[:space:]]+(/[^?#@[:space:]]*)?)?$')",message="not the address of a Prometheus; use a form such as https://prometheus.eu-1.example.com, without credentials, query and fragment"
	URL string `json:"url,omitempty"`
}

// SpokeClusterStatus is the observed state of a spoke.
type SpokeClusterStatus struct {
	// observedGeneration is the generation of the spec that this status describes. It is -1 until
	// Rulefleet has processed the object.
	// +optional
	// +kubebuilder:validation:Minimum=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Connected (the spoke's API server answers, and all required objects can be read),
	// PrometheusRuleServed (the spoke serves PrometheusRules, and they can be read), EvaluatorsFound (a
	// Prometheus or ThanosRuler is chosen to evaluate the rules), Evaluating (each chosen one answers),
	// MetricsPresent (they have the metrics of kube-state-metrics, if rules need them), CredentialValid (the
	// credential in the kubeconfig has not expired), WorkloadsReadable (only if workloads of a kind that a
	// template names can't be read) and Ready (Connected and PrometheusRuleServed are True, and nothing prevents
	// Rulefleet from writing the rules).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// kubernetesVersion is the last version that the spoke's API server reported.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// identity is the UID of the namespace kube-system of the spoke, which identifies the cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Identity string `json:"identity,omitempty"`

	// identityTime is the time at which identity last changed, was confirmed by a person, or was recorded
	// again after the SpokeClusters were lost together with their CustomResourceDefinition. Until the
	// duration in the chart value deletionHold (flag --deletion-hold of the manager) has passed since that
	// time, every deletion in the spoke is held, also if the manager is restarted. The field is absent if
	// none of this has happened.
	// +optional
	IdentityTime metav1.Time `json:"identityTime,omitzero"`

	// deployments is the number of Deployments in the spoke. A change shows within a minute.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Deployments *int32 `json:"deployments,omitempty"`

	// workloads counts the workloads in all namespaces of the spoke by kind, with and without an alert. A
	// change shows within a minute while the spoke is connected. It has no entry for a kind that Rulefleet's
	// account in the spoke cannot list.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +kubebuilder:validation:MaxItems=4
	Workloads []WorkloadCount `json:"workloads,omitempty"`

	// uncovered lists workloads of the spoke without an alert, sorted by namespace, kind and name, up to 50. It
	// does not list workloads of kinds that no enabled template selects.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Uncovered []UncoveredWorkload `json:"uncovered,omitempty"`

	// rules is the number of PrometheusRules of this hub in the spoke. A change shows within a minute.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Rules *int32 `json:"rules,omitempty"`

	// evaluators are the Prometheus and ThanosRuler objects that are chosen to evaluate the rules. The list
	// is the record of that choice: other objects in the spoke don't change it. If none is chosen, or if
	// one that spec.evaluatorRefs names is missing, the list also contains the names of objects that could
	// be chosen, up to 16 entries in total.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Evaluators []Evaluator `json:"evaluators,omitempty"`

	// pendingDeletions are the rules that have to be removed from the spoke but are still there,
	// because the spoke is unreachable, suspended or being deleted, or because the deletions are held.
	// It is absent if there are none.
	// +optional
	PendingDeletions *PendingDeletions `json:"pendingDeletions,omitempty"`

	// credential shows how long the credential in the kubeconfig is valid: the token or the client
	// certificate with which Rulefleet is connected. It is absent if the credential does not say when it
	// expires.
	// +optional
	Credential *SpokeCredential `json:"credential,omitempty"`

	// lastContactTime is the time of the spoke's last answer. It is only updated when the status of
	// Connected changes, so it is not a heartbeat.
	// +optional
	LastContactTime metav1.Time `json:"lastContactTime,omitzero"`
}

// WorkloadCount counts the workloads of one kind in a spoke.
type WorkloadCount struct {
	// kind is the kind of the workloads.
	// +required
	Kind WorkloadKind `json:"kind,omitempty"`

	// total is the number of workloads.
	// +required
	// +kubebuilder:validation:Minimum=0
	Total int32 `json:"total"`

	// covered is the number of workloads with an alert: an enabled AlertRule that names the workload in
	// workloadRef is Evaluating in the spoke.
	// +required
	// +kubebuilder:validation:Minimum=0
	Covered int32 `json:"covered"`
}

// UncoveredWorkload is a workload without an alert.
type UncoveredWorkload struct {
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

	// reason is the cause: NoTemplate (no template selects the workload), Disabled (its annotations, or an edit
	// of its AlertRule, disable the alert), Refused (spec.maxRules, or the share of its namespace, is reached),
	// Failed (no AlertRule can be generated), or NotEvaluating (it has an AlertRule that is not Evaluating).
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason UncoveredReason `json:"reason,omitempty"`
}

// UncoveredReason is the cause why a workload has no alert.
type UncoveredReason string

// The causes. If there are several, the first of NotEvaluating, Refused, Failed and Disabled is shown.
const (
	// UncoveredNoTemplate means that no template selects the workload.
	UncoveredNoTemplate UncoveredReason = "NoTemplate"
	// UncoveredDisabled means that its annotations, or an edit of its AlertRule, disable the alert.
	UncoveredDisabled UncoveredReason = "Disabled"
	// UncoveredRefused means that `spec.maxRules` of the SpokeCluster, or the share of the namespace, is reached.
	UncoveredRefused UncoveredReason = "Refused"
	// UncoveredFailed means that no AlertRule can be generated.
	UncoveredFailed UncoveredReason = "Failed"
	// UncoveredNotEvaluating means that it has an AlertRule that is not Evaluating.
	UncoveredNotEvaluating UncoveredReason = "NotEvaluating"
)

// SpokeCredential shows how long the credential of a spoke is valid, according to the credential itself.
type SpokeCredential struct {
	// expirationTime is the time at which the credential expires.
	// +optional
	ExpirationTime metav1.Time `json:"expirationTime,omitzero"`

	// renewalTime is the time at which a third of the credential's life is left. From that time on, the
	// reason of the condition CredentialValid is Expiring (or stays Unmanaged) until the credential expires. It is
	// absent if the credential does not say when it was issued.
	// +optional
	RenewalTime metav1.Time `json:"renewalTime,omitzero"`
}

// PendingDeletions are the rules of a spoke that have to be deleted but are still there.
type PendingDeletions struct {
	// count is the number of rules.
	// +required
	// +kubebuilder:validation:Minimum=0
	Count int32 `json:"count"`

	// held is the number of these rules whose deletion is held because it may be a mistake. Deletions are
	// held if there are many at once, or if objects may have been lost on the hub (see suspect). They are
	// also held for some time after you confirm that another cluster replaces the spoke (IdentityChanged),
	// after the identity of the spoke was recorded again, and after the manager was restarted while
	// deletions were held.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Held int32 `json:"held,omitempty"`

	// suspect is the number of held rules whose deletion waits until you acknowledge it, without a time
	// limit. The CustomResourceDefinition or the SpokeCluster on which these rules depend was created after
	// them, or the hub was restored from a backup. Objects on the hub may have been lost.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Suspect int32 `json:"suspect,omitempty"`

	// names lists the first 50 of these rules: AlertRules as namespace/name, and RulePacks as "RulePack
	// namespace/name".
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=326
	Names []string `json:"names,omitempty"`
}

// Evaluator is a Prometheus or ThanosRuler of a spoke, with its requirements for PrometheusRules.
type Evaluator struct {
	// kind is the kind of the object, Prometheus or ThanosRuler.
	// +required
	// +kubebuilder:validation:Enum=Prometheus;ThanosRuler
	Kind string `json:"kind,omitempty"`

	// namespace is the namespace of the object in the spoke.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// name is the name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// chosen is true if this Prometheus or ThanosRuler is to evaluate the rules.
	// +optional
	Chosen bool `json:"chosen,omitempty"` //nolint:apiconventions // a plain fact, as in a Pod's containerStatuses

	// missingTime is the time at which a chosen object was first found to be missing. It stays chosen
	// for 5 minutes, with its last known settings.
	// +optional
	MissingTime metav1.Time `json:"missingTime,omitzero"`

	// version is the version of Prometheus or Thanos.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version,omitempty"`

	// features lists the first 32 features that are enabled with --enable-feature.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	Features []string `json:"features,omitempty"`

	// ruleSelector selects PrometheusRules by their labels. If it is absent, none is selected.
	// +optional
	RuleSelector *metav1.LabelSelector `json:"ruleSelector,omitempty"`

	// ruleNamespaceSelector selects the namespaces of PrometheusRules by their labels. If it is absent,
	// only the namespace of this object is selected.
	// +optional
	RuleNamespaceSelector *metav1.LabelSelector `json:"ruleNamespaceSelector,omitempty"`

	// enforcedNamespaceLabel is the label that restricts every PrometheusRule to the metrics of the
	// PrometheusRule's own namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	EnforcedNamespaceLabel string `json:"enforcedNamespaceLabel,omitempty"`

	// excludedFromEnforcement lists the first 64 PrometheusRules that are not restricted, as
	// namespace/name, or as namespace/* for all in a namespace.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=326
	ExcludedFromEnforcement []string `json:"excludedFromEnforcement,omitempty"`

	// namespaces lists the first 64 namespaces from which prometheus-operator reads PrometheusRules (its
	// flag --namespaces), as far as Rulefleet can determine them. If namespaces and deniedNamespaces are
	// both absent, prometheus-operator reads all namespaces, as far as Rulefleet knows.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`

	// deniedNamespaces lists the first 64 namespaces from which prometheus-operator does not read
	// PrometheusRules (its flag --deny-namespaces), as far as Rulefleet can determine them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	DeniedNamespaces []string `json:"deniedNamespaces,omitempty"`

	// clusterLabel is the value of the external label cluster of the Prometheus or ThanosRuler. The label
	// that identifies the cluster in alerts has this value in place of the spoke's name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClusterLabel string `json:"clusterLabel,omitempty"`

	// service is the Service through which Rulefleet reaches the HTTP API of the Prometheus or ThanosRuler,
	// as scheme:name:port. It is in the namespace of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Service string `json:"service,omitempty"`

	// routePrefix is the path under which the Prometheus or ThanosRuler serves its HTTP API.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	RoutePrefix string `json:"routePrefix,omitempty"`

	// message describes a problem of the object, or what it lacks.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}
