package spoke

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/client/versioned"
	monitoringfake "github.com/prometheus-operator/prometheus-operator/pkg/client/versioned/fake"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
	"github.com/rulefleet/rulefleet/pkg/testing/hostile"
)

func aPrometheus(name string, edit ...func(*monitoringv1.Prometheus)) *monitoringv1.Prometheus {
	p := &monitoringv1.Prometheus{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: name}}
	p.Spec.RuleSelector = &metav1.LabelSelector{}
	for _, fn := range edit {
		fn(p)
	}
	return p
}

func TestPrometheusAsEvaluator(t *testing.T) {
	got := prometheusOf(aPrometheus("k", func(p *monitoringv1.Prometheus) {
		p.Spec.RuleSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"release": "kps"}}
		p.Spec.EnforcedNamespaceLabel, p.Spec.Version, p.Spec.RoutePrefix = "namespace", "v3.1.0", "/prom"
		p.Spec.ExternalLabels = map[string]string{"cluster": "prod", "region": "eu"}
		p.Spec.EnableFeatures = []monitoringv1.EnableFeature{"promql-experimental-functions"}
		p.Spec.ServiceName, p.Spec.PortName = new("mine"), "http-web"
		p.Spec.ExcludedFromEnforcement = []monitoringv1.ObjectReference{
			{Group: "monitoring.coreos.com", Resource: "prometheusrules", Namespace: "b"}, {Resource: "prometheusrules", Namespace: "a", Name: "x"},
			{Resource: "servicemonitors", Namespace: "c"}, {Group: "other", Resource: "prometheusrules", Namespace: "d"},
		}
		p.Spec.PrometheusRulesExcludedFromEnforce = []monitoringv1.PrometheusRuleExcludeConfig{{RuleNamespace: "a", RuleName: "x"}, {RuleNamespace: "e", RuleName: "y"}}
	}))
	want := v1alpha1.Evaluator{
		Kind: "Prometheus", Namespace: "monitoring", Name: "k", RuleSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"release": "kps"}},
		EnforcedNamespaceLabel: "namespace", ExcludedFromEnforcement: []string{"a/x", "b/*", "e/y"}, ClusterLabel: "prod", Version: "v3.1.0",
		Features: []string{"promql-experimental-functions"}, Service: "http:mine:http-web", RoutePrefix: "/prom",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	r := &monitoringv1.ThanosRuler{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: "r"}}
	r.Spec.Labels, r.Spec.Version = map[string]string{"cluster": "$(POD_NAME)"}, new("v0.39.0")
	r.Spec.Web = &monitoringv1.ThanosRulerWebSpec{WebConfigFileFields: monitoringv1.WebConfigFileFields{TLSConfig: &monitoringv1.WebTLSConfig{}}}
	got = rulerOf(r)
	want = v1alpha1.Evaluator{Kind: "ThanosRuler", Namespace: "monitoring", Name: "r", Version: "v0.39.0", Service: "https:thanos-ruler-operated:web"}
	if got.Features = nil; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

// A spoke's statements about its Prometheus are untrusted: they are bounded, and lead nowhere else.
func TestHostileEvaluators(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for name, c := range map[string]struct {
		edit  func(*monitoringv1.Prometheus)
		wrong func(v1alpha1.Evaluator) bool
		told  string
	}{
		"a selector": {func(p *monitoringv1.Prometheus) { p.Spec.RuleSelector.MatchLabels = map[string]string{"a": long} },
			func(e v1alpha1.Evaluator) bool { return e.RuleSelector != nil }, "selectors are larger than 4 KiB"},
		"a namespace selector": {func(p *monitoringv1.Prometheus) {
			p.Spec.RuleNamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": long}}
		}, func(e v1alpha1.Evaluator) bool { return e.RuleNamespaceSelector != nil || e.RuleSelector != nil }, "selectors are larger than 4 KiB"},
		"exclusions": {func(p *monitoringv1.Prometheus) {
			for i := range 100 {
				p.Spec.ExcludedFromEnforcement = append(p.Spec.ExcludedFromEnforcement, monitoringv1.ObjectReference{Resource: "prometheusrules", Namespace: fmt.Sprint(i)})
			}
		}, func(e v1alpha1.Evaluator) bool { return len(e.ExcludedFromEnforcement) != 64 }, "more than 64"},
		"a long exclusion": {func(p *monitoringv1.Prometheus) {
			p.Spec.ExcludedFromEnforcement = []monitoringv1.ObjectReference{{Resource: "prometheusrules", Namespace: "a", Name: long}}
		}, func(e v1alpha1.Evaluator) bool { return len(e.ExcludedFromEnforcement) > 0 }, ""},
		"a version":       {func(p *monitoringv1.Prometheus) { p.Spec.Version = long }, func(e v1alpha1.Evaluator) bool { return len(e.Version) > maxVersion+3 }, ""},
		"a cluster label": {func(p *monitoringv1.Prometheus) { p.Spec.ExternalLabels = map[string]string{"cluster": long} }, func(e v1alpha1.Evaluator) bool { return e.ClusterLabel != "" }, ""},
		"one that is expanded": {func(p *monitoringv1.Prometheus) { p.Spec.ExternalLabels = map[string]string{"cluster": "${HOSTNAME}"} },
			func(e v1alpha1.Evaluator) bool { return e.ClusterLabel != "" }, ""},
		"an enforced label": {func(p *monitoringv1.Prometheus) { p.Spec.EnforcedNamespaceLabel = long },
			func(e v1alpha1.Evaluator) bool { return e.RuleSelector != nil || e.EnforcedNamespaceLabel != "" }, "enforcedNamespaceLabel is longer"},
		"features": {func(p *monitoringv1.Prometheus) {
			p.Spec.EnableFeatures = append(slices.Repeat([]monitoringv1.EnableFeature{"a"}, 50), monitoringv1.EnableFeature(long))
		}, func(e v1alpha1.Evaluator) bool { return len(e.Features) > 32 }, ""},
		"a Service's name": {func(p *monitoringv1.Prometheus) { p.Spec.ServiceName = new("../../../../x") }, func(e v1alpha1.Evaluator) bool { return e.Service != "" }, "serviceName is not a valid"},
		"a long one":       {func(p *monitoringv1.Prometheus) { p.Spec.ServiceName = &long }, func(e v1alpha1.Evaluator) bool { return e.Service != "" }, "serviceName is not a valid"},
		"another port":     {func(p *monitoringv1.Prometheus) { p.Spec.ServiceName = new("a:22") }, func(e v1alpha1.Evaluator) bool { return e.Service != "" }, "serviceName is not a valid"},
		"a way up":         {func(p *monitoringv1.Prometheus) { p.Spec.RoutePrefix = "/a/../../../../../../secrets" }, func(e v1alpha1.Evaluator) bool { return e.Service != "" || e.RoutePrefix != "" }, "not a plain path"},
		"an escaped one":   {func(p *monitoringv1.Prometheus) { p.Spec.RoutePrefix = "/%2e%2e/x" }, func(e v1alpha1.Evaluator) bool { return e.Service != "" }, "not a plain path"},
		"a query":          {func(p *monitoringv1.Prometheus) { p.Spec.RoutePrefix = "/a?b" }, func(e v1alpha1.Evaluator) bool { return e.Service != "" }, "not a plain path"},
		"a long path":      {func(p *monitoringv1.Prometheus) { p.Spec.RoutePrefix = "/" + long }, func(e v1alpha1.Evaluator) bool { return e.Service != "" }, "not a plain path"},
		"loopback":         {func(p *monitoringv1.Prometheus) { p.Spec.ListenLocal = true }, func(e v1alpha1.Evaluator) bool { return e.Service != "" }, "spec.listenLocal"},
	} {
		t.Run(name, func(t *testing.T) {
			got := prometheusOf(aPrometheus("k", c.edit))
			if c.wrong(got) || !strings.Contains(got.Message, c.told) || (got.Message == "") != (c.told == "") {
				t.Errorf("%s: %+v", name, got)
			}
		})
	}
	for _, prefix := range []string{"", "/", "/prometheus", "/a/b.c/d-e_f~/"} {
		t.Run("prefix "+prefix, func(t *testing.T) {
			if e := prometheusOf(aPrometheus("k", func(p *monitoringv1.Prometheus) { p.Spec.RoutePrefix = prefix })); e.Service == "" || e.RoutePrefix != prefix {
				t.Errorf("prefix %q: %+v", prefix, e)
			}
		})
	}
}

// Found evaluators, and those that stay known when they can't be read.
func TestDiscover(t *testing.T) {
	client := monitoringfake.NewSimpleClientset()
	refusals := map[string]error{}
	client.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		err := refusals[a.GetResource().Resource]
		return err != nil, nil, err
	})
	c, s := &connection{p: NewProvider(Options{})}, &session{rules: client, cluster: holding(), catalog: without("prometheuses", "thanosrulers")}
	kinds := func(what string, want int, known bool, whyNot string) {
		t.Helper()
		c.discover(t.Context(), s)
		is := c.seen.Evaluators
		if len(is.List) != want || is.Known != known || !strings.Contains(is.WhyNot, whyNot) || (is.WhyNot == "") != (whyNot == "") {
			t.Errorf("%s: %+v", what, is)
		}
	}
	refuse := func(resource string, of func(schema.GroupResource) error) {
		refusals[resource] = of(schema.GroupResource{Group: "monitoring.coreos.com", Resource: resource})
	}
	forbidden := func(r schema.GroupResource) error { return apierrors.NewForbidden(r, "", errors.New("no")) }
	absent := func(r schema.GroupResource) error { return apierrors.NewNotFound(r, "") }
	refuse("prometheuses", forbidden)
	kinds("forbidden at first", 0, false, "grant get and list")
	refuse("prometheuses", absent)
	refuse("thanosrulers", absent)
	kinds("no kinds", 0, true, "")
	delete(refusals, "prometheuses")
	for i := range 20 {
		p := aPrometheus(fmt.Sprintf("p%02d", i), func(p *monitoringv1.Prometheus) {
			if i < 19 {
				p.Spec.RuleSelector = nil
			}
		})
		if _, err := client.MonitoringV1().Prometheuses("monitoring").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	kinds("no rulers", 20, true, "")
	if first := c.seen.Evaluators.List[0].Name; first != "p19" {
		t.Errorf("%s comes first, which takes no rule", first)
	}
	refuse("thanosrulers", forbidden)
	kinds("forbidden later", 20, true, "thanosrulers")
	refuse("prometheuses", func(schema.GroupResource) error { return context.DeadlineExceeded })
	kinds("no answer", 20, true, "thanosrulers")
	clear(refusals)
	kinds("granted", 20, true, "")
	// If the hub can't record the choice, that is retried, and the known state stays.
	c.choose = func(ctx context.Context, _, _ string, _ Evaluators, look Look) ([]v1alpha1.Evaluator, error) {
		if _, err := look(ctx, nil); err != nil {
			t.Error(err)
		}
		return nil, errors.New("the hub is down")
	}
	kinds("not recorded", 20, true, "")
	// The state of one cluster is not used for another one.
	c.choose = func(_ context.Context, _, identity string, before Evaluators, _ Look) ([]v1alpha1.Evaluator, error) {
		if before.Known != (identity == "") {
			t.Errorf("in cluster %q, %+v is known before", identity, before)
		}
		return nil, nil
	}
	kinds("the same cluster", 0, true, "")
	c.seen.Identity = "another"
	kinds("another cluster", 0, true, "")
}

// Objects that are too large hide others. The status says so, unless one is chosen or can be.
func TestDiscoverHidden(t *testing.T) {
	for name, tc := range map[string]struct {
		first  *monitoringv1.Prometheus
		chosen bool
		hidden bool
	}{
		"all":                       {hidden: true},
		"all but one without rules": {first: aPrometheus("k", func(p *monitoringv1.Prometheus) { p.Spec.RuleSelector = nil }), hidden: true},
		"all but one":               {first: aPrometheus("k", func(p *monitoringv1.Prometheus) { p.Spec.RuleSelector = &metav1.LabelSelector{} })},
		"one is chosen":             {chosen: true},
	} {
		t.Run(name, func(t *testing.T) {
			client := monitoringfake.NewSimpleClientset()
			pages := 0
			client.PrependReactor("list", "prometheuses", func(clienttesting.Action) (bool, runtime.Object, error) {
				pages++
				if pages == 1 && tc.first != nil {
					return true, &monitoringv1.PrometheusList{ListMeta: metav1.ListMeta{Continue: "more"}, Items: []monitoringv1.Prometheus{*tc.first}}, nil
				}
				return true, nil, &TooLargeError{part: true}
			})
			c, s := &connection{p: NewProvider(Options{})}, &session{rules: client, cluster: holding()}
			c.choose = func(ctx context.Context, _, _ string, _ Evaluators, look Look) ([]v1alpha1.Evaluator, error) {
				seen, err := look(ctx, nil)
				if err != nil {
					return nil, err
				}
				if tc.chosen {
					return []v1alpha1.Evaluator{{Name: "k", Chosen: true}}, nil
				}
				return seen.List, nil
			}
			c.discover(t.Context(), s)
			if got := c.seen.Evaluators; !got.Known || strings.Contains(got.WhyNot, "too large to be listed") != tc.hidden {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// A chosen evaluator that is too large to be read is shown, and the known ones stay. The session goes on: anyone who can
// write the object can make it dense.
func TestLargeEvaluator(t *testing.T) {
	for name, lie := range map[string]hostile.Lie{
		"dense":          hostile.Sparse(`{"spec":{"containers":[`, maxShortValues, `]}}`),
		"without an end": hostile.EndlessText,
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/k") {
					lie(w, r)
					return
				}
				_, _ = io.WriteString(w, `{"items":[],"metadata":{"continue":"more"}}`)
			}))
			defer server.Close()
			c := connectWith(t, server, goodUser)
			defer c.disconnect()
			rules, err := monitoring.NewForConfigAndClient(c.cfg, c.http)
			if err != nil {
				t.Fatal(err)
			}
			c.seen.Evaluators = Evaluators{List: []v1alpha1.Evaluator{{Name: "k", Chosen: true}}, Known: true}
			c.choose = func(ctx context.Context, _, _ string, _ Evaluators, look Look) ([]v1alpha1.Evaluator, error) {
				_, err := look(ctx, []v1alpha1.EvaluatorReference{{Kind: "Prometheus", Namespace: "monitoring", Name: "k"}})
				return nil, err
			}
			c.discover(t.Context(), &session{rules: rules, cluster: holding()})
			if got := c.seen.Evaluators; len(got.List) != 1 || !strings.Contains(got.WhyNot, "the limit is") {
				t.Errorf("got %+v", got)
			}
			if err := c.excess.err(); err != nil {
				t.Errorf("the session ends: %v", err)
			}
		})
	}
}

// Objects with invalid names are ignored, because the hub could not list them.
func TestDiscoverMisnamed(t *testing.T) {
	client := monitoringfake.NewSimpleClientset()
	client.PrependReactor("list", "prometheuses", func(clienttesting.Action) (bool, runtime.Object, error) {
		list := &monitoringv1.PrometheusList{}
		for _, name := range []string{"", "k", strings.Repeat("x", 254), "../up"} {
			list.Items = append(list.Items, *aPrometheus(name))
		}
		list.Items = append(list.Items, *aPrometheus("k2", func(p *monitoringv1.Prometheus) { p.Namespace = "../../secrets" }))
		return true, list, nil
	})
	c, s := &connection{p: NewProvider(Options{})}, &session{rules: client, cluster: holding()}
	c.discover(t.Context(), s)
	if list := c.seen.Evaluators.List; len(list) != 1 || list[0].Name != "k" {
		t.Errorf("got %+v", list)
	}
}

// Where evaluators are looked for. What is named is found wherever it is, and is not cut off with
// what a spoke has too many of.
func TestLookForEvaluators(t *testing.T) {
	t.Parallel()
	inNamespace := func(namespace string) func(*monitoringv1.Prometheus) {
		return func(p *monitoringv1.Prometheus) { p.Namespace = namespace }
	}
	ref := func(namespace, name string) v1alpha1.EvaluatorReference {
		return v1alpha1.EvaluatorReference{Kind: "Prometheus", Namespace: v1alpha1.NamespaceName(namespace), Name: name}
	}
	// A namespace of many, which a server lists without a limit, and first.
	many := make([]runtime.Object, 0, 2*maxListed)
	for i := range 2 * maxListed {
		many = append(many, aPrometheus(fmt.Sprintf("p%03d", i), inNamespace("aaa")))
	}
	two := []runtime.Object{aPrometheus("k"), aPrometheus("own", inNamespace("team"))}
	for name, c := range map[string]struct {
		has        []runtime.Object
		namespaces []string
		named      []v1alpha1.EvaluatorReference
		want       []string // of those that come first
		count      int
		more       bool
		reads      int // of single objects
	}{
		"all":                       {has: two, want: []string{"monitoring/k", "team/own"}, count: 2},
		"a trusted namespace":       {has: two, namespaces: []string{"monitoring"}, want: []string{"monitoring/k"}, count: 1},
		"named elsewhere":           {has: two, namespaces: []string{"monitoring"}, named: []v1alpha1.EvaluatorReference{ref("team", "own")}, want: []string{"team/own", "monitoring/k"}, count: 2, reads: 1},
		"named, and there":          {has: two, named: []v1alpha1.EvaluatorReference{ref("team", "own"), ref("team", "none")}, want: []string{"team/own", "monitoring/k"}, count: 2},
		"too many":                  {has: many, count: maxListed, more: true},
		"named among too many":      {has: append(slices.Clone(many), two...), named: []v1alpha1.EvaluatorReference{ref("monitoring", "k"), ref("team", "none")}, want: []string{"monitoring/k"}, count: maxListed, more: true, reads: 2},
		"too many where none looks": {has: append(slices.Clone(many), two...), namespaces: []string{"monitoring", "team"}, want: []string{"monitoring/k", "team/own"}, count: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := monitoringfake.NewSimpleClientset(c.has...)
			client.PrependReactor("list", "prometheuses", func(a clienttesting.Action) (bool, runtime.Object, error) {
				list := &monitoringv1.PrometheusList{}
				for _, o := range c.has { // in this order, and all of them
					if p := o.(*monitoringv1.Prometheus); a.GetNamespace() == "" || a.GetNamespace() == p.Namespace {
						list.Items = append(list.Items, *p)
					}
				}
				return true, list, nil
			})
			s := &session{rules: client, cluster: holding()}
			got, err := s.evaluators(t.Context(), &Options{EvaluatorNamespaces: c.namespaces}, c.named)
			if err != nil {
				t.Fatal(err)
			}
			var first []string
			for _, e := range got.List[:min(len(got.List), len(c.want))] {
				first = append(first, e.Namespace+"/"+e.Name)
			}
			reads := 0
			for _, a := range client.Actions() {
				if a.GetVerb() == "get" {
					reads++
				}
			}
			if !slices.Equal(first, c.want) || len(got.List) != c.count || got.More != c.more || reads != c.reads {
				t.Errorf("%d are seen, of them %v first; more: %v; %d are read", len(got.List), first, got.More, reads)
			}
		})
	}
}

// Changes of evaluators that are not chosen are irrelevant.
func TestRelevantEvaluators(t *testing.T) {
	t.Parallel()
	of := func(edit func(e *v1alpha1.Evaluator), names ...string) Evaluators {
		out := Evaluators{Known: true}
		for _, name := range names {
			e := v1alpha1.Evaluator{Kind: "Prometheus", Namespace: "m", Name: name, Chosen: name == "chosen"}
			edit(&e)
			out.List = append(out.List, e)
		}
		return out
	}
	as := func(*v1alpha1.Evaluator) {}
	newer := func(e *v1alpha1.Evaluator) { e.Version = "v9" }
	for name, c := range map[string]struct {
		a, b Evaluators
		same bool
	}{
		"another":             {of(as, "chosen"), of(as, "chosen", "x"), true},
		"another changed":     {of(as, "chosen", "x"), of(func(e *v1alpha1.Evaluator) { e.ClusterLabel = strings.TrimPrefix(e.Name, "chosen") }, "chosen", "x"), true},
		"it changed":          {of(as, "chosen"), of(newer, "chosen"), false},
		"it can't be read":    {of(as, "chosen"), Evaluators{List: of(as, "chosen").List, Known: true, WhyNot: "so"}, false},
		"none is chosen":      {of(as, "x"), of(as, "x", "y"), false},
		"another is chosen":   {of(as, "chosen"), of(func(e *v1alpha1.Evaluator) { e.Chosen = true }, "x"), false},
		"it is gone":          {of(as, "chosen"), of(func(e *v1alpha1.Evaluator) { e.MissingTime = metav1.Now() }, "chosen"), false},
		"it is gone for long": {of(as, "x"), of(func(e *v1alpha1.Evaluator) { e.MissingTime = metav1.Now() }, "x"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if same := c.a.relevant().equal(c.b.relevant()); same != c.same {
				t.Errorf("the same: %v", same)
			}
		})
	}
}

// Servers behind the API server do not count for the spoke's health.
func TestAsides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(func() {})
		defer b.Stop()
		var answer func(*http.Request) (*http.Response, error)
		o := &observer{breaker: b, next: roundTripper(func(req *http.Request) (*http.Response, error) { return answer(req) }), base: "/"}
		o.count = func(string, string) {}
		behind := newAsker(&http.Client{Transport: o, CheckRedirect: noRedirect}, &atomic.Int64{})
		begun := time.Now()
		get := func() (int, error) {
			res, err := fetch(t.Context(), behind, "https://spoke/x")
			if err != nil {
				return 0, err
			}
			return res.StatusCode, res.Body.Close()
		}
		for range 10 {
			answer = func(*http.Request) (*http.Response, error) { return nil, context.DeadlineExceeded }
			if _, err := get(); err == nil {
				t.Error("no error")
			}
			for _, code := range []int{503, 429, 401, 302} {
				answer = func(req *http.Request) (*http.Response, error) { //nolint:unparam // it is a transport
					r := httptest.NewRecorder()
					r.Header().Set("Retry-After", "60")
					r.Header().Set("Location", "https://elsewhere/")
					r.WriteHeader(code)
					res := r.Result()
					res.Request = req
					return res, nil
				}
				if got, err := get(); got != code || err != nil {
					t.Errorf("%d, %v", got, err)
				}
			}
		}
		if left, _ := b.Throttled(); left > 0 || b.pass(t.Context()) != nil || b.failures > 0 || time.Since(begun) > 0 {
			t.Errorf("the circuit is not as it was: %v", left)
		}
		// With the circuit open, nothing is sent.
		b.Trip()
		answer = func(*http.Request) (*http.Response, error) { //nolint:unparam // it is a transport
			t.Error("sent")
			return nil, io.EOF
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1)
		defer cancel()
		if _, err := fetch(ctx, behind, "https://spoke/x"); err == nil { //nolint:bodyclose // there is none
			t.Error("no error")
		}
	})
}

func fetch(ctx context.Context, c *http.Client, address string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	return c.Do(req)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestAskerAddresses(t *testing.T) {
	s := &Spoke{Name: "s", Behind: &http.Client{}, Server: &url.URL{Scheme: "https", Host: "spoke:6443", Path: "/k8s"}}
	e := &v1alpha1.Evaluator{Kind: "Prometheus", Namespace: "monitoring", Name: "k", Service: "http:prometheus-operated:web", RoutePrefix: "/prom"}
	for _, ref := range []*v1alpha1.EvaluatorReference{nil, {}} {
		c, base, err := s.Asker(e, ref)
		if err != nil || c != s.Behind || base.String() != "https://spoke:6443/k8s/api/v1/namespaces/monitoring/services/http:prometheus-operated:web/proxy/prom" {
			t.Errorf("got %v, %v", base, err)
		}
	}
	if _, _, err := s.Asker(&v1alpha1.Evaluator{Message: "so"}, nil); err == nil || !strings.Contains(err.Error(), "so") {
		t.Errorf("got %v", err)
	}
	for address, refused := range map[string]bool{
		"https://prometheus.example.com/x": false, "http://192.0.2.1:9090": false,
		"https://me:secret@example.com": true, "https://127.0.0.1": true, "https://localhost:9090": true, "https://[::1]/": true, "http://2130706433/": true,
		"http://169.254.169.254/latest": true, "http://[fe80::1]/": true, "http://[::ffff:127.0.0.1]/": true, "http://0.0.0.0": true, "nothing": true, "https://": true, "http://a b/": true,
	} {
		t.Run(address, func(t *testing.T) {
			c, base, err := s.Asker(e, &v1alpha1.EvaluatorReference{URL: address})
			_, isRefused := errors.AsType[*kubeconfig.RefusedError](err)
			switch {
			case refused != isRefused:
				t.Errorf("%s: %v", address, err)
			case refused && strings.Contains(err.Error(), "secret"):
				t.Errorf("%s is told: %v", address, err)
			case !refused && (base.String() != address || c == s.Behind || c.CheckRedirect == nil):
				t.Errorf("%s: %v", address, base)
			}
		})
	}
	// A name that leads to loopback is refused when it is dialed, and no redirect is followed.
	served := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served++
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	defer server.Close()
	proxy, dial, err := kubeconfig.Allowance{}.Route(evaluatorURL, &url.URL{Scheme: "http", Host: "prometheus.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: direct(proxy, dial), CheckRedirect: noRedirect}
	if _, err := fetch(t.Context(), c, server.URL); err == nil || served > 0 { //nolint:bodyclose // there is none
		t.Errorf("loopback is served %d times: %v", served, err)
	}
	s.allow = kubeconfig.Allowance{Loopback: true}
	c, base, err := s.Asker(e, &v1alpha1.EvaluatorReference{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	res, err := fetch(t.Context(), c, base.String())
	if err != nil || res.StatusCode != http.StatusFound || served != 1 {
		t.Fatalf("served %d times: %v", served, err)
	}
	_ = res.Body.Close()
}
