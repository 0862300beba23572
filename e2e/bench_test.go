package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/faultproxy"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

const (
	// benchVariable runs the benchmark (full), or the one that only counts (quick). roundsVariable is the number of
	// rounds of a row.
	benchVariable, roundsVariable = "BENCH", "ROUNDS"
	benchNamespace                = "bench"
	// far is the spoke behind a long round trip.
	far = "far"
	// settled is how long a manager is quiet before its memory is measured: it returns memory to the system meanwhile.
	settled = 32 * time.Second
	// samples is how many Deployments a round of a latency creates.
	samples = 20
	// benchPatience is how long a round may take.
	benchPatience = 3 * time.Minute
	// quickHeap is how many bytes of live heap a Deployment with its rule may hold, by the count of make bench-quick.
	quickHeap = 14_000
)

// These are the resources as etcd stores them: Deployments without their group.
var (
	storedDeployments = schema.GroupResource{Resource: "deployments"}
	storedAlertRules  = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "alertrules"}
	storedRules       = schema.GroupResource{Group: monitoringv1.SchemeGroupVersion.Group, Resource: monitoringv1.PrometheusRuleName}
)

// bench is a fleet in which either the manager or the floor is at work, one after the other.
type bench struct {
	*fleet.Fleet
	report

	rounds  int
	near    []string
	model   *model
	watches sync.WaitGroup // those that the tests opened
	proxied []byte         // kubeconfig of the far spoke
	dir     string
	// profiles is where the last manager that was started serves its profiles.
	profiles string
}

func startBench(t *testing.T, near ...string) *bench {
	t.Helper()
	b := &bench{Fleet: start(t, fleet.Options{Spokes: near, Intervals: 1, Audit: true}), near: near, rounds: 5, dir: t.TempDir()}
	if n := os.Getenv(roundsVariable); n != "" {
		var err error
		b.rounds, err = strconv.Atoi(n)
		must(t, err)
	}
	for _, name := range near {
		namespace(t, benchNamespace, b.Spoke(name))
		must(t, b.Register(t.Context(), name, nil))
	}
	return b
}

// worker is what does the work: the manager, or the floor. It returns what ends it, and the manager if it is one.
type worker func(t *testing.T, b *bench) (m *fleet.Manager, stop func())

func byManager(t *testing.T, b *bench) (m *fleet.Manager, stop func()) {
	t.Helper()
	m, b.profiles = startProfiled(t, b.Fleet, b.dir)
	return m, func() { must(t, m.Stop()) }
}

// startProfiled starts a manager, and returns the address of its profiles.
func startProfiled(t *testing.T, f *fleet.Fleet, dir string, env ...string) (m *fleet.Manager, profiles string) {
	t.Helper()
	address, err := fleet.FreeAddress()
	must(t, err)
	m, err = f.StartManager(t.Context(), fleet.ManagerOptions{
		Path: plainManager, Dir: dir, HubID: "bench", Env: env, Args: []string{"--deletion-hold=0", "--pprof-bind-address=" + address},
	})
	must(t, err)
	return m, "http://" + address + "/debug/pprof"
}

func byFloor(t *testing.T, b *bench) (m *fleet.Manager, stop func()) {
	t.Helper()
	configs := map[string]*rest.Config{}
	hub, err := b.HubKubeconfig(t.Context())
	must(t, err)
	for _, name := range b.near {
		kubeconfig, err := b.Spoke(name).UserKubeconfig(fleet.SpokeUser)
		must(t, err)
		configs[name], err = clientcmd.RESTConfigFromKubeConfig(kubeconfig)
		must(t, err)
	}
	if b.proxied != nil {
		configs[far], err = clientcmd.RESTConfigFromKubeConfig(b.proxied)
		must(t, err)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(hub)
	must(t, err)
	return nil, startFloor(t, b.model, cfg, configs)
}

// both calls a function with the manager and the floor in turns, as often as there are rounds, and calls another one after
// each. It returns the results of both.
func both[T any](t *testing.T, b *bench, after func(*testing.T), run func(t *testing.T, by worker) T) (managers, floors []T) {
	t.Helper()
	for range b.rounds {
		managers = append(managers, run(t, byManager))
		after(t)
		floors = append(floors, run(t, byFloor))
		after(t)
	}
	return managers, floors
}

// clear removes all Deployments and rules while nobody is at work.
func (b *bench) clear(t *testing.T) {
	t.Helper()
	for _, name := range b.near {
		erase(t, b.Spoke(name), storedDeployments, benchNamespace, &appsv1.DeploymentList{})
	}
	b.clearRules(t)
}

// clearRules removes what was written for the Deployments while nobody is at work.
func (b *bench) clearRules(t *testing.T) {
	t.Helper()
	for _, name := range b.near {
		eraseRules(t, b.Spoke(name))
	}
	erase(t, b.Hub, storedAlertRules, fleet.GeneratedNamespace, &v1alpha1.AlertRuleList{})
}

func eraseRules(t *testing.T, spoke *fleet.Member) {
	t.Helper()
	erase(t, spoke, storedRules, benchNamespace, &monitoringv1.PrometheusRuleList{})
}

// erase removes objects from the etcd of a cluster, because the API server would need as long for that as a round takes, and
// waits until the API server has seen it. A single list is not enough, as all removals have the same resource version.
func erase(t *testing.T, m *fleet.Member, resource schema.GroupResource, namespace string, list client.ObjectList) {
	t.Helper()
	must(t, m.Erase(t.Context(), resource, namespace))
	eventually(t, fmt.Sprintf("cluster %s has no %s", m.Name(), resource), func(ctx context.Context) error {
		err := m.Client.List(ctx, list, client.InNamespace(namespace))
		if n := apimeta.LenList(list); err == nil && n > 0 {
			err = fmt.Errorf("%d are left", n)
		}
		return err
	})
}

// engaged waits until the manager serves all spokes. The floor does at once.
func (b *bench) engaged(t *testing.T, m *fleet.Manager) {
	t.Helper()
	if m == nil {
		return
	}
	within(t, benchPatience, "all spokes are engaged", func(ctx context.Context) error {
		return metricIs(ctx, m, "rulefleet_engaged_spokes", float64(len(b.near)))
	})
}

// fill creates Deployments in a spoke, several at a time.
func (b *bench) fill(t *testing.T, spoke, prefix string, n int) {
	t.Helper()
	createMany(t, b.Spoke(spoke), n, 16, func(i int) client.Object {
		return deployment(benchNamespace, fmt.Sprintf("%s-%d", prefix, i))
	})
}

// arrivals are the times at which PrometheusRules appeared in a spoke, by the Deployment or AlertRule that they are
// about.
type arrivals struct {
	mu   sync.Mutex
	at   map[string]time.Time
	last time.Time
}

// watchArrivals opens a watch that ends with the context.
func (b *bench) watchArrivals(ctx context.Context, t *testing.T, spoke string) *arrivals {
	t.Helper()
	a := &arrivals{at: map[string]time.Time{}}
	b.followRules(ctx, t, spoke, func(change watch.EventType, pr *monitoringv1.PrometheusRule) {
		if change == watch.Added {
			a.add(cmp.Or(pr.Spec.Groups[0].Rules[0].Labels[rule.WorkloadLabel(v1alpha1.DeploymentKind)], pr.Annotations[v1alpha1.AlertRuleAnnotation]))
		}
	})
	return a
}

// followRules calls a function for each event of a PrometheusRule in a spoke, until the context ends.
func (b *bench) followRules(ctx context.Context, t *testing.T, spoke string, handle func(watch.EventType, *monitoringv1.PrometheusRule)) {
	t.Helper()
	c, err := client.NewWithWatch(b.Spoke(spoke).RESTConfig(), client.Options{Scheme: fleet.Scheme})
	must(t, err)
	follow(ctx, t, &b.watches, c, &monitoringv1.PrometheusRuleList{}, func(e watch.Event) {
		if pr, ok := e.Object.(*monitoringv1.PrometheusRule); ok {
			handle(e.Type, pr)
		}
	}, client.InNamespace(benchNamespace))
}

// watched starts who does the work, waits until the spokes are engaged, and opens a watch of the first.
func (b *bench) watched(t *testing.T, by worker) (m *fleet.Manager, into *arrivals, end func()) {
	t.Helper()
	m, stop := by(t, b)
	b.engaged(t, m)
	ctx, cancel := context.WithCancel(t.Context())
	return m, b.watchArrivals(ctx, t, b.near[0]), func() { cancel(); stop() }
}

func (a *arrivals) add(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = time.Now()
	a.at[name] = a.last
}

func (a *arrivals) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.at)
}

// until waits for a number of arrivals, and returns the time of the last.
func (a *arrivals) until(t *testing.T, n int) time.Time {
	t.Helper()
	var last time.Time
	within(t, benchPatience, fmt.Sprintf("%d PrometheusRules", n), func(context.Context) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if last = a.last; len(a.at) < n {
			return fmt.Errorf("there are %d", len(a.at))
		}
		return nil
	})
	return last
}

// untilAll waits for a number of arrivals in each of several spokes, and returns the time of the last.
func untilAll(t *testing.T, all []*arrivals, n int) (last time.Time) {
	t.Helper()
	for _, a := range all {
		if at := a.until(t, n); at.After(last) {
			last = at
		}
	}
	return last
}

// of returns when the rule of a Deployment arrived, or the zero time.
func (a *arrivals) of(name string) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.at[name]
}

// sample creates a Deployment in a spoke at every tick until it is told to stop, and returns the latencies of their
// rules in milliseconds.
func (b *bench) sample(t *testing.T, spoke string, into *arrivals, more func(i int) bool) []float64 {
	t.Helper()
	return sampleArrivals(t, into, more, func(_ int, name string) {
		must(t, b.Spoke(spoke).Client.Create(t.Context(), deployment(benchNamespace, name)))
	})
}

// sampleArrivals is bench.sample with another way to create a Deployment: the one of a number, by its name.
func sampleArrivals(t *testing.T, into *arrivals, more func(i int) bool, create func(i int, name string)) []float64 {
	t.Helper()
	created := map[string]time.Time{}
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	for i := 0; more(i); i++ {
		<-tick.C
		name := fmt.Sprintf("sample-%d", i)
		created[name] = time.Now()
		create(i, name)
	}
	out := make([]float64, 0, len(created))
	for name, at := range created {
		within(t, benchPatience, "a sample arrives", func(context.Context) error {
			if into.of(name).IsZero() {
				return errors.New(name + " has not")
			}
			return nil
		})
		out = append(out, into.of(name).Sub(at).Seconds()*1000)
	}
	return out
}

// slowest returns the 99th percentile, which is the largest of up to 100.
func slowest(of []float64) float64 {
	return slices.Sorted(slices.Values(of))[min(len(of)-1, len(of)*99/100)]
}

// addLatencies adds the median of the rounds' medians, and the 99th percentile of all rounds together. The latencies are in
// milliseconds.
func (b *bench) addLatencies(t *testing.T, what string, managers, floors [][]float64) {
	t.Helper()
	medians := func(rounds [][]float64) (out []float64) {
		for _, of := range rounds {
			out = append(out, median(of))
		}
		return out
	}
	all := func(rounds [][]float64) (out []float64) {
		if len(rounds) > 0 {
			out = append(out, slowest(slices.Concat(rounds...)))
		}
		return out
	}
	b.add(t, what+", p50", "ms", medians(managers), medians(floors))
	b.add(t, what+", p99", "ms", all(managers), all(floors))
}

// learn has the manager make a rule, which the floor imitates.
func (b *bench) learn(t *testing.T) {
	t.Helper()
	m, stop := byManager(t, b)
	b.engaged(t, m)
	b.fill(t, b.near[0], "model", 1)
	ar := expectGenerated(t, b.Fleet, b.near[0], benchNamespace, "model-0", 1)
	ar = expectReady(t, b.Fleet, client.ObjectKeyFromObject(ar), metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	b.model = &model{alertRule: *ar, promRule: *expectPushed(t, b.Spoke(b.near[0]), client.ObjectKeyFromObject(ar), 1)}
	stop()
	b.clear(t)
}

// TestBench measures times, memory and requests, and prints a table.
func TestBench(t *testing.T) {
	if os.Getenv(benchVariable) != "full" {
		t.Skip(benchVariable + "=full runs it")
	}
	b := startBench(t, "near-0", "near-1", "near-2", "near-3")
	t.Cleanup(func() { b.write(t, "bench.json") })
	b.learn(t)
	t.Run("latency", func(t *testing.T) { b.latency(t, "Deployment to rule at 5/s", nil) })
	t.Run("beside", func(t *testing.T) { b.beside(t, 2000) })
	t.Run("latency-frozen", func(t *testing.T) {
		b.latency(t, "Deployment to rule at 5/s while another spoke hangs", b.Spoke(b.near[len(b.near)-1]))
	})
	t.Run("cold", func(t *testing.T) { b.cold(t, 500) })
	t.Run("burst", func(t *testing.T) { b.burst(t, 1000) })
	t.Run("changed", func(t *testing.T) { b.changed(t) })
	t.Run("churn", func(t *testing.T) { b.churn(t) })
	t.Run("back", func(t *testing.T) { b.returns(t, 250) })
	t.Run("size", func(t *testing.T) { b.size(t, 1000, 10_000) })
	t.Run("yardstick", func(t *testing.T) { b.yardstick(t, 1000) })
	t.Run("far", func(t *testing.T) { b.farSpoke(t) })
}

// latency is that of 5 new Deployments a second in the first spoke, with nothing else to do. If hangs is not nil, the API
// server of that spoke hangs.
func (b *bench) latency(t *testing.T, what string, hangs *fleet.Member) {
	t.Helper()
	managers, floors := both(t, b, b.clear, func(t *testing.T, by worker) []float64 {
		t.Helper()
		_, into, end := b.watched(t, by)
		defer end()
		b.fill(t, b.near[0], "warm", 20)
		into.until(t, 20)
		if hangs != nil {
			must(t, hangs.Pause())
			defer func() { must(t, hangs.Resume()) }()
		}
		return b.sample(t, b.near[0], into, func(i int) bool { return i < samples })
	})
	b.addLatencies(t, what, managers, floors)
}

// beside is that in one spoke while another one gets its first rules, and the time until the other one has them.
func (b *bench) beside(t *testing.T, rules int) {
	t.Helper()
	type round struct {
		sampled []float64
		cold    float64
	}
	b.fill(t, b.near[1], "cold", rules)
	b.fill(t, b.near[0], "warm", 1)
	managers, floors := both(t, b, b.clearRules, func(t *testing.T, by worker) round {
		t.Helper()
		erase(t, b.Spoke(b.near[0]), storedDeployments, benchNamespace, &appsv1.DeploymentList{}) // the samples
		b.fill(t, b.near[0], "warm", 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		into, others := b.watchArrivals(ctx, t, b.near[0]), b.watchArrivals(ctx, t, b.near[1])
		began := time.Now()
		_, stop := by(t, b)
		defer stop()
		into.until(t, 1)
		sampled := b.sample(t, b.near[0], into, func(i int) bool { return i < 10 || others.count() < rules })
		return round{sampled: sampled, cold: others.until(t, rules).Sub(began).Seconds()}
	})
	b.clear(t)
	split := func(of []round) (sampled [][]float64, cold []float64) {
		for _, r := range of {
			sampled, cold = append(sampled, r.sampled), append(cold, r.cold)
		}
		return sampled, cold
	}
	sampled, cold := split(managers)
	floorSampled, floorCold := split(floors)
	b.addLatencies(t, "the same during a cold sync of another spoke", sampled, floorSampled)
	b.add(t, fmt.Sprintf("start until that spoke has %d rules", rules), "s", cold, floorCold)
}

// cold is the time from the start until all spokes with existing Deployments have all rules.
func (b *bench) cold(t *testing.T, rules int) {
	t.Helper()
	for _, name := range b.near {
		b.fill(t, name, "cold", rules)
	}
	managers, floors := both(t, b, b.clearRules, func(t *testing.T, by worker) float64 {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all []*arrivals
		for _, name := range b.near {
			all = append(all, b.watchArrivals(ctx, t, name))
		}
		began := time.Now()
		_, stop := by(t, b)
		defer stop()
		return untilAll(t, all, rules).Sub(began).Seconds()
	})
	b.clear(t)
	b.add(t, fmt.Sprintf("start until %d × %d rules", len(b.near), rules), "s", managers, floors)
}

// burst is the time from the first of many Deployments until the last rule, and the requests for them.
func (b *bench) burst(t *testing.T, rules int) {
	t.Helper()
	var counts map[string]int // of one round: they are the same in each
	managers, floors := both(t, b, b.clear, func(t *testing.T, by worker) float64 {
		t.Helper()
		m, into, end := b.watched(t, by)
		defer end()
		b.resetAudits(t)
		began := time.Now()
		b.fill(t, b.near[0], "burst", rules)
		took := into.until(t, rules).Sub(began)
		if m != nil && counts == nil {
			b.quiet(t)
			counts = b.requests(t)
		}
		return took.Seconds()
	})
	b.add(t, fmt.Sprintf("first of %d Deployments until the last rule", rules), "s", managers, floors)
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		if each := float64(counts[what]) / float64(rules); each >= 0.01 {
			b.add(t, "requests per rule: "+what, "", []float64{each}, nil)
		}
	}
}

// restarts counts the writes of restarts with many rules, and the time until the manager is quiet.
func (b *bench) restarts(t *testing.T, rules int) {
	t.Helper()
	rounds := min(b.rounds, 3)
	var writes, quiet []float64
	for i := range rounds {
		b.resetAudits(t)
		began := time.Now()
		m, stop := byManager(t, b)
		b.engaged(t, m)
		last := b.quiet(t)
		n := 0
		for what, times := range b.requests(t) {
			if !strings.Contains(what, " get ") {
				n += times
			}
		}
		writes, quiet = append(writes, float64(n)), append(quiet, last.Sub(began).Seconds())
		if i == rounds-1 {
			pause(t, settled)
			b.add(t, "RSS after a restart", "MiB", []float64{float64(memoryOf(t, m.Pid(), "VmRSS")) / (1 << 20)}, nil)
		}
		stop()
	}
	b.add(t, fmt.Sprintf("writes of a restart with %d rules", rules), "", writes, nil)
	b.add(t, "the restart until the manager is quiet", "s", quiet, nil)
}

// idle measures the CPU time and the requests of a manager that has nothing to do.
func (b *bench) idle(t *testing.T, m *fleet.Manager, span time.Duration) {
	t.Helper()
	b.resetAudits(t)
	before, err := metric(t.Context(), m, processCPU)
	must(t, err)
	pause(t, span)
	after, err := metric(t.Context(), m, processCPU)
	must(t, err)
	b.add(t, "CPU while idle", "% of a core", []float64{100 * (after - before) / span.Seconds()}, nil)
	all := 0
	for _, x := range b.audits() {
		events, err := x.member.Audit().Events(func(e controlplane.AuditEvent) bool { return e.User.Username == x.user })
		must(t, err)
		all += len(events)
	}
	b.add(t, fmt.Sprintf("requests while idle, hub and %d spokes", len(b.near)), "/min", []float64{float64(all) / span.Minutes()}, nil)
}

// size is what a Deployment and its rule add: to the resident memory of a manager that is quiet, to its live heap, and to the
// etcd of the hub. Then the manager is started again with all of them.
func (b *bench) size(t *testing.T, small, large int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	into := b.watchArrivals(ctx, t, b.near[0])
	m, stop := byManager(t, b)
	stop = sync.OnceFunc(stop)
	defer func() { stop(); b.clear(t) }()
	b.engaged(t, m)
	var rss, heap, stored [2]float64
	for i, n := range []int{small, large} {
		b.fill(t, b.near[0], strconv.Itoa(n), n-into.count())
		into.until(t, n)
		b.quiet(t)
		// It collects garbage, as Go does by itself after at most two minutes. After that, memory is returned.
		heap[i] = liveHeap(t, b.profiles, filepath.Join("..", "bin", fmt.Sprintf("heap-%d.pprof", n)))
		used, err := b.Hub.Used(t.Context())
		must(t, err)
		stored[i] = float64(used)
		b.idle(t, m, settled)
		rss[i] = float64(memoryOf(t, m.Pid(), "VmRSS"))
		b.add(t, fmt.Sprintf("RSS with %d rules", n), "MiB", []float64{rss[i] / (1 << 20)}, nil)
	}
	each := func(of [2]float64) []float64 { return []float64{(of[1] - of[0]) / float64(large-small) / 1024} }
	b.add(t, fmt.Sprintf("RSS per Deployment and rule, %d to %d", small, large), "KiB", each(rss), nil)
	b.add(t, "live heap per Deployment and rule", "KiB", each(heap), nil)
	b.add(t, "etcd of the hub per rule, compacted", "KiB", each(stored), nil)
	stop()
	b.restarts(t, large)
}

// farSpoke is the time from the start until a spoke behind a long round trip has rules that were on the hub before.
func (b *bench) farSpoke(t *testing.T) {
	t.Helper()
	m, err := b.StartSpoke(t.Context(), far, "prometheusrules")
	must(t, err)
	namespace(t, benchNamespace, m)
	kubeconfig, err := m.UserKubeconfig(fleet.SpokeUser)
	must(t, err)
	proxy, err := faultproxy.Start(kubeconfig, "far")
	must(t, err)
	t.Cleanup(proxy.Close)
	b.proxied, err = proxy.Kubeconfig()
	must(t, err)
	must(t, b.RegisterKubeconfig(t.Context(), far, b.proxied, nil))
	cleared := func(t *testing.T) { t.Helper(); eraseRules(t, m) }
	there := 0
	for _, row := range []struct {
		away  time.Duration
		rules int
	}{{10 * time.Millisecond, 100}, {300 * time.Millisecond, 100}, {100 * time.Millisecond, 2000}} {
		first := there
		createMany(t, b.Hub, row.rules-first, 8, func(i int) client.Object {
			return alertRule(fmt.Sprintf("far-%d", first+i), benchNamespace, onNamed(far))
		})
		there = row.rules
		proxy.Set(faultproxy.Latency(row.away))
		managers, floors := both(t, b, cleared, func(t *testing.T, by worker) float64 {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			into := b.watchArrivals(ctx, t, far)
			began := time.Now()
			_, stop := by(t, b)
			defer stop()
			return into.until(t, row.rules).Sub(began).Seconds()
		})
		b.add(t, fmt.Sprintf("start until %d rules behind a round trip of %v", row.rules, row.away), "s", managers, floors)
	}
}

// audits are the clusters with the manager's user in each.
func (b *bench) audits() []auditedAs {
	out := []auditedAs{{b.Hub, fleet.HubUser}}
	for _, name := range b.near {
		out = append(out, auditedAs{b.Spoke(name), fleet.SpokeUser})
	}
	return out
}

type auditedAs struct {
	member *fleet.Member
	user   string
}

func (b *bench) resetAudits(t *testing.T) {
	t.Helper()
	for _, x := range b.audits() {
		must(t, x.member.Audit().Reset())
	}
}

// requests counts the manager's requests since the last reset by cluster, verb and resource, without those of
// requests().
func (b *bench) requests(t *testing.T) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, x := range b.audits() {
		where := "spoke"
		if x.member == b.Hub {
			where = "hub"
		}
		for _, what := range requests(t, x.member, x.user) {
			out[where+" "+what]++
		}
	}
	return out
}

// quiet waits until the manager has sent no such request for a while, and returns when that began.
func (b *bench) quiet(t *testing.T) time.Time {
	t.Helper()
	last, since := -1, time.Now()
	within(t, benchPatience, "silence", func(context.Context) error {
		n := 0
		for _, times := range b.requests(t) {
			n += times
		}
		if n != last {
			last, since = n, time.Now()
		}
		if time.Since(since) < afterwards {
			return fmt.Errorf("%d requests so far", n)
		}
		return nil
	})
	return since
}

// liveHeap has garbage collected, stores the profile of what is left, and returns its bytes. profiles is the address of the
// manager's profiles.
func liveHeap(t *testing.T, profiles, file string) float64 {
	t.Helper()
	profile, err := fetch(t.Context(), http.DefaultClient, profiles+"/heap?gc=1")
	must(t, err)
	must(t, os.WriteFile(file, []byte(profile), 0o600))
	text, err := fetch(t.Context(), http.DefaultClient, profiles+"/heap?gc=1&debug=1")
	must(t, err)
	const field = "# HeapAlloc = "
	_, rest, found := strings.Cut(text, field)
	if !found {
		t.Fatalf("the profile has no %q", field)
	}
	var n float64
	_, err = fmt.Sscan(rest, &n)
	must(t, err)
	return n
}

// TestBenchQuick fails if a rule costs more requests, or more memory, than it did.
func TestBenchQuick(t *testing.T) {
	if os.Getenv(benchVariable) != "quick" {
		t.Skip("make bench-quick runs it")
	}
	const first, rules = 100, 1000
	b := startBench(t, "near-0")
	t.Cleanup(func() { b.write(t, "bench-quick.json") })
	most := func(what string, is, limit float64) {
		t.Helper()
		b.add(t, fmt.Sprintf("%s (at most %v)", what, limit), "", []float64{is}, nil)
		if is > limit {
			t.Errorf("%s: %v, and may be %v", what, is, limit)
		}
	}
	ctx := t.Context()
	into := b.watchArrivals(ctx, t, b.near[0])
	b.resetAudits(t)
	m, stop := byManager(t, b)
	b.engaged(t, m)
	b.fill(t, b.near[0], "first", first)
	into.until(t, first)
	b.quiet(t)
	most("watches on the hub", float64(b.opened(t, 0)), 9)
	most("watches in a spoke", float64(b.opened(t, 1)), 3)
	before := liveHeap(t, b.profiles, filepath.Join("..", "bin", "heap-quick-before.pprof"))

	b.resetAudits(t)
	b.fill(t, b.near[0], "more", rules)
	into.until(t, first+rules)
	b.quiet(t)
	all := b.requests(t)
	most("applies of AlertRules per rule", float64(all["hub patch alertrules"])/rules, 1)
	most("writes of a status per rule", float64(all["hub patch alertrules/status"])/rules, 1.5) // one, but for what is reported later
	most("creates in the spoke per rule", float64(all["spoke create prometheusrules"])/rules, 1)
	delete(all, "hub patch alertrules")
	delete(all, "hub patch alertrules/status")
	delete(all, "spoke create prometheusrules")
	delete(all, "hub patch spokeclusters/status") // its counts, now and then
	delete(all, "hub patch alertruletemplates/status")
	if len(all) > 0 {
		t.Errorf("other requests: %v", all)
	}
	eventually(t, "the workloads are counted", func(ctx context.Context) error { // a restart before that would count them later
		var list v1alpha1.AlertRuleTemplateList
		if err := b.Hub.Client.List(ctx, &list); err != nil {
			return err
		}
		for i := range list.Items {
			if s := list.Items[i].Status.Summary; s != nil && s.Generated == first+rules {
				return nil
			}
		}
		return errors.New("no template shows them")
	})
	after := liveHeap(t, b.profiles, filepath.Join("..", "bin", "heap-quick-after.pprof"))
	most("bytes of live heap per Deployment and rule", (after-before)/rules, quickHeap)
	stop()

	b.resetAudits(t)
	m, stop = byManager(t, b)
	defer stop()
	b.engaged(t, m)
	b.quiet(t)
	writes := func() (n int) {
		for what, times := range b.requests(t) {
			if !strings.Contains(what, " get ") {
				t.Logf("%d × %s", times, what)
				n += times
			}
		}
		return n
	}
	most("writes of a restart", float64(writes()), 0)
	b.resetAudits(t)
	pause(t, 20*time.Second)
	most("writes in 20 s without a change", float64(writes()), 0)
}

// opened counts the watches that were opened in a cluster of audits since the last reset.
func (b *bench) opened(t *testing.T, of int) int {
	t.Helper()
	x := b.audits()[of]
	events, err := x.member.Audit().Events(func(e controlplane.AuditEvent) bool { return e.User.Username == x.user && e.Verb == "watch" })
	must(t, err)
	return len(events)
}
