package e2e

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

const (
	sampleInterval  = 200 * time.Millisecond
	samplePrefix    = "sample-"
	sampleLabel     = "sample"
	sampleNamespace = "samples"
)

// sampler creates an AlertRule on the hub at every tick, whether or not earlier ones have arrived, and
// measures the time until it is a PrometheusRule in a spoke. Beside each goes a ConfigMap that the sampler itself
// copies to the spoke when a watch shows it: its time is what the machine and the API servers take.
type sampler struct {
	hub, spoke             *fleet.Member
	hubWatches, spokeWatch client.WithWatch
	wg                     sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	samples map[string]*sample // by the name of both objects
}

type sample struct {
	at     time.Time
	took   time.Duration // 0 until it has arrived
	copied bool          // the ConfigMap was seen on the hub
	floor  time.Duration // of the ConfigMap; 0 until it has arrived
}

// startSampler samples until the test ends.
func startSampler(t *testing.T, hub, spoke *fleet.Member) *sampler {
	t.Helper()
	s := &sampler{hub: hub, spoke: spoke, samples: map[string]*sample{}}
	var err error
	s.hubWatches, err = client.NewWithWatch(hub.RESTConfig(), client.Options{Scheme: fleet.Scheme})
	must(t, err)
	s.spokeWatch, err = client.NewWithWatch(spoke.RESTConfig(), client.Options{Scheme: fleet.Scheme})
	must(t, err)
	namespace(t, sampleNamespace, spoke)
	ctx, cancel := context.WithCancel(t.Context())
	s.wg.Go(func() {
		watchAdded(ctx, s.spokeWatch, &monitoringv1.PrometheusRuleList{}, sampleNamespace, func(o client.Object) {
			_, name, _ := strings.Cut(o.GetAnnotations()[v1alpha1.AlertRuleAnnotation], "/")
			s.arrived(name, func(x *sample) *time.Duration { return &x.took })
		})
	})
	s.wg.Go(func() {
		watchAdded(ctx, s.hubWatches, &corev1.ConfigMapList{}, fleet.Namespace, func(o client.Object) { s.copy(ctx, o.GetName()) })
	})
	s.wg.Go(func() {
		watchAdded(ctx, s.spokeWatch, &corev1.ConfigMapList{}, sampleNamespace, func(o client.Object) {
			s.arrived(o.GetName(), func(x *sample) *time.Duration { return &x.floor })
		})
	})
	s.wg.Go(func() { s.create(ctx) })
	t.Cleanup(func() { cancel(); s.wg.Wait() })
	return s
}

func (s *sampler) create(ctx context.Context) {
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if s.isStopped() {
			continue
		}
		ar := alertRule(fmt.Sprintf("%s%d", samplePrefix, i), sampleNamespace, onNamed(v1alpha1.ClusterName(s.spoke.Name())))
		ar.Labels = map[string]string{sampleLabel: ""}
		s.mu.Lock()
		s.samples[ar.Name] = &sample{at: time.Now()}
		s.mu.Unlock()
		s.put(ctx, s.hub, configMap(ar.Namespace, ar.Name), func() {})
		s.put(ctx, s.hub, ar, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.samples, ar.Name) // a failure of the hub
		})
	}
}

// put creates an object without waiting for it.
func (s *sampler) put(ctx context.Context, in *fleet.Member, o client.Object, failed func()) {
	s.wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if in.Client.Create(ctx, o) != nil {
			failed()
		}
	})
}

// copy creates the ConfigMap in the spoke. A watch that begins again shows each once more.
func (s *sampler) copy(ctx context.Context, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.samples[name]; x != nil && !x.copied {
		x.copied = true
		s.put(ctx, s.spoke, configMap(sampleNamespace, name), func() {})
	}
}

func configMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// watchAdded calls seen for each object that is added to a namespace, until the context ends.
func watchAdded(ctx context.Context, c client.WithWatch, list client.ObjectList, namespace string, seen func(client.Object)) {
	for ctx.Err() == nil {
		w, err := c.Watch(ctx, list, client.InNamespace(namespace))
		if err != nil {
			continue
		}
		for e := range w.ResultChan() {
			if o, ok := e.Object.(client.Object); ok && e.Type == watch.Added {
				seen(o)
			}
		}
	}
}

func (s *sampler) arrived(name string, which func(*sample) *time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.samples[name]; found != nil && *which(found) == 0 {
		*which(found) = time.Since(found.at)
	}
}

// between returns the samples that were created in a time span, in order. Those that have not arrived count until
// now.
func (s *sampler) between(from, to time.Time) []sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []sample
	for _, x := range s.samples {
		if !x.at.Before(from) && !x.at.After(to) {
			out = append(out, sample{at: x.at, took: cmp.Or(x.took, time.Since(x.at)), floor: x.floor})
		}
	}
	slices.SortFunc(out, func(a, b sample) int { return a.at.Compare(b.at) })
	return out
}

// warm waits until samples arrive, and their ConfigMaps.
func (s *sampler) warm(t *testing.T) {
	t.Helper()
	begun := time.Now()
	within(t, patience, "samples arrive", func(context.Context) error {
		in := s.between(begun, time.Now().Add(-time.Second))
		copied := len(slices.DeleteFunc(slices.Clone(in), func(x sample) bool { return x.floor == 0 }))
		if len(in) < 10 || copied < 10 {
			return fmt.Errorf("there are %d, and %d ConfigMaps", len(in), copied)
		}
		return nil
	})
}

// calm waits until other tests no longer keep the machine busy, that is, until the ConfigMaps that the test itself copies
// arrive quickly. It ignores how long the manager takes. If the machine stays busy, it gives up after calmWithin.
func (s *sampler) calm(t *testing.T) {
	t.Helper()
	begun := time.Now()
	for time.Since(begun) < calmWithin {
		if isCalm(s.between(time.Now().Add(-calmFor-time.Second), time.Now().Add(-time.Second))) {
			t.Logf("%s: the machine is calm after %s", t.Name(), seconds(time.Since(begun)))
			return
		}
		pause(t, time.Second)
	}
	t.Logf("%s: the machine is not calm after %s", t.Name(), calmWithin)
}

const (
	// calmWithin is how long a measurement waits for a calm machine, and calmFor how long it must be calm.
	calmWithin, calmFor = 90 * time.Second, 5 * time.Second
	// calmFloor is the longest time that a ConfigMap may take on a calm machine. If nothing else runs, it takes 15 ms.
	calmFloor = 300 * time.Millisecond
)

// isCalm reports whether there are enough samples, and the ConfigMaps of all arrived in time.
func isCalm(of []sample) bool {
	return len(of) >= spell/2 && !slices.ContainsFunc(of, func(x sample) bool { return x.floor == 0 || x.floor > calmFloor })
}

// stop and resume control whether samples are created.
func (s *sampler) stop()   { s.set(true) }
func (s *sampler) resume() { s.set(false) }

func (s *sampler) set(stopped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = stopped
}

func (s *sampler) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// spell is the number of samples for a p99: 5 s of them.
const spell = 25

// p99 is the median of the p99 of every spell: other load on the machine affects some spells, a spoke that
// blocks others affects all.
func p99(of []sample) time.Duration { return medianOf(of, 0) }

// excess is p99 beyond the part of it that the machine's other load explains: twice what the same spell's
// ConfigMaps took. At most a second of theirs counts, as waiting for another spoke's answer takes 5 s and more.
func excess(of []sample) time.Duration { return medianOf(of, 2) }

// medianOf returns the median of the p99 of every spell, less so many times that of its ConfigMaps.
func medianOf(of []sample, floors int) time.Duration {
	var all []time.Duration
	for chunk := range slices.Chunk(of, spell) {
		if len(chunk) < spell && len(all) > 0 {
			continue
		}
		var took []time.Duration
		for _, x := range chunk {
			took = append(took, x.took)
		}
		all = append(all, p(99, took)-explained(chunk, floors))
	}
	if len(all) == 0 {
		return 0
	}
	return p(50, all)
}

// explained is the part of a latency that the machine's other load explains: so many times the p99 of the ConfigMaps.
func explained(of []sample, floors int) time.Duration {
	if len(of) == 0 {
		return 0
	}
	var all []time.Duration
	for _, x := range of {
		all = append(all, min(x.floor, time.Second))
	}
	return time.Duration(floors) * p(99, all)
}

// stall is the maximum latency of the slowest percent, beyond that of the same samples' ConfigMaps: waiting for another
// spoke's answer takes 5 s and more.
const stall = 4 * time.Second

// jitter is the excess that the load of the machine can cause. With three fleets at once, p99 is below 120 ms; while other work kept
// both cores busy, it varied by up to a second between spells without a fault. Waiting for a bad spoke takes 5 s.
// TestIsolation, which runs alone, detects shorter delays.
const jitter = time.Second

// slower reports whether the healthy spoke is slower than the machine's other load explains.
func slower(before time.Duration, during []sample) error {
	before = min(before, jitter) // the machine may have been busy
	is := p99(during)
	if beyond := excess(during); float64(is) > 1.2*float64(before) && beyond > before+jitter {
		return fmt.Errorf("the healthy spoke is slower: p99 is %v, and was %v; it is %v beyond twice that of ConfigMaps that the test copies", is, before, beyond)
	}
	if len(during) == 0 {
		return nil
	}
	var all []time.Duration
	for _, x := range during {
		all = append(all, x.took-x.floor)
	}
	if p(99, all) > stall {
		return fmt.Errorf("the healthy spoke was held up: p99 of all is %v beyond that of ConfigMaps that the test copies", p(99, all))
	}
	return nil
}

// TestSlower checks what counts as the machine's other load, and what as the fault's.
func TestSlower(t *testing.T) {
	const before = 25 * time.Millisecond
	for name, row := range map[string]struct {
		took, floor time.Duration
		once        bool // in half of the first spell only
		slower      bool
	}{
		"as before":                           {took: 25 * time.Millisecond, floor: 15 * time.Millisecond},
		"the machine is slow":                 {took: 900 * time.Millisecond, floor: 400 * time.Millisecond},
		"the manager alone is slow":           {took: 1100 * time.Millisecond, floor: 15 * time.Millisecond, slower: true},
		"no ConfigMap arrived":                {took: 1100 * time.Millisecond, slower: true},
		"a wait, on a machine that is slow":   {took: 5 * time.Second, floor: 2 * time.Second, slower: true},
		"a wait, on a machine that hangs too": {took: 5 * time.Second, floor: 5 * time.Second, slower: true},
		"the machine hangs once":              {took: 5 * time.Second, floor: 4900 * time.Millisecond, once: true},
		"a wait, once":                        {took: 5 * time.Second, floor: 15 * time.Millisecond, once: true, slower: true},
		"a wait, once, on a slow machine":     {took: 5 * time.Second, floor: 600 * time.Millisecond, once: true, slower: true},
	} {
		t.Run(name, func(t *testing.T) {
			during := slices.Repeat([]sample{{took: row.took, floor: row.floor}}, 3*spell)
			if row.once {
				copy(during[spell/2:], slices.Repeat([]sample{{took: before, floor: before}}, 3*spell))
			}
			if err := slower(before, during); (err != nil) != row.slower {
				t.Errorf("slower returns %v, expected an error: %v", err, row.slower)
			}
		})
	}
}

// TestCalm checks when a measurement begins.
func TestCalm(t *testing.T) {
	fast := slices.Repeat([]time.Duration{20 * time.Millisecond}, spell-1)
	fast = slices.Clip(fast) // each append copies it
	for name, row := range map[string]struct {
		floors []time.Duration
		calm   bool
	}{
		"no sample":               {},
		"there are too few":       {floors: slices.Repeat([]time.Duration{20 * time.Millisecond}, spell/2-1)},
		"all are fast":            {floors: append(fast, calmFloor), calm: true},
		"one is slow":             {floors: append(fast, calmFloor+1)},
		"one has not arrived yet": {floors: append(fast, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			var of []sample
			for _, floor := range row.floors {
				of = append(of, sample{took: 9 * time.Second, floor: floor})
			}
			if is := isCalm(of); is != row.calm {
				t.Errorf("calm is %v", is)
			}
		})
	}
}

// raw returns the answer of an API server for a path.
func raw(ctx context.Context, m *fleet.Member, path string) (string, error) {
	c, err := rest.HTTPClientFor(m.RESTConfig())
	if err != nil {
		return "", err
	}
	defer c.CloseIdleConnections()
	return fetch(ctx, c, m.URL()+path)
}

// metricsText returns all metrics of the manager.
func metricsText(ctx context.Context, m *fleet.Manager) (string, error) {
	return fetch(ctx, http.DefaultClient, m.MetricsURL)
}

func fetch(ctx context.Context, c *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return string(body), err
}
