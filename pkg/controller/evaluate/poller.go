// Package evaluate polls the Prometheus and ThanosRulers of the spokes: which of this hub's rules they have
// loaded, whether these evaluate, what fires, and whether the metrics exist that the rules need. It writes
// nothing: distribute turns the results into verdicts, and package membership shows the state of the evaluators.
//
// Each engaged spoke has a goroutine that polls at an interval. Nothing else waits for the answers.
package evaluate

import (
	"cmp"
	"context"
	"sync"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
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
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

const (
	// DefaultInterval is the time between two polls of an evaluator that answers. Together with retry it bounds
	// how late a change is seen.
	DefaultInterval = 30 * time.Second
	// retry is the time until the next poll after a failure, until the evaluator counts as unreachable, and
	// until metrics that seem to be missing are queried again.
	retry = 6 * time.Second
	// retryLate is the time until the next poll after one that timed out.
	retryLate = time.Second
	// patience is the number of consecutive failures until an evaluator counts as unreachable. A poll that timed
	// out counts twice, so that an evaluator that hangs is detected within a minute: the second one soon follows.
	patience = 3
	// pollTimeout bounds a poll, with all its pages, while data arrive (see spoke.Asker). It is for a Prometheus
	// whose answer never ends.
	pollTimeout = 5 * time.Minute
	// slowAnswer is the time after which the status reports that an answer is slow. This is not a failure, because the
	// network link may be slow.
	slowAnswer = 20 * time.Second
	// metricsPatience is the number of consecutive failed checks of metrics after which the status reports the failure.
	metricsPatience = 2
	// loading is the time between two polls while a new or changed rule is not evaluated yet, or a rule seems to
	// be no longer evaluated, for at most loadingSoon.
	loading     = 10 * time.Second
	loadingSoon = 2 * time.Minute
	// first is the maximum delay before the first poll of a spoke, to spread spokes that are engaged together.
	first = 3 * time.Second
)

// Spokes are the engaged spokes.
type Spokes interface {
	// Spoke returns an engaged spoke, or nil.
	Spoke(name string) *spoke.Spoke
	// Away reports whether an engaged spoke does not answer at present.
	Away(name string) bool
	// Evaluators returns the Prometheus and ThanosRuler objects of a spoke as last read.
	Evaluators(name string) spoke.Evaluators
	// Changed requests an update of a spoke's status.
	Changed(name string)
}

// Options are the options of the Poller.
type Options struct {
	// Hub reads the hub's cache.
	Hub client.Reader
	// Spokes are the engaged spokes.
	Spokes Spokes
	// Render has the options for rendering rules: only PrometheusRules of this hub are considered, with its
	// cluster label.
	Render delivery.Options
	// Interval is the time between two polls of a spoke.
	Interval time.Duration
	// Intervals scales Interval and all other intervals.
	Intervals interval.Scale
	// Metrics enables the queries for the series that expressions select.
	Metrics bool
}

// Poller polls the evaluators of all engaged spokes.
type Poller struct {
	Options

	news queue.Feed[[]queue.Request]

	mu     sync.Mutex
	spokes map[string]*spokeState
}

// NewPoller returns a Poller.
func NewPoller(o Options) *Poller {
	return &Poller{Options: o, spokes: map[string]*spokeState{}}
}

// News passes on the AlertRules whose evaluation in a spoke changed.
func (p *Poller) News() *queue.Feed[[]queue.Request] { return &p.news }

// Start implements manager.Runnable. There is nothing to do before a spoke is engaged.
func (p *Poller) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Engage implements multicluster.Aware. It polls a spoke until ctx ends. An earlier engagement of the same
// spoke has ended or is about to.
func (p *Poller) Engage(ctx context.Context, name multicluster.ClusterName, _ cluster.Cluster) error {
	go p.follow(ctx, name.String())
	return nil
}

// Forget drops the state of a spoke that is no longer registered.
func (p *Poller) Forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.spokes, name)
}

// Kick makes the poller poll a spoke soon, because its evaluators changed.
func (p *Poller) Kick(name string) {
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
	case <-ctx.Done(): // an ending engagement was still polling
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
			continue // the last results stay
		}
		delay = p.poll(ctx, name, s)
	}
}

// task is one poll of a spoke.
type task struct {
	name    string
	spoke   *spoke.Spoke
	cluster *rule.Cluster
	// evaluators are those of the spoke as last read.
	evaluators []v1alpha1.Evaluator
	// objects are the PrometheusRules that stand for sources, by UID, and packs those of RulePacks. groups are those of AlertRules by the name
	// of their group, and packGroups those of RulePacks; nil if several have a group of that name. All are empty if no evaluator
	// is chosen.
	objects    map[types.UID]*monitoringv1.PrometheusRule
	packs      map[types.UID]bool
	groups     map[string]*monitoringv1.PrometheusRule
	packGroups map[string]*monitoringv1.PrometheusRule
}

// poll queries all chosen evaluators of a spoke, and returns when to do so again.
func (p *Poller) poll(ctx context.Context, name string, s *spokeState) time.Duration {
	t, err := p.task(ctx, name)
	if err != nil || t == nil {
		return wait.Jitter(retry, 0.1) // the cache is about to end
	}
	return p.askAll(ctx, t, s)
}

// askAll queries all chosen evaluators of a task.
func (p *Poller) askAll(ctx context.Context, t *task, s *spokeState) time.Duration {
	delay := p.Interval
	s.retain(t.cluster.Chosen())
	for _, e := range t.cluster.Chosen() {
		answer := p.ask(ctx, t, s, e)
		if ctx.Err() != nil {
			return 0
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

// ask queries an evaluator, and compares the rules in its answer.
func (p *Poller) ask(ctx context.Context, t *task, s *spokeState, e *rule.Evaluator) answer {
	kept := t.spoke.Charge()
	defer kept.Close()
	slow := time.AfterFunc(slowAnswer, func() {
		if s.slows(e.String(), true) {
			p.Spokes.Changed(t.name)
		}
	})
	defer func() {
		if slow.Stop() && s.slows(e.String(), false) {
			p.Spokes.Changed(t.name)
		}
	}()
	c, problem := p.client(t, e)
	out := counted(func() answer {
		return s.ask(ctx, t, e, c, evaluation.Marked(*t.cluster, p.Render.ClusterLabel), problem, kept)
	})
	if out.err == nil && ctx.Err() == nil {
		out.compared = s.compare(t, e, out.rules)
	}
	return out
}

// task collects the input of a poll; nil if the spoke is gone.
func (p *Poller) task(ctx context.Context, name string) (*task, error) {
	t := &task{name: name, spoke: p.Spokes.Spoke(name), objects: map[types.UID]*monitoringv1.PrometheusRule{}, packs: map[types.UID]bool{}, groups: map[string]*monitoringv1.PrometheusRule{}, packGroups: map[string]*monitoringv1.PrometheusRule{}}
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
	if !t.spoke.RulesServed || len(t.cluster.Chosen()) == 0 { // there is no evaluator to ask about rules
		return t, nil
	}
	standing, err := p.standing(ctx, t.spoke.Reader, *t.cluster)
	if err != nil {
		return nil, err
	}
	for key, o := range standing {
		t.objects[o.UID] = o
		if key.Kind == v1alpha1.AlertRuleKind {
			t.groups[key.NamespacedName().String()] = o
			continue
		}
		t.packs[o.UID] = true
		for i := range o.Spec.Groups {
			name, only := o.Spec.Groups[i].Name, o
			if _, twice := t.packGroups[name]; twice {
				only = nil
			}
			t.packGroups[name] = only
		}
	}
	return t, nil
}

// standing returns the PrometheusRule in a spoke that stands for each source. Of several, it is the one
// that distribute keeps: in the source's namespace, under a former hub's name if it was taken over.
func (p *Poller) standing(ctx context.Context, reader client.Reader, c rule.Cluster) (map[rule.Key]*monitoringv1.PrometheusRule, error) {
	var list monitoringv1.PrometheusRuleList
	if err := reader.List(ctx, &list, client.MatchingLabels{v1alpha1.HubLabel: p.Render.HubID}); err != nil {
		return nil, err //nolint:wrapcheck // it is not told
	}
	out := map[rule.Key]*monitoringv1.PrometheusRule{}
	for i := range list.Items {
		o := &list.Items[i]
		key, stands := rule.StandsFor(o, p.Render.HubID)
		if !stands {
			continue
		}
		src, err := hub.Source(ctx, p.Hub, key)
		if err != nil {
			return nil, err //nolint:wrapcheck // it is not told
		}
		if src == nil {
			continue
		}
		namespace := delivery.TargetNamespace(src, c, p.Render)
		if other := out[key]; other == nil || precedes(o, other, namespace, key) {
			out[key] = o
		}
	}
	return out, nil
}

// precedes reports which of two objects that stand for a source is kept.
func precedes(a, b *monitoringv1.PrometheusRule, namespace string, key rule.Key) bool {
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

// evaluators returns the evaluators of a spoke as last read or, if they can't be read, as in its status.
func (p *Poller) evaluators(ctx context.Context, name string) ([]v1alpha1.Evaluator, error) {
	if e := p.Spokes.Evaluators(name); e.Known {
		return e.List, nil
	}
	sc := &v1alpha1.SpokeCluster{}
	if err := p.Hub.Get(ctx, client.ObjectKey{Name: name}, sc); err != nil {
		return nil, client.IgnoreNotFound(err) //nolint:wrapcheck // it is not shown
	}
	return sc.Status.Evaluators, nil
}

// client returns the client for an evaluator. The error says why there is none.
func (p *Poller) client(t *task, e *rule.Evaluator) (*evaluator.Client, error) {
	object := t.object(e)
	if object == nil {
		return nil, errGone
	}
	var ref *v1alpha1.EvaluatorReference
	for i := range t.cluster.EvaluatorRefs {
		if r := &t.cluster.EvaluatorRefs[i]; r.Kind == e.Kind && string(r.Namespace) == e.Namespace && r.Name == e.Name {
			ref = r
		}
	}
	sender, base, err := t.spoke.Asker(object, ref)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the field to change
	}
	return &evaluator.Client{HTTP: sender, Base: base, Timeout: pollTimeout}, nil
}

// object returns an evaluator as last read, or nil.
func (t *task) object(e *rule.Evaluator) *v1alpha1.Evaluator {
	for i := range t.evaluators {
		if o := &t.evaluators[i]; o.Kind == e.Kind && o.Namespace == e.Namespace && o.Name == e.Name {
			return o
		}
	}
	return nil
}
