package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	urlpath "path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/faultproxy"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// lanes runs the rows of each place that there is sequentially, beside those of the others.
func (f *faulty) lanes(t *testing.T, places map[string]*place, rows map[string]func(at *place)) {
	t.Helper()
	maps.DeleteFunc(rows, func(name string, _ func(*place)) bool { return places[name] == nil })
	t.Run("rows", func(t *testing.T) {
		atOnce(t, rows, func(t *testing.T, name string, rows func(at *place)) {
			t.Helper()
			places[name].t = t
			rows(places[name])
		})
	})
}

// behind puts a proxy between the manager and a place.
func (at *place) behind(t *testing.T) *faultproxy.Proxy {
	t.Helper()
	kubeconfig, err := at.m.UserKubeconfig(fleet.SpokeUser)
	must(t, err)
	token := "canary-proxy-" + at.name
	at.canaries.add(token)
	p, err := faultproxy.Start(kubeconfig, token)
	must(t, err)
	t.Cleanup(p.Close)
	at.kubeconfig, err = p.Kubeconfig()
	must(t, err)
	return p
}

// TestFaultProxies has faulty proxies between the manager and its spokes.
func TestFaultProxies(t *testing.T) {
	parallel(t)
	served, unserved := []string{"broken", "busy", "failing", "slow"}, []string{"silent", "hole"} // these begin with another address
	if testing.Short() {
		served, unserved = []string{"failing"}, nil
	}
	all := slices.Concat(served, unserved)
	f := startFaulty(t, fleet.Options{Spokes: all})
	f.manage(t)
	places, proxies := map[string]*place{}, map[string]*faultproxy.Proxy{}
	for _, name := range all {
		places[name] = f.place(t, name)
		proxies[name] = places[name].behind(t)
	}
	for _, name := range served {
		places[name].register(t)
	}
	for _, name := range served {
		places[name].settle(t)
	}
	f.measure(t)
	rows := map[string]func(at *place){}
	for name, run := range map[string]func(at *place, p *faultproxy.Proxy){
		"broken": brokenRows, "busy": busyRows, "failing": failingRows, "slow": slowRows, "silent": silentRows, "hole": holeRows,
	} {
		rows[name] = func(at *place) { run(at, proxies[name]) }
	}
	f.lanes(t, places, rows)
}

func brokenRows(at *place, p *faultproxy.Proxy) {
	at.row("an empty list with 200", rowOptions{}, func(r *fault) {
		lies := &lies{}
		r.proxied(p, lies.tell, func() { r.disbelieves(lies) })
	})
	at.row("connections are reset at random", rowOptions{}, func(r *fault) { r.proxied(p, faultproxy.Reset(0.4, 11), r.none) })
}

func busyRows(at *place, p *faultproxy.Proxy) {
	at.row("429", rowOptions{}, func(r *fault) {
		r.proxied(p, faultproxy.TooManyRequests(5*time.Second), func() { r.expectShown(metav1.ConditionFalse, v1alpha1.ReasonThrottled) })
	})
	at.row("410 Gone", rowOptions{}, func(r *fault) { r.proxied(p, faultproxy.Gone, func() { r.stays(20 * time.Second) }) })
}

func failingRows(at *place, p *faultproxy.Proxy) {
	at.row("a storm of 500 and 503", rowOptions{exemplary: true}, func(r *fault) { r.proxied(p, faultproxy.Storm(12), r.unreachable) })
}

func slowRows(at *place, p *faultproxy.Proxy) {
	at.row("2 s latency", rowOptions{}, func(r *fault) {
		r.proxied(p, faultproxy.Latency(2*time.Second), func() { r.stays(35 * time.Second) })
	})
}

func silentRows(at *place, p *faultproxy.Proxy) {
	silent, err := faultproxy.Silent()
	must(at.t, err)
	at.row("a listener that stays silent", rowOptions{unregistered: true}, func(r *fault) { r.dead(silent) })
	at.row("truncated JSON", rowOptions{}, func(r *fault) { r.proxied(p, faultproxy.Truncated, r.unreachable) })
}

func holeRows(at *place, _ *faultproxy.Proxy) {
	hole, err := faultproxy.BlackHole(at.t.Context())
	must(at.t, err)
	at.row("a black hole", rowOptions{unregistered: true}, func(r *fault) { r.dead(hole) })
}

// maxRate is how many requests per second a faulty spoke may get with default intervals.
const maxRate = 10

// proxied injects a fault of the proxy, and changes the spoke's rules meanwhile.
func (r *fault) proxied(p *faultproxy.Proxy, f faultproxy.Fault, during func()) {
	r.t.Helper()
	before := p.Requests()
	r.inject(func() { p.Set(f); p.EndWatches() }, func() { p.Set(faultproxy.Pass) })
	r.change()
	during()
	r.changeSpoke()
	r.hold(20 * time.Second)
	r.over()
	rate := float64(p.Requests()-before) / r.healed.Sub(r.injected).Seconds()
	r.t.Logf("%s: the spoke was sent %.1f requests a second meanwhile", r.title, rate)
	if limit := maxRate / float64(r.intervals); rate > limit {
		r.t.Errorf("the spoke was sent %.0f requests a second, and there is nothing to gain by more than %.0f", rate, limit)
	}
}

func (r *fault) none() {}

func (r *fault) unreachable() {
	r.t.Helper()
	r.expectShown(metav1.ConditionFalse, v1alpha1.ReasonUnreachable)
}

// lies counts the lists that were answered with an empty one, by kind.
type lies struct {
	mu    sync.Mutex
	lists map[string]int
}

func (l *lies) tell(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if q := r.URL.Query(); r.Method == http.MethodGet && q.Get("limit") != "1" && q.Get("watch") == "" {
		l.mu.Lock()
		if l.lists == nil {
			l.lists = map[string]int{}
		}
		l.lists[urlpath.Base(r.URL.Path)]++
		l.mu.Unlock()
	}
	faultproxy.EmptyLists(w, r, next)
}

func (l *lies) told() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, kind := range []string{"deployments", "namespaces", "prometheusrules"} {
		if l.lists[kind] == 0 {
			return fmt.Errorf("the lists that were asked for are %v", l.lists)
		}
	}
	return nil
}

// disbelieves checks that objects that seem to be gone stay on the hub and in the spoke.
func (r *fault) disbelieves(l *lies) {
	r.t.Helper()
	ar, err := generated(r.t.Context(), r.Fleet, r.name, r.name, "web-0")
	must(r.t, err)
	if len(ar) != 1 {
		r.t.Fatalf("there are %d AlertRules of Deployment web-0", len(ar))
	}
	stays := func(ctx context.Context) error {
		now, err := generated(ctx, r.Fleet, r.name, r.name, "web-0")
		if err == nil && (len(now) != 1 || now[0].UID != ar[0].UID) {
			err = fmt.Errorf("of Deployment web-0 there are %d AlertRules", len(now))
		}
		return errors.Join(err, r.keptAsItWas())
	}
	within(r.t, shownWithin, "the caches are lied to", func(context.Context) error {
		if err := stays(r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
		return l.told()
	})
	throughout(r.t, r.intervals.Of(15*time.Second), "nothing is deleted", stays)
	within(r.t, shownWithin, "why says that the answers may be incomplete", func(context.Context) error {
		err := r.says(r.untouched(), r.name, v1alpha1.ReasonNamespaceMissing, "written")
		if words := "look for a proxy or a cache in front of the spoke's API server"; err == nil && !strings.Contains(r.broken.Fix, words) {
			err = fmt.Errorf("it does not say %q: %s", words, r.broken.Fix)
		}
		return err
	})
}

// dead registers the spoke with an address that does not answer, and then with its own.
func (r *fault) dead(d *faultproxy.Dead) {
	r.t.Helper()
	r.t.Cleanup(func() { _ = d.Close() })
	cfg, err := clientcmd.Load(r.kubeconfig)
	must(r.t, err)
	for _, c := range cfg.Clusters {
		c.Server = d.URL()
	}
	kubeconfig, err := clientcmd.Write(*cfg)
	must(r.t, err)
	r.inject(func() { r.put(r.t, r.name, kubeconfig) }, func() {})
	r.unreachable()
	r.change()
	r.hold(20 * time.Second)
	r.put(r.t, r.name, r.kubeconfig)
	r.over()
}
