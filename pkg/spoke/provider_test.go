package spoke

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/continuity"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
	"github.com/rulefleet/rulefleet/pkg/testing/memory"
)

// watched returns a Provider with one spoke, which has a connection in use and one
// that is to replace it, and a function that tells how often there was news.
func watched(t *testing.T) (p *Provider, current, pending *connection, news func() int) {
	t.Helper()
	p = NewProvider(Options{})
	count := 0
	p.changes.Listen(func(c change) {
		if c.spoke != "s" {
			t.Errorf("news of %s", c.spoke)
		}
		p.Observation(c.spoke) // would never return if the lock were held
		count++
	})
	connect := func() *connection {
		cfg, err := kubeconfig.RESTConfig([]byte(kubeconfigText(goodCluster, goodUser)), kubeconfig.Allowance{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := p.newConnection("s", cfg)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	current, pending = connect(), connect()
	p.entries["s"] = &entry{
		current: &registration{conn: current, cancel: func() {}}, pending: &registration{conn: pending, cancel: func() {}},
		spoke: &Spoke{Name: "s"},
	}
	return p, current, pending, func() int {
		n := count
		count = 0
		return n
	}
}

func TestProviderObserve(t *testing.T) {
	p, current, pending, news := watched(t)
	p.observe(current, *good())
	if n := news(); n != 1 {
		t.Fatalf("%d times news of the first observation", n)
	}
	failed := Observation{Connected: disconnected(errUnauthorized)}
	p.observe(pending, failed)
	if n := news(); n != 1 {
		t.Errorf("%d times news of the new kubeconfig", n)
	}
	// Both are looked at again and again, and find the same.
	for range 3 {
		p.observe(current, *good())
		p.observe(pending, failed)
	}
	if n := news(); n != 0 {
		t.Errorf("%d times news, where there was none", n)
	}
	seen := p.Observation("s")
	if seen.Connected.Status != metav1.ConditionTrue || seen.Version == "" {
		t.Errorf("the connection in use is not shown: %+v", seen)
	}
	if m := seen.Connected.Message; !strings.Contains(m, "last good") || !strings.Contains(m, failed.Connected.Message) {
		t.Errorf("the message is %q", m)
	}

	p.observe(current, *with(good(), func(o *Observation) { o.Connected = unreachable }))
	if n := news(); n != 1 {
		t.Errorf("%d times news of the failure", n)
	}
	seen = p.Observation("s")
	if m := seen.Connected.Message; seen.Connected.Reason != v1alpha1.ReasonUnreachable || strings.Contains(m, "last good") || !strings.Contains(m, failed.Connected.Message) {
		t.Errorf("got %+v", seen.Connected)
	}
}

func TestProviderObserveTheFirst(t *testing.T) {
	p, _, pending, news := watched(t)
	p.entries["s"].current, p.entries["s"].spoke = nil, nil
	p.observe(pending, Observation{Connected: unreachable})
	if got := p.Observation("s"); got == nil || got.Connected != unreachable || news() != 1 {
		t.Errorf("got %+v", got)
	}
}

// engagements note what is known of a spoke's evaluators when it is engaged.
type engagements struct {
	p     *Provider
	known []Evaluators
}

// Engage implements multicluster.Aware.
func (e *engagements) Engage(_ context.Context, name multicluster.ClusterName, _ cluster.Cluster) error {
	e.known = append(e.known, e.p.Evaluators(name.String()))
	return nil
}

// The evaluators are known before a spoke is engaged, or its rules would lose their labels until the next
// observation. Nobody is notified of what was known then.
func TestProviderEvaluators(t *testing.T) {
	p, _, c, _ := watched(t)
	engaged := &engagements{p: p}
	p.aware = engaged
	told := 0
	p.SetLifecycle(Lifecycle{Evaluators: []func(string){func(string) { told++ }}})
	cl, err := c.cluster(continuity.NewGuard(nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	c.seen = *good()
	c.seen.Evaluators = Evaluators{Known: true, List: []v1alpha1.Evaluator{{Name: "k"}}}
	p.entries["s"].spoke = nil // not engaged, and nothing was seen
	if wanted, err := p.publish(t.Context(), c, &session{ctx: t.Context(), cluster: cl}); err != nil || !wanted {
		t.Fatal(wanted, err)
	}
	if len(engaged.known) != 1 || !engaged.known[0].equal(c.seen.Evaluators) {
		t.Errorf("engaged with %+v", engaged.known)
	}
	c.connected()
	if told != 0 {
		t.Errorf("told %d times of what was known", told)
	}
	c.seen.Evaluators = Evaluators{Known: true}
	c.connected()
	if told != 1 || len(p.Evaluators("s").List) != 0 {
		t.Errorf("told %d times of a change", told)
	}
}

func TestProviderObserveAStranger(t *testing.T) {
	p, current, _, news := watched(t)
	p.entries["s"].current = p.entries["s"].pending
	p.observe(current, *good()) // it was replaced
	if got := p.Observation("s"); got != nil || news() != 0 {
		t.Errorf("got %+v", got)
	}
	p.Remove("s")
	p.observe(current, *good())
	if got := p.Observation("s"); got != nil || news() != 0 {
		t.Errorf("after its removal: %+v", got)
	}
}

// The queues follow the circuit of the connection in use.
func TestProviderCircuit(t *testing.T) {
	p, current, pending, _ := watched(t)
	removed := ""
	p.life.Left = append(p.life.Left, func(name string) { removed = name })
	q := queue.New(queue.Options{Name: t.Name(), Workers: 1})
	defer q.ShutDown()
	p.follow(q)
	open := func() bool { return len(memory.Of(q, "s")) > 0 } // without keys, a queue remembers a spoke only while its circuit is open
	trip := func(c *connection) {
		for range breakerThreshold {
			c.breaker.Observe(false)
		}
	}
	trip(pending)
	if open() {
		t.Error("opened by a connection that is not in use")
	}
	begin := time.Now()
	if p.AwaySince("s", begin) {
		t.Error("away before anything happened")
	}
	trip(current)
	if !open() || !p.AwaySince("s", time.Now()) {
		t.Error("not opened")
	}
	select {
	case <-current.kick:
	default:
		t.Error("the connection was not told to probe")
	}
	current.breaker.Close()
	if open() {
		t.Error("not closed")
	}
	if !p.AwaySince("s", begin) || p.AwaySince("s", time.Now()) || p.AwaySince("other", begin) {
		t.Error("it does not know when the spoke was away")
	}
	current.breaker.Throttle(time.Minute)
	t.Cleanup(current.breaker.Stop)
	if !open() {
		t.Error("not parked, though the spoke throttles")
	}
	trip(current)
	if got := p.Queues(); len(got) != 1 || got[0].Controller != t.Name() {
		t.Errorf("the queues are %+v", got)
	}
	p.Remove("s")
	if removed != "s" {
		t.Error("nobody was told of its removal")
	}
	if len(memory.Of(q, "s")) > 0 {
		t.Error("the queue remembers a spoke that was removed")
	}
	current.breaker.Close()
	if len(memory.Of(q, "s")) > 0 {
		t.Error("the queue heard of a spoke that was removed")
	}
}

// The same cluster is not served under two names.
func TestProviderDuplicate(t *testing.T) {
	const uid = "uid"
	for name, tc := range map[string]struct {
		identity   string            // of the spoke s, as it is found now
		known      map[string]string // identities
		registered []string
		served     []string
		released   string
		want       string
	}{
		"alone":                              {identity: uid, registered: []string{"s"}},
		"again after a restart":              {identity: uid, known: map[string]string{"s": uid}, registered: []string{"s"}},
		"beside another cluster":             {identity: uid, known: map[string]string{"t": "other"}, registered: []string{"s", "t"}, served: []string{"t"}},
		"served under another name":          {identity: uid, known: map[string]string{"t": uid}, registered: []string{"s", "t"}, served: []string{"t"}, want: "t"},
		"was served under another name":      {identity: uid, known: map[string]string{"t": uid}, registered: []string{"s", "t"}, want: "t"},
		"was served under both":              {identity: uid, known: map[string]string{"s": uid, "t": uid}, registered: []string{"s", "t"}},
		"was served under both, and one is":  {identity: uid, known: map[string]string{"s": uid, "t": uid}, registered: []string{"s", "t"}, served: []string{"t"}, want: "t"},
		"the other is not looked at yet":     {identity: uid, known: map[string]string{"t": uid}, registered: []string{"s"}, want: "t"},
		"the other's Secret is gone":         {identity: uid, known: map[string]string{"t": uid}, registered: []string{"s"}, released: "t"},
		"it is not known what cluster it is": {known: map[string]string{"t": ""}, registered: []string{"s", "t"}, served: []string{"t"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := NewProvider(Options{})
			maps.Copy(p.members.identities, tc.known)
			for _, name := range tc.registered {
				p.entries[name] = &entry{}
			}
			if tc.released != "" {
				p.Release(tc.released)
			}
			for _, name := range tc.served {
				p.entries[name].current = &registration{cancel: func() {}}
			}
			p.mu.Lock()
			err := p.admitLocked("s", tc.identity)
			p.mu.Unlock()
			got := ""
			if duplicate, ok := errors.AsType[*duplicateError](err); ok {
				got = duplicate.Other
			} else if err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	t.Run("what is known stays until the SpokeCluster is gone", func(t *testing.T) {
		p := NewProvider(Options{})
		p.entries["s"] = &entry{}
		p.Known("s", uid)
		p.Known("s", "other")
		p.Known("s", "")
		if got := p.members.identities["s"]; got != uid {
			t.Errorf("got %q", got)
		}
		p.Remove("s")
		if p.members.identities["s"] != uid {
			t.Error("it was forgotten with the Secret")
		}
		p.Gone("s")
		if p.members.identities["s"] != "" {
			t.Error("it is known still")
		}
	})
}
