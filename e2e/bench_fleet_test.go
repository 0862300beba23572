package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	"github.com/rulefleet/rulefleet/pkg/testing/simulated"
)

const (
	// fleetPatience is how long a row of make bench-fleet may take.
	fleetPatience = 20 * time.Minute
	// fleetMemory is the memory limit of the manager by default, in bytes, as the chart sets it from
	// resources.limits.memory.
	fleetMemory = 2 << 30
	// fleetSilence is how long nothing must happen until the manager counts as quiet.
	fleetSilence = 8 * time.Second
)

// fleetBench is a real hub and a real manager with simulated spokes.
type fleetBench struct {
	*fleet.Fleet
	report

	server *simulated.Server
	names  []string
	// each is the number of Deployments in each spoke in the first of two steps.
	each int
	// span is how long Deployments are created at a steady rate.
	span   time.Duration
	memory int
	dir    string

	hub      *http.Client
	manager  *fleet.Manager
	profiles string
}

// number returns the value of an environment variable, or a default.
func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}

// TestBenchFleet measures a manager with many simulated spokes, and prints a table.
func TestBenchFleet(t *testing.T) {
	if os.Getenv(benchVariable) != "fleet" {
		t.Skip("make bench-fleet runs it")
	}
	spokes := number(t, "SPOKES", 500)
	b := &fleetBench{
		Fleet: start(t, fleet.Options{Intervals: 1}), server: simulated.Start(), dir: t.TempDir(),
		each: number(t, "DEPLOYMENTS", 100), span: time.Duration(number(t, "SPAN", 60)) * time.Second, memory: number(t, "MEMORY", fleetMemory),
	}
	t.Cleanup(b.server.Close)
	t.Cleanup(func() { b.write(t, "bench-fleet.json") })
	t.Cleanup(func() {
		if unserved := b.server.Unserved(); len(unserved) > 0 {
			t.Errorf("the simulated spokes got requests that they do not serve: %v", unserved)
		}
	})
	var err error
	b.hub, err = rest.HTTPClientFor(b.Hub.RESTConfig())
	must(t, err)
	b.start(t)
	b.add1(t, "simulated spokes", "", float64(spokes))
	b.add1(t, "memory limit of the manager (GOMEMLIMIT)", "MiB", float64(b.memory>>20))
	b.register(t, min(100, spokes))
	t.Run("steady", func(t *testing.T) { b.steady(t) })
	b.register(t, spokes)
	t.Run("one-rule", func(t *testing.T) { b.oneRule(t) })
	t.Run("cold", func(t *testing.T) { b.coldFleet(t) })
	t.Run("restart", func(t *testing.T) { b.restartFleet(t) })
}

// add1 adds a line with a single value.
func (b *fleetBench) add1(t *testing.T, what, unit string, value float64) {
	t.Helper()
	b.add(t, "simulated: "+what, unit, []float64{value}, nil)
}

// start starts the manager.
func (b *fleetBench) start(t *testing.T) {
	t.Helper()
	b.manager, b.profiles = startProfiled(t, b.Fleet, b.dir, "GOMEMLIMIT="+strconv.Itoa(b.memory))
}

// register registers spokes until there are n, and waits until the manager serves all of them.
func (b *fleetBench) register(t *testing.T, n int) {
	t.Helper()
	began := time.Now()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(8)
	for i := len(b.names); i < n; i++ {
		name := fmt.Sprintf("spoke-%04d", i)
		b.names = append(b.names, name)
		b.server.Add(name).AddNamespace(benchNamespace)
		g.Go(func() error {
			kubeconfig, err := b.server.Kubeconfig(name)
			if err != nil {
				return err //nolint:wrapcheck // it names the spoke
			}
			return b.RegisterKubeconfig(ctx, name, kubeconfig, nil) //nolint:wrapcheck // it names the spoke
		})
	}
	must(t, g.Wait())
	last := b.settled(t)
	b.add1(t, fmt.Sprintf("registration until all %d spokes are served and the manager is quiet", n), "s", last.Sub(began).Seconds())
}

// activity is what changes while the manager works.
type activity struct {
	engaged, hubWrites float64
	spokes             simulated.Counts
}

// now returns the activity so far. Watches that end after some minutes are opened again, and do not count.
func (b *fleetBench) now(ctx context.Context) (activity, error) {
	engaged, err := metric(ctx, b.manager, "rulefleet_engaged_spokes")
	if err != nil {
		return activity{}, err
	}
	hub, err := readHub(ctx, b.hub, b.Hub.RESTConfig().Host)
	if err != nil {
		return activity{}, err
	}
	counts := b.server.Counts()
	counts.Watches = 0
	return activity{engaged, hub.writes, counts}, nil
}

// settled waits until all spokes are served and the manager writes nothing, lists nothing and uses little CPU. It returns
// when that began.
func (b *fleetBench) settled(t *testing.T) time.Time {
	t.Helper()
	const tick, little = time.Second, 0.6
	var last activity
	var used float64
	looked, since := time.Now(), time.Now()
	within(t, fleetPatience, "silence", func(ctx context.Context) error {
		select {
		case <-ctx.Done():
		case <-time.After(tick):
		}
		is, err := b.now(ctx)
		if err != nil {
			return err
		}
		seconds, err := metric(ctx, b.manager, processCPU)
		if err != nil {
			return err
		}
		now := time.Now()
		share := (seconds - used) / now.Sub(looked).Seconds()
		if is != last || share > little || is.engaged != float64(len(b.names)) {
			since = now
		}
		last, used, looked = is, seconds, now
		if now.Sub(since) < fleetSilence {
			return fmt.Errorf("so far: %+v, %.1f cores", is, share)
		}
		return nil
	})
	return since
}

// steady creates Deployments in one spoke after the other, 5 a second.
func (b *fleetBench) steady(t *testing.T) {
	t.Helper()
	into := &arrivals{at: map[string]time.Time{}}
	b.server.Observe(func(w simulated.Write) {
		if w.Verb == "create" {
			into.add(subjectOf(w.Object))
		}
	})
	defer b.server.Observe(nil)
	samples := int(b.span / sampleInterval)
	spoke := func(i int) *simulated.Spoke { return b.server.Spoke(b.names[i%len(b.names)]) }
	took := sampleArrivals(t, into, func(i int) bool { return i < samples }, func(i int, name string) { spoke(i).AddDeployment(benchNamespace, name) })
	what := fmt.Sprintf("%d spokes, Deployment to rule at 5/s", len(b.names))
	b.add1(t, what+", p50", "ms", median(took))
	b.add1(t, what+", p99 (goal 300)", "ms", slowest(took))
	for i := range samples {
		spoke(i).DeleteDeployment(benchNamespace, fmt.Sprintf("sample-%d", i))
	}
	b.hold(t, 0)
}

// subjectOf returns the Deployment that a PrometheusRule is about.
func subjectOf(o map[string]any) string {
	groups, _, _ := unstructured.NestedSlice(o, "spec", "groups")
	for _, group := range groups {
		rules, _, _ := unstructured.NestedSlice(group.(map[string]any), "rules") //nolint:forcetypeassert // a panic shows it
		for _, r := range rules {
			name, _, _ := unstructured.NestedString(r.(map[string]any), "labels", rule.WorkloadLabel(v1alpha1.DeploymentKind)) //nolint:forcetypeassert // as above
			return name
		}
	}
	return ""
}

// hold waits until each spoke has this many PrometheusRules.
func (b *fleetBench) hold(t *testing.T, each int) {
	t.Helper()
	within(t, fleetPatience, fmt.Sprintf("%d rules in each spoke", each), func(context.Context) error {
		for _, name := range b.names {
			if n := b.server.Spoke(name).Count(); n != each {
				return fmt.Errorf("%s has %d", name, n)
			}
		}
		return nil
	})
}

// counted waits until the statuses of all spokes have the numbers of Deployments and rules, which are not updated at once.
// A manager that is started before that would write them.
func (b *fleetBench) counted(t *testing.T, each int32) {
	t.Helper()
	within(t, fleetPatience, "the statuses of the spokes count everything", func(ctx context.Context) error {
		var list v1alpha1.SpokeClusterList
		if err := b.Hub.Client.List(ctx, &list); err != nil {
			return err
		}
		for i := range list.Items {
			s := &list.Items[i].Status
			of := slices.IndexFunc(s.Workloads, func(n v1alpha1.WorkloadCount) bool { return n.Kind == v1alpha1.DeploymentKind && n.Total == each })
			if of < 0 || ptr.Deref(s.Deployments, 0) != each || ptr.Deref(s.Rules, 0) != each {
				return fmt.Errorf("spoke %s has %d Deployments, %d rules and %+v", list.Items[i].Name, ptr.Deref(s.Deployments, 0), ptr.Deref(s.Rules, 0), s.Workloads)
			}
		}
		return nil
	})
}

// oneRule places a rule on all spokes.
func (b *fleetBench) oneRule(t *testing.T) {
	t.Helper()
	into := &arrivals{at: map[string]time.Time{}}
	ar := alertRule("everywhere", benchNamespace, onEvery())
	key := client.ObjectKeyFromObject(ar).String()
	b.server.Observe(func(w simulated.Write) {
		of, _, _ := unstructured.NestedString(w.Object, "metadata", "annotations", v1alpha1.AlertRuleAnnotation)
		if w.Verb == "create" && of == key {
			into.add(w.Spoke)
		}
	})
	defer b.server.Observe(nil)
	began := time.Now()
	must(t, b.Hub.Client.Create(t.Context(), ar))
	into.until(t, len(b.names))
	after := func(at time.Time) float64 { return at.Sub(began).Seconds() }
	times := slices.SortedFunc(maps.Values(into.at), func(x, y time.Time) int { return x.Compare(y) })
	what := fmt.Sprintf("one rule onto %d of %[1]d spokes", len(b.names))
	b.add1(t, what+", p50", "s", after(times[len(times)/2]))
	b.add1(t, what+", p90 (goal 2)", "s", after(times[min(len(times)-1, len(times)*9/10)]))
	b.add1(t, what+", last", "s", after(times[len(times)-1]))
	must(t, b.Hub.Client.Delete(t.Context(), ar))
	b.hold(t, 0)
}

// fillFleet adds Deployments to each spoke, from a number on.
func (b *fleetBench) fillFleet(from, n int) {
	for _, name := range b.names {
		spoke := b.server.Spoke(name)
		for i := range n {
			spoke.AddDeployment(benchNamespace, fmt.Sprintf("app-%d", from+i))
		}
	}
}

// coldFleet is the time from the start until all spokes have the rules of all their Deployments.
func (b *fleetBench) coldFleet(t *testing.T) {
	t.Helper()
	must(t, b.manager.Stop())
	b.fillFleet(0, b.each)
	wrote := b.server.Counts()
	before := b.figures(t)
	began := time.Now()
	b.start(t)
	profiled := b.profile(t, "cpu-cold.pprof")
	pairs := float64(len(b.names) * b.each)
	b.hold(t, b.each)
	what := fmt.Sprintf("%d rules onto %d spokes, cold", int(pairs), len(b.names))
	b.add1(t, what+" (goal 300)", "s", time.Since(began).Seconds())
	b.add1(t, what+": quiet", "s", b.settled(t).Sub(began).Seconds())
	<-profiled
	is, err := b.now(t.Context())
	must(t, err)
	b.add1(t, what+": writes per rule in the spokes", "", float64(is.spokes.Writes()-wrote.Writes())/pairs)
	b.add1(t, what+": writes per rule on the hub", "", (is.hubWrites-before.writes)/pairs)
	b.usage(t, what, before)
}

// restartFleet adds as many Deployments again, and restarts the manager when it is quiet.
func (b *fleetBench) restartFleet(t *testing.T) {
	t.Helper()
	b.fillFleet(b.each, b.each)
	b.hold(t, 2*b.each)
	b.settled(t)
	b.counted(t, int32(2*b.each))
	b.settled(t)
	must(t, b.manager.Stop())
	before := b.figures(t)
	wrote := b.server.Counts()
	began := time.Now()
	b.start(t)
	profiled := b.profile(t, "cpu-restart.pprof")
	last := b.settled(t)
	<-profiled
	is, err := b.now(t.Context())
	must(t, err)
	what := fmt.Sprintf("restart with %d rules in %d spokes", 2*b.each*len(b.names), len(b.names))
	b.add1(t, what+": writes in the spokes (goal 0)", "", float64(is.spokes.Writes()-wrote.Writes()))
	hub := b.figures(t)
	b.add1(t, what+": writes on the hub (goal 0)", "", hub.writes-before.writes)
	t.Logf("writes on the hub at the restart: %v", hub.since(before))
	b.add1(t, what+": quiet (goal 60)", "s", last.Sub(began).Seconds())
	b.usage(t, what, before)
	heap := liveHeap(t, b.profiles, filepath.Join("..", "bin", "heap-fleet.pprof"))
	b.add1(t, what+": live heap", "MiB", heap/(1<<20))
	goroutines, err := fetch(t.Context(), http.DefaultClient, b.profiles+"/goroutine")
	must(t, err)
	must(t, os.WriteFile(filepath.Join("..", "bin", "goroutines-fleet.pprof"), []byte(goroutines), 0o600))
}

// profile stores what the manager does in its first minute. The channel is closed when that is done.
func (b *fleetBench) profile(t *testing.T, file string) <-chan struct{} {
	t.Helper()
	done, from := make(chan struct{}), b.profiles
	go func() {
		defer close(done)
		profile, err := fetch(t.Context(), http.DefaultClient, from+"/profile?seconds=60")
		if err == nil {
			err = os.WriteFile(filepath.Join("..", "bin", file), []byte(profile), 0o600)
		}
		if err != nil && t.Context().Err() == nil {
			t.Errorf("profiling the manager: %v", err)
		}
	}()
	return done
}

// usage adds what the manager uses when it is quiet, and the CPU time since it was started, when the hub was as before.
func (b *fleetBench) usage(t *testing.T, what string, before hubFigures) {
	t.Helper()
	const mib = 1 << 20
	spokes := float64(len(b.names))
	b.add1(t, what+": RSS (goal 1536)", "MiB", float64(memoryOf(t, b.manager.Pid(), "VmRSS"))/mib)
	b.add1(t, what+": highest RSS", "MiB", float64(memoryOf(t, b.manager.Pid(), "VmHWM"))/mib)
	goroutines, err := metric(t.Context(), b.manager, "go_goroutines")
	must(t, err)
	b.add1(t, what+": goroutines per spoke", "", goroutines/spokes)
	b.add1(t, what+": connections per spoke", "", float64(b.server.Connections())/spokes)
	b.add1(t, what+": watches per spoke", "", float64(b.server.OpenWatches())/spokes)
	b.add1(t, what+": RSS of the process of the simulated spokes", "MiB", float64(memoryOf(t, os.Getpid(), "VmRSS"))/mib)
	hub := b.figures(t)
	b.add1(t, what+": size of the hub's etcd", "MiB", hub.size/mib)
	cpu, err := metric(t.Context(), b.manager, processCPU)
	must(t, err)
	b.add1(t, what+": CPU time of the manager", "s", cpu)
	b.add1(t, what+": CPU time of the hub's API server", "s", hub.cpu-before.cpu)
}
