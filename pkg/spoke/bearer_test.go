package spoke

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
)

// tokens is a stand-in that accepts some tokens.
type tokens struct {
	standIn

	mu     sync.Mutex
	valid  map[string]bool
	weak   map[string]bool // those that may not write rules
	served map[string]int  // requests by token
	lists  int
}

// ServeHTTP implements http.Handler.
func (s *tokens) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	valid, weak := s.valid[token], s.weak[token]
	s.served[token]++
	if strings.HasSuffix(r.URL.Path, "/deployments") && r.URL.Query().Get("limit") != "1" && r.URL.Query().Get("watch") == "" {
		s.lists++
	}
	s.mu.Unlock()
	switch {
	case !valid:
		w.WriteHeader(http.StatusUnauthorized)
	case weak && r.URL.Path == pathReview:
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","status":{"resourceRules":[{"verbs":["get","list","watch"],"apiGroups":["*"],"resources":["*"]}]}}`)
	default:
		s.standIn.ServeHTTP(w, r)
	}
}

func (s *tokens) count(token string) (requests, lists int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served[token], s.lists
}

// inUse is a Provider that serves a spoke with token old.
type inUse struct {
	*Provider

	s       *tokens
	engaged chan *Spoke
	text    func(token string) []byte
	session *Spoke
	lists   int
}

func serveWithTokens(t *testing.T, intervals interval.Scale) *inUse {
	t.Helper()
	s := &tokens{
		standIn: standIn{uid: "uid", version: "100", refuse: map[string]int{}, grants: []authorizationv1.ResourceRule{allowed("*", "*", "*")}},
		valid:   map[string]bool{"old": true, "new": true, "weak": true}, weak: map[string]bool{"weak": true}, served: map[string]int{},
	}
	server := httptest.NewTLSServer(s)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	allow, err := kubeconfig.ParseAllowances("loopback")
	if err != nil {
		t.Fatal(err)
	}
	p := &inUse{Provider: NewProvider(Options{Intervals: intervals, Allow: allow}), s: s, engaged: make(chan *Spoke, 9), text: func(token string) []byte {
		return []byte(kubeconfigText("server: '"+server.URL+"', certificate-authority-data: "+b64(string(ca)), "token: "+token))
	}}
	p.aware, p.base = &serving{p: p.Provider, spokes: p.engaged}, t.Context()
	close(p.started)
	t.Cleanup(func() { p.Remove("s") })
	p.register(t, "old")
	select {
	case <-p.engaged:
	case <-time.After(30 * time.Second):
		t.Fatalf("it is not served: %+v", p.Observation("s"))
	}
	p.until(t, "it is connected", func() bool { return p.Observation("s").Connected.Reason == v1alpha1.ReasonConnected })
	p.session = p.Spoke("s")
	_, p.lists = s.count("")
	return p
}

func (p *inUse) register(t *testing.T, token string) {
	t.Helper()
	if finding, err := p.Register(t.Context(), "s", p.text(token), nil); err != nil || finding != nil {
		t.Fatal(finding, err)
	}
}

func (p *inUse) until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); p.Observation("s") == nil || !done(); time.Sleep(time.Millisecond) { //nolint:forbidigo // until the next probe
		if time.Now().After(deadline) {
			t.Fatalf("not so: %s: %+v", what, p.Observation("s"))
		}
	}
}

func (p *inUse) pending() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.entries["s"].pending != nil
}

// A new token is used by the connection in use: its session and its caches stay, and nothing is listed again.
func TestTokenIsReplacedInPlace(t *testing.T) {
	p := serveWithTokens(t, 0.02)
	p.register(t, "new")
	p.until(t, "the new token is in use", func() bool { return !p.pending() })
	p.s.mu.Lock()
	delete(p.s.valid, "old")
	p.s.mu.Unlock()
	before, _ := p.s.count("new")
	former, _ := p.s.count("old")
	p.until(t, "the session goes on with it", func() bool { n, _ := p.s.count("new"); return n > before+5 })
	if _, lists := p.s.count(""); lists != p.lists || p.Spoke("s") != p.session || len(p.engaged) > 0 || p.Away("s") {
		t.Errorf("%d lists, and before %d; the same session: %v", lists, p.lists, p.Spoke("s") == p.session)
	}
	if late, _ := p.s.count("old"); late > former+1 { // one may have been under way
		t.Errorf("%d requests with the former token", late-former)
	}
	p.mu.RLock()
	current := p.entries["s"].current
	p.mu.RUnlock()
	if !bytes.Equal(current.kubeconfig, p.text("new")) {
		t.Error("a departure would use the former kubeconfig")
	}
	if seen := p.Observation("s").Connected; seen.Reason != v1alpha1.ReasonConnected {
		t.Errorf("it shows %+v", seen)
	}
	// A proxy that sends back either token.
	for _, token := range []string{"old", "new"} {
		resp := &http.Response{StatusCode: http.StatusBadGateway, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("can't forward " + token))}
		redact(resp, current.conn.authority.secrets())
		if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "can't forward "+redacted {
			t.Errorf("it shows %q, %v", text, err)
		}
	}
}

// The new credential is shown at once, and what was wrong with it before is not shown any more.
func TestReplacedTokenIsShown(t *testing.T) {
	expiring := "e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"exp":1767269700}`)) + ".x"
	p := serveWithTokens(t, 1)
	var told atomic.Int64
	p.changes.Listen(func(change) { told.Add(1) })
	p.register(t, expiring)
	p.until(t, "it is refused", func() bool { return strings.HasPrefix(p.Observation("s").Connected.Message, lastGood) })
	before := told.Load()
	p.s.mu.Lock()
	p.s.valid[expiring] = true
	p.s.mu.Unlock()
	p.until(t, "it is in use", func() bool { return !p.pending() })
	if seen := p.Observation("s"); !seen.Credential.Expires.Equal(expiresAt) || strings.HasPrefix(seen.Connected.Message, lastGood) {
		t.Errorf("it shows %+v", seen)
	}
	p.until(t, "it is reported", func() bool { return told.Load() > before })
}

// A token that does not work, or whose account lacks a permission, does not replace one that does.
func TestTokenThatIsNotReplaced(t *testing.T) {
	t.Run("unknown", func(t *testing.T) {
		p := serveWithTokens(t, 0.02)
		p.register(t, "unknown")
		p.until(t, "it is refused", func() bool { return strings.Contains(p.Observation("s").Connected.Message, "rejects the credential") })
		if c := p.Observation("s").Connected; !strings.HasPrefix(c.Message, lastGood) || p.Spoke("s") != p.session || !p.pending() {
			t.Errorf("it shows %+v", c)
		}
	})
	t.Run("weak", func(t *testing.T) {
		p := serveWithTokens(t, 0.02)
		p.register(t, "weak")
		p.until(t, "a session of its own", func() bool { return p.Spoke("s") != p.session })
		if _, lists := p.s.count(""); lists == p.lists {
			t.Error("it took over without a list")
		}
	})
}

// Another cluster, or a change of anything but the token, gets a session of its own.
func TestOtherChangesAreNotInPlace(t *testing.T) {
	p := serveWithTokens(t, 0.02)
	text := strings.Replace(string(p.text("new")), "certificate-authority-data", "disable-compression: true, certificate-authority-data", 1)
	if finding, err := p.Register(t.Context(), "s", []byte(text), nil); err != nil || finding != nil {
		t.Fatal(finding, err)
	}
	p.until(t, "a session of its own", func() bool { return p.Spoke("s") != p.session })

	p = serveWithTokens(t, 0.02)
	p.s.set(func(s *standIn) { s.uid = "another" })
	p.register(t, "new")
	p.until(t, "the other cluster is noticed", func() bool { return p.Observation("s").Connected.Reason == v1alpha1.ReasonIdentityChanged })
}
