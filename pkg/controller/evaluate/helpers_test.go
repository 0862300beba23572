package evaluate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

const hubID = "hub-1"

// world is a hub and one spoke, called s, with a Prometheus monitoring/k behind the spoke's API server.
type world struct {
	*testing.T
	*Poller

	hub     client.Client
	spoke   *spoke.Spoke
	objects []*monitoringv1.PrometheusRule

	mu         sync.Mutex
	polled     []*monitoringv1.PrometheusRule // those of the latest poll
	read       spoke.Evaluators
	away       bool
	told       []string // AlertRules of which there was news
	changed    int      // how often the spoke was to be shown anew
	requests   []string
	bytes      int
	prometheus http.Handler
}

// fakeProm answers as a Prometheus with these rules and series.
type fakeProm struct {
	mu     sync.Mutex
	rules  []loaded
	series map[string]bool // those that there are, by metric name; nil is all
	fail   func(w http.ResponseWriter, req *http.Request) bool
}

// loaded is a rule as Prometheus returns it.
type loaded struct {
	file, group string
	rule        map[string]any
}

func (f *fakeProm) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil && f.fail(w, req) {
		return
	}
	var data any
	switch {
	case strings.HasSuffix(req.URL.Path, "/api/v1/rules"):
		groups := []any{}
		from, _ := strconv.Atoi(req.URL.Query().Get("group_next_token"))
		limit, _ := strconv.Atoi(req.URL.Query().Get("group_limit"))
		to := min(from+limit, len(f.rules))
		for _, l := range f.rules[from:to] {
			groups = append(groups, map[string]any{"name": l.group, "file": l.file, "interval": 30, "rules": []any{l.rule}})
		}
		page := map[string]any{"groups": groups}
		if to < len(f.rules) {
			page["groupNextToken"] = strconv.Itoa(to)
		}
		data = page
	case strings.HasSuffix(req.URL.Path, "/api/v1/query"):
		results := []any{}
		for question := range strings.SplitSeq(req.URL.Query().Get("query"), " or ") {
			selector, rest, _ := strings.Cut(strings.TrimPrefix(question, "label_replace(group("), `),"i","`)
			index, _, _ := strings.Cut(rest, `"`)
			if f.series == nil || f.series[promql.MetricName(selector)] {
				results = append(results, map[string]any{"metric": map[string]string{"i": index}, "value": []any{1, "1"}})
			}
		}
		data = map[string]any{"resultType": "vector", "result": results}
	default:
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": data})
}

func (f *fakeProm) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// loads returns a PrometheusRule as a Prometheus of prometheus-operator's loads it.
func loads(prometheus string, o *monitoringv1.PrometheusRule, edit ...func(rule map[string]any)) loaded {
	r := o.Spec.Groups[0].Rules[0]
	out := map[string]any{
		"type": "alerting", "name": r.Alert, "query": r.Expr.String(), "duration": 60, "labels": r.Labels, "annotations": r.Annotations,
		"health": "ok", "lastEvaluation": "2026-01-01T00:00:00Z", "alerts": []any{},
	}
	for _, fn := range edit {
		fn(out)
	}
	return loaded{
		file:  fmt.Sprintf("/etc/prometheus/rules/prometheus-%s-rulefiles-0/%s-%s-%s.yaml", prometheus, o.Namespace, o.Name, o.UID),
		group: o.Spec.Groups[0].Name, rule: out,
	}
}

func firing(n int) func(map[string]any) {
	return func(r map[string]any) {
		alerts := []any{map[string]any{"state": "pending"}}
		for range n {
			alerts = append(alerts, map[string]any{"state": "firing"})
		}
		r["alerts"] = alerts
	}
}

func with(key string, value any) func(map[string]any) {
	return func(r map[string]any) { r[key] = value }
}

// RoundTrip implements http.RoundTripper, in place of the spoke's API server.
func (w *world) RoundTrip(req *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.requests = append(w.requests, req.URL.RequestURI())
	handler := w.prometheus
	w.mu.Unlock()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, req)
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.bytes += recorder.Body.Len()
	w.mu.Unlock()
	res := recorder.Result()
	res.Request = req
	return res, nil
}

// asked returns the requests since the last call.
func (w *world) asked() (requests []string, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	requests, bytes = w.requests, w.bytes
	w.requests, w.bytes = nil, 0
	return requests, bytes
}

// news returns the changes since the last call.
func (w *world) news() (rules []string, shown int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rules, shown = slices.Sorted(slices.Values(w.told)), w.changed
	w.told, w.changed = nil, 0
	return rules, shown
}

// Spoke and its like implement Spokes.
func (w *world) Spoke(string) *spoke.Spoke {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.polled = w.objects
	return w.spoke
}

func (w *world) Away(string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.away
}

func (w *world) Evaluators(string) spoke.Evaluators {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.read
}

func (w *world) Changed(string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed++
}

var (
	everything = &metav1.LabelSelector{}
	prometheus = v1alpha1.Evaluator{
		Kind: rule.KindPrometheus, Namespace: "monitoring", Name: "k", Chosen: true, RuleSelector: everything, RuleNamespaceSelector: everything,
		Service: "http:prometheus-operated:web",
	}
)

// newWorld returns a world with these PrometheusRules, which its Prometheus has loaded.
func newWorld(t *testing.T, objects ...*monitoringv1.PrometheusRule) (*world, *fakeProm) {
	t.Helper()
	f := &fakeProm{}
	for _, o := range objects {
		f.rules = append(f.rules, loads("k", o))
	}
	w := &world{T: t, prometheus: f, read: spoke.Evaluators{List: []v1alpha1.Evaluator{prometheus}, Known: true}}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w.hub = newClient(scheme).WithStatusSubresource(&v1alpha1.SpokeCluster{}).
		WithObjects(&v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "s"}}).Build()
	w.spoke = &spoke.Spoke{Name: "s", RulesServed: true, Behind: &http.Client{Transport: w}, Server: &url.URL{Scheme: "https", Host: "spoke:6443"}}
	w.hold(objects...)
	w.restart()
	return w, f
}

func newClient(scheme *runtime.Scheme) *fake.ClientBuilder {
	return fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter())
}

// hold sets the spoke's PrometheusRules, and their sources on the hub.
func (w *world) hold(objects ...*monitoringv1.PrometheusRule) {
	w.Helper()
	for _, o := range objects {
		key, ok := rule.ParseRuleKey(o)
		if !ok {
			continue
		}
		source := hub.KindOf(key).Object()
		source.SetNamespace(key.Namespace)
		source.SetName(key.Name)
		err := w.hub.Create(w.Context(), source)
		if client.IgnoreAlreadyExists(err) != nil {
			w.Fatal(err)
		}
	}
	w.holdAll(objects...)
}

// holdAll sets the spoke's PrometheusRules only.
func (w *world) holdAll(objects ...*monitoringv1.PrometheusRule) {
	builder := newClient(spoke.Scheme)
	for _, o := range objects {
		builder.WithObjects(o.DeepCopy())
	}
	next := *w.spoke
	next.Reader = builder.Build()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.objects, w.spoke = objects, &next
}

// restart creates a Poller without state.
func (w *world) restart() {
	w.Poller = NewPoller(Options{Hub: w.hub, Spokes: w, Render: delivery.Options{HubID: hubID}, Interval: DefaultInterval, Metrics: true})
	w.News().Listen(func(rules []queue.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, key := range rules {
			w.told = append(w.told, key.Name)
		}
	})
}

// once polls the spoke, and returns the delay until the next poll in seconds.
func (w *world) once() time.Duration {
	w.Helper()
	return w.poll(w.Context(), "s", w.state("s")).Round(time.Second)
}

// says returns the state of a PrometheusRule.
func (w *world) says(o *monitoringv1.PrometheusRule) evaluation.State {
	e := rule.EvaluatorOf(&prometheus)
	return w.Of("s", &e, o)
}

// shows returns the shown conditions in short.
func (w *world) shows() map[string]string {
	w.Helper()
	sc := &v1alpha1.SpokeCluster{}
	if err := w.hub.Get(w.Context(), client.ObjectKey{Name: "s"}, sc); err != nil {
		w.Fatal(err)
	}
	_, findings := w.Show(sc, w.Evaluators("s"))
	out := map[string]string{}
	for kind, f := range findings {
		out[kind] = strings.Trim(string(f.Status)+"/"+f.Reason, "/") + ": " + f.Message
	}
	return out
}

func (w *world) want(kind, prefix string) {
	w.Helper()
	if got := w.shows(); !strings.HasPrefix(cmp.Or(got[kind], "unknown"), prefix) {
		w.Errorf("%s is %q, want %q; %v", kind, got[kind], prefix, slices.Sorted(maps.Keys(got)))
	}
}

// object returns the nth PrometheusRule of this hub.
func object(n int, expr string) *monitoringv1.PrometheusRule {
	name := fmt.Sprintf("r%d", n)
	return &monitoringv1.PrometheusRule{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: rule.ObjectName(hubID, rule.AlertRuleKey("shop", name)), Generation: 1, UID: types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", n)),
			Labels:      map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.HubLabel: hubID},
			Annotations: map[string]string{v1alpha1.AlertRuleAnnotation: "shop/" + name},
		},
		Spec: monitoringv1.PrometheusRuleSpec{Groups: []monitoringv1.RuleGroup{{Name: "shop/" + name, Rules: []monitoringv1.Rule{{
			Alert: "Down", Expr: intstr.FromString(expr), For: new(monitoringv1.Duration("1m")), Labels: map[string]string{"severity": "critical"},
		}}}}},
	}
}

func edited(o *monitoringv1.PrometheusRule) *monitoringv1.PrometheusRule {
	o = o.DeepCopy()
	o.Generation++
	o.Spec.Groups[0].Rules[0].Expr = intstr.FromString("other == 0")
	return o
}

// answers fails each request with a status and a body.
func answers(code int, contentType, body string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
		return true
	}
}
