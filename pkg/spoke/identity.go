package spoke

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// members is what is known of which spoke is which cluster. The Provider's lock guards it.
type members struct {
	// identities are those of the spokes that are served, or were when their status
	// was last written.
	identities map[string]string
	// accepted are those that a person confirmed.
	accepted map[string]string
	// found are those of clusters that spokes turned out to be, and are not served as yet,
	// because they were other ones before.
	found map[string]string
	// released are the spokes that have no Secret any more, but a SpokeCluster.
	released sets.Set[string]
	// forgotten are the spokes whose identity was lost with the kind SpokeCluster.
	forgotten sets.Set[string]
	// changed is when spokes became another cluster than before, or one that was confirmed.
	changed map[string]time.Time
}

func newMembers() members {
	return members{
		identities: map[string]string{}, accepted: map[string]string{}, found: map[string]string{},
		released: sets.New[string](), forgotten: sets.New[string](), changed: map[string]time.Time{},
	}
}

// Known tells which identity a spoke is known to have, from its status: it is the
// first of its kind, whichever answers first after a restart.
func (p *Provider) Known(name, identity string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.members.identities[name] == "" && identity != "" {
		p.members.identities[name] = identity
	}
}

// Accept tells which identity a person confirmed for a spoke, or "" for none.
func (p *Provider) Accept(name, identity string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.members.accepted[name] == identity {
		return
	}
	p.members.accepted[name] = identity
	if e := p.entries[name]; e != nil && e.spoke != nil && p.members.identities[name] == identity {
		p.bewareLocked(name) // it is confirmed anew
	}
	p.kickLocked(name)
	p.kickOthersLocked(name) // they may wait for it
}

// Forgot tells that the identity of a spoke was lost with the kind SpokeCluster: the one that it
// turns out to have may be another.
func (p *Provider) Forgot(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.members.identities[name] == "" {
		p.members.forgotten.Insert(name)
	}
}

// OnIdentity adds a function that is told, before a spoke is engaged, that it is another
// cluster than before, or may be, or that a person confirmed which one it is. It has to return
// at once, and may ask the Provider nothing.
func (p *Provider) OnIdentity(fn func(name string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.identified = append(p.identified, fn)
}

func (p *Provider) bewareLocked(name string) {
	p.members.changed[name] = time.Now()
	for _, fn := range p.identified {
		fn(name)
	}
}

// becomeLocked notes as which cluster a spoke is served.
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
		p.kickOthersLocked(name) // what it was may be another's
	}
}

// strayed notes that a spoke turned out to be another cluster than it was, by one of its
// connections.
func (p *Provider) strayed(c *connection, identity string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, ok := p.entries[c.name]; !ok || !e.has(c) || p.members.found[c.name] == identity {
		return
	}
	p.members.found[c.name] = identity
	p.kickOthersLocked(c.name)
}

// movesLocked tells whether a spoke is about to be served as another cluster than it was: it is that
// cluster, by its kubeconfig, and a person confirmed it.
func (p *Provider) movesLocked(name string) bool {
	m := &p.members
	e := p.entries[name]
	return m.found[name] != "" && m.found[name] == m.accepted[name] && (e == nil || e.spoke == nil)
}

// Release disengages a spoke that has no Secret any more. What it has in the cluster stays
// its own, unless another spoke turns out to be the same cluster: then its Secret was
// renamed, and the other takes over.
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

// kickOthersLocked has all other spokes that are not served look again at once.
func (p *Provider) kickOthersLocked(name string) {
	for other := range p.entries {
		if other != name {
			p.kickLocked(other)
		}
	}
}

// kickLocked has a spoke that is not served look again at once.
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

// Predecessors returns the spokes that are the same cluster as an engaged one, and have no
// Secret any more, in order of their names.
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

// tellPredecessors has those shown anew whose successor is engaged.
func (p *Provider) tellPredecessors(name string) {
	for _, former := range p.Predecessors(name) {
		p.Changed(former)
	}
}

// Successor returns the engaged spoke that is the same cluster as one that has no Secret
// any more, or "".
func (p *Provider) Successor(name string) string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	identity := p.members.identities[name]
	for other, e := range p.entries {
		if other != name && e.spoke != nil && identity != "" && p.members.identities[other] == identity {
			return other
		}
	}
	return ""
}

// admit tells whether a spoke may be served as the cluster that it was found to be.
func (p *Provider) admit(name, identity string) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.admitLocked(name, identity)
}

// admitLocked returns a *DuplicateError where another spoke is the same cluster, and was
// there first: two of one cluster would take each other's rules for leftovers. It returns an
// *IdentityError where the spoke was another cluster before. Where the Secrets of two spokes
// were swapped, each is the other's cluster, and both have to be confirmed.
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
		return &DuplicateError{Other: other}
	}
	return nil
}

// disown ends what a spoke's former kubeconfig has engaged, because its new one leads to
// another cluster: which of the two is meant is for a person to say, and neither is written
// to until then.
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
	former.conn.breaker.Trip() // a worker that has the spoke in hand writes nothing, either
	for _, q := range circuits {
		q.ForgetSpoke(multicluster.ClusterName(c.name))
	}
}

// readIdentity reads the UID of the namespace kube-system, bounded as reads on a slow link are.
func (c *connection) readIdentity(ctx context.Context) (string, error) {
	ctx, cancel := c.patient(ctx)
	defer cancel()
	body, err := c.probes.Get().AbsPath("/api/v1/namespaces", metav1.NamespaceSystem).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return "", fmt.Errorf("reading namespace %s: %w", metav1.NamespaceSystem, err)
	}
	var ns metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &ns); err != nil || !uid.MatchString(string(ns.UID)) {
		return "", fmt.Errorf("reading namespace %s: %w", metav1.NamespaceSystem, errNotKubernetes)
	}
	return string(ns.UID), nil
}
