package evaluator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/rulefleet/rulefleet/pkg/testing/memory"
	"github.com/rulefleet/rulefleet/pkg/testing/prometheus"
)

// metrics are the metrics that a Prometheus scrapes. They may change.
type metrics struct {
	mu   sync.Mutex
	text string
}

func (m *metrics) set(lines ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.text = strings.Join(lines, "\n") + "\n"
}

func (m *metrics) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	_, _ = w.Write([]byte(m.text))
}

// serve starts what a Prometheus scrapes, and returns its HOST:PORT.
func (m *metrics) serve(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// start starts a Prometheus for one test. It fails without the program, because a skipped test shows nothing.
func start(t *testing.T, o prometheus.Options) (*prometheus.Prometheus, *Client, *requests) {
	t.Helper()
	o.Dir = t.TempDir()
	p, err := prometheus.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Process().Kill(); err != nil {
			t.Error(err)
		}
	})
	sent := &requests{}
	return p, &Client{HTTP: &http.Client{Transport: sent}, Base: p.URL()}, sent
}

// requests counts the requests of a client.
type requests struct {
	before func(*http.Request) // may be nil
	count  atomic.Int64
	length atomic.Int64 // of the longest address
}

func (r *requests) RoundTrip(req *http.Request) (*http.Response, error) {
	r.count.Add(1)
	if n := int64(len(req.URL.String())); n > r.length.Load() {
		r.length.Store(n)
	}
	if r.before != nil {
		r.before(req)
	}
	return http.DefaultTransport.RoundTrip(req)
}

// eventually retries until there is no error, and fails with the last one.
func eventually(t *testing.T, condition func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		last = condition(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%v: %v", err, last)
	}
}

// all reads all alerts with a selector, by name.
func all(ctx context.Context, c *Client, match string) (map[string]*Rule, Stats, error) {
	return filtered(ctx, c, Filter{Match: match})
}

// filtered reads the rules that a filter selects, by name.
func filtered(ctx context.Context, c *Client, filter Filter) (map[string]*Rule, Stats, error) {
	out := map[string]*Rule{}
	var twice error
	stats, err := c.Rules(ctx, filter, func(r *Rule) {
		if out[r.Name] != nil {
			twice = fmt.Errorf("%s came twice", r.Name)
		}
		out[r.Name] = r
	})
	return out, stats, errors.Join(err, twice)
}

const someRules = `
groups:
- name: shop
  rules:
  - {alert: Fires, expr: load > 0, labels: {team: shop, severity: critical}, annotations: {summary: "it is {{ $value }}"}}
  - {alert: Waits, expr: load > 0, for: 1h}
  - {alert: Quiet, expr: "load  >  100", for: 5m, keep_firing_for: 90s, labels: {team: shop}}
  - {record: "job:load", expr: sum(load), labels: {team: shop}}
- name: broken
  rules:
  - {alert: Fails, expr: load / on (job) twin}
- name: later
  interval: 10000h
  rules:
  - {alert: Later, expr: up}
- name: records
  rules:
  - {record: "job:twin", expr: sum(twin)}
`

func TestRules(t *testing.T) {
	t.Parallel()
	m := &metrics{}
	m.set(`load{x="1"} 1`, `load{x="2"} 2`, `twin{x="1"} 1`, `twin{x="2"} 2`)
	_, c, _ := start(t, prometheus.Options{Rules: map[string][]byte{"a.yaml": []byte(someRules)}, Targets: []string{m.serve(t)}})
	begin := time.Now()
	var rules map[string]*Rule
	eventually(t, func(ctx context.Context) error {
		found, stats, err := all(ctx, c, "")
		if err != nil {
			return err
		}
		if len(found) != 5 || stats.Rules != 5 || stats.Groups != 3 || stats.Requests != 1 || stats.Bytes == 0 {
			t.Fatalf("%d rules, %+v", len(found), stats)
		}
		rules = found
		if found["Fires"].Firing != 2 || found["Waits"].Pending != 2 || found["Fails"].Health != HealthErr {
			return fmt.Errorf("not so yet: %+v, %+v, %+v", found["Fires"], found["Waits"], found["Fails"])
		}
		return nil
	})

	fires := rules["Fires"]
	if !strings.HasSuffix(fires.File, filepath.Join("rules", "a.yaml")) || fires.Group != "shop" || fires.Interval != time.Second ||
		fires.Query != "load > 0" || fires.For != 0 || fires.Pending != 0 || fires.Health != HealthOK || fires.LastError != "" ||
		!maps.Equal(fires.Labels, map[string]string{"team": "shop", "severity": "critical"}) ||
		!maps.Equal(fires.Annotations, map[string]string{"summary": "it is {{ $value }}"}) {
		t.Errorf("%+v", fires)
	}
	if fires.LastEvaluation.Before(begin.Add(-time.Minute)) || fires.LastEvaluation.After(time.Now().Add(time.Minute)) {
		t.Errorf("evaluated at %v", fires.LastEvaluation)
	}
	if waits := rules["Waits"]; waits.For != time.Hour || waits.Firing != 0 || waits.Health != HealthOK {
		t.Errorf("%+v", waits)
	}
	if quiet := rules["Quiet"]; quiet.For != 5*time.Minute || quiet.KeepFiringFor != 90*time.Second || quiet.Query != "load > 100" || quiet.Firing+quiet.Pending != 0 {
		t.Errorf("%+v", quiet)
	}
	if fails := rules["Fails"]; !strings.Contains(fails.LastError, "many-to-many") || len(fails.LastError) > maxLastError {
		t.Errorf("%+v", fails)
	}
	if later := rules["Later"]; later.Health != HealthUnknown || !later.LastEvaluation.IsZero() || later.Interval != 10000*time.Hour {
		t.Errorf("%+v", later)
	}

	for match, want := range map[string][]string{
		`{team="shop"}`:     {"Fires", "Quiet"},
		`{severity!=""}`:    {"Fires"},
		`{team="shop\"s"}`:  nil,
		`{team=~".+",a=""}`: {"Fires", "Quiet"},
	} {
		t.Run(match, func(t *testing.T) {
			found, stats, err := all(t.Context(), c, match)
			if got := slices.Sorted(maps.Keys(found)); err != nil || !slices.Equal(got, want) || stats.Rules != len(want) {
				t.Errorf("%s: %v, %+v, %v", match, got, stats, err)
			}
		})
	}
	unknown := make([]string, 300) // so that their names don't fit into one request
	for i := range unknown {
		unknown[i] = fmt.Sprintf("another group, number %d", i)
	}
	for name, tc := range map[string]struct {
		groups, want []string
		requests     int
	}{
		"a group":    {[]string{"records"}, []string{"job:twin"}, 1},
		"two groups": {[]string{"shop", "records"}, []string{"Fires", "Quiet", "Waits", "job:load", "job:twin"}, 1},
		"many":       {slices.Concat(unknown, []string{"shop"}), []string{"Fires", "Quiet", "Waits", "job:load"}, 4},
		"none":       {[]string{}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			found, stats, err := filtered(t.Context(), c, Filter{Groups: tc.groups})
			if got := slices.Sorted(maps.Keys(found)); err != nil || !slices.Equal(got, tc.want) || stats.Requests != tc.requests {
				t.Errorf("%s: %v, %+v, %v", name, got, stats, err)
			}
			for _, r := range found {
				if r.Recording != strings.Contains(r.Name, ":") {
					t.Errorf("%+v", r)
				}
			}
		})
	}
	_, _, err := all(t.Context(), c, "{")
	checkError(t, "a match that does not parse", err, Rejected, http.StatusBadRequest, "bad_data")
}

// manyRules are n groups of one rule each, in ten files.
func manyRules(n int) map[string][]byte {
	const files = 10
	out := map[string][]byte{}
	for f := range files {
		var b strings.Builder
		b.WriteString("groups:\n")
		for i := f; i < n; i += files {
			fmt.Fprintf(&b, `
- name: web-%[1]d
  interval: 10000h
  rules:
  - alert: DeploymentDown%[1]d
    expr: kube_deployment_status_replicas_available{namespace="shop",deployment="web-%[1]d"} == 0 and on () kube_deployment_spec_replicas{namespace="shop",deployment="web-%[1]d"} > 0
    for: 1m
    labels: {severity: critical, namespace: shop, deployment: web-%[1]d, cluster: eu-1}
    annotations: {summary: "Deployment shop/web-%[1]d has no available replica", description: "It wants some, and has had none for a minute. See kubectl -n shop describe deployment web-%[1]d."}
`, i)
		}
		out[fmt.Sprintf("shop-%d-0123-4567.yaml", f)] = []byte(b.String())
	}
	return out
}

// TestRulesInPagesAreBounded measures memory and time.
func TestRulesInPagesAreBounded(t *testing.T) {
	const groups = 5000
	_, c, sent := start(t, prometheus.Options{Rules: manyRules(groups)})
	for size, want := range map[int]int{0: groups / defaultPage, 499: 11, groups: 1} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			c.PageSize = size
			sent.count.Store(0)
			names := map[string]bool{}
			var stats Stats
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begin := time.Now()
			var err error
			const most = 10 << 20
			peak := memory.Peak(most, func() { stats, err = c.Rules(t.Context(), Filter{}, func(r *Rule) { names[r.Name] = true }) })
			took := time.Since(begin)
			runtime.ReadMemStats(&after)
			t.Logf("pages of %d: %v, %+v, %d KiB at most, %d KiB and %d objects in all", size, took.Round(time.Millisecond), stats,
				peak>>10, (after.TotalAlloc-before.TotalAlloc)>>10, after.Mallocs-before.Mallocs)
			if err != nil || len(names) != groups || stats.Rules != groups || stats.Groups != groups {
				t.Errorf("pages of %d: %d rules, %+v, %v", size, len(names), stats, err)
			}
			if n := int(sent.count.Load()); n != want || stats.Requests != want {
				t.Errorf("pages of %d: %d requests, %+v", size, n, stats)
			}
			if peak > most || stats.Bytes > 8<<20 || took > 20*time.Second {
				t.Errorf("pages of %d: %v, %+v, %d KiB at most", size, took, stats, peak>>10)
			}
		})
	}
	c.PageSize, c.MaxRequests = 100, 10
	_, stats, err := all(t.Context(), c, "")
	checkError(t, "too many pages", err, TooMuch, 0, "one poll: 11 requests; the limit is 10; reduce")
	if stats.Rules != 1000 {
		t.Errorf("%+v", stats)
	}
	c.MaxRequests, c.MaxRules = 0, 1000
	_, _, err = all(t.Context(), c, "")
	checkError(t, "too many rules", err, TooMuch, 0, "the answer: 1,001 rules; the limit is 1,000; reduce")
	c.MaxRules, c.MaxBytes = 0, 1<<20
	_, stats, err = all(t.Context(), c, "")
	checkError(t, "too many bytes", err, TooMuch, 0, "the answer: 1,048,577 bytes; the limit is 1,048,576; reduce")
	if stats.Bytes > 1<<20+1 {
		t.Errorf("%+v", stats)
	}
}

// groups are rule files of groups of one rule each, which has the group's name.
func groups(names ...string) map[string][]byte {
	var b strings.Builder
	b.WriteString("groups:\n")
	for _, name := range names {
		fmt.Fprintf(&b, "- {name: %[1]s, rules: [{alert: %[1]s, expr: up}]}\n", name)
	}
	return map[string][]byte{"a.yaml": []byte(b.String())}
}

// TestRulesThatChange checks that reading restarts when the next page is gone.
func TestRulesThatChange(t *testing.T) {
	t.Parallel()
	p, c, sent := start(t, prometheus.Options{Rules: groups("a", "b", "c")})
	reload := func(names ...string) {
		if err := p.Reload(t.Context(), groups(names...)); err != nil {
			t.Error(err)
		}
	}
	c.PageSize = 1
	once := sync.Once{}
	sent.before = func(req *http.Request) {
		if req.URL.Query().Has("group_next_token") {
			once.Do(func() { reload("a", "c", "d") })
		}
	}
	found, stats, err := all(t.Context(), c, "")
	if got := slices.Sorted(maps.Keys(found)); err != nil || !slices.Equal(got, []string{"a", "c", "d"}) {
		t.Errorf("changed once: %v, %v", got, err)
	}
	if want := (Stats{Requests: 5, Groups: 3, Rules: 3, Restarts: 1, Bytes: stats.Bytes}); stats != want {
		t.Errorf("changed once: %+v", stats)
	}

	n := 0
	reload("a", "b", "c")
	sent.before = func(req *http.Request) {
		if req.URL.Query().Has("group_next_token") {
			n++
			reload("a", fmt.Sprintf("b%d", n), "c")
		}
	}
	_, stats, err = all(t.Context(), c, "")
	checkError(t, "changed each time", err, Changing, http.StatusBadRequest, "kept changing")
	if want := (Stats{Requests: 6, Groups: 1, Rules: 1, Restarts: 2, Bytes: stats.Bytes}); stats != want {
		t.Errorf("changed each time: %+v", stats)
	}
}

func TestPresent(t *testing.T) {
	t.Parallel()
	m := &metrics{}
	fixed := []string{`here{x="1"} 0`, `here{x="2"} NaN`, `odd{i="0"} 1`, `quoted{x="a\"b, or } or here"} 1`, `i{i="5",j="k"} 1`}
	m.set(append(fixed, "leaving 1")...)
	_, c, sent := start(t, prometheus.Options{Targets: []string{m.serve(t)}})
	selectors := []string{
		"never", "odd", "leaving", "here", `here{x="3"}`, `quoted{x="a\"b, or } or here"}`, "i", `{__name__=~"her.*"}`, `{__name__=~"hi.*"}`, `{"odd", i="0"}`,
		"here # or never",
	}
	want := []Presence{Absent, Present, Present, Present, Absent, Present, Present, Present, Absent, Present, Present}
	present := func(ctx context.Context) error {
		got, err := c.Present(ctx, selectors)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("got %v, want %v", got, want)
		}
		return err
	}
	eventually(t, present)
	m.set(fixed...)
	want[2] = Absent // a stale series
	eventually(t, present)

	sent.count.Store(0)
	refused := []string{"here", "sum(here)", "here[5m]", "here offset 5m", "here @ 5", "here)", "", "here or never", "vector(1)", `{x=""}`, "never"}
	got, err := c.Present(t.Context(), refused)
	checkError(t, "no selectors", err, Rejected, 0, "not a plain vector selector")
	if !strings.HasSuffix(err.Error(), "(and 8 more)") {
		t.Errorf("no selectors: %v", err)
	}
	wanted := make([]Presence, len(refused))
	wanted[0], wanted[len(wanted)-1] = Present, Absent
	if !slices.Equal(got, wanted) || sent.count.Load() != 1 {
		t.Errorf("%v in %d requests", got, sent.count.Load())
	}

	if got, err := c.Present(t.Context(), nil); len(got) != 0 || err != nil {
		t.Errorf("nothing: %v, %v", got, err)
	}
}

// TestPresentOfMany checks that addresses stay short and each request has many selectors.
func TestPresentOfMany(t *testing.T) {
	t.Parallel()
	m := &metrics{}
	var lines, selectors []string
	var want []Presence
	for i := range 500 {
		want = append(want, Absent)
		if i%3 == 0 {
			lines = append(lines, fmt.Sprintf(`kube_deployment_spec_replicas{namespace="shop",deployment="web-%d"} 1`, i))
			want[i] = Present
		}
		selectors = append(selectors, fmt.Sprintf(`kube_deployment_spec_replicas{namespace="shop",deployment="web-%d",exported_namespace=""}`, i))
	}
	m.set(lines...)
	_, c, sent := start(t, prometheus.Options{Targets: []string{m.serve(t)}})
	eventually(t, func(ctx context.Context) error {
		sent.count.Store(0)
		begin := time.Now()
		got, err := c.Present(ctx, selectors)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("got %v, want %v", got, want)
		}
		t.Logf("%d selectors: %v in %d requests", len(selectors), time.Since(begin).Round(time.Millisecond), sent.count.Load())
		return err
	})
	if n, length := sent.count.Load(), sent.length.Load(); n < 10 || n > 20 || length > maxURL || length < maxURL*9/10 {
		t.Errorf("%d requests of at most %d bytes", n, length)
	}

	long := fmt.Sprintf("up{x=%q}", strings.Repeat("x", maxURL))
	got, err := c.Present(t.Context(), []string{long, selectors[0]})
	checkError(t, "a long selector", err, Rejected, 0, "bytes; the limit is 8,192; shorten the selector")
	if !slices.Equal(got, []Presence{Unknown, Present}) {
		t.Errorf("a long selector: %v", got)
	}

	c.MaxRequests = 2
	got, err = c.Present(t.Context(), selectors)
	checkError(t, "too many requests", err, TooMuch, 0, "one poll: 3 requests; the limit is 2; reduce")
	if got[0] != Present || got[499] != Unknown {
		t.Errorf("too many requests: %v", got)
	}
}

// TestPresentThatIsTooMuch checks that a selector on which the evaluator gives up does not affect others.
func TestPresentThatIsTooMuch(t *testing.T) {
	t.Parallel()
	m := &metrics{}
	lines := []string{"few 1"}
	for i := range 100 {
		lines = append(lines, fmt.Sprintf(`many{x="%d"} 1`, i))
	}
	m.set(lines...)
	_, c, _ := start(t, prometheus.Options{Targets: []string{m.serve(t)}, Args: []string{"--query.max-samples=50"}})
	want := []Presence{Absent, Absent, Present, Unknown, Present}
	var err error
	eventually(t, func(ctx context.Context) error {
		var got []Presence
		if got, err = c.Present(ctx, []string{"a", "b", "few", "many", "few"}); !slices.Equal(got, want) {
			return fmt.Errorf("got %v, want %v: %w", got, want, err)
		}
		return nil
	})
	checkError(t, "too much", err, Rejected, http.StatusUnprocessableEntity, "too many samples")
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	p, c, _ := start(t, prometheus.Options{Rules: groups("a")})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := all(ctx, c, "")
	checkError(t, "called off", err, Unreachable, 0, "can't be reached")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("called off: %v", err)
	}

	wrong := *c
	wrong.Base = p.URL().JoinPath("prefix")
	_, _, err = all(t.Context(), &wrong, "")
	checkError(t, "a prefix too much", err, NotFound, http.StatusNotFound, "route prefix")

	if err := p.Process().Pause(); err != nil {
		t.Fatal(err)
	}
	silent := *c
	silent.Timeout = 200 * time.Millisecond
	_, _, err = all(t.Context(), &silent, "")
	checkError(t, "silent", err, Unreachable, 0, "did not answer in time")
	if err := p.Process().Kill(); err != nil {
		t.Fatal(err)
	}
	_, _, err = all(t.Context(), c, "")
	checkError(t, "down", err, Unreachable, 0, "refused")
	got, err := c.Present(t.Context(), []string{"up"})
	checkError(t, "down", err, Unreachable, 0, "refused")
	if !slices.Equal(got, []Presence{Unknown}) {
		t.Errorf("down: %v", got)
	}
}

// checkError checks an error's kind, and what a person reads of it.
func checkError(t *testing.T, what string, err error, kind Kind, code int, says string) {
	t.Helper()
	bad := (*Error)(nil)
	switch {
	case !errors.As(err, &bad):
		t.Errorf("%s: %v", what, err)
		return
	case bad.Kind != kind || bad.Code != code || !strings.Contains(bad.Message, says):
		t.Errorf("%s: %s, %d, %q; want %s, %d, %q", what, bad.Kind, bad.Code, bad.Message, kind, code, says)
	case len(bad.Message) > 1000 || strings.ContainsAny(bad.Message, "\n\x1b"):
		t.Errorf("%s: it is no short line: %q", what, bad.Message)
	}
	t.Logf("%s: %s: %s", what, bad.Kind, bad.Message)
}
