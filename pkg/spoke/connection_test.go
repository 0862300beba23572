package spoke

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/client/versioned"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/continuity"
)

// standIn answers instead of an API server, by path.
type standIn struct {
	mu      sync.Mutex
	uid     types.UID
	grants  []authorizationv1.ResourceRule
	partial bool
	refuse  map[string]int // path → code
	version string         // of lists
	last    string         // the path after whose first answer there is none but 500
	bare    bool           // it serves no kinds of prometheus-operator
	asked   []string       // but for watches
}

func (s *standIn) set(change func(s *standIn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// ServeHTTP implements http.Handler.
func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") != "" {
		s.watch(w, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	if s.last != "" && slices.Contains(s.asked[:len(s.asked)-1], http.MethodGet+" "+s.last) {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if code := s.refuse[r.URL.Path]; code != 0 {
		refuse(w, r, code)
		return
	}
	var out any = &metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
		ListMeta: metav1.ListMeta{ResourceVersion: s.version},
	}
	switch {
	case r.URL.Path == pathRules && !strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata"):
		out = &monitoringv1.PrometheusRuleList{
			TypeMeta: metav1.TypeMeta{APIVersion: ruleKind.GroupVersion().String(), Kind: ruleKind.Kind + "List"},
			ListMeta: metav1.ListMeta{ResourceVersion: s.version},
		}
	case r.URL.Path == pathGroup && s.bare:
		http.NotFound(w, r)
		return
	case r.URL.Path == pathGroup, r.URL.Path == "/apis":
		names := []string{"prometheusrules", "prometheuses", "thanosrulers"}
		if s.bare {
			names = nil
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, discovered(r.URL.Path, names...))
		return
	case r.URL.Path == "/version":
		out = map[string]string{"gitVersion": "v1.36.3"}
	case strings.HasSuffix(r.URL.Path, "/namespaces/kube-system"):
		o := NamespaceMetadata()
		o.APIVersion, o.Kind = "meta.k8s.io/v1", "PartialObjectMetadata"
		o.Name, o.UID = metav1.NamespaceSystem, s.uid
		out = o
	case strings.HasSuffix(r.URL.Path, "/selfsubjectrulesreviews"):
		out = &authorizationv1.SelfSubjectRulesReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectRulesReview"},
			Status:   authorizationv1.SubjectRulesReviewStatus{ResourceRules: s.grants, Incomplete: s.partial},
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
}

// refuse answers as an API server does: a 404 for a path that it does not serve has no Status.
func refuse(w http.ResponseWriter, r *http.Request, code int) {
	if code == http.StatusNotFound {
		http.NotFound(w, r)
		return
	}
	status := apierrors.NewGenericServerResponse(code, r.Method, schema.GroupResource{}, "", "", 0, false).Status()
	status.Kind, status.APIVersion, status.Message = "Status", "v1", "get "+r.URL.Path+" is refused"
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status)
}

// watch answers a watch without events.
func (s *standIn) watch(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	code := s.refuse[r.URL.Path]
	s.mu.Unlock()
	if code != 0 {
		w.WriteHeader(code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// lists returns how often a path was read.
func (s *standIn) lists(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, asked := range s.asked {
		if asked == http.MethodGet+" "+path {
			n++
		}
	}
	return n
}

const (
	pathVersion     = "/version"
	pathSystem      = "/api/v1/namespaces/kube-system"
	pathNamespaces  = "/api/v1/namespaces"
	pathDeployments = "/apis/apps/v1/deployments"
	pathRules       = "/apis/monitoring.coreos.com/v1/prometheusrules"
	pathGroup       = "/apis/monitoring.coreos.com/v1"
	pathReview      = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
)

// serving sends the spoke each time that it is engaged.
type serving struct {
	p      *Provider
	spokes chan *Spoke
}

// Engage implements multicluster.Aware.
func (e *serving) Engage(ctx context.Context, name multicluster.ClusterName, _ cluster.Cluster) error {
	select {
	case e.spokes <- e.p.Spoke(name.String()):
	case <-ctx.Done():
	}
	return nil
}

// next returns the spoke when it is engaged again.
func (e *serving) next(t *testing.T, what string) *Spoke {
	t.Helper()
	select {
	case s := <-e.spokes:
		return s
	case <-time.After(30 * time.Second):
		t.Fatalf("%s: the spoke was not engaged", what)
		return nil
	}
}

// until waits until a condition is true of a spoke that is observed, which it is soon after it is engaged.
func (e *serving) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); e.p.Observation("s") == nil || !is(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s; it shows %+v", what, e.p.Observation("s"))
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // until the next recheck
	}
}

// engage serves spoke s by a server until the test ends.
func engage(t *testing.T, server http.Handler, life Lifecycle) *serving {
	t.Helper()
	listener := httptest.NewServer(server)
	t.Cleanup(listener.Close)
	e := &serving{p: NewProvider(Options{Intervals: 0.01}), spokes: make(chan *Spoke)}
	e.p.aware = e
	e.p.SetLifecycle(life)
	c, err := e.p.newConnection("s", &rest.Config{Host: listener.URL, Dial: (&net.Dialer{}).DialContext})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	e.p.entries["s"] = &entry{current: &registration{conn: c, cancel: cancel}}
	done := make(chan struct{})
	go func() { c.run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return e
}

// A kind that is served or allowed later is added to the session. The others are not listed again.
func TestRenew(t *testing.T) {
	s := &standIn{uid: "uid", version: "100", bare: true, refuse: map[string]int{pathRules: 404}, grants: []authorizationv1.ResourceRule{allowed("*", "*", "*")}}
	e := engage(t, s, Lifecycle{})
	expect := func(what string, want bool) {
		t.Helper()
		if got := e.next(t, what).RulesServed; got != want {
			t.Fatalf("%s: PrometheusRules are served: %v", what, got)
		}
	}
	expect("without the kind", false)
	lists := s.lists(pathDeployments)
	s.set(func(s *standIn) { delete(s.refuse, pathRules); s.bare = false })
	expect("with the kind", true)
	first := s.lists(pathRules)

	s.set(func(s *standIn) { s.refuse[pathRules] = 403 })
	e.until(t, "the refusal is noticed", func() bool { return e.p.Observation("s").Served.Reason == v1alpha1.ReasonForbidden })
	s.set(func(s *standIn) { delete(s.refuse, pathRules) })
	expect("allowed again", true)
	if again := s.lists(pathDeployments); again != lists {
		t.Errorf("Deployments were listed %d times before, and %d times afterwards", lists, again)
	}
	if e.p.Spoke("s") == nil || first == 0 {
		t.Error("the session ended")
	}
}

// connectTo returns a connection to a healthy and identified stand-in, with a session that was never started.
func connectTo(t *testing.T) (*standIn, *connection, *session) {
	t.Helper()
	s := &standIn{uid: "uid", refuse: map[string]int{}, grants: []authorizationv1.ResourceRule{allowed("*", "*", "*")}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	c, err := NewProvider(Options{}).newConnection("s", &rest.Config{Host: server.URL, Dial: (&net.Dialer{}).DialContext})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.breaker.Stop)
	t.Cleanup(c.http.CloseIdleConnections)
	guard := continuity.NewGuard(c.look, c.patient)
	cl, err := c.cluster(guard)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := monitoring.NewForConfigAndClient(c.cfg, c.http)
	if err != nil {
		t.Fatal(err)
	}
	// As open does it.
	if err := c.probe(asProbe(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := c.identify(asProbe(t.Context()), ""); err != nil {
		t.Fatal(err)
	}
	c.gate.serve("uid")
	c.seen, s.asked = Observation{}, nil
	return s, c, &session{cluster: cl, rules: rules, identity: "uid", served: true, guard: guard, catalog: c.catalog()}
}

// A session that ended because of the spoke's state lets no request pass any more.
func TestEnd(t *testing.T) {
	_, c, session := connectTo(t)
	stopped := false
	session.stop = func() { stopped = true }
	c.end(session)
	if !stopped || !c.breaker.Open() {
		t.Errorf("stopped: %v; the circuit is open: %v", stopped, c.breaker.Open())
	}
}

// After an outage, nothing is sent before the identity of the spoke is confirmed.
func TestCheckup(t *testing.T) {
	s, c, session := connectTo(t)
	expect := func(open bool) {
		t.Helper()
		if c.breaker.Open() != open {
			t.Errorf("open: %v", c.breaker.Open())
		}
	}
	if err := c.checkup(t.Context(), session); err != nil || len(s.asked) != 1 {
		t.Errorf("got %v, asked for %v", err, s.asked)
	}
	c.breaker.Trip()
	s.set(func(s *standIn) { s.refuse[pathVersion] = 500 })
	if err := c.checkup(t.Context(), session); disconnected(err).Reason != v1alpha1.ReasonUnreachable {
		t.Errorf("got %v", err)
	}
	expect(true)
	s.set(func(s *standIn) { s.refuse = map[string]int{pathSystem: 403} })
	if err := c.checkup(t.Context(), session); disconnected(err).Reason != v1alpha1.ReasonForbidden {
		t.Errorf("got %v", err)
	}
	expect(true)
	s.set(func(s *standIn) { s.refuse, s.uid = map[string]int{}, "another" })
	err := c.checkup(t.Context(), session)
	if is, ok := errors.AsType[*IdentityError](err); !ok || is.Was != "uid" || is.Is != "another" || is.Spoke != "s" {
		t.Errorf("got %v", err)
	}
	expect(true)
	if c.seen.Identity == "another" {
		t.Error("the other cluster's identity was taken over")
	}
	s.set(func(s *standIn) { s.uid = "uid" })
	if err := c.checkup(t.Context(), session); err != nil {
		t.Error(err)
	}
	expect(false)
}

// An error of a read of the discovery, the version or the identity has the API server's message, which names the
// permission or the fault.
func TestRefusalsAreShown(t *testing.T) {
	s, c, session := connectTo(t)
	for path, read := range map[string]func(context.Context) error{
		pathVersion: c.probe,
		pathSystem:  func(ctx context.Context) error { _, err := c.readIdentity(ctx); return err },
		pathGroup: func(ctx context.Context) error {
			return session.catalog.confirm(ctx, "prometheusrules", apierrors.NewNotFound(monitoringRules, ""))
		},
	} {
		s.set(func(s *standIn) { s.refuse = map[string]int{path: http.StatusInternalServerError} })
		if path == pathGroup {
			s.set(func(s *standIn) { s.refuse[path] = http.StatusForbidden })
		}
		if err := read(asProbe(t.Context())); err == nil || !strings.Contains(err.Error(), "get "+path+" is refused") {
			t.Errorf("%s: it says %v", path, err)
		}
	}
}

// A probe raises doubt about the identity if a proxy answers that there is no server: another one may answer next.
func TestProbeRaisesDoubt(t *testing.T) {
	for code, want := range map[int]bool{502: true, 503: true, 504: true, 500: false, 403: false, 429: false} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			s, c, session := connectTo(t)
			s.set(func(s *standIn) { s.refuse[pathVersion] = code })
			_ = c.checkup(t.Context(), session)
			if is := c.gate.inDoubt(); is != want {
				t.Errorf("the identity is in doubt: %v", is)
			}
		})
	}
}

// A failing spoke is given up before the retries of its first lists end.
func TestOpenGivesUp(t *testing.T) {
	t.Parallel()
	s, c, _ := connectTo(t)
	s.set(func(s *standIn) { s.last = pathDeployments })
	begin := time.Now()
	_, err := c.open(t.Context())
	if disconnected(err).Reason != v1alpha1.ReasonUnreachable {
		t.Errorf("got %v", err)
	}
	if took := time.Since(begin); took < probeInterval || took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

// A probe may fail by chance. Any answer other than a success counts as a failure.
func TestMissed(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		reason string
	}{
		"the credential":       {err: errUnauthorized, reason: v1alpha1.ReasonAuthFailed},
		"not an API server's":  {err: errNotKubernetes, reason: v1alpha1.ReasonUnreachable},
		"an error of the net":  {err: errors.New("refused"), reason: v1alpha1.ReasonUnreachable},
		"another's permission": {err: errForbidden, reason: v1alpha1.ReasonForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			_, c, _ := connectTo(t)
			backoff := c.backoff()
			for n := 1; n < breakerThreshold; n++ {
				if delay := c.missed(tc.err, backoff); delay != probeRetry || c.seen.Connected.Reason != "" {
					t.Errorf("the next probe is after %v, and it shows %+v", delay, c.seen.Connected)
				}
			}
			if delay := c.missed(tc.err, backoff); delay < time.Second || c.seen.Connected.Reason != tc.reason || !c.breaker.Open() {
				t.Errorf("the next probe is after %v, and it shows %+v", delay, c.seen.Connected)
			}
		})
	}
}

// Recovery is detected within 30 s, however long the outage was.
func TestBackoffOfTheProbe(t *testing.T) {
	backoff := (&connection{p: &Provider{}}).backoff()
	for range 100 {
		if delay := backoff.Step(); delay > 20*time.Second || delay < time.Second {
			t.Fatalf("%v", delay)
		}
	}
}

// Faults must show in the status within bounded times.
func TestSilenceIsNoticed(t *testing.T) {
	longest := time.Duration(float64(probeInterval) * 1.1)
	if silent := longest + 3*requestTimeout + 2*probeRetry; silent >= 25*time.Second {
		t.Errorf("a silent spoke is noticed after %v", silent)
	}
	if revoked := recheckInterval + longest; revoked >= 25*time.Second {
		t.Errorf("what was revoked is noticed after %v", revoked)
	}
}

func TestRecheck(t *testing.T) {
	reads := []authorizationv1.ResourceRule{allowed("apps", "deployments", "get list watch"), allowed("", "namespaces", "get list watch")}
	const rules = "monitoring.coreos.com"
	for name, tc := range map[string]struct {
		set                       func(s *standIn)
		unserved                  bool
		identity, better          bool
		connected, served, writes string // reasons
		contains                  string
	}{
		"all is well": {set: func(*standIn) {}, served: v1alpha1.ReasonServed},
		"rules are served now": {
			set: func(*standIn) {}, unserved: true, better: true, served: v1alpha1.ReasonServed,
		},
		"no CRD": {
			set: func(s *standIn) { s.refuse[pathRules], s.bare = 404, true }, served: v1alpha1.ReasonCRDMissing,
		},
		"a proxy's 404": {
			set: func(s *standIn) { s.refuse[pathRules] = 404 }, served: v1alpha1.ReasonUnreachable,
		},
		"another cluster": {set: func(s *standIn) { s.uid = "another" }, identity: true},
		"no reading": {
			set: func(s *standIn) {
				s.grants = []authorizationv1.ResourceRule{allowed("apps", "deployments", "get list")}
			},
			connected: v1alpha1.ReasonForbidden, contains: "watch deployments.apps, get/list/watch namespaces", writes: v1alpha1.ReasonForbidden,
		},
		"no reading of rules": {
			set: func(s *standIn) {
				s.grants = slices.Concat(reads, []authorizationv1.ResourceRule{allowed(rules, "prometheusrules", "list get create update delete")})
			},
			served: v1alpha1.ReasonForbidden,
		},
		"no writing of rules": {
			set: func(s *standIn) {
				s.grants = slices.Concat(reads, []authorizationv1.ResourceRule{allowed(rules, "prometheusrules", "list get watch create")})
			},
			served: v1alpha1.ReasonServed, writes: v1alpha1.ReasonForbidden,
		},
		"it does not say, and refuses": {
			set:       func(s *standIn) { s.partial, s.grants = true, reads; s.refuse[pathNamespaces] = 403 },
			connected: v1alpha1.ReasonForbidden,
		},
		"it does not say, and all can be read": {
			set: func(s *standIn) { s.partial, s.grants = true, reads }, served: v1alpha1.ReasonServed,
		},
		"it may not say, and refuses": {
			set:       func(s *standIn) { s.refuse[pathReview], s.refuse[pathDeployments] = 403, 403 },
			connected: v1alpha1.ReasonForbidden,
		},
		"nothing is listed": {set: func(s *standIn) { s.grants = nil }, served: v1alpha1.ReasonServed},
	} {
		t.Run(name, func(t *testing.T) {
			s, c, session := connectTo(t)
			s.set(tc.set)
			session.served = !tc.unserved
			better, err := c.recheck(t.Context(), session)
			if isIdentity(err) != tc.identity || better != tc.better {
				t.Fatalf("got %v, %v", better, err)
			}
			if tc.identity {
				return
			}
			connected := ""
			if session.refused != nil {
				f := disconnected(session.refused)
				if connected = f.Reason; !strings.Contains(f.Message, tc.contains) {
					t.Errorf("the message is %s", f.Message)
				}
			}
			if connected != tc.connected || c.seen.Served.Reason != tc.served || c.seen.Writes.Reason != tc.writes {
				t.Errorf("got %v and %+v", session.refused, c.seen)
			}
			if refused := tc.connected != "" || tc.served != v1alpha1.ReasonServed; session.lacked != refused {
				t.Errorf("lacked: %v", session.lacked)
			}
			// After the repair, a new session is better than watches that back off.
			s.set(func(s *standIn) {
				s.bare = false
				s.refuse, s.partial, s.grants = map[string]int{}, false, []authorizationv1.ResourceRule{allowed("*", "*", "*")}
			})
			again, err := c.recheck(t.Context(), session)
			if want := session.lacked || tc.unserved; err != nil || again != want || c.seen.Served.Reason != v1alpha1.ReasonServed || c.seen.Writes.Reason != "" {
				t.Errorf("put right: %v, %v, %+v", again, err, c.seen)
			}
		})
	}
}

// A missing answer is left to the probe.
func TestRecheckWithoutAnswer(t *testing.T) {
	s, c, session := connectTo(t)
	s.set(func(s *standIn) { s.grants = []authorizationv1.ResourceRule{allowed("*", "*", "get list watch")} })
	if _, err := c.recheck(t.Context(), session); err != nil || c.seen.Writes.Reason == "" {
		t.Fatal(err, c.seen)
	}
	c.breaker.Trip()
	was := c.seen
	if better, err := c.recheck(t.Context(), session); better || err != nil || !c.seen.equal(was) {
		t.Errorf("got %v, %v, %+v", better, err, c.seen)
	}
}

// A spoke that throttles is shown as such after a while, and is probed at times.
func TestHoldOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewProvider(Options{}).newConnection("s", &rest.Config{Host: "https://spoke"})
		if err != nil {
			t.Fatal(err)
		}
		probed := time.Now()
		expect := func(want time.Duration, shown string) {
			t.Helper()
			if got := c.holdOff(probed); got != want || c.seen.Connected.Reason != shown {
				t.Errorf("after %v: hold off for %v, and it shows %+v", time.Since(probed), got, c.seen.Connected)
			}
		}
		wait := func(d time.Duration) { time.Sleep(d); synctest.Wait() } //nolint:forbidigo // the test's own time
		expect(0, "")
		c.breaker.Throttle(4 * time.Second)
		expect(4*time.Second, "")
		wait(4 * time.Second)
		expect(0, "")
		c.breaker.Observe(true)
		c.breaker.Throttle(time.Minute)
		expect(throttleShown, "")
		wait(throttleShown)
		expect(throttleShown, v1alpha1.ReasonThrottled)
		wait(throttleShown)
		expect(throttledProbe-24*time.Second, v1alpha1.ReasonThrottled)
		wait(6 * time.Second)
		expect(0, v1alpha1.ReasonThrottled)
		// The probe is answered, and the spoke still throttles.
		probed = time.Now()
		c.connected()
		expect(throttleShown, v1alpha1.ReasonThrottled)
		wait(34 * time.Second)
		expect(0, v1alpha1.ReasonThrottled)
		c.connected()
		if c.seen.Connected.Reason != v1alpha1.ReasonConnected {
			t.Errorf("it shows %+v", c.seen.Connected)
		}
		c.breaker.Stop()
	})
}

// A session whose spoke holds too much ends at once, also while the spoke hangs; so does the attempt to open one.
func TestExcessEndsWork(t *testing.T) {
	t.Parallel()
	_, c, session := connectTo(t)
	asked := make(chan struct{}, 100)
	hang := roundTrip(func(req *http.Request) (*http.Response, error) {
		asked <- struct{}{}
		<-req.Context().Done()
		return nil, req.Context().Err()
	})
	lookout, err := newRESTClient(c.cfg, &http.Client{Transport: hang})
	if err != nil {
		t.Fatal(err)
	}
	c.lookout.Interface = lookout
	excess := &TooLargeError{What: "the cache", Value: 2, Bound: 1, Unit: "bytes"}
	for name, work := range map[string]func() error{
		"a session": func() error { return c.tend(t.Context(), session) },
		"a new session": func() error {
			_, err := c.open(t.Context())
			return err
		},
	} {
		c.excess.begin()
		if name == "a session" {
			c.look() // so that it probes at once
		}
		done := make(chan error, 1)
		go func() { done <- work() }()
		<-asked
		began := time.Now()
		c.tooMuch(excess)
		if err := <-done; tooLarge(err) != excess {
			t.Errorf("%s: got %v", name, err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("%s took %v", name, took)
		}
		if len(c.kick) > 0 {
			t.Errorf("%s: the next attempt does not wait", name)
		}
	}
}

// A spoke that sent too much is watched for a while before it is served again.
func TestProbation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, found := &connection{}, &TooLargeError{What: "the cache", Value: 2, Bound: 1, Unit: "bytes"}
		begin := func(name string, lasts time.Duration, want error) {
			t.Helper()
			c.excess.begin()
			began := time.Now()
			if err := c.prove(t.Context()); !errors.Is(err, want) || time.Since(began) != lasts {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
		}
		begin("the first session", 0, nil)
		c.tooMuch(found)
		time.AfterFunc(time.Second, func() { c.tooMuch(found) })
		begin("a session after that", time.Second, found)
		begin("a session in which it does not do so again", probation, nil)
		begin("the next session", 0, nil)
	})
}

// What a spoke does not serve is looked for after each probe, but not again at once if that opened the circuit: the next
// probe closes it, so this would never end.
func TestRecheckDue(t *testing.T) {
	c := &connection{breaker: newBreaker(func() {})}
	for name, tc := range map[string]struct {
		served, late, again, changed, want bool
	}{
		"served":                                {served: true, again: true},
		"served, and the last one is long ago":  {served: true, late: true, want: true},
		"not served":                            {again: true, want: true},
		"not served, and the last was just now": {},
		"a template names another kind":         {served: true, changed: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			c.rekind.Store(tc.changed)
			if got := c.recheckDue(&session{served: tc.served}, tc.late, tc.again); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
