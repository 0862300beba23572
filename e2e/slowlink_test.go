package e2e

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/faultproxy"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// slowLink is a spoke behind a slow link.
type slowLink struct {
	name, spoke string
	rate        int // bytes per second
	// plain disables the compression of the API server's answers.
	plain bool
}

// TestSlowLinks connects large spokes over slow links, which must take at most 50 % longer than their bytes need.
func TestSlowLinks(t *testing.T) {
	long(t)
	parallel(t)
	sizes := map[string]int{"small": 500, "large": 5000}
	links := []slowLink{
		{name: "small-slow", spoke: "small", rate: 10_000},
		{name: "large-slow", spoke: "large", rate: 20_000},
		{name: "large-plain", spoke: "large", rate: 100_000, plain: true},
	}
	f := start(t, fleet.Options{Intervals: 1, Audit: true})
	for name, n := range sizes {
		m, err := f.StartSpoke(t.Context(), name, "prometheusrules")
		must(t, err)
		populate(t, m, n)
	}
	manager, err := f.StartManager(t.Context(), fleet.ManagerOptions{Path: plainManager, Dir: t.TempDir(), HubID: hubID, Args: []string{"--built-in-templates="}})
	must(t, err)
	x := alone(f, manager)
	for name := range sizes {
		x.plantForeign(t, f.Spoke(name))
	}
	must(t, f.Register(t.Context(), "small", nil))
	expectConnected(t, f, "small", metav1.ConditionTrue, v1alpha1.ReasonConnected) // the manager has started
	must(t, f.Hub.Client.Delete(t.Context(), registration("small")))
	expectConnected(t, f, "small", metav1.ConditionFalse, v1alpha1.ReasonKubeconfigMissing)
	for _, l := range links {
		t.Run(l.name, func(t *testing.T) { l.connects(t, x) })
	}
	t.Run("trickle", func(t *testing.T) { trickles(t, x) })
}

// populate creates realistic Deployments. There is no kube-controller-manager, so there are no pods.
func populate(t *testing.T, m *fleet.Member, n int) {
	t.Helper()
	const namespaces = 20
	for i := range namespaces {
		namespace(t, fmt.Sprintf("team-%d", i), m)
	}
	createMany(t, m, n, 16, func(i int) client.Object {
		d := deployment(fmt.Sprintf("team-%d", i%namespaces), fmt.Sprintf("service-%d", i))
		d.Labels["app.kubernetes.io/managed-by"], d.Labels["app.kubernetes.io/version"] = "kustomize", fmt.Sprintf("1.%d.0", i)
		d.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": strings.Repeat(fmt.Sprintf(`{"name":"service-%d"},`, i), 20)}
		return d
	})
}

// proxy puts a slow link in front of a spoke.
func (l slowLink) proxy(t *testing.T, f *faulty) (*faultproxy.Proxy, []byte) {
	t.Helper()
	f.canaries.add("token-of-" + l.name)
	kubeconfig, err := f.Spoke(l.spoke).UserKubeconfig(fleet.SpokeUser)
	must(t, err)
	p, err := faultproxy.Start(kubeconfig, "token-of-"+l.name)
	must(t, err)
	t.Cleanup(p.Close)
	kubeconfig, err = p.Kubeconfig()
	must(t, err)
	cfg, err := clientcmd.Load(kubeconfig)
	must(t, err)
	for _, c := range cfg.Clusters {
		c.DisableCompression = l.plain
	}
	kubeconfig, err = clientcmd.Write(*cfg)
	must(t, err)
	p.Limit(l.rate)
	return p, kubeconfig
}

// pages counts the requests for each page of Deployments, by continue token.
type pages struct {
	mu    sync.Mutex
	lists map[string]int
}

func (a *pages) note(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if q := r.URL.Query(); r.Method == http.MethodGet && q.Get("limit") != "" && q.Get("limit") != "1" && strings.HasSuffix(r.URL.Path, "/deployments") {
		a.mu.Lock()
		a.lists[q.Get("continue")]++
		a.mu.Unlock()
	}
	next.ServeHTTP(w, r)
}

var readSoFar = regexp.MustCompile(`^listing [A-Z][A-Za-z]+s: [0-9,]+ so far, \d+\.\d MB$`)

// connects registers the spoke, and removes it again.
func (l slowLink) connects(t *testing.T, f *faulty) {
	t.Helper()
	at := f.only(t, l.name, f.Spoke(l.spoke))
	namespace(t, l.name, at.m)
	ar := at.rule(t, "rule")
	p, kubeconfig := l.proxy(t, f)
	asked := &pages{lists: map[string]int{}}
	p.Set(asked.note)
	hub, err := client.NewWithWatch(f.Hub.RESTConfig(), client.Options{Scheme: fleet.Scheme})
	must(t, err)
	w, err := hub.Watch(t.Context(), &v1alpha1.SpokeClusterList{}, client.MatchingFields{"metadata.name": l.name})
	must(t, err)
	defer w.Stop()

	began := time.Now()
	must(t, f.RegisterKubeconfig(t.Context(), l.name, kubeconfig, nil))
	shown := l.untilConnected(t, w)
	took := time.Since(began)
	sent, received := p.Bytes()
	needed := time.Duration(float64(sent) / float64(l.rate) * float64(time.Second))
	t.Logf("%s was connected in %v; its %d bytes (and %d in the other direction) need %v: × %.2f", l.name, took.Round(time.Millisecond),
		sent, received, needed.Round(time.Millisecond), took.Seconds()/needed.Seconds())
	if took > needed*3/2 {
		t.Errorf("it was connected in %v, and its bytes need %v", took, needed)
	}
	for from, n := range asked.lists {
		if n > 1 {
			t.Errorf("the page that begins at %q was asked for %d times", from, n)
		}
	}
	progress := 0
	for _, message := range shown {
		if readSoFar.MatchString(message) {
			progress++
		}
	}
	t.Logf("%d pages; while it was connected, it showed %q", len(asked.lists), shown)
	if due := int(took / (10 * time.Second)); progress < due-1 || progress > due {
		t.Errorf("it showed %d times what was read", progress)
	}
	p.Limit(0)
	at.settle(t)
	at.holds(t, false)
	must(t, f.Hub.Client.Delete(t.Context(), ar))
	eventually(t, "the rule is gone", func(ctx context.Context) error {
		rules, err := at.rules(ctx)
		if err == nil && len(rules) > 0 {
			err = fmt.Errorf("there are %d", len(rules))
		}
		return err
	})
	must(t, f.Hub.Client.Delete(t.Context(), registration(l.name)))
	expectConnected(t, f.Fleet, l.name, metav1.ConditionFalse, v1alpha1.ReasonKubeconfigMissing)
}

// untilConnected returns the messages shown until the spoke was connected. It must never be shown as
// unreachable.
func (l slowLink) untilConnected(t *testing.T, w watch.Interface) (shown []string) {
	t.Helper()
	deadline := time.After(4 * time.Minute)
	for {
		select {
		case e := <-w.ResultChan():
			sc, ok := e.Object.(*v1alpha1.SpokeCluster)
			if !ok {
				t.Fatalf("the watch ended: %+v", e)
			}
			c := meta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionConnected)
			switch {
			case c == nil:
			case c.Status == metav1.ConditionTrue:
				return shown
			case c.Status == metav1.ConditionFalse:
				t.Fatalf("%s is shown as %+v", l.name, c)
			case len(shown) == 0 || shown[len(shown)-1] != c.Message:
				shown = append(shown, c.Message)
			}
		case <-deadline:
			t.Fatalf("%s is not connected; it showed %q", l.name, shown)
		}
	}
}

// trickles makes lists come too slowly, while all other requests are answered.
func trickles(t *testing.T, f *faulty) {
	t.Helper()
	l := slowLink{name: "trickle", spoke: "small"}
	at := f.only(t, l.name, f.Spoke(l.spoke))
	namespace(t, l.name, at.m)
	at.rule(t, "rule")
	p, kubeconfig := l.proxy(t, f)
	p.Set(faultproxy.Trickle(100))
	registered := time.Now()
	must(t, f.RegisterKubeconfig(t.Context(), l.name, kubeconfig, nil))
	within(t, 45*time.Second, "the spoke is given up", func(ctx context.Context) error {
		return connected(ctx, f.Fleet, l.name, metav1.ConditionFalse, v1alpha1.ReasonUnreachable)
	})
	if after := time.Since(registered); after < 30*time.Second {
		t.Errorf("it was given up after %v", after)
	}
	sc := membership(l.name)
	must(t, f.Hub.Client.Get(t.Context(), client.ObjectKeyFromObject(sc), sc))
	if c := meta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionConnected); !strings.Contains(c.Message, "Deployments: fewer than 1000 bytes per second arrived for 30s") {
		t.Errorf("the message is %s", c.Message)
	}
	p.Set(faultproxy.Pass)
	expectConnected(t, f.Fleet, l.name, metav1.ConditionTrue, v1alpha1.ReasonConnected)
	at.settle(t)
	at.holds(t, false)
}
