package main

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/distribute"
	"github.com/rulefleet/rulefleet/pkg/controller/generate"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/controller/membership"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// rulesOfSpokes gives package membership access to AlertRules. They are in different packages, and neither
// imports the other.
type rulesOfSpokes struct {
	hub         client.Reader
	guard       hub.Guard
	generator   *generate.Reconciler
	distributor *distribute.Reconciler
}

var _ membership.Rules = &rulesOfSpokes{}

// Served implements membership.Rules.
func (r *rulesOfSpokes) Served(ctx context.Context) (bool, error) {
	return r.guard.Served(ctx) //nolint:wrapcheck // it has all details
}

// Forgotten implements membership.Rules.
func (r *rulesOfSpokes) Forgotten(ctx context.Context, registered time.Time) (bool, error) {
	kind, _, err := r.guard.Kinds.Defined(ctx, hub.SpokeClusters)
	return kind.Anew && !registered.After(kind.Since), err //nolint:wrapcheck // it has all details
}

// Generated implements membership.Rules.
func (r *rulesOfSpokes) Generated(ctx context.Context, name string) ([]v1alpha1.AlertRule, error) {
	return hub.GeneratedOn(ctx, r.hub, name) //nolint:wrapcheck // it has all details
}

// Placed implements membership.Rules.
func (r *rulesOfSpokes) Placed(ctx context.Context, name string) ([]string, error) {
	cluster, err := hub.Cluster(ctx, r.hub, name)
	if err != nil {
		return nil, fmt.Errorf("listing the AlertRules of spoke %s: %w", name, err)
	}
	if cluster == nil {
		cluster = &rule.Cluster{Name: name}
	}
	rules, err := hub.RulesOn(ctx, r.hub, *cluster)
	if err != nil {
		return nil, fmt.Errorf("listing the AlertRules of spoke %s: %w", name, err)
	}
	var out []string
	for _, source := range rules {
		out = append(out, rule.KeyOf(source).Listed())
	}
	return out, nil
}

// Doomed implements membership.Rules.
func (r *rulesOfSpokes) Doomed(ctx context.Context, name string) (rules []string, known bool) {
	return r.distributor.Doomed(ctx, name)
}

// Lacking implements membership.Rules.
func (r *rulesOfSpokes) Lacking(name string) (n int, namespace string) {
	return r.generator.Lacking(name)
}
