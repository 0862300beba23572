package e2e

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

const (
	sampleInterval  = 200 * time.Millisecond
	samplePrefix    = "sample-"
	sampleNamespace = "samples"
)

// sampler creates an AlertRule on the hub at every tick, whether or not earlier ones have arrived, and
// measures the time until it is a PrometheusRule in a spoke.
type sampler struct {
	hub, spoke *fleet.Member
	watching   client.WithWatch
	wg         sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	samples map[string]*sample
}

type sample struct {
	at   time.Time
	took time.Duration // 0 until it has arrived
}

// startSampler samples until the test ends.
func startSampler(t *testing.T, hub, spoke *fleet.Member) *sampler {
	t.Helper()
	watching, err := client.NewWithWatch(spoke.RESTConfig(), client.Options{Scheme: fleet.Scheme})
	must(t, err)
	namespace(t, sampleNamespace, spoke)
	s := &sampler{hub: hub, spoke: spoke, watching: watching, samples: map[string]*sample{}}
	ctx, cancel := context.WithCancel(t.Context())
	s.wg.Go(func() { s.watch(ctx) })
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
		key := client.ObjectKeyFromObject(ar).String()
		s.mu.Lock()
		s.samples[key] = &sample{at: time.Now()}
		s.mu.Unlock()
		s.wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			if err := s.hub.Client.Create(ctx, ar); err != nil {
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.samples, key) // a failure of the hub
			}
		})
	}
}

func (s *sampler) watch(ctx context.Context) {
	for ctx.Err() == nil {
		w, err := s.watching.Watch(ctx, &monitoringv1.PrometheusRuleList{}, client.InNamespace(sampleNamespace))
		if err != nil {
			continue
		}
		for e := range w.ResultChan() {
			if pr, ok := e.Object.(*monitoringv1.PrometheusRule); ok && e.Type == watch.Added {
				s.arrived(pr.Annotations[v1alpha1.AlertRuleAnnotation])
			}
		}
	}
}

func (s *sampler) arrived(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.samples[key]; found != nil && found.took == 0 {
		found.took = time.Since(found.at)
	}
}

// between returns the latencies of the samples that were created in a time span, in order. Those that have not
// arrived count until now.
func (s *sampler) between(from, to time.Time) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var in []*sample
	for _, x := range s.samples {
		if !x.at.Before(from) && !x.at.After(to) {
			in = append(in, x)
		}
	}
	slices.SortFunc(in, func(a, b *sample) int { return a.at.Compare(b.at) })
	out := make([]time.Duration, 0, len(in))
	for _, x := range in {
		out = append(out, cmp.Or(x.took, time.Since(x.at)))
	}
	return out
}

// warm waits until samples arrive.
func (s *sampler) warm(t *testing.T) {
	t.Helper()
	begun := time.Now()
	within(t, patience, "samples arrive", func(context.Context) error {
		if n := len(s.between(begun, time.Now().Add(-time.Second))); n < 10 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
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
func p99(of []time.Duration) time.Duration {
	var all []time.Duration
	for chunk := range slices.Chunk(of, spell) {
		if len(chunk) == spell || len(all) == 0 {
			all = append(all, p(99, chunk))
		}
	}
	if len(all) == 0 {
		return 0
	}
	return p(50, all)
}

// stall is the maximum latency of the slowest percent under any load: waiting for another spoke's answer takes
// 5 s and more.
const stall = 4 * time.Second

// jitter is the observed variation of p99 without a fault, with a dozen control planes on two cores: from 47
// to 446 ms between runs. Waiting for a bad spoke takes seconds.
const jitter = 600 * time.Millisecond

// slower reports whether the healthy spoke is slower than the machine's other load explains.
func slower(before time.Duration, during []time.Duration) error {
	is := p99(during)
	if float64(is) > 1.2*float64(before) && is > before+jitter {
		return fmt.Errorf("the healthy spoke is slower: p99 is %v, and was %v", is, before)
	}
	if len(during) > 0 && p(99, during) > stall {
		return fmt.Errorf("the healthy spoke was held up: p99 of all is %v", p(99, during))
	}
	return nil
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
