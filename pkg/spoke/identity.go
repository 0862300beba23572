package spoke

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// members records which spoke is which cluster. The Provider's lock guards it.
type members struct {
	// identities are those of the served spokes, and of spokes that were served when their status was last
	// written.
	identities map[string]string
	// accepted are the identities that a person confirmed.
	accepted map[string]string
	// found are the identities of clusters that spokes now lead to, but that are not served yet because the
	// spokes were other clusters before.
	found map[string]string
	// released are the spokes that have a SpokeCluster but no Secret any more.
	released sets.Set[string]
	// forgotten are the spokes whose identity was lost with the CustomResourceDefinition of SpokeClusters.
	forgotten sets.Set[string]
	// changed is when spokes became another cluster, or were confirmed.
	changed map[string]time.Time
}

func newMembers() members {
	return members{
		identities: map[string]string{}, accepted: map[string]string{}, found: map[string]string{},
		released: sets.New[string](), forgotten: sets.New[string](), changed: map[string]time.Time{},
	}
}

// Known records the identity in a spoke's status. It takes precedence, whichever spoke answers first after a
// restart.
func (p *Provider) Known(name, identity string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.members.identities[name] == "" && identity != "" {
		p.members.identities[name] = identity
	}
}

// Accept records the identity that a person confirmed for a spoke, or "".
func (p *Provider) Accept(name, identity string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.members.accepted[name] == identity {
		return
	}
	p.members.accepted[name] = identity
	if e := p.entries[name]; e != nil && e.spoke != nil && p.members.identities[name] == identity {
		p.bewareLocked(name) // it is confirmed again
	}
	p.kickLocked(name)
	p.kickOthersLocked(name) // they may be waiting for this
}

// Forgot records that the identity of a spoke was lost with the CustomResourceDefinition of SpokeClusters, so
// that its cluster may be another one.
func (p *Provider) Forgot(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.members.identities[name] == "" {
		p.members.forgotten.Insert(name)
	}
}

func (p *Provider) bewareLocked(name string) {
	p.members.changed[name] = time.Now()
	for _, fn := range p.life.Replaced {
		fn(name)
	}
}

// becomeLocked records the cluster as which a spoke is served.
func (p *Provider) becomeLocked(name, identity string) {
	m := &p.members
	was, forgotten := m.identities[name], m.forgotten.Has(name)
	m.identities[name] = identity
	delete(m.found, name)
	m.forgotten.Delete(name)
	if was == "" && forgotten {
		p.bewareLocked(name)
	}
	if was != "" && (was != identity || m.accepted[name] == identity) {
		p.bewareLocked(name)
		p.kickOthersLocked(name) // its former cluster may be that of another spoke
	}
}

// strayed records that one of a spoke's connections leads to another cluster.
func (p *Provider) strayed(c *connection, identity string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, ok := p.entries[c.name]; !ok || !e.has(c) || p.members.found[c.name] == identity {
		return
	}
	p.members.found[c.name] = identity
	p.kickOthersLocked(c.name)
}

// movesLocked reports whether a spoke is about to be served as another cluster: its kubeconfig leads there,
// and a person confirmed it.
func (p *Provider) movesLocked(name string) bool {
	m := &p.members
	e := p.entries[name]
	return m.found[name] != "" && m.found[name] == m.accepted[name] && (e == nil || e.spoke == nil)
}

// Release disengages a spoke that has no Secret any more. It keeps its objects in the cluster, unless another
// spoke is the same cluster: then the Secret was renamed, and the other spoke takes over.
func (p *Provider) Release(name string) {
	p.Remove(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.members.released.Has(name) {
		return
	}
	p.members.released.Insert(name)
	p.kickOthersLocked(name)
}

// Gone forgets a spoke whose SpokeCluster is gone.
func (p *Provider) Gone(name string) {
	p.Remove(name)
	p.tellRemoved(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.members.identities, name)
	delete(p.members.accepted, name)
	delete(p.members.found, name)
	delete(p.members.changed, name)
	p.members.released.Delete(name)
	p.members.forgotten.Delete(name)
	p.endDepartureLocked(name)
}

// kickOthersLocked makes all other spokes that are not served try again at once.
func (p *Provider) kickOthersLocked(name string) {
	for other := range p.entries {
		if other != name {
			p.kickLocked(other)
		}
	}
}

// kickLocked makes a spoke that is not served try again at once.
func (p *Provider) kickLocked(name string) {
	e := p.entries[name]
	if e == nil {
		return
	}
	for _, r := range []*registration{e.pending, e.current} {
		if r == nil || (r == e.current && e.spoke != nil) {
			continue
		}
		r.conn.look()
	}
}

// Predecessors returns the spokes without a Secret that are the same cluster as an engaged spoke, sorted by
// name.
func (p *Provider) Predecessors(name string) []string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	identity := p.members.identities[name]
	if e := p.entries[name]; e == nil || e.spoke == nil || identity == "" {
		return nil
	}
	var out []string
	for other := range p.members.released {
		if other != name && p.members.identities[other] == identity {
			out = append(out, other)
		}
	}
	slices.Sort(out)
	return out
}

// tellPredecessors updates the statuses of spokes whose successor is engaged.
func (p *Provider) tellPredecessors(name string) {
	for _, former := range p.Predecessors(name) {
		p.Changed(former)
	}
}

// Successor returns the engaged spoke that is the same cluster as a spoke without a Secret, or "".
func (p *Provider) Successor(name string) string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.successorLocked(name)
}

func (p *Provider) successorLocked(name string) string {
	identity := p.members.identities[name]
	for other, e := range p.entries {
		if other != name && e.spoke != nil && identity != "" && p.members.identities[other] == identity {
			return other
		}
	}
	return ""
}

// admit checks whether a spoke may be served as this cluster.
func (p *Provider) admit(name, identity string) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.admitLocked(name, identity)
}

// admitLocked returns a *duplicateError if another spoke was registered as the same cluster first: two spokes
// of one cluster would remove each other's rules as leftovers. It returns an *IdentityError if the spoke was
// another cluster before. If the Secrets of two spokes were swapped, both have to be confirmed.
func (p *Provider) admitLocked(name, identity string) error {
	m := &p.members
	was := m.identities[name]
	if was != "" && was != identity && m.accepted[name] != identity {
		return &IdentityError{Was: was, Is: identity, Spoke: name}
	}
	for other := range m.identities {
		if err := p.rivalLocked(name, identity, other); err != nil {
			return err
		}
	}
	return nil
}

// rivalLocked is admitLocked for one other spoke.
func (p *Provider) rivalLocked(name, identity, other string) error {
	m := &p.members
	if other == name || identity == "" || m.identities[other] != identity || m.released.Has(other) || p.movesLocked(other) {
		return nil
	}
	e := p.entries[other]
	was, found, served := m.identities[name], m.found[other], e != nil && e.spoke != nil
	switch {
	case was != "" && was != identity && found != "" && !served:
		return &IdentityError{Was: was, Is: identity, Spoke: name, Other: other, OtherIs: found}
	case was != identity, e != nil && e.current != nil:
		return &duplicateError{Other: other}
	}
	return nil
}

// disown ends the session of a spoke's former kubeconfig, because the new one leads to another cluster. A
// person has to decide between the two; until then, neither is written to.
func (p *Provider) disown(c *connection) {
	p.mu.Lock()
	e, ok := p.entries[c.name]
	if !ok || e.current == nil || !e.has(c) {
		p.mu.Unlock()
		return
	}
	former := e.current
	if former.conn != c {
		former.cancel()
		e.current = nil
	}
	e.uncount()
	e.cluster, e.spoke, e.open, e.seen, e.fault = nil, nil, false, nil, ""
	circuits := p.circuits
	p.mu.Unlock()
	former.conn.breaker.Trip() // stops the writes of workers as well
	for _, q := range circuits {
		q.ForgetSpoke(multicluster.ClusterName(c.name))
	}
}

// readIdentity reads the UID of namespace kube-system, with the bounds of reads on a slow link.
func (c *connection) readIdentity(ctx context.Context) (string, error) {
	ctx, cancel := c.patient(ctx)
	defer cancel()
	body, err := bodyOf(ctx, c.probes.Get().AbsPath("/api/v1/namespaces", metav1.NamespaceSystem).SetHeader("Accept", "application/json"))
	if apierrors.IsForbidden(err) {
		err = &grantError{missing: needs("", "namespaces", "get"), refusal: err}
	}
	if err != nil {
		return "", fmt.Errorf("reading namespace %s: %w", metav1.NamespaceSystem, err)
	}
	var ns struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(body, &ns); err != nil || !uid.MatchString(ns.Metadata.UID) {
		return "", fmt.Errorf("reading namespace %s: %w", metav1.NamespaceSystem, errNotKubernetes)
	}
	return ns.Metadata.UID, nil
}
