package hub

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/live"
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

	kinds = []Kind{AlertRules, AlertRuleTemplates, SpokeClusters}
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

// Getter reads one object.
type Getter interface {
	Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error
}

// Guard stands before every deletion that follows from an object's absence.
type Guard struct {
	// Live reads the hub's API server, past the cache: an object once a second at most.
	Live *live.Reader
	// Kinds tells when the kinds were defined.
	Kinds *Kinds
}

// Gone tells whether an object that the cache does not have is really gone, because
// somebody deleted it. It is not, for what may be deleted, when its
// CustomResourceDefinition is absent or terminating: then all objects of the kind
// vanish with it, which is nobody's decision about any of them.
//
// The order matters: the definition is marked before the first of its objects goes,
// so a definition that is well after the object was found gone had no part in it.
//
// reader reads past the cache. defined is when the kind was. What was made for the object before that has
// survived a loss of the whole kind: then it may be a backup that lacks the object.
func (g Guard) Gone(ctx context.Context, reader Getter, k Kind, key client.ObjectKey) (gone bool, defined Defined, err error) {
	switch err := reader.Get(ctx, key, k.object()); {
	case err == nil:
		return false, Defined{}, nil
	case !apierrors.IsNotFound(err):
		return false, Defined{}, fmt.Errorf("confirming that %s %s is gone: %w", k.kind, key, err)
	}
	defined, gone, err = g.Kinds.Defined(ctx, k)
	return gone, defined, err
}

// Served tells whether the hub serves all of the operator's kinds, and none of them is
// being deleted: what is deleted meanwhile may be deleted with its kind.
func (g Guard) Served(ctx context.Context) (bool, error) {
	for _, k := range kinds {
		if _, served, err := g.Kinds.Defined(ctx, k); err != nil || !served {
			return false, err
		}
	}
	return true, nil
}
