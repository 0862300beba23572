package spoke

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
)

// maxHidden bounds the parts of present and former credentials that are redacted.
const maxHidden = 8

// authority is what a connection authenticates with. Its token can be replaced while requests are sent.
type authority struct {
	token atomic.Pointer[string]
	// hidden are the parts of the present and the former credentials that a server could send back.
	hidden atomic.Pointer[[][]byte]
}

// authorityOf takes the token out of a configuration, which then sends that of the authority.
func authorityOf(cfg *rest.Config) *authority {
	a := &authority{}
	hidden := secretsOf(cfg)
	a.hidden.Store(&hidden)
	if cfg.BearerToken == "" || cfg.Username != "" { // client-go refuses both
		return a
	}
	token := cfg.BearerToken
	a.token.Store(&token)
	cfg.BearerToken = ""
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &bearer{next: next, authority: a} })
	return a
}

// secrets returns what has to be redacted.
func (a *authority) secrets() [][]byte {
	if a == nil {
		return nil
	}
	return *a.hidden.Load()
}

// renew replaces the token by that of another authority. The former one stays redacted: answers to requests with it
// may be under way.
func (a *authority) renew(by *authority) {
	hidden := slices.Concat(by.secrets(), a.secrets())
	hidden = hidden[:min(len(hidden), maxHidden)]
	a.hidden.Store(&hidden)
	a.token.Store(by.token.Load())
}

// bearer is a transport that sends the present token of an authority.
type bearer struct {
	next http.RoundTripper
	*authority
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	req = utilnet.CloneRequest(req)
	req.Header.Set("Authorization", "Bearer "+*b.token.Load())
	return b.next.RoundTrip(req) //nolint:wrapcheck // a transport is transparent
}

// WrappedRoundTripper lets client-go find the inner transport.
func (b *bearer) WrappedRoundTripper() http.RoundTripper { return b.next }

// errHandedOver is the end of a connection whose token the connection in use has taken.
var errHandedOver = errors.New("the connection in use has taken the token")

// handOver gives the token of a new kubeconfig to the connection in use, if the kubeconfigs differ in nothing else, and
// reports whether it did. The token must work: the identity is known, and the account lacks no permission. Otherwise a
// session is opened as for any new kubeconfig, which shows what is wrong while the former one stays in use.
func (c *connection) handOver(ctx context.Context) bool {
	current, data := c.p.replaces(c)
	if current == nil || !kubeconfig.SameButToken(current.kubeconfig, data) {
		return false
	}
	granted, err := c.review(ctx, nil)
	if err != nil || !granted.known || len(granted.missing) > 0 {
		return false
	}
	return c.p.takeToken(c, current)
}

// replaces returns the registration in use and the kubeconfig that is to replace it, if c is the connection of that
// kubeconfig and the spoke is served.
func (p *Provider) replaces(c *connection) (*registration, []byte) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	e := p.entries[c.name]
	if e == nil || e.pending == nil || e.pending.conn != c || e.current == nil || e.spoke == nil || e.open {
		return nil, nil
	}
	// The registration may change later, so it is copied.
	current := *e.current
	return &current, e.pending.kubeconfig
}

// takeToken makes the connection in use send the token of another connection to the same cluster, with its
// session, its caches and its watches.
func (p *Provider) takeToken(c *connection, current *registration) bool {
	p.mu.Lock()
	e := p.entries[c.name]
	if e == nil || e.pending == nil || e.pending.conn != c || e.current == nil || e.current.conn != current.conn || e.spoke == nil || e.open ||
		p.members.identities[c.name] != c.seen.Identity {
		p.mu.Unlock()
		return false
	}
	e.current.conn.authority.renew(c.authority)
	e.current.conn.credential, e.current.kubeconfig = c.credential, e.pending.kubeconfig
	cancel := e.pending.cancel
	e.pending, e.fault = nil, ""
	if e.seen != nil {
		seen := *e.seen
		seen.Credential = c.credential
		e.seen = &seen
	}
	p.mu.Unlock()
	cancel()
	c.log.Info("the connection uses a new token")
	p.Changed(c.name)
	return true
}
