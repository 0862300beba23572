// Package coverage counts the workloads of the spokes with and without an alert, for the statuses of SpokeClusters, and
// those that each template selects, for the statuses of templates.
//
// It reads caches, from time to time. It does not write.
package coverage

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
	"unique"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/coverage"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

const (
	// period is the time in which every spoke is looked at once, and counted if something has changed.
	period = 10 * time.Second
	// publishInterval is the least time between two changes of the numbers of a template, because each is a write on the
	// hub. Together with period, it is below the minute within which a change must show. The controller of the membership
	// bounds the writes of the numbers of a spoke. After a start, numbers in statuses stay for as long.
	publishInterval = 45 * time.Second
	// askInterval is the time between two requests for the number of workloads of a kind without an informer. Together with
	// period and the interval of the writes, it is below the minute within which a change must show.
	askInterval = 20 * time.Second
	// processWait is how long after the last complete count a spoke is counted although some workloads are not processed
	// yet. In a spoke where workloads are created all the time, a count may never be complete.
	processWait = 20 * time.Second
	// recountInterval is the longest time between two counts of a spoke in which nothing has changed.
	recountInterval = time.Minute
	// settleTime is how long the summaries of the templates wait after a start for spokes that are not connected.
	settleTime = 10 * time.Minute
)

// Spokes are the engaged spokes.
type Spokes interface {
	// Spokes returns the engaged spokes.
	Spokes() []*spoke.Spoke
	// Away reports whether an engaged spoke does not answer.
	Away(name string) bool
	// ChangedSoon requests an update of a spoke's status.
	ChangedSoon(name string)
}

// Options are the options of a Counter.
type Options struct {
	// Hub reads the hub's cache.
	Hub client.Reader
	// Informers are the informers of that cache.
	Informers cache.Informers
	// Spokes are the engaged spokes.
	Spokes Spokes
	// Trusted are the namespaces of the hub in which an AlertRule may name any workload.
	Trusted []string
	// Intervals scales the intervals.
	Intervals interval.Scale
	// Clock is the clock.
	Clock clock.Clock
	// Log is the logger.
	Log logr.Logger
}

// Counter counts workloads. Use NewCounter to create one.
type Counter struct {
	Options

	// ask returns the number of workloads of a kind in a spoke.
	ask func(ctx context.Context, s *spoke.Spoke, kind v1alpha1.WorkloadKind) (int32, error)
	// changes are the templates whose summary has changed.
	changes queue.Feed[string]

	mu       sync.Mutex
	began    time.Time
	outcomes outcomes
	spokes   map[string]*counted
	// sums are the sums over all spokes, by template.
	sums      map[string]v1alpha1.TemplateSummary
	summaries map[string]summary
}

// counted is what is known of a spoke.
type counted struct {
	// complete is the engagement in which all workloads were processed, and processed is when that was last the case.
	complete, processed time.Time
	shown               *coverage.Result
	// The last count began at the time at, with this version of the SpokeCluster. changed is true if something has changed
	// since then, or if that count was not complete.
	changed bool
	at      time.Time
	version string
	// sums are the workloads by template.
	sums map[string]v1alpha1.TemplateSummary

	// asking is true while the spoke is asked for numbers, and asked is when it was last asked.
	asking bool
	asked  time.Time
	// totals are the numbers of workloads of the kinds without an informer. A kind that may not be listed is unreadable.
	totals map[v1alpha1.WorkloadKind]int32
}

// unreadable is the number of workloads of a kind that may not be listed.
const unreadable = -1

// NewCounter returns a Counter.
func NewCounter(o Options) *Counter {
	return &Counter{
		Options: o, outcomes: outcomes{}, spokes: map[string]*counted{}, sums: map[string]v1alpha1.TemplateSummary{}, summaries: map[string]summary{},
		ask: func(ctx context.Context, s *spoke.Spoke, kind v1alpha1.WorkloadKind) (int32, error) {
			return s.Count(ctx, kind)
		},
	}
}

// Record records the outcomes of a workload of an engaged spoke. They are nil if there is no such workload.
func (c *Counter) Record(s *spoke.Spoke, workload rule.Key, of coverage.Outcomes) {
	var is unique.Handle[string]
	if of != nil {
		is = unique.Make(encode(of))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.outcomes.record(s, workload, is) {
		c.changedLocked(s.Name)
	}
}

// Changed has a spoke counted in the next period: a workload was created or deleted there.
func (c *Counter) Changed(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changedLocked(name)
}

func (c *Counter) changedLocked(name string) {
	if is := c.spokes[name]; is != nil {
		is.changed = true
	}
}

// ruleChanged is Changed for the spoke whose workload an AlertRule names.
func (c *Counter) ruleChanged(o any) {
	if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	if ar, ok := o.(*v1alpha1.AlertRule); ok && ar.Spec.WorkloadRef != nil {
		c.Changed(string(ar.Spec.WorkloadRef.Cluster))
	}
}

// follow registers ruleChanged for the AlertRules of the hub.
func (c *Counter) follow(ctx context.Context) error {
	informer, err := c.Informers.GetInformer(ctx, &v1alpha1.AlertRule{}, cache.BlockUntilSynced(false))
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: c.ruleChanged, DeleteFunc: c.ruleChanged, UpdateFunc: func(was, is any) { c.ruleChanged(was); c.ruleChanged(is) },
		})
	}
	if err != nil {
		return fmt.Errorf("following the AlertRules of the hub: %w", err)
	}
	return nil
}

// Forget drops a spoke that is no longer registered, or that is another cluster.
func (c *Counter) Forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.outcomes, name)
	if is := c.spokes[name]; is != nil {
		c.addLocked(is.sums, -1)
		delete(c.spokes, name)
	}
}

// Coverage returns the coverage of a spoke, or nil if it is not known since the start of the manager.
func (c *Counter) Coverage(name string) *coverage.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	if is := c.spokes[name]; is != nil {
		return is.shown
	}
	return nil
}

// Summary returns the workloads of a template, or nil if they are not known since the start of the manager.
func (c *Counter) Summary(template string) *v1alpha1.TemplateSummary {
	c.mu.Lock()
	defer c.mu.Unlock()
	if is, known := c.summaries[template]; known {
		return &is.TemplateSummary
	}
	return nil
}

// Changes reports the templates whose summary has changed.
func (c *Counter) Changes() *queue.Feed[string] { return &c.changes }

// Start counts until ctx ends.
func (c *Counter) Start(ctx context.Context) error {
	if err := c.follow(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	c.began = c.Clock.Now()
	c.mu.Unlock()
	for {
		spokes := c.Spokes.Spokes()
		for _, s := range spokes {
			if err := c.count(ctx, s); err != nil {
				c.Log.Error(err, "the workloads of a spoke were not counted", "cluster", s.Name)
			}
			if !c.pause(ctx, c.Intervals.Of(period)/time.Duration(len(spokes))) {
				return nil
			}
		}
		if err := c.publish(ctx); err != nil {
			c.Log.Error(err, "the summaries of the templates were not updated")
		}
		if len(spokes) == 0 && !c.pause(ctx, c.Intervals.Of(period)) {
			return nil
		}
	}
}

func (c *Counter) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-c.Clock.After(d):
		return true
	}
}

// count counts the workloads of a spoke that answers.
func (c *Counter) count(ctx context.Context, s *spoke.Spoke) error {
	sc := &v1alpha1.SpokeCluster{}
	err := c.Hub.Get(ctx, client.ObjectKey{Name: s.Name}, sc)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case c.Spokes.Away(s.Name):
		c.away(s.Name)
		return nil
	case err != nil:
		return fmt.Errorf("reading SpokeCluster %s: %w", s.Name, err)
	}
	is, first, due := c.begin(ctx, s, sc.ResourceVersion)
	if first && !slices.ContainsFunc(c.Spokes.Spokes(), func(now *spoke.Spoke) bool { return now.Name == s.Name }) {
		c.Forget(s.Name) // it left meanwhile, and may have been forgotten before
		return nil
	}
	if !due {
		return nil
	}
	done, err := c.countOne(ctx, s, sc, is)
	if !done {
		c.Changed(s.Name)
	}
	return err
}

// away keeps the numbers of a spoke that does not answer. Once it answers again, its new workloads get processWait to be
// processed.
func (c *Counter) away(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if is := c.spokes[name]; is != nil {
		is.processed = c.Clock.Now()
	}
}

// begin returns what is known of a spoke, whether nothing was known, and whether it is to be counted: something has changed,
// or the last count was too long ago.
func (c *Counter) begin(ctx context.Context, s *spoke.Spoke, version string) (is *counted, first, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	is = c.spokes[s.Name]
	if first = is == nil; first {
		is = &counted{changed: true, totals: map[v1alpha1.WorkloadKind]int32{}}
		c.spokes[s.Name] = is
	}
	now := c.Clock.Now()
	c.askLocked(ctx, is, s)
	due = is.changed || is.shown == nil && c.startedLocked(now) // the last result could not be shown yet
	if !due && is.complete.Equal(s.Since) && is.version == version && now.Sub(is.at) < c.Intervals.Of(recountInterval) {
		is.processed = now
		return is, false, false
	}
	is.changed, is.at, is.version = false, now, version // what changes from now on may be missed by this count
	return is, first, true
}

// countOne counts the workloads of a spoke. It is not done if some are not processed yet, or a number is not known.
func (c *Counter) countOne(ctx context.Context, s *spoke.Spoke, sc *v1alpha1.SpokeCluster, is *counted) (done bool, err error) {
	listed, all, err := listed(ctx, s)
	if err != nil {
		return false, err
	}
	c.mu.Lock()
	if c.spokes[s.Name] != is { // it was forgotten meanwhile
		c.mu.Unlock()
		return true, nil
	}
	of, complete := c.outcomes.read(s, all)
	now := c.Clock.Now()
	if done = complete; complete {
		is.complete, is.processed = s.Since, now
	}
	counts := complete || of != nil && is.complete.Equal(s.Since) && now.Sub(is.processed) >= c.Intervals.Of(processWait)
	if counts {
		c.replaceLocked(is, sumsOf(of))
	}
	kinds, known := is.kinds(listed)
	c.mu.Unlock()
	if !counts || !known {
		return false, nil
	}
	rules, err := hub.NamingWorkloads(ctx, c.Hub, s.Name)
	if err != nil {
		return false, err //nolint:wrapcheck // it says all
	}
	c.show(sc, is, coverage.Of(&coverage.Input{Cluster: *hub.ClusterOf(sc), Kinds: kinds, Rules: rules, Trusted: c.Trusted, Outcomes: decoded(of)}))
	return done, nil
}

// decoded returns the outcomes of each workload.
func decoded(of map[rule.Key]unique.Handle[string]) func(rule.Key) coverage.Outcomes {
	known := map[unique.Handle[string]]coverage.Outcomes{}
	return func(w rule.Key) coverage.Outcomes {
		o, ok := of[w]
		if ok && known[o] == nil {
			known[o] = decode(o.Value())
		}
		return known[o]
	}
}

// show publishes the coverage of a spoke if it has changed. Soon after a start, there is none to compare it with, and what
// the status shows stays.
func (c *Counter) show(sc *v1alpha1.SpokeCluster, is *counted, result coverage.Result) {
	c.mu.Lock()
	news := c.spokes[sc.Name] == is
	if is.shown == nil {
		news = news && (len(sc.Status.Workloads) == 0 || c.startedLocked(c.Clock.Now()))
	} else {
		news = news && !same(*is.shown, result)
	}
	if news {
		is.shown = &result
	}
	c.mu.Unlock()
	if news {
		c.Spokes.ChangedSoon(sc.Name)
	}
}

// startedLocked reports whether the manager has run for a while. Until then, what statuses show stays, because a restart
// is not a change.
func (c *Counter) startedLocked(now time.Time) bool {
	return now.Sub(c.began) >= c.Intervals.Of(publishInterval)
}

func same(a, b coverage.Result) bool {
	return slices.Equal(a.Workloads, b.Workloads) && slices.Equal(a.Uncovered, b.Uncovered)
}

// listed returns the workloads in the cache of a spoke, by kind and all together.
func listed(ctx context.Context, s *spoke.Spoke) (byKind map[v1alpha1.WorkloadKind][]rule.Key, all []rule.Key, err error) {
	byKind = map[v1alpha1.WorkloadKind][]rule.Key{}
	err = s.Workloads(ctx, func(kind v1alpha1.WorkloadKind, workloads []metav1.PartialObjectMetadata) {
		keys := make([]rule.Key, 0, len(workloads))
		for i := range workloads {
			if o := &workloads[i]; o.DeletionTimestamp.IsZero() {
				keys = append(keys, rule.WorkloadKeyOf(kind, o))
			}
		}
		byKind[kind], all = keys, append(all, keys...)
	})
	return byKind, all, err //nolint:wrapcheck // it says all
}

// kinds returns the workloads of all kinds that can be listed. It is not known while the spoke was not asked for each
// kind without an informer.
func (is *counted) kinds(listed map[v1alpha1.WorkloadKind][]rule.Key) (out []coverage.Kind, known bool) {
	for _, kind := range rule.WorkloadKinds() {
		workloads, has := listed[kind]
		if has {
			out = append(out, coverage.Kind{Kind: kind, Workloads: workloads, Known: true})
			continue
		}
		total, asked := is.totals[kind]
		if !asked {
			return nil, false
		}
		if total != unreadable {
			out = append(out, coverage.Kind{Kind: kind, Total: total})
		}
	}
	return out, true
}

// askLocked asks a spoke for the numbers of workloads of the kinds without an informer, if that is due. It does not wait
// for the answers.
func (c *Counter) askLocked(ctx context.Context, is *counted, s *spoke.Spoke) {
	now := c.Clock.Now()
	if is.asking || (!is.asked.IsZero() && now.Sub(is.asked) < c.Intervals.Of(askInterval)) {
		return
	}
	is.asking, is.asked = true, now
	go func() {
		totals, unanswered := map[v1alpha1.WorkloadKind]int32{}, []v1alpha1.WorkloadKind(nil)
		for _, kind := range rule.WorkloadKinds() {
			if s.Reads(kind) {
				continue
			}
			n, err := c.ask(ctx, s, kind)
			switch {
			case err == nil:
				totals[kind] = n
			case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
				totals[kind] = unreadable
			default:
				unanswered = append(unanswered, kind)
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		is.asking = false
		for _, kind := range unanswered { // the last number stays; without one, the others are shown
			if _, known := is.totals[kind]; !known {
				totals[kind] = unreadable
			}
		}
		for kind, n := range totals {
			was, known := is.totals[kind]
			is.changed = is.changed || !known || was != n
			is.totals[kind] = n
		}
	}()
}
