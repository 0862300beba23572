package hub

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Kind is one of our kinds, as the guard looks it up.
type Kind struct {
	kind, crd string
}

// The kinds whose absence lets something be deleted.
var (
	AlertRules         = Kind{kind: "AlertRule", crd: "alertrules." + v1alpha1.Group}
	AlertRuleTemplates = Kind{kind: "AlertRuleTemplate", crd: "alertruletemplates." + v1alpha1.Group}
	SpokeClusters      = Kind{kind: "SpokeCluster", crd: "spokeclusters." + v1alpha1.Group}
)

// object returns an object of a kind, with nothing in it.
func (k Kind) object() client.Object {
	switch k {
	case AlertRules:
		return &v1alpha1.AlertRule{}
	case AlertRuleTemplates:
		return &v1alpha1.AlertRuleTemplate{}
	default:
		return &v1alpha1.SpokeCluster{}
	}
}

var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// Guard stands before every deletion that follows from an object's absence.
type Guard struct {
	// Reader reads the hub's API server, past the cache.
	Reader client.Reader
	// Live does so, too, and reads an object once a second at most.
	Live *Live
}

// Gone tells whether an object that the cache does not have is really gone, because
// somebody deleted it. It is not, for what may be deleted, when its
// CustomResourceDefinition is absent or terminating: then all objects of the kind
// vanish with it, which is nobody's decision about any of them (DESIGN §3.11).
//
// The order matters: the definition is marked before the first of its objects goes,
// so a definition that is well after the object was found gone had no part in it. For that
// reason the definition is read each time, and never remembered.
//
// reader reads past the cache. since is when the definition was made. What was made for the object before that has
// survived a loss of the whole kind: then it may be a backup that lacks the object.
func (g Guard) Gone(ctx context.Context, reader Getter, k Kind, key client.ObjectKey) (gone bool, since time.Time, err error) {
	switch err := reader.Get(ctx, key, k.object()); {
	case err == nil:
		return false, time.Time{}, nil
	case !apierrors.IsNotFound(err):
		return false, time.Time{}, fmt.Errorf("making sure that %s %s is gone: %w", k.kind, key, err)
	}
	return g.served(ctx, k)
}

// Since returns when a kind was defined, or zero where it is not.
func (g Guard) Since(ctx context.Context, k Kind) (time.Time, error) {
	_, since, err := g.served(ctx, k)
	return since, err
}

// Served tells whether the hub serves all of the operator's kinds, and none of them is
// being deleted: what is deleted meanwhile may be deleted with its kind.
func (g Guard) Served(ctx context.Context) (bool, error) {
	for _, k := range []Kind{AlertRules, AlertRuleTemplates, SpokeClusters} {
		if served, _, err := g.served(ctx, k); err != nil || !served {
			return false, err
		}
	}
	return true, nil
}

// served tells whether a kind is there to stay, and since when.
func (g Guard) served(ctx context.Context, k Kind) (served bool, since time.Time, err error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(crdKind)
	err = g.Reader.Get(ctx, client.ObjectKey{Name: k.crd}, crd)
	switch {
	case apierrors.IsNotFound(err):
		return false, time.Time{}, nil
	case err != nil:
		return false, time.Time{}, fmt.Errorf("reading CustomResourceDefinition %s: %w", k.crd, err)
	}
	return crd.DeletionTimestamp.IsZero(), crd.CreationTimestamp.Time, nil
}
