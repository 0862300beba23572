package distribute

import (
	"context"
	"fmt"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// place gives the desired PrometheusRule the name of the existing object of a former hub, which was adopted or
// will be.
func (r *Reconciler) place(ctx context.Context, t *task) error {
	for _, o := range t.claimed {
		name, adopted := rule.AdoptedName(o, t.req.NamespacedName)
		if adopted && o.Namespace == t.desired.Namespace && rule.Owned(o, r.Render.HubID) {
			t.desired.Name = name
			return nil
		}
	}
	for _, former := range t.cluster.AdoptHubIDs {
		if former == r.Render.HubID {
			continue
		}
		o, err := r.formers(ctx, t, former)
		if err != nil {
			return err
		}
		if o != nil {
			t.desired.Name, t.adopting = o.Name, o
			return nil
		}
	}
	return nil
}

// formers returns a former hub's object for an AlertRule, or nil. It looks in the cache first, and then reads
// the object from the spoke, because an update sends it back whole.
func (r *Reconciler) formers(ctx context.Context, t *task, former string) (*monitoringv1.PrometheusRule, error) {
	key := client.ObjectKey{Namespace: t.desired.Namespace, Name: rule.ObjectName(former, t.req.Namespace, t.req.Name)}
	cached := &monitoringv1.PrometheusRule{}
	err := t.spoke.Reader.Get(ctx, key, cached)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading PrometheusRule %s: %w", key, err)
	case !rule.Adopts(cached, former, t.req.NamespacedName):
		return nil, nil
	}
	ctx, cancel := t.spoke.Patient(ctx)
	defer cancel()
	o, err := t.spoke.Rules.MonitoringV1().PrometheusRules(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case spoke.Absent(err, monitoringv1.PrometheusRuleName, key.Name):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading PrometheusRule %s to adopt it from hub %s: %w", key, former, err)
	case !rule.Adopts(o, former, t.req.NamespacedName) || o.DeletionTimestamp != nil:
		return nil, nil
	}
	return o, nil
}
