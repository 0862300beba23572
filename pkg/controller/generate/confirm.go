package generate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// confirmed returns the doomed AlertRules of a workload that are to be deleted, and when to check again, or
// 0. The spoke's cache of the workload and its namespace is not sufficient: it can be old, and a proxy, or a
// server restored without data, can answer a list with 200 and no items. So both are read from the spoke, once
// for all of the AlertRules, together with the identity of the cluster, because another cluster has other
// workloads.
func (r *Reconciler) confirmed(ctx context.Context, s *spoke.Spoke, key rule.Key, w *templating.Workload, rules []doomed) ([]doomed, time.Duration, error) {
	if w != nil {
		inSpoke := func(d doomed) bool { return d.ground != nil }
		if !slices.ContainsFunc(rules, inSpoke) {
			return rules, 0, nil
		}
	}
	if len(rules) == 0 {
		return nil, 0, nil
	}
	reader := s.Live.Reading()
	out, err := r.confirm(ctx, reader, key, w, rules)
	if err == nil && len(out) > 0 {
		bounded, cancel := s.Patient(ctx)
		defer cancel()
		err = s.Identity.Confirm(bounded)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("confirming that AlertRules of %s of spoke %s are to be deleted: %w", key, s.Name, err)
	}
	if len(out) == len(rules) {
		return out, 0, nil
	}
	return out, reader.Again(r.Intervals), nil
}

// confirm decides about doomed AlertRules with a workload and its namespace as a reader has them. If the
// workload exists only in the cache or only in the spoke, the AlertRules that it decides about stay.
func (r *Reconciler) confirm(ctx context.Context, reader *live.Reading, key rule.Key, w *templating.Workload, rules []doomed) ([]doomed, error) {
	now, err := present(ctx, reader, key)
	if err != nil {
		return nil, err
	}
	if w == nil && now == nil {
		return rules, nil
	}
	var out []doomed
	for _, d := range rules {
		switch {
		case w == nil:
		case d.ground == nil:
			out = append(out, d)
		case now != nil:
			now.Cluster = d.ground.cluster
			again, stays, err := r.judge(ctx, *d.ground, *now, d.rule)
			if err != nil {
				return nil, err
			}
			if !stays {
				out = append(out, again)
			}
		}
	}
	return out, nil
}

// present reads a workload and its namespace, bypassing the cache. It returns nil if the API server says
// that the workload does not exist.
func present(ctx context.Context, reader *live.Reading, key rule.Key) (*templating.Workload, error) {
	kind := v1alpha1.WorkloadKind(key.Kind)
	o, ns := spoke.WorkloadMetadata(kind), spoke.NamespaceMetadata()
	switch err := reader.Get(ctx, key.NamespacedName(), o); {
	case err == nil && !o.DeletionTimestamp.IsZero(), spoke.Absent(err, spoke.WorkloadResource(kind), key.Name):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the workload: %w", err)
	}
	if err := reader.Get(ctx, client.ObjectKey{Name: key.Namespace}, ns); err != nil {
		return nil, fmt.Errorf("reading namespace %s: %w", key.Namespace, err)
	}
	return workload(kind, o, ns), nil
}
