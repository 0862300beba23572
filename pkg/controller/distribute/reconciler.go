// Package distribute pushes sources of rules, as PrometheusRules, to the spokes where they are placed, and removes
// them. The kinds of sources are AlertRule and RulePack.
//
// It reconciles one source on one spoke at a time, so that a bad rule or a bad spoke does not delay others: it
// observes what should be in the spoke and what is there, decides what to do, acts, and reports. The decision follows
// from the caches of the hub and the spoke. When nothing differs, no request is sent.
package distribute

import (
	"context"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/controller/expect"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/metrics"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// Spokes are the engaged spokes.
type Spokes interface {
	// Spoke returns an engaged spoke, or nil.
	Spoke(name string) *spoke.Spoke
	// Spokes returns all engaged spokes.
	Spokes() []*spoke.Spoke
	// Predecessors returns the spokes that an engaged spoke took over from: those without a Secret that are the
	// same cluster.
	Predecessors(name string) []string
	// Successor returns the engaged spoke that is the same cluster as another spoke, or "".
	Successor(name string) string
	// Away reports whether an engaged spoke does not answer at present.
	Away(name string) bool
	// AwaySince reports whether an engaged spoke has been away at any time since then.
	AwaySince(name string, since time.Time) bool
	// ChangedSoon requests an update of a spoke's status.
	ChangedSoon(name string)
	// Evaluators returns the Prometheus and ThanosRuler objects of a spoke as last read.
	Evaluators(name string) spoke.Evaluators
}

// Evaluations reports what the evaluators of spokes say about rules.
type Evaluations interface {
	// Of returns what an evaluator says about this hub's PrometheusRule in a spoke.
	Of(spoke string, e *rule.Evaluator, o *monitoringv1.PrometheusRule) evaluation.State
	// News passes on the AlertRules whose evaluation in a spoke changed.
	News() *queue.Feed[[]queue.Request]
}

// Reporter receives verdicts: the state of a rule in a spoke.
type Reporter interface {
	// Report records the latest verdict of the source with a UID in the row's spoke.
	Report(key rule.Key, of types.UID, row v1alpha1.ClusterStatus)
	// Leftover records that the row's spoke still has a rule that does not belong there, and why.
	Leftover(key rule.Key, row v1alpha1.ClusterStatus)
	// Forget drops the verdict, because the rule does not belong in that spoke and is not there.
	Forget(key rule.Key, spoke string)
}

// Options are the options of the Reconciler.
type Options struct {
	// Hub reads the hub's cache.
	Hub client.Reader
	// Guard confirms that an absent AlertRule was deleted.
	Guard hub.Guard
	// Witness remembers changes that were seen on the hub.
	Witness *hub.Witness
	// Spokes are the engaged spokes.
	Spokes Spokes
	// Brake holds mass deletions.
	Brake *brake.Brake
	// Reporter receives the verdicts.
	Reporter Reporter
	// Evaluations reports whether rules are evaluated.
	Evaluations Evaluations
	// Contests slows down writes that another client reverts.
	Contests *contest.Writes
	// Intervals scales the retry intervals.
	Intervals interval.Scale
	// Propagation measures the latency of changes.
	Propagation *metrics.Propagation
	// Generated is the hub's namespace of generated AlertRules.
	Generated string
	// MaxObjects is how many objects of a kind a spoke can have; 0 means spoke.DefaultMaxObjects.
	MaxObjects int
	// Render has the options for rendering rules.
	Render delivery.Options
	// Validator validates rules.
	Validator *validation.Validator
	// Tenants finds the tenants of rules; nil means that spokes take the rules of all.
	Tenants *hub.Tenants
	// Places reports which rules wait because of the limit of their namespace; it may be nil.
	Places *hub.Places
	// Changed is called when a source's status has to be updated; it may be nil.
	Changed func(rule.Key)
}

// Reconciler pushes one source to one spoke.
type Reconciler struct {
	Options

	writes *expect.Writes[objectKey]
	notes  notes

	// replays limits how often the rules in a changed namespace are enqueued.
	replays spoke.Replays

	lives hub.Lives
	// evaluators passes on the spokes whose evaluators changed.
	evaluators queue.Feed[string]
}

// objectKey is a PrometheusRule in a spoke.
type objectKey struct {
	spoke string
	types.NamespacedName
}

// NewReconciler returns a Reconciler.
func NewReconciler(o Options) *Reconciler {
	return &Reconciler{
		Options: o, writes: expect.New[objectKey](clock.RealClock{}), notes: newNotes(),
		replays: spoke.Replays{Burst: o.MaxObjects},
	}
}

// outcome is the result of a step: what to report, and when to reconcile again.
type outcome struct {
	reconcile.Result

	verdict verdict
}

// after returns an outcome without news: reconcile again after a time, or not if it is 0.
func after(wait time.Duration) outcome {
	return outcome{Result: reconcile.Result{RequeueAfter: wait}}
}

// Reconcile reconciles one source on one spoke.
func (r *Reconciler) Reconcile(ctx context.Context, req queue.Request) (reconcile.Result, error) {
	o := &observation{req: req, spoke: r.Spokes.Spoke(req.ClusterName.String())}
	out, complete, err := r.observe(ctx, o)
	if complete {
		out, err = r.act(ctx, o, decide(o, r.Render.HubID))
	}
	r.report(ctx, o, out.verdict)
	if err != nil {
		return out.Result, err
	}
	if out.RequeueAfter == 0 {
		r.Propagation.RuleDone(req.ClusterName.String(), o.key())
	}
	_, again := r.contested(req)
	out.RequeueAfter = interval.Soonest(out.RequeueAfter, again)
	return out.Result, nil
}

// decide compares what should be in the spoke with what is there.
func decide(o *observation, hubID string) delivery.Plan {
	plan := delivery.Decide(o.desired, o.existing, o.claimed, hubID, o.answer)
	if o.adopting != nil {
		plan = delivery.Adopt(o.adopting, o.desired, o.claimed, hubID)
	}
	if o.cluster.Suspended || o.source != nil && o.source.Suspended() {
		plan = plan.Suspend()
	}
	if o.inherited {
		plan.Delete = nil
	}
	return plan
}
