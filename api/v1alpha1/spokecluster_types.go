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

// SpokeClusterSpec is what people decide about a spoke. It has no field in this
// version: the object and its labels are the decision.
type SpokeClusterSpec struct{}

// SpokeClusterStatus is what the operator sees of a spoke.
type SpokeClusterStatus struct {
	// observedGeneration is the generation of the spec that this status tells of; -1
	// is none, as long as the operator has not seen the object.
	// +optional
	// +kubebuilder:validation:Minimum=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Connected (the spoke's API server answers, and what has to
	// be read there can be), PrometheusRuleServed (it serves PrometheusRules) and
	// Ready (both, and no deletion is held).
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

	// pendingDeletions is what is held of the deletions that are due for this spoke. It
	// is absent when nothing is.
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

	// names are the AlertRules concerned, as namespace/name: the first 50 of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=317
	Names []string `json:"names,omitempty"`
}
