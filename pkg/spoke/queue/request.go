package queue

import (
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// Request is a key of a controller that works on spokes: an object, by its kind and name, and a spoke. Objects of two
// kinds with the same name are different keys.
type Request struct {
	reconcile.Request

	Kind        string
	ClusterName multicluster.ClusterName
}

// Cluster returns the name of the spoke.
func (r Request) Cluster() multicluster.ClusterName { return r.ClusterName }

// WithCluster returns the key of the same object in another spoke.
func (r Request) WithCluster(name multicluster.ClusterName) Request {
	r.ClusterName = name
	return r
}

// String returns the key as errors show it.
func (r Request) String() string {
	return r.Kind + " " + r.Request.String() + " in " + r.ClusterName.String()
}
