package spoke

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
)

const (
	// lastTry is how long a spoke is tried when its deadline has already passed, because the operator may have
	// been down.
	lastTry = 15 * time.Second
	// pruneAtOnce is the number of concurrent deletions of PrometheusRules. Progress is reported after every
	// pruneStep of them.
	pruneAtOnce = 4
	pruneStep   = 100
	// pruneAgain is the first pause before objects are removed that were created again, and maxPruneAgain the longest.
	pruneAgain, maxPruneAgain = time.Second, 15 * time.Second
	// idlePoll is the interval at which awaitIdle checks for busy workers.
	idlePoll = 20 * time.Millisecond
)

// Departure is the progress of removing a spoke's rules.
type Departure struct {
	// Done means that the removal has ended.
	Done bool
	// Removed is the number of PrometheusRules that were removed.
	Removed int
	// Left are the AlertRules, as namespace/name, whose PrometheusRules are left. If Known is false, they are
	// those that may be left.
	Left  []string
	Known bool
	// Stays means that the rules are left where they are. Meant means that a person decided that, and Kept that another
	// spoke is the same cluster and keeps them.
	Stays, Meant, Kept bool
	// Why is the reason of the last failure, or "".
	Why string
	// Deadline ends the removal.
	Deadline time.Time
}

// DepartOptions are the options of Depart.
type DepartOptions struct {
	// Stays is the reason to leave the rules where they are, or "".
	Stays string
	// Kubeconfig is used if the spoke has no connection.
	Kubeconfig []byte
	// Placed are the AlertRules, as namespace/name, that are placed on it.
	Placed []string
	// Deleted is when the SpokeCluster was deleted, by the clock of the hub's API server.
	Deleted time.Time
	// Timeout bounds the removal.
	Timeout time.Duration
}

// until returns the deadline of a removal that begins now. A deletion in the future does not extend it. attended
// means that this process has served the spoke and would have seen an earlier deletion. In both cases the
// clock of the hub's API server differs from this one.
func (o *DepartOptions) until(now time.Time, attended bool) time.Time {
	if o.Deleted.After(now) || attended && now.Sub(o.Deleted) > lastTry {
		return now.Add(o.Timeout)
	}
	return o.Deleted.Add(o.Timeout)
}

// departure is the removal of a spoke's rules. The Provider's lock guards its state.
type departure struct {
	state    Departure
	identity string
	cancel   context.CancelFunc
}

// Depart removes this hub's PrometheusRules from a spoke until the deadline. It disengages the spoke, returns
// the progress at once, and Changes reports later progress. It uses the spoke's present kubeconfig, or else
// the one in the options.
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
	if other := p.successorLocked(name); stays == "" && other != "" {
		stays, d.state.Kept = managedBy(other), true
	}
	d.state.Deadline = o.until(now, p.entries[name] != nil)
	conn, err := p.lastConnectionLocked(name, o.Kubeconfig)
	if err != nil && stays == "" {
		stays = err.Error()
		if refused, ok := errors.AsType[*kubeconfig.RefusedError](err); ok && refused.Field != "" {
			stays = "the kubeconfig is refused because of its field " + refused.Field // the rest is advice, which has no effect any more
		}
	}
	if stays != "" {
		d.state.Why, d.state.Stays, d.state.Meant = stays, true, o.Stays != ""
		go p.stay(p.base, name, d)
		return d.state, nil
	}
	run, cancel := context.WithTimeout(p.base, max(d.state.Deadline.Sub(now), lastTry))
	d.cancel = cancel
	go p.depart(run, name, conn, d)
	return d.state, nil
}

// managedBy is the reason to leave rules in a spoke that is also another SpokeCluster.
func managedBy(other string) string {
	return "SpokeCluster " + other + " is the same cluster and manages them"
}

// stay ends a departure that removes nothing.
func (p *Provider) stay(ctx context.Context, name string, d *departure) {
	p.Remove(name)
	p.awaitIdle(ctx, name)
	p.progress(name, d, func(s *Departure) { s.Done = true })
}

// awaitIdle waits for writes that are in flight. They are bounded.
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

// heldLocked returns the AlertRules whose PrometheusRules are in a spoke's cache. It does not wait.
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

// alertRuleOf returns the source that an object's annotation names, as lists name it.
func alertRuleOf(o metav1.Object) string {
	if key, ok := rule.ParseRuleKey(o); ok {
		return Clip(key.Listed(), maxRuleName)
	}
	return Clip(o.GetAnnotations()[v1alpha1.AlertRuleAnnotation], maxRuleName)
}

// alertRulesOf returns the AlertRules that the annotations of objects name.
func alertRulesOf(objects []ownRule) []string {
	out := make([]string, 0, len(objects))
	for _, o := range objects {
		out = append(out, o.alertRule)
	}
	slices.Sort(out)
	return out
}

// maxRuleName bounds the names in annotations, in bytes, and maxFinalizers the finalizers in a message.
const maxRuleName, maxFinalizers = 326, 100

// lastConnectionLocked creates a connection with the kubeconfig in use, or else with the given one.
func (p *Provider) lastConnectionLocked(name string, data []byte) (*connection, error) {
	if e := p.entries[name]; e != nil && e.current != nil {
		data = e.current.kubeconfig
	}
	if len(data) == 0 {
		return nil, errors.New("the spoke has no kubeconfig")
	}
	cfg, err := kubeconfig.RESTConfig(data, p.opts.Allow.Of(name))
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig is refused: %w", err)
	}
	return p.newConnection(name, cfg)
}

// depart removes rules until none is left or the deadline has passed.
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
			return // the operator is stopping; its successor continues
		}
		duplicate, same := errors.AsType[*duplicateError](err)
		if err == nil || ctx.Err() != nil || same {
			p.progress(name, d, func(s *Departure) {
				s.Done = true
				switch {
				case err == nil:
					s.Why = ""
				case same:
					s.Why, s.Stays, s.Kept = managedBy(duplicate.Other), true, true
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

// whyLeft says why rules are still in a spoke that leaves. A new kubeconfig or an accepted identity would have no
// effect any more.
func whyLeft(err error) string {
	switch {
	case errors.As(err, new(*endingError)), isUntrusted(err), errors.Is(err, errNotKubernetes):
		return Clip(err.Error(), MaxMessage)
	case isIdentity(err):
		return "the kubeconfig leads to another cluster"
	case apierrors.IsUnauthorized(err):
		return "the spoke rejects the credential (401)"
	}
	return disconnected(err).Message
}

// progress changes a departure's state and reports it.
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

// idle reports whether no worker has a key of a spoke.
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

// prune removes this hub's PrometheusRules from the cluster with this identity, and reports after each page
// what is left. It returns nil when none is left.
func (c *connection) prune(ctx context.Context, identity string, told func(removed int, left []string)) error {
	if err := c.isStill(ctx, identity); err != nil {
		return err
	}
	c.breaker.Close()
	c.account.begin()
	rules, err := monitoring.NewForConfigAndClient(c.cfg, c.http)
	if err != nil {
		return fmt.Errorf("creating a client for PrometheusRules: %w", err)
	}
	return pruneAll(ctx, c.ownRules(rules, c.catalog()), rules, told)
}

// ownRule is a PrometheusRule of this hub, as listed.
type ownRule struct {
	namespace, name string
	uid             types.UID
	resourceVersion string
	alertRule       string
	ending          bool // it is being deleted and waits for its finalizers
	finalizers      []string
}

// endingError says that an object is still there and being deleted.
type endingError struct {
	object     string
	finalizers []string
}

// Error implements error.
func (e *endingError) Error() string {
	return fmt.Sprintf("PrometheusRule %s is being deleted, but its finalizers keep it (%s). Find the controller that set them. Remove them by hand only if that controller is gone",
		e.object, Clip(strings.Join(e.finalizers, ", "), maxFinalizers))
}

// pruneAll removes all PrometheusRules of the hub. It returns an error for those that it could not remove, and
// removes the others. If another client creates some again, it pauses longer and longer.
func pruneAll(ctx context.Context, own *reading, rules monitoring.Interface, told func(removed int, left []string)) error {
	for pause := time.Duration(0); ; pause = min(2*pause+pruneAgain, maxPruneAgain) {
		objects, err := listOwn(ctx, own)
		if err != nil || len(objects) == 0 {
			return err
		}
		if pause > 0 {
			select {
			case <-ctx.Done():
				return fmt.Errorf("another client creates PrometheusRule %s/%s again after each deletion: %w", objects[0].namespace, objects[0].name, context.Cause(ctx))
			case <-time.After(pause):
			}
			if objects, err = listOwn(ctx, own); err != nil { // as they are now
				return err
			}
		}
		if err := removeAll(ctx, rules, objects, told); err != nil {
			return err
		}
	}
}

// ownRules lists this hub's PrometheusRules in pages that suit the link.
func (c *connection) ownRules(rules monitoring.Interface, served catalog) *reading {
	selector := metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: map[string]string{
		v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.HubLabel: c.p.opts.HubID,
	}})
	lw := &toolscache.ListWatch{ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		options.LabelSelector = selector
		list, err := rules.MonitoringV1().PrometheusRules(metav1.NamespaceAll).List(ctx, options)
		return list, served.confirm(ctx, monitoringv1.PrometheusRuleName, err)
	}}
	own := newReading(ruleKind.Kind, lw, func(o runtime.Object) error {
		if o, ok := o.(*monitoringv1.PrometheusRule); ok {
			*o = monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{
				Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
				DeletionTimestamp: o.DeletionTimestamp, Finalizers: o.Finalizers, Annotations: keep(o.Annotations, rule.OwnAnnotations...),
			}}
		}
		return nil
	}, c.received, c.cfg.DisableCompression)
	own.bounds = c.listBounds(nil)
	return own
}

// listOwn lists this hub's PrometheusRules. It returns none if the spoke does not serve the kind.
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
			alertRule: alertRuleOf(o), ending: o.GetDeletionTimestamp() != nil, finalizers: o.GetFinalizers(),
		})
		return nil
	})
	return out, err //nolint:wrapcheck // it is nil
}

// removeAll deletes objects, and regularly reports how many more are gone and which AlertRules are left. A
// refused deletion does not stop the others. It returns the first error.
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
		if err != nil && !concernsOne(err) {
			return err // the spoke itself fails
		}
	}
	return first
}

// removeSome deletes objects, a few at a time, and returns those that are left.
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
	_ = g.Wait() // the errors are in errs
	var kept []ownRule
	var first error
	for i, err := range errs {
		if err == nil {
			continue
		}
		kept = append(kept, objects[i])
		if first == nil || (concernsOne(first) && !concernsOne(err)) {
			first = err
		}
	}
	return kept, first
}

// concernsOne reports whether an error concerns only one object.
func concernsOne(err error) bool { return answered(err) || errors.As(err, new(*endingError)) }

// remove deletes an object if it is unchanged since it was listed.
func (o ownRule) remove(ctx context.Context, rules monitoring.Interface) error {
	if o.ending {
		return &endingError{object: o.namespace + "/" + o.name, finalizers: o.finalizers}
	}
	ctx, cancel := context.WithTimeout(ctx, lastTry)
	defer cancel()
	err := rules.MonitoringV1().PrometheusRules(o.namespace).Delete(ctx, o.name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &o.uid, ResourceVersion: &o.resourceVersion},
	})
	if err != nil && !Absent(err, monitoringv1.PrometheusRuleName, o.name) {
		return fmt.Errorf("deleting PrometheusRule %s/%s: %w", o.namespace, o.name, Genuine(err, monitoringv1.PrometheusRuleName, o.name))
	}
	return nil
}

// isStill verifies that a connection leads to the cluster of the spoke, and that no other spoke is in charge
// of that cluster.
func (c *connection) isStill(ctx context.Context, identity string) error {
	is, err := c.gate.learn(asProbe(ctx))
	if err != nil {
		return err
	}
	if identity != "" && is != identity {
		return &IdentityError{Spoke: c.name, Was: identity, Is: is}
	}
	if other := c.p.inCharge(c.name, is, identity != ""); other != "" {
		return &duplicateError{Other: other}
	}
	c.gate.serve(is)
	return nil
}

// inCharge returns another spoke that is known to be this cluster, or "". If the caller is known to be it as
// well, the other spoke counts only if it has a Secret; otherwise it is a predecessor.
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
