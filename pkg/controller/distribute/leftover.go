package distribute

import (
	"context"
	"fmt"
	"strings"
	"sync"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// leftovers remembers why spokes do not delete objects, so that their rules are not reported as removed. The zero
// value is ready to use.
type leftovers struct {
	mu   sync.Mutex
	rows map[mcreconcile.Request]v1alpha1.ClusterStatus
}

// of returns the row of a rule of which something could not be deleted.
func (l *leftovers) of(req mcreconcile.Request) (row v1alpha1.ClusterStatus, found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	row, found = l.rows[req]
	return row, found
}

// set remembers a row. Other words for the same reason are not news: a spoke could change them with each attempt.
func (l *leftovers) set(req mcreconcile.Request, row v1alpha1.ClusterStatus) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if was, known := l.rows[req]; known && was.Reason == row.Reason && was.Rule == row.Rule {
		return
	}
	if l.rows == nil {
		l.rows = map[mcreconcile.Request]v1alpha1.ClusterStatus{}
	}
	l.rows[req] = row
}

// in returns the AlertRules of which something could not be deleted in a spoke.
func (l *leftovers) in(name string) (keys []types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for req := range l.rows {
		if req.ClusterName.String() == name {
			keys = append(keys, req.NamespacedName)
		}
	}
	return keys
}

func (l *leftovers) forget(req mcreconcile.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.rows, req)
}

// noteTerminating remembers an object that is being deleted, but that finalizers keep. Prometheus still loads it. If
// nothing is to be deleted, nothing else is left.
func (r *Reconciler) noteTerminating(t *task, plan delivery.Plan) {
	for _, o := range t.claimed {
		if o.DeletionTimestamp != nil && rule.Owned(o, r.Render.HubID) {
			r.leftovers.set(t.req, leftoverRow(t, o, v1alpha1.ReasonError, fmt.Sprintf(
				"PrometheusRule %s is being deleted in the spoke, but its finalizers keep it (%s). Find out which controller set them, and why it does not remove them",
				hub.Key(o), strings.Join(o.Finalizers, ", "))))
			return
		}
	}
	if len(plan.Delete) == 0 {
		r.leftovers.forget(t.req)
	}
}

func leftoverRow(t *task, o *monitoringv1.PrometheusRule, reason, message string) v1alpha1.ClusterStatus {
	return v1alpha1.ClusterStatus{
		Name: v1alpha1.ClusterName(t.spoke.Name), Phase: v1alpha1.PhasePending, Reason: reason, Rule: hub.Key(o).String(), Message: clip(message),
	}
}

// unremoved handles a deletion that failed: it reports the reason and returns when to retry.
func (r *Reconciler) unremoved(ctx context.Context, t *task, o *monitoringv1.PrometheusRule, err error) (reconcile.Result, error) {
	reason, retry := verdict(err)
	err = fmt.Errorf("deleting PrometheusRule %s: %w", hub.Key(o), err)
	switch reason {
	case v1alpha1.ReasonUnreachable:
		return reconcile.Result{}, err // the spoke's own condition shows it
	case "": // no answer to a deletion
		reason, retry = v1alpha1.ReasonError, 0
	}
	r.leftovers.set(t.req, leftoverRow(t, o, reason, "the spoke still has a rule that is to be removed: "+explain(reason, err)))
	if !t.mutated { // otherwise that is reported
		r.report(ctx, t, v1alpha1.PhaseApplied, "", "")
	}
	if retry == 0 {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: r.Intervals.Of(retry), Priority: new(queue.Behind)}, nil
}

// absent reports whether an answer says that an object does not exist. Another 404 comes from something other than
// the API of PrometheusRules, such as a proxy.
func absent(err error) bool {
	if !apierrors.IsNotFound(err) {
		return false
	}
	reason, _ := verdict(err)
	return reason == ""
}
