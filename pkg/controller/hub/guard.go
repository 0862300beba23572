package hub

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// Kind is one of the operator's kinds.
type Kind struct {
	kind, crd string
}

// The kinds whose absence causes deletions.
var (
	AlertRules         = Kind{kind: v1alpha1.AlertRuleKind, crd: "alertrules." + v1alpha1.Group}
	RulePacks          = Kind{kind: v1alpha1.RulePackKind, crd: "rulepacks." + v1alpha1.Group}
	AlertRuleTemplates = Kind{kind: "AlertRuleTemplate", crd: "alertruletemplates." + v1alpha1.Group}
	SpokeClusters      = Kind{kind: "SpokeCluster", crd: "spokeclusters." + v1alpha1.Group}

	kinds       = []Kind{AlertRules, RulePacks, AlertRuleTemplates, SpokeClusters}
	sourceKinds = []Kind{AlertRules, RulePacks}
)

// KindOf returns the kind of a source.
func KindOf(key rule.Key) Kind {
	return kinds[slices.IndexFunc(kinds, func(k Kind) bool { return k.kind == key.Kind })]
}

// Object returns an empty object of a kind.
func (k Kind) Object() client.Object {
	switch k {
	case AlertRules:
		return &v1alpha1.AlertRule{}
	case RulePacks:
		return &v1alpha1.RulePack{}
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

// Guard confirms absences before anything is deleted because of them.
type Guard struct {
	// Live reads from the hub's API server, each object at most once a second.
	Live *live.Reader
	// Kinds reports when the kinds were defined.
	Kinds *Kinds
}

// Gone reports whether an object that the cache lacks was really deleted. It was not if its
// CustomResourceDefinition is absent or terminating, because then all objects of the kind vanish without a
// decision about each.
//
// The order matters: the definition is marked before the first of its objects is deleted. So a definition that
// is well after the object was found gone is not the cause.
//
// reader reads from the API server. defined says when the kind was defined. An object that was created for
// this one before that has survived a loss of the whole kind; then the absence may be due to an incomplete
// backup.
func (g Guard) Gone(ctx context.Context, reader Getter, k Kind, key client.ObjectKey) (gone bool, defined Defined, err error) {
	switch err := reader.Get(ctx, key, k.Object()); {
	case err == nil:
		return false, Defined{}, nil
	case !apierrors.IsNotFound(err):
		return false, Defined{}, fmt.Errorf("confirming that %s %s is gone: %w", k.kind, key, err)
	}
	defined, gone, err = g.Kinds.Defined(ctx, k)
	return gone, defined, err
}

// Served reports whether the hub serves all of the operator's kinds and none of them is being deleted, because
// then objects may be deleted with their kind.
func (g Guard) Served(ctx context.Context) (bool, error) {
	return g.Kinds.Learn(ctx)
}
