package spoke

import (
	"context"
	"fmt"
	"slices"
	"strings"

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

// readable returns those of some kinds that may be read. The condition WorkloadsReadable shows the others. A kind whose
// list is not answered counts as readable if it was read before.
func (c *connection) readable(ctx context.Context, s *session, granted grants, kinds []v1alpha1.WorkloadKind) []v1alpha1.WorkloadKind {
	var out, refused []v1alpha1.WorkloadKind
	var why error
	for _, kind := range kinds {
		err := granted.lack(reads(kind))
		if err == nil && !granted.known {
			err = c.tryList(ctx, s.cluster, WorkloadMetadata(kind).GroupVersionKind())
		}
		held := slices.Contains(s.kinds, kind)
		if answered(err) {
			refused, why = append(refused, kind), err
		}
		if err == nil || held {
			out = append(out, kind)
		}
	}
	c.seen.Workloads = unreadableKinds(refused, why)
	return out
}

// unreadableKinds returns the condition WorkloadsReadable, or zero if there is nothing to show.
func unreadableKinds(kinds []v1alpha1.WorkloadKind, why error) Finding {
	if len(kinds) == 0 {
		return Finding{}
	}
	var names []string
	for _, kind := range kinds {
		names = append(names, string(kind)+"s")
	}
	f := disconnected(why)
	f.Status, f.Message = metav1.ConditionFalse, Clip("templates select "+strings.Join(names, ", ")+" of the spoke, but they can't be read, so no AlertRules are generated for them: "+f.Message, MaxMessage)
	return f
}

// syncKinds starts the informers of the kinds that the cache does not hold yet, and sets s.kinds. Those that are no
// longer wanted still run; see dropKinds.
func (c *connection) syncKinds(ctx context.Context, s *session, kinds []v1alpha1.WorkloadKind) error {
	var held []v1alpha1.WorkloadKind
	for _, kind := range kinds {
		if !slices.Contains(s.kinds, kind) {
			err := c.syncKind(ctx, s.cluster, WorkloadMetadata(kind), nil)
			if answered(err) && !apierrors.IsTimeout(err) && tooLarge(err) == nil { // it is no longer allowed
				c.seen.Workloads = unreadableKinds([]v1alpha1.WorkloadKind{kind}, err)
				continue
			}
			if err != nil {
				return err
			}
		}
		held = append(held, kind)
	}
	s.kinds = held
	return nil
}

// dropKinds ends the informers of kinds that the session no longer holds. No controller watches them any more.
func (c *connection) dropKinds(ctx context.Context, s *session, before []v1alpha1.WorkloadKind) {
	for _, kind := range before {
		if slices.Contains(s.kinds, kind) {
			continue
		}
		if err := s.cluster.GetCache().RemoveInformer(context.WithoutCancel(ctx), WorkloadMetadata(kind)); err != nil {
			c.log.Error(err, "could not end the watch of workloads that no template selects", "kind", kind)
			continue
		}
		c.reads.bounds.forget(string(kind))
	}
}
