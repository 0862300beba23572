package hub

import (
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// replaced passes the update by which another object takes the place of one of the same name.
// After an interruption, that is all that is seen of a deletion and of what came after it, and
// the generations of the two may be the same.
var replaced = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() },
}

// Edited passes updates of the spec, and another object of the same name.
var Edited = predicate.Or(predicate.GenerationChangedPredicate{}, replaced)

// Decided passes what people decide about a spoke: its spec and its labels.
var Decided = predicate.Or(predicate.LabelChangedPredicate{}, Edited)
