package contest

import "sigs.k8s.io/controller-runtime/pkg/client"

// Membership identifies a SpokeCluster: the fields that the operator writes, or one annotation that it removes.
func Membership(name, annotation string) Object {
	o := Object{Spoke: name, Kind: SpokeCluster, Annotation: annotation}
	o.Name = name
	return o
}

// Removal is the removal of an annotation of a SpokeCluster that the operator has acted on.
func Removal(sc client.Object, annotation string) Write {
	return Write{Object: Membership(sc.GetName(), annotation), Meant: sc.GetAnnotations()[annotation], Base: sc.GetResourceVersion()}
}
