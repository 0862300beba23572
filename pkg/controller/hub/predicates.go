package hub

import (
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// replaced passes an update by which another object replaces one of the same name. After an interruption, a
// deletion and a creation arrive as one such update, and the generations may be equal.
var replaced = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() },
}

// Edited passes updates of the spec, and replacements of an object.
var Edited = predicate.Or(predicate.GenerationChangedPredicate{}, replaced)

// Decided passes changes that people make to a spoke: its spec and its labels.
var Decided = predicate.Or(predicate.LabelChangedPredicate{}, Edited)
