// Package evaluate asks the Prometheus and ThanosRulers of the spokes which of this hub's rules
// they have loaded, whether those evaluate, what fires, and whether there are the metrics that
// they need. It writes nothing: distribute makes verdicts of what it finds out, and the
// registrar shows how the evaluators are.
//
// Each engaged spoke has a goroutine that asks once in an interval, and nothing else waits for
// the answer.
package evaluate

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/evaluator"
	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

const (
	// DefaultInterval is the time between two polls of an evaluator that answers. With retry,
	// it bounds how late a change there is seen.
	DefaultInterval = 30 * time.Second
	// retry is the time until the next poll after one that failed, until it counts as
	// unreachable, and until metrics that seem to be missing are asked for once more.
	retry = 6 * time.Second
	// patience is how many polls in a row have to fail for that. One that took all of its time
	// counts twice, so that what hangs is seen within a minute, too.
	patience = 3
	// pollTimeout bounds a poll, with all its pages, whose answers keep coming: see spoke.Asker. It is
	// for a Prometheus that never ends.
	pollTimeout = 5 * time.Minute
	// loading is the time between two polls while a rule is new, or was changed, and is not
	// evaluated yet, or seems not to be any more, for as long as loadingSoon.
	loading     = 10 * time.Second
	loadingSoon = 2 * time.Minute
	// first is the longest time until a spoke is polled first, so that those which are
	// engaged together are not.
	first = 3 * time.Second
)

// Spokes are the engaged spokes.
type Spokes interface {
	// Spoke returns an engaged spoke, or nil.
	Spoke(name string) *spoke.Spoke
	// Away tells whether an engaged spoke does not answer at present.
	Away(name string) bool
	// Evaluators returns the Prometheus and ThanosRuler objects of a spoke, as they were last read.
	Evaluators(name string) spoke.Evaluators
	// Changed tells that something else is to be shown of a spoke.
	Changed(name string)
	// OnEvaluators adds a function that is told when the evaluators of a spoke have changed.
	OnEvaluators(fn func(name string))
}

// Options are what the Poller works with.
type Options struct {
	// Hub reads the hub's cache.
	Hub client.Reader
	// Spokes are the engaged spokes.
	Spokes Spokes
	// Render says how rules are rendered: only PrometheusRules of this hub are asked about, by the
	// label of alerts that tells clusters apart.
	Render rule.RenderOptions
	// Interval is the time between two polls of a spoke.
	Interval time.Duration
	// Intervals scales it, and all others.
	Intervals interval.Scale
	// Metrics tells whether to ask for the series that expressions select.
	Metrics bool
	// Log is the logger.
	Log logr.Logger
}

// Poller asks the evaluators of all engaged spokes.
type Poller struct {
	Options

	mu     sync.Mutex
	spokes map[string]*spokeState
	// news is told which AlertRules there is news of in a spoke.
	news func(spoke string, rules []types.NamespacedName)
}

// NewPoller returns a Poller.
func NewPoller(o Options) *Poller {
	p := &Poller{Options: o, spokes: map[string]*spokeState{}, news: func(string, []types.NamespacedName) {}}
	o.Spokes.OnEvaluators(p.kick)
	return p
}

// OnNews sets the function that is told which AlertRules there is news of in a spoke. It has to
// return at once.
func (p *Poller) OnNews(fn func(spoke string, rules []types.NamespacedName)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.news = fn
}

// Start implements manager.Runnable: there is nothing to do before a spoke is engaged.
func (p *Poller) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Engage implements multicluster.Aware: it polls a spoke until ctx ends. An earlier engagement
// of the same spoke has ended, or is about to.
func (p *Poller) Engage(ctx context.Context, name multicluster.ClusterName, _ cluster.Cluster) error {
	go p.follow(ctx, name.String())
	return nil
}

// Forget drops all that is known of a spoke that is not registered any more.
func (p *Poller) Forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.spokes, name)
}

// kick has a spoke polled soon.
func (p *Poller) kick(name string) {
	select {
	case p.state(name).kick <- struct{}{}:
	default:
	}
}

// follow polls one spoke.
func (p *Poller) follow(ctx context.Context, name string) {
	s := p.state(name)
	select {
	case s.polling <- struct{}{}:
	case <-ctx.Done(): // one that is about to end was still at it
		return
	}
	defer func() { <-s.polling }()
	delay := wait.Jitter(first/2, 1)
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		case <-time.After(p.Intervals.Of(delay)):
		}
		if p.Spokes.Away(name) {
			delay = wait.Jitter(retry, 0.1)
			continue // what was last seen stands
		}
		delay = p.poll(ctx, name, s)
	}
}

// task is one poll of a spoke.
type task struct {
	name    string
	spoke   *spoke.Spoke
	cluster *rule.Cluster
	// evaluators are those of the cluster, as the spoke tells of them.
	evaluators []v1alpha1.Evaluator
	// objects are the PrometheusRules there that stand for AlertRules, by UID, and groups by the name of
	// their group.
	objects map[types.UID]*monitoringv1.PrometheusRule
	groups  map[string]*monitoringv1.PrometheusRule
}

// poll asks all evaluators of a spoke that are to evaluate rules. It returns when to do so again.
func (p *Poller) poll(ctx context.Context, name string, s *spokeState) time.Duration {
	t, err := p.task(ctx, name)
	if err != nil || t == nil {
		return wait.Jitter(retry, 0.1) // the cache is about to end
	}
	return p.askAll(ctx, t, s)
}

// askAll asks all evaluators of a task that are to evaluate rules.
func (p *Poller) askAll(ctx context.Context, t *task, s *spokeState) time.Duration {
	delay := p.Interval
	s.retain(t.cluster.Chosen())
	for _, e := range t.cluster.Chosen() {
		c, problem := p.client(t, e)
		answer := counted(func() answer { return s.ask(ctx, t, e, c, rule.Marked(*t.cluster, p.Render.ClusterLabel), problem) })
		if ctx.Err() != nil {
			return 0
		}
		if answer.err == nil {
			answer.compared = s.compare(t, e, answer.rules)
		}
		delay = min(delay, p.keep(t, s, e, answer))
	}
	if p.Metrics && p.checkMetrics(ctx, t, s) {
		delay = min(delay, retry)
	}
	if ctx.Err() == nil {
		p.tell(t, s)
	}
	return wait.Jitter(delay*19/20, 0.1)
}

// task collects what a poll works with; nil where there is no such spoke.
func (p *Poller) task(ctx context.Context, name string) (*task, error) {
	t := &task{name: name, spoke: p.Spokes.Spoke(name), objects: map[types.UID]*monitoringv1.PrometheusRule{}, groups: map[string]*monitoringv1.PrometheusRule{}}
	if t.spoke == nil {
		return nil, nil
	}
	var err error
	if t.cluster, err = hub.Cluster(ctx, p.Hub, name); err != nil || t.cluster == nil {
		return nil, err
	}
	if t.evaluators, err = p.evaluators(ctx, name); err != nil {
		return nil, err
	}
	hub.WithEvaluators(t.cluster, t.evaluators, "")
	if !t.spoke.RulesServed {
		return t, nil
	}
	standing, err := p.standing(ctx, t.spoke.Reader, *t.cluster)
	if err != nil {
		return nil, err
	}
	for key, o := range standing {
		t.objects[o.UID] = o
		t.groups[key.String()] = o
	}
	return t, nil
}

// standing returns the PrometheusRule in a spoke that stands for each AlertRule. Of several, it is the one
// that distribute keeps: in the AlertRule's namespace, under a former hub's name if it was taken over.
func (p *Poller) standing(ctx context.Context, reader client.Reader, c rule.Cluster) (map[types.NamespacedName]*monitoringv1.PrometheusRule, error) {
	var list monitoringv1.PrometheusRuleList
	if err := reader.List(ctx, &list, client.MatchingLabels{v1alpha1.HubLabel: p.Render.HubID}); err != nil {
		return nil, err //nolint:wrapcheck // it is not told
	}
	out := map[types.NamespacedName]*monitoringv1.PrometheusRule{}
	for i := range list.Items {
		o := &list.Items[i]
		key, stands := rule.StandsFor(o, p.Render.HubID)
		if !stands {
			continue
		}
		ar := &v1alpha1.AlertRule{}
		switch err := p.Hub.Get(ctx, key, ar); {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, err //nolint:wrapcheck // it is not told
		}
		namespace := rule.TargetNamespace(ar, c, p.Render)
		if other := out[key]; other == nil || precedes(o, other, namespace, key) {
			out[key] = o
		}
	}
	return out, nil
}

// precedes tells which of two objects that stand for an AlertRule of that namespace in the spoke is kept.
func precedes(a, b *monitoringv1.PrometheusRule, namespace string, key types.NamespacedName) bool {
	for _, has := range []func(o *monitoringv1.PrometheusRule) bool{
		func(o *monitoringv1.PrometheusRule) bool { return o.Namespace == namespace },
		func(o *monitoringv1.PrometheusRule) bool { _, adopted := rule.AdoptedName(o, key); return adopted },
	} {
		if has(a) != has(b) {
			return has(a)
		}
	}
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name)) < 0
}

// evaluators returns those of a spoke as they were last read or, where they can't be read, as its
// status tells.
func (p *Poller) evaluators(ctx context.Context, name string) ([]v1alpha1.Evaluator, error) {
	if e := p.Spokes.Evaluators(name); e.Known {
		return e.List, nil
	}
	sc := &v1alpha1.SpokeCluster{}
	if err := p.Hub.Get(ctx, client.ObjectKey{Name: name}, sc); err != nil {
		return nil, client.IgnoreNotFound(err) //nolint:wrapcheck // it is not told
	}
	return sc.Status.Evaluators, nil
}

// client returns what asks an evaluator, or why it can't be asked.
func (p *Poller) client(t *task, e *rule.Evaluator) (*evaluator.Client, error) {
	var object *v1alpha1.Evaluator
	for i := range t.evaluators {
		if o := &t.evaluators[i]; o.Kind == e.Kind && o.Namespace == e.Namespace && o.Name == e.Name {
			object = o
		}
	}
	if object == nil {
		return nil, errGone
	}
	var ref *v1alpha1.EvaluatorReference
	for i := range t.cluster.EvaluatorRefs {
		if r := &t.cluster.EvaluatorRefs[i]; r.Kind == e.Kind && string(r.Namespace) == e.Namespace && r.Name == e.Name {
			ref = r
		}
	}
	if (ref == nil || ref.URL == "") && t.shares(object) {
		return nil, &spoke.RefusedError{Field: "spec.evaluatorRefs", Message: errOther.Error()}
	}
	sender, base, err := t.spoke.Asker(object, ref)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says which field to change
	}
	return &evaluator.Client{HTTP: sender, Base: base, Timeout: pollTimeout}, nil
}

// shares tells whether another evaluator has the same Service: it would lead to either, by chance,
// and what one has not loaded would seem to be missing at every other poll.
func (t *task) shares(e *v1alpha1.Evaluator) bool {
	return e.Service != "" && slices.ContainsFunc(t.evaluators, func(o v1alpha1.Evaluator) bool {
		return o.Kind == e.Kind && o.Namespace == e.Namespace && o.Name != e.Name && o.Service == e.Service
	})
}
