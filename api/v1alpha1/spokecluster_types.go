package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SpokeCluster is the membership of one spoke. The operator creates it once for a
// registered Secret of the same name and never writes its spec again; GitOps may
// create it first. Its labels are what placement selects on.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:resource:scope=Cluster,shortName=spoke;spokes,categories=rulefleet
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.kubernetesVersion`
// +kubebuilder:printcolumn:name="Deployments",type=integer,JSONPath=`.status.deployments`
// +kubebuilder:printcolumn:name="Rules",type=integer,JSONPath=`.status.rules`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SpokeCluster struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the object's metadata. Its labels are what placement selects on.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what people decide about the spoke.
	// +optional
	Spec SpokeClusterSpec `json:"spec,omitzero"`

	// status is what the operator sees of the spoke.
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

// SpokeClusterSpec is what people decide about a spoke. The operator never writes it.
type SpokeClusterSpec struct {
	// suspend stops all writes to the spoke: nothing is made, changed or removed there,
	// not even when the SpokeCluster is deleted. The hub goes on following it.
	// +optional
	Suspend *bool `json:"suspend,omitempty"` //nolint:apiconventions // as in Jobs and Flux: there is no third way

	// deletionPolicy says what becomes of the rules in the spoke when the SpokeCluster is
	// deleted: Delete removes them, as far as the spoke can be reached in time, Orphan
	// leaves them.
	// +optional
	// +default="Delete"
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// evaluatorRefs name the Prometheus and ThanosRulers of the spoke that evaluate the rules:
	// the labels that their selectors need are put on every PrometheusRule, and a rule is at its
	// top only when all of them evaluate it. Without any, the operator chooses the one that the
	// spoke has and keeps that choice; where the spoke has several from the start, it
	// chooses none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	EvaluatorRefs []EvaluatorReference `json:"evaluatorRefs,omitempty"`

	// ruleLabels are put on every PrometheusRule in the spoke, for the ruleSelector of a
	// Prometheus to match, such as release: monitoring. They are labels of the object, not
	// of the alert. Those that the selectors of the spoke's Prometheus need are put there
	// without this; what is given here wins over them.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="a name is no label's: letters, digits, -, _ and . of at most 63 characters, after a domain and / if need be"
	// +kubebuilder:validation:XValidation:rule="self.all(k, self[k].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'))",message="a value is no label's: letters and digits, with -, _ or . between them"
	// +kubebuilder:validation:XValidation:rule="self.all(k, k != 'app.kubernetes.io/managed-by' && !k.startsWith('rulefleet.io/'))",message="app.kubernetes.io/managed-by and labels of rulefleet.io are the operator's own"
	RuleLabels map[string]RuleLabelValue `json:"ruleLabels,omitempty"`

	// maxRules bounds the AlertRules that templates make for Deployments of the spoke, so
	// that no spoke can flood the hub. At the limit, those that exist stay, and no other
	// is made.
	// +optional
	// +default=10000
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	MaxRules *int32 `json:"maxRules,omitempty"`

	// adoptHubIDs are the ids of former hubs whose PrometheusRules in the spoke this hub
	// takes over: those that stand for an AlertRule of the same namespace and name here
	// become its own. Make sure that the former hub writes no more.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	AdoptHubIDs []HubID `json:"adoptHubIDs,omitempty"`
}

// DeletionPolicy says what becomes of a spoke's rules when it leaves.
// +kubebuilder:validation:Enum=Delete;Orphan
type DeletionPolicy string

const (
	// DeletionPolicyDelete removes them. It is the default.
	DeletionPolicyDelete DeletionPolicy = "Delete"
	// DeletionPolicyOrphan leaves them.
	DeletionPolicyOrphan DeletionPolicy = "Orphan"
)

// RuleLabelValue is the value of a label.
// +kubebuilder:validation:MaxLength=63
type RuleLabelValue string

// HubID is the id of a hub, a label's value.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
type HubID string

// EvaluatorReference names what evaluates rules in a spoke.
type EvaluatorReference struct {
	// kind is Prometheus or ThanosRuler.
	// +required
	// +kubebuilder:validation:Enum=Prometheus;ThanosRuler
	Kind string `json:"kind,omitempty"`

	// namespace is that of the object in the spoke.
	// +required
	Namespace NamespaceName `json:"namespace,omitempty"`

	// name is that of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// url is where the hub asks it directly, such as https://prometheus.eu-1.example.com. It is
	// everything before /api/v1, and holds no credential. Without it, it is asked through
	// the spoke's API server, which takes the permission to get services/proxy.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@\s]+(/[^?#@\s]*)?$`
	URL string `json:"url,omitempty"`
}

// SpokeClusterStatus is what the operator sees of a spoke.
type SpokeClusterStatus struct {
	// observedGeneration is the generation of the spec that this status tells of; -1
	// is none, as long as the operator has not seen the object.
	// +optional
	// +kubebuilder:validation:Minimum=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Connected (the spoke's API server answers, and what has to
	// be read there can be), PrometheusRuleServed (it serves PrometheusRules),
	// EvaluatorsFound (it has a Prometheus to evaluate them), Evaluating (which answers),
	// MetricsPresent (and has kube-state-metrics' metrics, if they are needed) and Ready (the first
	// two, and the spoke can be served as it should be).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// kubernetesVersion is the version that the spoke's API server last gave.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// identity is the UID of the spoke's namespace kube-system, which is the
	// cluster's identity.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Identity string `json:"identity,omitempty"`

	// identityTime is when the spoke was last found to be another cluster than before, or
	// was confirmed to be this one, or when its identity was read again after it was lost with
	// the kind SpokeCluster. For as long as --deletion-hold says from then on, also after a
	// restart of the operator, every deletion in the spoke is held. It is absent for a spoke
	// that always was this cluster.
	// +optional
	IdentityTime metav1.Time `json:"identityTime,omitzero"`

	// deployments is the number of Deployments in the spoke. It follows within a
	// minute or so.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Deployments *int32 `json:"deployments,omitempty"`

	// rules is the number of this hub's PrometheusRules in the spoke. It follows
	// within a minute or so.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Rules *int32 `json:"rules,omitempty"`

	// evaluators are the Prometheus and ThanosRulers that are chosen to evaluate the rules. They
	// are the record of that choice, which others in the spoke don't change. Where none is
	// chosen, or one that spec.evaluatorRefs names is missing, those that could be
	// chosen are listed as well, by name alone: the first 16 of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Evaluators []Evaluator `json:"evaluators,omitempty"`

	// pendingDeletions is what still has to be removed from the spoke, and is not, because
	// it can't be reached, is suspended or leaves, or because the deletions are held. It is
	// absent when there is nothing.
	// +optional
	PendingDeletions *PendingDeletions `json:"pendingDeletions,omitempty"`

	// lastContactTime is when the spoke last answered before the last transition
	// of Connected. It is no heartbeat.
	// +optional
	LastContactTime metav1.Time `json:"lastContactTime,omitzero"`
}

// PendingDeletions are the rules of a spoke that are to be deleted and still are there.
type PendingDeletions struct {
	// count is the number of rules.
	// +required
	// +kubebuilder:validation:Minimum=0
	Count int32 `json:"count"`

	// held is how many of them wait because so many are to be deleted at once, or because
	// they are suspect.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Held int32 `json:"held,omitempty"`

	// suspect is how many of those held wait until they are acknowledged, however long: what
	// they follow from may have been lost, because the rules are older than the kind or the
	// SpokeCluster that they depend on.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Suspect int32 `json:"suspect,omitempty"`

	// names are the AlertRules concerned, as namespace/name: the first 50 of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=317
	Names []string `json:"names,omitempty"`
}

// Evaluator is a Prometheus or ThanosRuler of a spoke, and what a PrometheusRule needs for it.
type Evaluator struct {
	// kind is Prometheus or ThanosRuler.
	// +required
	// +kubebuilder:validation:Enum=Prometheus;ThanosRuler
	Kind string `json:"kind,omitempty"`

	// namespace is that of the object in the spoke.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// name is that of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// chosen tells whether it is one of those that are to evaluate the rules.
	// +optional
	Chosen bool `json:"chosen,omitempty"` //nolint:apiconventions // a plain fact, as in a Pod's containerStatuses

	// missingTime is when a chosen one was first found to be gone. It stays chosen, as it was
	// last seen, for 5 minutes.
	// +optional
	MissingTime metav1.Time `json:"missingTime,omitzero"`

	// version is Prometheus' or Thanos' own.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version,omitempty"`

	// features are what --enable-feature names: the first 32 of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	Features []string `json:"features,omitempty"`

	// ruleSelector is which PrometheusRules it takes, by their labels. Where it is absent, it
	// takes none.
	// +optional
	RuleSelector *metav1.LabelSelector `json:"ruleSelector,omitempty"`

	// ruleNamespaceSelector is from which namespaces it takes them, by the namespaces'
	// labels. Where it is absent, from its own alone.
	// +optional
	RuleNamespaceSelector *metav1.LabelSelector `json:"ruleNamespaceSelector,omitempty"`

	// enforcedNamespaceLabel is the label by which it confines every PrometheusRule to the
	// metrics of the PrometheusRule's own namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	EnforcedNamespaceLabel string `json:"enforcedNamespaceLabel,omitempty"`

	// excludedFromEnforcement are the PrometheusRules that are not confined, as namespace/name
	// or, for all of a namespace, namespace/*: the first 64 of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=317
	ExcludedFromEnforcement []string `json:"excludedFromEnforcement,omitempty"`

	// namespaces are those that prometheus-operator takes PrometheusRules from at all
	// (--namespaces), and deniedNamespaces those that it does not (--deny-namespaces), as far as
	// can be seen: the first 64 of them. Where both are absent, it is all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`

	// deniedNamespaces are explained there.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	DeniedNamespaces []string `json:"deniedNamespaces,omitempty"`

	// clusterLabel is its external label cluster, which alerts carry then in place of the
	// spoke's name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClusterLabel string `json:"clusterLabel,omitempty"`

	// service is how its API is reached in its namespace, as scheme:name:port.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Service string `json:"service,omitempty"`

	// routePrefix is the path that its API is served under.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	RoutePrefix string `json:"routePrefix,omitempty"`

	// message says what is wrong with it, or what it lacks.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}
