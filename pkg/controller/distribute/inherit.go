package distribute

import (
	"context"
	"fmt"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// successorRetry is when to check again whether a rule of a spoke's predecessor has a successor, because no
// event of the successor leads there.
const successorRetry = 5 * time.Second

// inherit handles deletions of rules that are not placed on the spoke but were placed on its predecessor: the
// same cluster under another name, whose Secret is gone. Renaming a Secret must not remove alerts. Rules that
// a template generated for the predecessor are deleted when their successors are in the spoke. Others stay
// until the predecessor's SpokeCluster is deleted or the placement changes. A wait other than 0 is when to
// check again; until then there is nothing to do.
func (r *Reconciler) inherit(ctx context.Context, o *observation, reader hub.Getter) (time.Duration, error) {
	if o.source == nil || o.desired != nil || len(decide(o, r.Render.HubID).Delete) == 0 {
		return 0, nil
	}
	for _, former := range r.Spokes.Predecessors(o.spoke.Name) {
		// Wait for changes of its SpokeCluster, and before reading, to not miss an event in between.
		news := namespaceKey{spoke: former}
		r.notes.wait(news, o.req)
		c, err := hub.Cluster(ctx, reader, former)
		if err != nil {
			return 0, err
		}
		placed := false
		if c != nil {
			known, err := r.ask(ctx, reader, o.req.Namespace, c)
			if err != nil || !known {
				return r.Intervals.Of(successorRetry), err
			}
			placed, _ = rule.PlacedIn(o.source, *c) // an invalid placement is left to Validate, which stops before this
		}
		if !placed {
			r.notes.unwait(news, o.req)
			continue
		}
		if !hub.Generated(o.source) {
			o.inherited = true
			return 0, nil
		}
		o.successor, err = r.successor(ctx, o, reader)
		if err != nil || o.successor == nil {
			return r.Intervals.Of(successorRetry), err
		}
		return 0, nil
	}
	return 0, nil
}

// successor returns the spoke's PrometheusRule of the AlertRule that the same template generates for the same
// workload under the spoke's present name, or nil. It finds the AlertRule in the caches, and uses reader to
// check that it exists.
func (r *Reconciler) successor(ctx context.Context, o *observation, reader hub.Getter) (*monitoringv1.PrometheusRule, error) {
	w := o.source.GetWorkloadRef()
	rules, err := hub.GeneratedFor(ctx, r.Hub, o.spoke.Name, rule.WorkloadKey(w))
	if err != nil {
		return nil, fmt.Errorf("finding the successor of %s: %w", o.key(), err)
	}
	for i := range rules {
		key := rule.KeyOf(&rules[i])
		if rules[i].Labels[v1alpha1.TemplateLabel] != o.source.GetLabels()[v1alpha1.TemplateLabel] {
			continue
		}
		var there monitoringv1.PrometheusRuleList
		if err := o.spoke.Reader.List(ctx, &there, client.MatchingFields{ruleIndex: key.Listed()}); err != nil {
			return nil, fmt.Errorf("listing the PrometheusRules of %s: %w", key, err)
		}
		src, err := hub.Source(ctx, reader, key)
		if err != nil || src == nil || !src.GetDeletionTimestamp().IsZero() || len(there.Items) == 0 {
			return nil, err
		}
		return &there.Items[0], nil
	}
	return nil, nil
}

// stands reports whether the spoke's API server still has the successor of what is to be deleted.
func (r *Reconciler) stands(ctx context.Context, o *observation) (bool, error) {
	if o.successor == nil {
		return true, nil
	}
	p, key := &monitoringv1.PrometheusRule{}, hub.Key(o.successor)
	switch err := o.spoke.Live.Get(ctx, key, p); {
	case spoke.Absent(err, monitoringv1.PrometheusRuleName, key.Name):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading PrometheusRule %s, the replacement: %w", key, err)
	}
	return p.UID == o.successor.UID && p.DeletionTimestamp.IsZero(), nil
}

// place gives the desired PrometheusRule the name of the existing object of a former hub, which was adopted or
// will be.
func (r *Reconciler) place(ctx context.Context, o *observation) error {
	for _, p := range o.claimed {
		name, adopted := rule.AdoptedName(p, o.key())
		if adopted && p.Namespace == o.desired.Namespace && rule.Owned(p, r.Render.HubID) {
			o.desired.Name = name
			return nil
		}
	}
	for _, former := range o.cluster.AdoptHubIDs {
		if former == r.Render.HubID {
			continue
		}
		p, err := r.formers(ctx, o, former)
		if err != nil {
			return err
		}
		if p != nil {
			o.desired.Name, o.adopting = p.Name, p
			return nil
		}
	}
	return nil
}

// formers returns a former hub's object for a source, or nil. It looks in the cache first, and then reads
// the object from the spoke, because an update sends it back whole.
func (r *Reconciler) formers(ctx context.Context, o *observation, former string) (*monitoringv1.PrometheusRule, error) {
	key := client.ObjectKey{Namespace: o.desired.Namespace, Name: rule.ObjectName(former, o.key())}
	cached := &monitoringv1.PrometheusRule{}
	err := o.spoke.Reader.Get(ctx, key, cached)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading PrometheusRule %s: %w", key, err)
	case !rule.Adopts(cached, former, o.key()):
		return nil, nil
	}
	ctx, cancel := o.spoke.Patient(ctx)
	defer cancel()
	p, err := o.spoke.Rules.MonitoringV1().PrometheusRules(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case spoke.Absent(err, monitoringv1.PrometheusRuleName, key.Name):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading PrometheusRule %s to adopt it from hub %s: %w", key, former, err)
	case !rule.Adopts(p, former, o.key()) || p.DeletionTimestamp != nil:
		return nil, nil
	}
	return p, nil
}
