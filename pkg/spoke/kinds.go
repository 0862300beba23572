package spoke

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// Deployments are always read. Workloads of the other kinds are only read in a spoke while a template names their kind,
// or while AlertRules of such workloads exist (Lifecycle.Kinds). Without the permission to read a kind, the spoke is served
// without it.

// Reads reports whether the cache of the spoke holds the workloads of a kind.
func (s *Spoke) Reads(kind v1alpha1.WorkloadKind) bool {
	return kind == v1alpha1.DeploymentKind || slices.Contains(s.Kinds, kind)
}

// Workloads calls fn with the workloads of each kind that the cache of the spoke holds. Their objects have no kind. An error
// means that the spoke was disengaged.
func (s *Spoke) Workloads(ctx context.Context, fn func(kind v1alpha1.WorkloadKind, workloads []metav1.PartialObjectMetadata), opts ...client.ListOption) error {
	for _, kind := range rule.WorkloadKinds() {
		if !s.Reads(kind) {
			continue
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(WorkloadMetadata(kind).GroupVersionKind())
		if err := s.Reader.List(ctx, list, opts...); err != nil {
			return fmt.Errorf("listing the %ss in the cache: %w", kind, err)
		}
		fn(kind, list.Items)
	}
	return nil
}

// Reads returns a filter for watches of workloads of a kind.
func (p *Provider) Reads(kind v1alpha1.WorkloadKind) func(multicluster.ClusterName, cluster.Cluster) bool {
	return func(name multicluster.ClusterName, _ cluster.Cluster) bool {
		s := p.Spoke(name.String())
		return s != nil && s.Reads(kind)
	}
}

// KindsChanged is called when the answer of Lifecycle.Kinds may have changed for any spoke. Sessions then start and end
// the informers of workloads.
func (p *Provider) KindsChanged() {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, e := range p.entries {
		for _, r := range []*registration{e.current, e.pending} {
			if r != nil {
				r.conn.rekind.Store(true)
				r.conn.look()
			}
		}
	}
}

// wantedKinds returns the kinds of workloads, beside Deployments, that are to be read in the spoke.
func (c *connection) wantedKinds() []v1alpha1.WorkloadKind {
	c.p.mu.RLock()
	kinds := c.p.life.Kinds
	c.p.mu.RUnlock()
	if kinds == nil {
		return nil
	}
	return kinds(c.name)
}

// kindRetry is when a kind of workloads that could not be listed is tried again. A list may take a minute.
const kindRetry = 5 * time.Minute

// unread is why the workloads of a kind are not read, and when to try again; zero means at each recheck.
type unread struct {
	why   error
	again time.Time
}

// readable returns those of some kinds that may be read now. The condition WorkloadsReadable shows the others. A kind that is
// read stays, even if it is refused: its informer retries.
func (c *connection) readable(ctx context.Context, s *session, granted grants, kinds []v1alpha1.WorkloadKind) []v1alpha1.WorkloadKind {
	was, out := s.unread, []v1alpha1.WorkloadKind(nil)
	s.unread = map[v1alpha1.WorkloadKind]unread{}
	for _, kind := range kinds {
		held, waits := slices.Contains(s.kinds, kind), was[kind]
		if time.Now().Before(waits.again) {
			s.unread[kind] = waits
			continue
		}
		err := granted.lack(reads(kind))
		if err == nil && !granted.known {
			err = c.tryList(ctx, s.cluster, WorkloadMetadata(kind).GroupVersionKind())
		}
		switch {
		case err == nil:
		case refuses(err):
			s.unread[kind] = unread{why: err}
		case !held && waits.why != nil:
			s.unread[kind] = waits // nothing new is known
		}
		if err == nil || held {
			out = append(out, kind)
		}
	}
	c.seen.Workloads = unreadableKinds(s.unread)
	return out
}

// refuses reports whether an error is a final answer: without a change in the spoke, the next one is the same.
func refuses(err error) bool {
	return answered(err) && !apierrors.IsTimeout(err) && !apierrors.IsServerTimeout(err) && !apierrors.IsTooManyRequests(err) &&
		!apierrors.IsServiceUnavailable(err) && !apierrors.IsInternalError(err)
}

// unreadableKinds returns the condition WorkloadsReadable, or zero if there is nothing to show.
func unreadableKinds(kinds map[v1alpha1.WorkloadKind]unread) Finding {
	var names []string
	var why error
	for _, kind := range rule.WorkloadKinds() {
		if u, ok := kinds[kind]; ok {
			names = append(names, string(kind)+"s")
			if why == nil || refuses(u.why) {
				why = u.why
			}
		}
	}
	if len(names) == 0 {
		return Finding{}
	}
	f := disconnected(why)
	f.Status, f.Message = metav1.ConditionFalse, Clip("the "+strings.Join(names, ", ")+" of the spoke can't be read, so AlertRules for them are neither created nor removed: "+f.Message, MaxMessage)
	return f
}

// syncKinds starts the informers of the kinds that the cache does not hold yet, and sets s.kinds. Those that are no
// longer wanted still run; see dropKinds. A kind that can't be listed does not keep the spoke from being served: an error
// means that the session must end.
func (c *connection) syncKinds(ctx context.Context, s *session, kinds []v1alpha1.WorkloadKind) error {
	var held []v1alpha1.WorkloadKind
	var fatal error
	for _, kind := range kinds {
		if slices.Contains(s.kinds, kind) {
			held = append(held, kind)
			continue
		}
		if fatal != nil {
			continue
		}
		err := c.syncKind(ctx, s.cluster, WorkloadMetadata(kind), nil)
		switch {
		case err == nil:
			held = append(held, kind)
			continue
		case ctx.Err() != nil, isIdentity(err), tooLarge(err) != nil, s.guard.Err() != nil:
			fatal = err
		case refuses(err):
			s.unread[kind] = unread{why: err}
		default:
			s.unread[kind] = unread{err, time.Now().Add(c.every(kindRetry))}
		}
		c.dropKind(ctx, s, kind)
	}
	s.kinds = held
	c.seen.Workloads = unreadableKinds(s.unread)
	return fatal
}

// dropKinds ends the informers of kinds that the session no longer holds. No controller watches them any more.
func (c *connection) dropKinds(ctx context.Context, s *session, before []v1alpha1.WorkloadKind) {
	for _, kind := range before {
		if !slices.Contains(s.kinds, kind) {
			c.dropKind(ctx, s, kind)
		}
	}
}

func (c *connection) dropKind(ctx context.Context, s *session, kind v1alpha1.WorkloadKind) {
	o := WorkloadMetadata(kind)
	if err := s.cluster.GetCache().RemoveInformer(context.WithoutCancel(ctx), o); err != nil {
		c.log.Error(err, "could not end the watch of workloads", "kind", kind)
		return
	}
	c.reads.forget(o.GroupVersionKind())
}
