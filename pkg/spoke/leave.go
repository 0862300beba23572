package spoke

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/client/versioned"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

const (
	// lastTry is how long a spoke is tried when its time to leave is over already: the
	// operator may have been away meanwhile.
	lastTry = 15 * time.Second
	// pruneAtOnce is how many PrometheusRules are deleted at a time. After every pruneStep it is told
	// how far that got.
	pruneAtOnce = 4
	pruneStep   = 100
	// idlePoll is how often is looked whether the workers are done with a spoke.
	idlePoll = 20 * time.Millisecond
)

// Departure is how far the removal of a spoke's rules got.
type Departure struct {
	// Done tells that nothing more is tried.
	Done bool
	// Removed is the number of PrometheusRules that were removed.
	Removed int
	// Left are the AlertRules, as namespace/name, of what is still there. Where Known is
	// false, they are those of what may be there.
	Left  []string
	Known bool
	// Kept tells that another spoke is the same cluster, and keeps what is there.
	Kept bool
	// Why is why nothing could be removed last, or "".
	Why string
	// Deadline ends the removal.
	Deadline time.Time
}

// DepartOptions say how a spoke leaves.
type DepartOptions struct {
	// Stays is why its rules are left where they are, or "". Kept tells that another spoke
	// keeps them.
	Stays string
	Kept  bool
	// Kubeconfig is what the spoke is reached by where none is in use.
	Kubeconfig []byte
	// Placed are the AlertRules, as namespace/name, that are placed on it.
	Placed []string
	// Deleted is when the SpokeCluster was deleted, by the clock of the hub's API server.
	Deleted time.Time
	// Timeout is for how long the removal is tried.
	Timeout time.Duration
}

// until returns when a removal that begins now has to end. It ends no later for a deletion in the
// future. attended tells that this process has served the spoke, and would have seen a deletion
// that was long ago. In either case the clock of the hub's API server differs from this one.
func (o *DepartOptions) until(now time.Time, attended bool) time.Time {
	if o.Deleted.After(now) || attended && now.Sub(o.Deleted) > lastTry {
		return now.Add(o.Timeout)
	}
	return o.Deleted.Add(o.Timeout)
}

// departure is the removal of one spoke's rules. The Provider's lock guards its state.
type departure struct {
	state    Departure
	identity string
	cancel   context.CancelFunc
}

// Depart removes this hub's PrometheusRules from a spoke, which no controller works on from
// now on, until the deadline. It returns at once with how far that got; OnChange tells when
// there is news. The kubeconfig that is in use serves, or else the one in the options.
func (p *Provider) Depart(ctx context.Context, name string, o DepartOptions) (Departure, error) {
	select {
	case <-p.started:
	case <-ctx.Done():
		return Departure{}, fmt.Errorf("waiting for the controllers to start: %w", ctx.Err())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.leaving[name]; d != nil {
		return d.state, nil
	}
	d := &departure{identity: p.members.identities[name], cancel: func() {}}
	p.leaving[name] = d
	if d.state.Left, d.state.Known = p.heldLocked(name); !d.state.Known {
		d.state.Left = o.Placed
	}
	now, stays := time.Now(), o.Stays
	d.state.Deadline = o.until(now, p.entries[name] != nil)
	conn, err := p.lastConnectionLocked(name, o.Kubeconfig)
	if err != nil && stays == "" {
		stays = err.Error()
	}
	if stays != "" {
		d.state.Why, d.state.Kept = stays, o.Kept
		go p.stay(p.base, name, d)
		return d.state, nil
	}
	run, cancel := context.WithTimeout(p.base, max(d.state.Deadline.Sub(now), lastTry))
	d.cancel = cancel
	go p.depart(run, name, conn, d)
	return d.state, nil
}

// stay ends a departure that removes nothing.
func (p *Provider) stay(ctx context.Context, name string, d *departure) {
	p.Remove(name)
	p.awaitIdle(ctx, name)
	p.progress(name, d, func(s *Departure) { s.Done = true })
}

// awaitIdle waits for the writes that workers may still have in hand. They are bounded.
func (p *Provider) awaitIdle(ctx context.Context, name string) {
	_ = wait.PollUntilContextCancel(ctx, idlePoll, true, func(context.Context) (bool, error) { return p.idle(name), nil })
}

// endDepartureLocked forgets a departure.
func (p *Provider) endDepartureLocked(name string) {
	if d := p.leaving[name]; d != nil {
		d.cancel()
		delete(p.leaving, name)
	}
}

// heldLocked returns the AlertRules that a spoke's cache has something of. The cache is
// read, and nobody waits.
func (p *Provider) heldLocked(name string) ([]string, bool) {
	e := p.entries[name]
	if e == nil || e.spoke == nil || !e.spoke.RulesServed {
		return nil, false
	}
	var list monitoringv1.PrometheusRuleList
	err := e.spoke.Reader.List(context.Background(), &list, client.MatchingLabels{v1alpha1.HubLabel: p.opts.HubID})
	if err != nil {
		return nil, false
	}
	out := make([]string, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, alertRuleOf(&list.Items[i]))
	}
	slices.Sort(out)
	return out, true
}

// alertRuleOf returns the AlertRule that an object says it stands for.
func alertRuleOf(o metav1.Object) string {
	return Clip(o.GetAnnotations()[v1alpha1.AlertRuleAnnotation], maxRuleName)
}

// alertRulesOf returns the AlertRules that objects say they stand for.
func alertRulesOf(objects []ownRule) []string {
	out := make([]string, 0, len(objects))
	for _, o := range objects {
		out = append(out, o.alertRule)
	}
	slices.Sort(out)
	return out
}

// maxRuleName bounds the names that are read from annotations, in bytes.
const maxRuleName = 317

// lastConnectionLocked makes a connection by the kubeconfig that is in use, or else by the
// one at hand.
func (p *Provider) lastConnectionLocked(name string, kubeconfig []byte) (*connection, error) {
	if e := p.entries[name]; e != nil && e.current != nil {
		kubeconfig = e.current.kubeconfig
	}
	if len(kubeconfig) == 0 {
		return nil, errors.New("the spoke has no kubeconfig; create its Secret again")
	}
	cfg, err := RESTConfig(kubeconfig, p.opts.Allow.Of(name))
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig is refused: %w", err)
	}
	return p.newConnection(name, cfg)
}

// depart removes until there is nothing left, or the time is over.
func (p *Provider) depart(ctx context.Context, name string, c *connection, d *departure) {
	defer d.cancel()
	p.Remove(name)
	defer c.disconnect()
	defer c.breaker.Stop()
	p.awaitIdle(ctx, name)
	backoff := c.backoff()
	for {
		err := c.prune(ctx, d.identity, func(removed int, left []string) {
			p.progress(name, d, func(s *Departure) { s.Removed += removed; s.Left, s.Known = left, true })
		})
		if p.base.Err() != nil {
			return // the operator ends: whoever comes after it goes on
		}
		if err == nil || ctx.Err() != nil || isDuplicate(err) {
			p.progress(name, d, func(s *Departure) {
				s.Done = true
				switch {
				case err == nil:
					s.Why = ""
				case isDuplicate(err):
					s.Why, s.Kept = err.Error(), true
				case s.Why == "":
					s.Why = "not all PrometheusRules could be removed in time"
				}
			})
			return
		}
		p.progress(name, d, func(s *Departure) { s.Why = whyLeft(err) })
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Step()):
		}
	}
}

// whyLeft says why something is still in a spoke that leaves.
func whyLeft(err error) string {
	if isEnding(err) {
		return Clip(err.Error(), maxMessage)
	}
	return disconnected(err).Message
}

// progress changes a departure's state, and tells of it.
func (p *Provider) progress(name string, d *departure, change func(*Departure)) {
	p.mu.Lock()
	before := d.state
	change(&d.state)
	news := before.Done != d.state.Done || before.Why != d.state.Why
	p.mu.Unlock()
	if news {
		p.Changed(name)
	} else {
		p.ChangedSoon(name)
	}
}

// idle tells whether no worker has a key of a spoke in hand.
func (p *Provider) idle(name string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, q := range p.circuits {
		if q.InFlight(multicluster.ClusterName(name)) > 0 {
			return false
		}
	}
	return true
}

// prune removes this hub's PrometheusRules from the cluster that the spoke is known to be,
// and tells after every page what is left. It returns nil when there are none.
func (c *connection) prune(ctx context.Context, identity string, told func(removed int, left []string)) error {
	if err := c.isStill(ctx, identity); err != nil {
		return err
	}
	c.breaker.Close()
	rules, err := monitoring.NewForConfigAndClient(c.cfg, c.http)
	if err != nil {
		return fmt.Errorf("creating a client for PrometheusRules: %w", err)
	}
	return pruneAll(ctx, c.ownRules(rules), rules, told)
}

// ownRule is a PrometheusRule of this hub's, as it was listed.
type ownRule struct {
	namespace, name string
	uid             types.UID
	resourceVersion string
	alertRule       string
	ending          bool // it is being deleted, and waits for its finalizers
}

// endingError says that an object is being deleted, and still there.
type endingError struct{ object string }

// Error implements error.
func (e *endingError) Error() string {
	return "PrometheusRule " + e.object + " is being deleted and waits for its finalizers"
}

func isEnding(err error) bool {
	_, ok := errors.AsType[*endingError](err)
	return ok
}

// pruneAll removes a hub's PrometheusRules. What can't be removed is an error, and keeps
// none of the others.
func pruneAll(ctx context.Context, own *reading, rules monitoring.Interface, told func(removed int, left []string)) error {
	for {
		objects, err := listOwn(ctx, own)
		if err != nil || len(objects) == 0 {
			return err
		}
		if err := removeAll(ctx, rules, objects, told); err != nil {
			return err
		}
	}
}

// ownRules reads this hub's PrometheusRules, in pages that suit the link.
func (c *connection) ownRules(rules monitoring.Interface) *reading {
	selector := metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: map[string]string{
		v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.HubLabel: c.p.opts.HubID,
	}})
	lw := &toolscache.ListWatch{ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		options.LabelSelector = selector
		return rules.MonitoringV1().PrometheusRules(metav1.NamespaceAll).List(ctx, options)
	}}
	return newReading(ruleKind.Kind, lw, func(o runtime.Object) error {
		if rule, ok := o.(*monitoringv1.PrometheusRule); ok {
			rule.Spec = monitoringv1.PrometheusRuleSpec{}
		}
		return nil
	}, &c.received, c.cfg.DisableCompression)
}

// listOwn lists this hub's PrometheusRules. Without the kind there are none.
func listOwn(ctx context.Context, own *reading) ([]ownRule, error) {
	list, err := own.list(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("listing PrometheusRules: %w", err)
	}
	var out []ownRule
	err = meta.EachListItem(list, func(item runtime.Object) error {
		o, err := meta.Accessor(item)
		if err != nil {
			return err //nolint:wrapcheck // all of them are objects
		}
		out = append(out, ownRule{
			namespace: o.GetNamespace(), name: o.GetName(), uid: o.GetUID(), resourceVersion: o.GetResourceVersion(),
			alertRule: alertRuleOf(o), ending: o.GetDeletionTimestamp() != nil,
		})
		return nil
	})
	return out, err //nolint:wrapcheck // it is nil
}

// removeAll deletes objects, and tells now and then how many more are gone, and of which
// AlertRules the rest is. One that the spoke refuses to delete does not keep the others. The
// error is the first one.
func removeAll(ctx context.Context, rules monitoring.Interface, objects []ownRule, told func(removed int, left []string)) error {
	var left []ownRule
	var first error
	for len(objects) > 0 {
		n := min(len(objects), pruneStep)
		kept, err := removeSome(ctx, rules, objects[:n])
		objects, left = objects[n:], append(left, kept...)
		told(n-len(kept), alertRulesOf(slices.Concat(left, objects)))
		if first == nil {
			first = err
		}
		if err != nil && !refused(err) {
			return err // the spoke itself is at fault
		}
	}
	return first
}

// removeSome deletes objects, a few at a time, and returns those that are still there.
func removeSome(ctx context.Context, rules monitoring.Interface, objects []ownRule) ([]ownRule, error) {
	errs := make([]error, len(objects))
	var g errgroup.Group
	g.SetLimit(pruneAtOnce)
	for i, o := range objects {
		g.Go(func() error {
			errs[i] = o.remove(ctx, rules)
			return nil
		})
	}
	_ = g.Wait() // errs has them
	var kept []ownRule
	var first error
	for i, err := range errs {
		if err == nil {
			continue
		}
		kept = append(kept, objects[i])
		if first == nil || (refused(first) && !refused(err)) {
			first = err
		}
	}
	return kept, first
}

// refused tells whether an error is about one object alone.
func refused(err error) bool { return answered(err) || isEnding(err) }

// remove deletes an object, if it still is as it was listed.
func (o ownRule) remove(ctx context.Context, rules monitoring.Interface) error {
	if o.ending {
		return &endingError{object: o.namespace + "/" + o.name}
	}
	ctx, cancel := context.WithTimeout(ctx, lastTry)
	defer cancel()
	err := rules.MonitoringV1().PrometheusRules(o.namespace).Delete(ctx, o.name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &o.uid, ResourceVersion: &o.resourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting PrometheusRule %s/%s: %w", o.namespace, o.name, err)
	}
	return nil
}

// isStill makes sure that a connection leads to the cluster that a spoke is known to be,
// and that no other spoke is in charge of it.
func (c *connection) isStill(ctx context.Context, identity string) error {
	is, err := c.gate.learn(asProbe(ctx))
	if err != nil {
		return err
	}
	if identity != "" && is != identity {
		return &IdentityError{Spoke: c.name, Was: identity, Is: is}
	}
	if other := c.p.inCharge(c.name, is, identity != ""); other != "" {
		return &DuplicateError{Other: other}
	}
	c.gate.serve(is)
	return nil
}

// inCharge returns another spoke that is known to be a cluster, or "". Where the one that asks
// is known to be it as well, the other has to have a Secret: else it is a predecessor.
func (p *Provider) inCharge(name, identity string, known bool) string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for other, is := range p.members.identities {
		if other != name && is == identity && !(known && p.members.released.Has(other)) {
			return other
		}
	}
	return ""
}
