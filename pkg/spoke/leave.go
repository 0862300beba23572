package spoke

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/client/versioned"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

const (
	// lastTry is how long a spoke is tried when its time to leave is over already: the
	// operator may have been away meanwhile.
	lastTry = 15 * time.Second
	// prunePage is how many PrometheusRules are listed, and pruneAtOnce how many are
	// deleted, at a time.
	prunePage   = 500
	pruneAtOnce = perSpoke
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
	// Why is why nothing could be removed last, or "".
	Why string
}

// DepartOptions say how a spoke leaves.
type DepartOptions struct {
	// Stays is why its rules are left where they are, or "".
	Stays string
	// Kubeconfig is what the spoke is reached by where none is in use.
	Kubeconfig []byte
	// Placed are the AlertRules, as namespace/name, that are placed on it.
	Placed []string
	// Deadline ends the removal.
	Deadline time.Time
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
	stays, deadline := o.Stays, o.Deadline
	conn, err := p.lastConnectionLocked(name, o.Kubeconfig)
	if err != nil && stays == "" {
		stays = err.Error()
	}
	if stays != "" {
		d.state.Why = stays
		go p.stay(p.base, name, d)
		return d.state, nil
	}
	if earliest := time.Now().Add(lastTry); deadline.Before(earliest) {
		deadline = earliest
	}
	run, cancel := context.WithDeadline(p.base, deadline)
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
	return rulesOf(list.Items), true
}

// rulesOf returns the AlertRules that objects say they stand for.
func rulesOf(objects []monitoringv1.PrometheusRule) []string {
	out := make([]string, 0, len(objects))
	for i := range objects {
		out = append(out, Clip(objects[i].Annotations[v1alpha1.AlertRuleAnnotation], maxRuleName))
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
		return nil, errors.New("there is no kubeconfig to reach it with")
	}
	cfg, err := RESTConfig(kubeconfig, p.opts.Allow)
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
	backoff := newBackoff()
	for {
		err := c.prune(ctx, d.identity, func(removed int, left []string) {
			p.progress(name, d, func(s *Departure) { s.Removed += removed; s.Left, s.Known = left, true })
		})
		if err == nil || ctx.Err() != nil {
			p.progress(name, d, func(s *Departure) {
				s.Done = true
				if err == nil {
					s.Why = ""
				} else if s.Why == "" {
					s.Why = "not all of them could be removed in time"
				}
			})
			return
		}
		p.progress(name, d, func(s *Departure) { s.Why = disconnected(err).Message })
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Step()):
		}
	}
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
		return fmt.Errorf("making a client for PrometheusRules: %w", err)
	}
	return pruneAll(ctx, rules, c.p.opts.HubID, told)
}

// pruneAll removes a hub's PrometheusRules. What is being deleted already, and waits for its
// finalizers, is an error.
func pruneAll(ctx context.Context, rules monitoring.Interface, hubID string, told func(removed int, left []string)) error {
	for {
		page, err := ownRules(ctx, rules, hubID)
		if err != nil || len(page.Items) == 0 {
			return err
		}
		live, ending := partition(page.Items)
		removed, err := removeAll(ctx, rules, live)
		told(removed, rulesOf(slices.Concat(live[removed:], ending)))
		switch {
		case err != nil:
			return err
		case len(live) == 0:
			return fmt.Errorf("%d PrometheusRules are being deleted, and wait for their finalizers, such as %s/%s",
				len(ending), ending[0].Namespace, ending[0].Name)
		}
	}
}

// partition tells what is being deleted from what is not.
func partition(objects []monitoringv1.PrometheusRule) (live, ending []monitoringv1.PrometheusRule) {
	for _, o := range objects {
		if o.DeletionTimestamp == nil {
			live = append(live, o)
		} else {
			ending = append(ending, o)
		}
	}
	return live, ending
}

// ownRules lists some of this hub's PrometheusRules. Without the kind there are none.
func ownRules(ctx context.Context, rules monitoring.Interface, hubID string) (*monitoringv1.PrometheusRuleList, error) {
	ctx, cancel := context.WithTimeout(ctx, lastTry)
	defer cancel()
	list, err := rules.MonitoringV1().PrometheusRules(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: map[string]string{
			v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.HubLabel: hubID,
		}}),
		Limit: prunePage,
	})
	switch {
	case apierrors.IsNotFound(err):
		return &monitoringv1.PrometheusRuleList{}, nil
	case err != nil:
		return nil, fmt.Errorf("listing PrometheusRules: %w", err)
	}
	return list, nil
}

// removeAll deletes objects, each if it still is as it was listed. The first of them, as
// many as it returns, are gone.
func removeAll(ctx context.Context, rules monitoring.Interface, objects []monitoringv1.PrometheusRule) (int, error) {
	for start := 0; start < len(objects); start += pruneAtOnce {
		g, gctx := errgroup.WithContext(ctx)
		for _, o := range objects[start:min(start+pruneAtOnce, len(objects))] {
			g.Go(func() error {
				ctx, cancel := context.WithTimeout(gctx, lastTry)
				defer cancel()
				err := rules.MonitoringV1().PrometheusRules(o.Namespace).Delete(ctx, o.Name, metav1.DeleteOptions{
					Preconditions: &metav1.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion},
				})
				if err != nil && !apierrors.IsNotFound(err) {
					return fmt.Errorf("deleting PrometheusRule %s/%s: %w", o.Namespace, o.Name, err)
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return start, err //nolint:wrapcheck // it says all
		}
	}
	return len(objects), nil
}

// isStill makes sure that a connection leads to the cluster that a spoke is known to be,
// and that no other spoke is in charge of it.
func (c *connection) isStill(ctx context.Context, identity string) error {
	ctx, cancel := context.WithTimeout(asProbe(ctx), requestTimeout)
	defer cancel()
	body, err := c.probes.Get().AbsPath("/api/v1/namespaces", metav1.NamespaceSystem).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return fmt.Errorf("reading the namespace %s: %w", metav1.NamespaceSystem, err)
	}
	var ns metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &ns); err != nil || !uid.MatchString(string(ns.UID)) {
		return fmt.Errorf("reading the namespace %s: %w", metav1.NamespaceSystem, errNotKubernetes)
	}
	if is := string(ns.UID); identity != "" && is != identity {
		return &IdentityError{Spoke: c.name, Was: identity, Is: is}
	}
	if other := c.p.inCharge(c.name, string(ns.UID)); other != "" {
		return &DuplicateError{Other: other}
	}
	return nil
}

// inCharge returns another spoke that is known to be a cluster, and has a Secret, or "".
func (p *Provider) inCharge(name, identity string) string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for other, known := range p.members.identities {
		if other != name && known == identity && !p.members.released.Has(other) {
			return other
		}
	}
	return ""
}
