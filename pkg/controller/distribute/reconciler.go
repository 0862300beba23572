// Package distribute pushes AlertRules, as PrometheusRules, to the spokes where they are placed, and removes
// them.
//
// It reconciles one AlertRule on one spoke at a time, so that a bad rule or a bad spoke does not delay others.
// delivery.Decide decides from the caches of the hub and the spoke. When nothing differs, no request is sent.
package distribute

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/controller/expect"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/live"
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
	News() *queue.Feed[[]mcreconcile.Request]
}

// Reporter receives verdicts: the state of a rule in a spoke.
type Reporter interface {
	// Report records the latest verdict of the AlertRule with a UID in the row's spoke.
	Report(key types.NamespacedName, of types.UID, row v1alpha1.ClusterStatus)
	// Leftover records that the row's spoke still has a rule that does not belong there, and why.
	Leftover(key types.NamespacedName, row v1alpha1.ClusterStatus)
	// Forget drops the verdict, because the rule does not belong in that spoke and is not there.
	Forget(key types.NamespacedName, spoke string)
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
	// Evaluations reports whether rules are evaluated; nil if that is not checked.
	Evaluations Evaluations
	// Contests slows down writes that another client reverts; nil means one for this Reconciler only.
	Contests *contest.Writes
	// Intervals scales the retry intervals.
	Intervals interval.Scale
	// Propagation measures the latency of changes; it may be nil.
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
	// Changed is called when an AlertRule's status has to be updated; it may be nil.
	Changed func(alertRule types.NamespacedName)
}

// Reconciler pushes one AlertRule to one spoke.
type Reconciler struct {
	Options

	writes  *expect.Writes[objectKey]
	waiting waiting
	hidden  hidden

	leftovers leftovers

	// replays limits how often the rules in a changed namespace are enqueued.
	replays spoke.Replays

	lives hub.Lives
	// evaluators passes on the spokes whose evaluators changed.
	evaluators queue.Feed[string]

	mu sync.Mutex
	// answers remembers what a spoke made of a rule, if that differs from what was sent.
	answers map[mcreconcile.Request]string
}

// objectKey is a PrometheusRule in a spoke.
type objectKey struct {
	spoke string
	types.NamespacedName
}

// NewReconciler returns a Reconciler.
func NewReconciler(o Options) *Reconciler {
	if o.Contests == nil {
		o.Contests = contest.New(clock.RealClock{}, o.Intervals)
	}
	return &Reconciler{
		Options: o,
		writes:  expect.New[objectKey](clock.RealClock{}),
		replays: spoke.Replays{Burst: o.MaxObjects},
		answers: map[mcreconcile.Request]string{},
	}
}

// task is one AlertRule on one spoke, with all that is known about both.
type task struct {
	req     mcreconcile.Request
	spoke   *spoke.Spoke
	cluster rule.Cluster
	// rule is nil if the AlertRule is gone.
	rule *v1alpha1.AlertRule
	// placed reports whether the rule is placed on the spoke. desired is what should be there, or nil.
	placed  bool
	desired *monitoringv1.PrometheusRule
	// meant is a digest of desired as the hub decides it, independent of the spoke.
	meant string
	// existing has the name of desired. claimed are the objects that name this AlertRule.
	existing *monitoringv1.PrometheusRule
	claimed  []*monitoringv1.PrometheusRule
	// adopting is a former hub's object that has the name of desired and will be adopted.
	adopting *monitoringv1.PrometheusRule
	// successor replaces the objects to delete; it may be nil.
	successor *monitoringv1.PrometheusRule
	// kind is the state of the AlertRules' CustomResourceDefinition if the AlertRule is gone.
	kind hub.Defined
	// mutated means that the spoke changed what was written, which is reported.
	mutated bool
	// renewed means that the status may concern a former spoke of the same name.
	renewed bool
}

// Reconcile reconciles one AlertRule on one spoke.
func (r *Reconciler) Reconcile(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	result, err := r.reconcile(ctx, req)
	if err == nil && result.RequeueAfter == 0 {
		r.Propagation.RuleDone(req.ClusterName.String(), req.NamespacedName)
	}
	if err == nil {
		result.RequeueAfter = r.whileContested(req, result.RequeueAfter)
	}
	return result, err
}

func (r *Reconciler) reconcile(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	t := &task{req: req, spoke: r.Spokes.Spoke(req.ClusterName.String())}
	if t.spoke == nil {
		return reconcile.Result{}, nil // engaging it enqueues all its keys again
	}
	if known, err := r.wanted(ctx, t); err != nil || !known {
		return reconcile.Result{}, err
	}
	if t.desired == nil {
		r.done(t)
	}
	if !t.spoke.RulesServed {
		r.report(ctx, t, v1alpha1.PhasePending, t.spoke.WhyNot.Reason, t.spoke.WhyNot.Message)
		return reconcile.Result{}, nil
	}
	// Check for pending writes before reading: the cache shows every write that is no longer pending.
	left := r.unseen(t)
	if left == 0 {
		if err := r.find(ctx, t); err != nil {
			return reconcile.Result{}, err
		}
		left = r.unseen(t)
	}
	if left > 0 {
		// Its event triggers another reconcile, unless another key made the write.
		return reconcile.Result{RequeueAfter: min(left, staleRetry)}, nil
	}
	if wait, err := r.gone(ctx, t); err != nil || wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, err
	}
	if left := r.settling(t); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	plan, wait, err := r.decide(ctx, t)
	if err != nil || wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, err
	}
	return r.act(ctx, t, plan)
}

// decide returns the plan, or how long to wait before it can be made.
func (r *Reconciler) decide(ctx context.Context, t *task) (delivery.Plan, time.Duration, error) {
	plan, wait, err := r.inherit(ctx, t, r.plan(t), r.Hub)
	if err != nil || wait > 0 {
		return plan, wait, err
	}
	wait, err = r.confirm(ctx, t, plan)
	return plan, wait, err
}

// plan compares the desired state of the spoke with the actual one.
func (r *Reconciler) plan(t *task) delivery.Plan {
	plan := delivery.Decide(t.desired, t.existing, t.claimed, r.Render.HubID, r.answer(t))
	if t.adopting != nil {
		plan = delivery.Adopt(t.adopting, t.desired, t.claimed, r.Render.HubID)
	}
	if t.cluster.Suspended || (t.rule != nil && ptr.Deref(t.rule.Spec.Suspend, false)) {
		plan = plan.Suspend()
	}
	return plan
}

// wanted is want with the hub's cache. If the desired state is unknown, nothing is to be deleted at present,
// so the brake holds nothing.
func (r *Reconciler) wanted(ctx context.Context, t *task) (bool, error) {
	known, err := r.want(ctx, t, r.Hub)
	if err != nil || known {
		return known, err
	}
	_, err = r.brake(ctx, t, delivery.Plan{})
	return false, err
}

// want determines the desired state of the spoke with a reader of the hub. It returns false if that is
// unknown; then the objects stay.
func (r *Reconciler) want(ctx context.Context, t *task, reader hub.Getter) (bool, error) {
	cluster, err := hub.Cluster(ctx, reader, t.spoke.Name)
	if err != nil || cluster == nil {
		return false, err
	}
	t.cluster = *cluster
	r.saw(cluster.Name, cluster.UID)
	t.renewed = r.lives.ChangedSince(cluster.Name, 0)
	if e := r.Spokes.Evaluators(t.spoke.Name); e.Known {
		hub.WithEvaluators(&t.cluster, e.List, e.WhyNot)
	} else {
		t.cluster.EvaluatorsUnknown = e.WhyNot
	}
	ar := &v1alpha1.AlertRule{}
	if err := reader.Get(ctx, t.req.NamespacedName, ar); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("reading AlertRule %s: %w", t.req.NamespacedName, err)
		}
		return true, nil
	}
	t.rule = ar
	if !rule.MaybeEnabled(ar) {
		return true, nil
	}
	if accepted, err := r.accepts(ctx, ar); err != nil || !accepted {
		return false, err // the status shows it; the last accepted rule stays
	}
	if known, err := r.ask(ctx, reader, ar.Namespace, &t.cluster); err != nil || !known {
		return false, err
	}
	if t.placed, err = rule.PlacedIn(ar, t.cluster); err != nil || !t.placed {
		return err == nil, err
	}
	desired, err := delivery.Render(ar, t.cluster, r.Render)
	if invalid, ok := errors.AsType[*rule.Invalid](err); ok {
		// The rule is not valid for this spoke. The last valid one stays there, too.
		r.report(ctx, t, v1alpha1.PhasePending, invalid.Reason, invalid.Error())
		return false, nil
	}
	if err != nil {
		return false, err
	}
	t.desired, t.meant = desired, delivery.Digest(desired)
	return true, nil
}

// ask sets the tenant of a namespace of the hub in a spoke, with the same reader as the spoke.
func (r *Reconciler) ask(ctx context.Context, reader hub.Getter, namespace string, c *rule.Cluster) (known bool, err error) {
	if _, past := reader.(*live.Reading); !past {
		reader = nil // Tenants has a cache of its own
	}
	return r.Tenants.Ask(ctx, reader, namespace, c) //nolint:wrapcheck // it says all
}

// accepts reports whether an AlertRule is valid and has a place in its namespace.
func (r *Reconciler) accepts(ctx context.Context, ar *v1alpha1.AlertRule) (bool, error) {
	if r.Validator.Validate(ar) != nil {
		return false, nil //nolint:nilerr // the status says why
	}
	waits, err := r.Places.Waits(ctx, ar)
	return waits == nil, err //nolint:wrapcheck // it says all
}

// saw records the SpokeCluster of a name, and drops the answers of a former one.
func (r *Reconciler) saw(name string, uid types.UID) {
	if !r.lives.Saw(name, uid) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.answers, func(req mcreconcile.Request, _ string) bool { return req.ClusterName.String() == name })
}

// find reads the existing objects from the spoke's cache.
func (r *Reconciler) find(ctx context.Context, t *task) error {
	var list monitoringv1.PrometheusRuleList
	if err := t.spoke.Reader.List(ctx, &list, client.MatchingFields{ruleIndex: t.req.NamespacedName.String()}); err != nil {
		return fmt.Errorf("listing the PrometheusRules of AlertRule %s: %w", t.req.NamespacedName, err)
	}
	for i := range list.Items {
		// An object with the name of another AlertRule's object belongs to that AlertRule, even if its annotations
		// name this one.
		owner, found, err := hub.RuleOfObject(ctx, r.Hub, list.Items[i].Name)
		if err != nil {
			return err
		}
		if !found || owner == t.req.NamespacedName {
			t.claimed = append(t.claimed, &list.Items[i])
		}
	}
	if t.desired == nil {
		return nil
	}
	delivery.KeepNamespace(t.desired, t.rule, t.claimed, t.cluster, r.Render)
	if err := r.place(ctx, t); err != nil {
		return err
	}
	existing := &monitoringv1.PrometheusRule{}
	switch err := t.spoke.Reader.Get(ctx, client.ObjectKeyFromObject(t.desired), existing); {
	case err == nil:
		t.existing = existing
		r.keep(t)
	case apierrors.IsNotFound(err):
		return r.overdue(ctx, t)
	default:
		return fmt.Errorf("reading PrometheusRule %s: %w", client.ObjectKeyFromObject(t.desired), err)
	}
	return nil
}

// keep retains parts of the object in the spoke whose desired state is unknown.
func (r *Reconciler) keep(t *task) {
	if t.existing != nil {
		delivery.KeepLabels(t.desired, t.existing, t.cluster, r.Render.HubID)
		delivery.KeepMark(t.desired, t.existing, t.cluster, r.Render)
	}
}

// unseen returns how long to wait for an own write that the spoke's cache does not show yet.
func (r *Reconciler) unseen(t *task) time.Duration {
	var left time.Duration
	if t.desired != nil {
		left = r.writes.Pending(objectKey{t.spoke.Name, hub.Key(t.desired)})
	}
	for _, c := range t.claimed {
		left = max(left, r.writes.Pending(objectKey{t.spoke.Name, hub.Key(c)}))
	}
	return left
}

// overdue reads the object from the spoke if the cache lacks it long after it was created; then unseen tells whether
// it is there.
func (r *Reconciler) overdue(ctx context.Context, t *task) error {
	name := hub.Key(t.desired)
	err := r.writes.Confirm(objectKey{t.spoke.Name, name}, func() (string, error) {
		o := &monitoringv1.PrometheusRule{}
		err := t.spoke.Live.Get(ctx, name, o)
		return o.ResourceVersion, spoke.Genuine(err, monitoringv1.PrometheusRuleName, name.Name)
	})
	if err != nil {
		return fmt.Errorf("reading PrometheusRule %s, which the cache does not show: %w", name, err)
	}
	return nil
}

// gone confirms, before a removal because the hub's cache lacks the AlertRule, that the AlertRule was deleted.
// If it was not, gone returns when to check again.
func (r *Reconciler) gone(ctx context.Context, t *task) (time.Duration, error) {
	if t.rule != nil {
		return 0, nil
	}
	if len(t.claimed) == 0 {
		r.remember(t.req, "")
		return 0, nil
	}
	if !r.anyStands(t.claimed) {
		return 0, nil
	}
	reader := r.Guard.Live.Reading()
	gone, kind, err := r.Guard.Gone(ctx, reader, hub.AlertRules, t.req.NamespacedName)
	switch {
	case err != nil:
		return 0, fmt.Errorf("confirming that its PrometheusRules are to be removed: %w", err)
	case gone:
		t.kind = kind
		return 0, nil
	case reader.Old(): // it was read shortly before it was deleted
		return staleRetry, nil
	}
	return r.Intervals.Of(guardRetry), nil
}

// settling returns how long to wait before removing the object of a generated AlertRule that does not exist.
// In a newly engaged spoke, the template may be about to generate it, for example in a spoke that left with
// its rules in place and is back.
func (r *Reconciler) settling(t *task) time.Duration {
	if t.rule != nil || len(t.claimed) == 0 || t.req.Namespace != r.Generated {
		return 0
	}
	return r.Intervals.Of(settle) - time.Since(t.spoke.Since)
}

// done notes that no more writes follow from the rule's change. Deletions are not measured.
func (r *Reconciler) done(t *task) { r.Propagation.RuleDone(t.spoke.Name, t.req.NamespacedName) }

// report reports the state of the rule.
func (r *Reconciler) report(ctx context.Context, t *task, phase v1alpha1.Phase, reason, message string) {
	if phase == v1alpha1.PhasePending && reason != "" && reason != v1alpha1.ReasonError {
		r.done(t) // for now, because a person has to act
	}
	leftover, left := r.leftovers.of(t.req)
	switch {
	case !t.placed && left:
		r.Reporter.Leftover(t.req.NamespacedName, leftover)
		return
	case !t.placed:
		r.Reporter.Forget(t.req.NamespacedName, t.spoke.Name)
		return
	}
	row := v1alpha1.ClusterStatus{Phase: phase, Reason: reason}
	if phase == v1alpha1.PhaseApplied && reason == "" {
		row = r.prove(ctx, t)
		message = row.Message
		if contested, _ := r.contested(t.req); contested != "" {
			row, message = v1alpha1.ClusterStatus{Phase: v1alpha1.PhasePending, Reason: v1alpha1.ReasonContested}, contested
		} else if left {
			row.Reason, message = leftover.Reason, leftover.Message // what is known of the rule itself stays
		}
	}
	row.Name, row.Message, row.ObservedGeneration = v1alpha1.ClusterName(t.spoke.Name), clip(message), t.rule.Generation
	if t.desired != nil {
		row.Rule = client.ObjectKeyFromObject(t.desired).String()
	}
	if reason == v1alpha1.ReasonMutated {
		row.AnswerDigest = r.answer(t)
	}
	r.Reporter.Report(t.req.NamespacedName, t.rule.UID, row)
}

// prove determines the state of a rule that is in the spoke as desired.
func (r *Reconciler) prove(ctx context.Context, t *task) v1alpha1.ClusterStatus {
	o := t.existing
	ns := evaluation.Namespace{Name: o.Namespace}
	namespace := spoke.NamespaceMetadata()
	if err := t.spoke.Reader.Get(ctx, client.ObjectKey{Name: o.Namespace}, namespace); err == nil {
		ns.Labels = namespace.Labels // without them, a selector selects nothing
	}
	s := evaluation.Select(o, ns, t.cluster)
	s.CheckEnforced(t.rule, o, delivery.Anywhere(t.rule, r.Render))
	return evaluation.Prove(o, s, func(e *rule.Evaluator) evaluation.State {
		if r.Evaluations == nil {
			return evaluation.State{Outcome: evaluation.NotGranted}
		}
		return t.asTold(r.Evaluations.Of(t.spoke.Name, e, o))
	}, len(t.cluster.EvaluatorRefs) > 0)
}

// asTold keeps the status of the same generation where a restart has lost information that takes a while to
// find again.
func (t *task) asTold(is evaluation.State) evaluation.State {
	if t.renewed {
		return is
	}
	var row *v1alpha1.ClusterStatus // a row in the final phase may not be listed
	for i := range t.rule.Status.Clusters {
		if r := &t.rule.Status.Clusters[i]; string(r.Name) == t.spoke.Name {
			row = r
		}
	}
	current := row != nil && row.ObservedGeneration == t.rule.Generation
	if is.Unsure && (row == nil || current && wasEvaluated(row)) {
		is.Outcome = evaluation.Unasked
	}
	if !current {
		return is
	}
	is.Late = is.Late || row.Reason == v1alpha1.ReasonNotLoaded
	if is.Outcome == evaluation.Unreachable && !is.Seen {
		is.Firing = row.Firing
	}
	if !is.Checked && is.Outcome != evaluation.NotGranted {
		is.Missing = row.MissingMetrics
	}
	return is
}

// wasEvaluated reports whether an evaluator had loaded and evaluated a rule.
func wasEvaluated(row *v1alpha1.ClusterStatus) bool {
	return row.Phase == v1alpha1.PhaseEvaluating || row.Reason == v1alpha1.ReasonEvaluationFailed
}

// answer returns what the spoke last made of the rule, from memory or, after a restart, from the status.
func (r *Reconciler) answer(t *task) string {
	r.mu.Lock()
	digest, ok := r.answers[t.req]
	r.mu.Unlock()
	if ok || t.rule == nil || t.renewed {
		return digest
	}
	for i := range t.rule.Status.Clusters {
		if row := &t.rule.Status.Clusters[i]; string(row.Name) == t.spoke.Name {
			return row.AnswerDigest
		}
	}
	return ""
}

// remember records an answer that differs from what was sent; "" forgets it.
func (r *Reconciler) remember(req mcreconcile.Request, digest string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if digest == "" {
		delete(r.answers, req)
		return
	}
	r.answers[req] = digest
}
