package spoke

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/client/versioned"
	monitoringfake "github.com/prometheus-operator/prometheus-operator/pkg/client/versioned/fake"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

var monitoringRules = schema.GroupResource{Group: "monitoring.coreos.com", Resource: "prometheusrules"}

// discovered returns what an API server's discovery answers where it serves these resources of prometheus-operator.
func discovered(path string, resources ...string) string {
	if path == "/apis" {
		group := ""
		if len(resources) > 0 {
			group = `,{"name":"monitoring.coreos.com","versions":[{"groupVersion":"monitoring.coreos.com/v1","version":"v1"}]}`
		}
		return `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}]}` + group + `]}`
	}
	list := make([]string, 0, len(resources))
	for _, r := range resources {
		list = append(list, `{"name":"`+r+`","namespaced":true}`)
	}
	return `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"monitoring.coreos.com/v1","resources":[` + strings.Join(list, ",") + `]}`
}

// without is a discovery that lacks resources of prometheus-operator.
func without(resources ...string) catalog {
	return func(_ context.Context, path string) ([]byte, error) {
		return []byte(discovered(path, slices.DeleteFunc([]string{"prometheusrules", "prometheuses", "thanosrulers", "probes"}, func(r string) bool {
			return slices.Contains(resources, r)
		})...)), nil
	}
}

func TestAbsent(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"by the API server":    {fmt.Errorf("reading: %w", apierrors.NewNotFound(monitoringRules, "web")), true},
		"no error":             {nil, false},
		"another error":        {apierrors.NewForbidden(monitoringRules, "web", nil), false},
		"by a proxy":           {apierrors.NewGenericServerResponse(404, "GET", monitoringRules, "web", "<html>", 0, true), false},
		"without details":      {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 404, Reason: metav1.StatusReasonNotFound}}, false},
		"of another object":    {apierrors.NewNotFound(monitoringRules, "other"), false},
		"of its namespace":     {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "web"), false},
		"an error of the link": {errors.New("no"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Absent(tc.err, "prometheusrules", "web"); got != tc.want {
				t.Errorf("absent: %v", got)
			}
			genuine := Genuine(tc.err, "prometheusrules", "web")
			if apierrors.IsNotFound(genuine) != tc.want || (genuine == nil) != (tc.err == nil) {
				t.Errorf("it becomes %v", genuine)
			}
		})
	}
}

// A resource is not served only if the API server's own discovery says so.
func TestCatalog(t *testing.T) {
	type answer struct {
		body string
		err  error
	}
	const group, all = "/apis/monitoring.coreos.com/v1", "/apis"
	notFound := answer{err: apierrors.NewGenericServerResponse(404, "GET", schema.GroupResource{}, "", "404 page not found", 0, true)}
	forbidden := answer{err: apierrors.NewForbidden(schema.GroupResource{}, "", nil)}
	for name, tc := range map[string]struct {
		answers map[string]answer
		genuine bool
	}{
		"the kind is missing":                 {map[string]answer{group: {body: discovered(group, "prometheuses")}}, true},
		"the kind is served":                  {map[string]answer{group: {body: discovered(group, "prometheuses", "prometheusrules")}}, false},
		"the group is missing":                {map[string]answer{group: notFound, all: {body: discovered(all)}}, true},
		"the group is served":                 {map[string]answer{group: notFound, all: {body: discovered(all, "prometheuses")}}, false},
		"everything is 404":                   {map[string]answer{group: notFound, all: notFound}, false},
		"the discovery is forbidden":          {map[string]answer{group: forbidden}, false},
		"all groups are forbidden":            {map[string]answer{group: notFound, all: forbidden}, false},
		"the discovery is a page":             {map[string]answer{group: {body: "<html>"}}, false},
		"the discovery is something else":     {map[string]answer{group: {body: `{"kind":"List"}`}}, false},
		"it is of another group":              {map[string]answer{group: {body: strings.ReplaceAll(discovered(group), "/v1", "/v2")}}, false},
		"all groups are something else":       {map[string]answer{group: notFound, all: {body: `{}`}}, false},
		"all groups are none":                 {map[string]answer{group: notFound, all: {body: `{"kind":"APIGroupList","groups":[]}`}}, false},
		"all groups are those of other types": {map[string]answer{group: notFound, all: {body: `{"kind":"APIGroupList","groups":[1]}`}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var c catalog = func(_ context.Context, path string) ([]byte, error) {
				a, known := tc.answers[path]
				if !known {
					t.Errorf("%s is read", path)
				}
				return []byte(a.body), a.err
			}
			err := c.confirm(t.Context(), "prometheusrules", fmt.Errorf("listing: %w", notFound.err))
			if apierrors.IsNotFound(err) != tc.genuine || errors.Is(err, errNotKubernetes) == tc.genuine {
				t.Errorf("got %v", err)
			}
			for _, other := range []error{nil, errForbidden, context.Canceled} {
				if err := c.confirm(t.Context(), "prometheusrules", other); !errors.Is(err, other) {
					t.Errorf("%v becomes %v", other, err)
				}
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var ended catalog = func(ctx context.Context, _ string) ([]byte, error) { return nil, ctx.Err() }
	if err := ended.confirm(ctx, "prometheusrules", notFound.err); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}

// A 404 of a proxy does not mean that no rules are left in a spoke that leaves, or that they are gone.
func TestLeavingBehindAProxy(t *testing.T) {
	for name, tc := range map[string]struct {
		// served tells whether the API server has PrometheusRules. list and remove are the answers of a proxy, or "".
		served       bool
		list, remove string
		done         bool
		listed       int
	}{
		"the API server has no such kind":         {done: true},
		"a proxy does not know the path":          {served: true, list: "404 page not found\n"},
		"a proxy answers in HTML":                 {served: true, list: "<html>not found</html>"},
		"a proxy answers in JSON":                 {served: true, list: `{"error":"not found"}`},
		"the API server has none left":            {served: true, done: true},
		"a proxy does not know the object's path": {served: true, listed: 1, remove: "404 page not found\n"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				answer, code := discovered(r.URL.Path), http.StatusOK
				if tc.served {
					answer = discovered(r.URL.Path, "prometheusrules")
				}
				switch {
				case r.URL.Path == pathSystem:
					answer = identityAnswer
				case r.Method == http.MethodDelete:
					answer, code = tc.remove, 404
				case r.URL.Path == pathRules && tc.list != "":
					answer, code = tc.list, 404
				case r.URL.Path == pathRules && tc.served:
					answer = `{"kind":"PrometheusRuleList","apiVersion":"monitoring.coreos.com/v1","metadata":{"resourceVersion":"1"},"items":[` +
						strings.Repeat(`{"metadata":{"name":"web","namespace":"shop","uid":"u","resourceVersion":"1"}}`, tc.listed) + `]}`
				case strings.HasPrefix(r.URL.Path, pathGroup) && !tc.served:
					http.NotFound(w, r)
					return
				}
				w.WriteHeader(code)
				_, _ = w.Write([]byte(answer))
			}))
			defer server.Close()
			c := connectWith(t, server, goodUser)
			defer c.disconnect()
			rules, err := monitoring.NewForConfigAndClient(c.cfg, c.http)
			if err != nil {
				t.Fatal(err)
			}
			c.gate.serve("uid")
			err = pruneAll(t.Context(), c.ownRules(rules, c.catalog()), rules, func(removed int, _ []string) {
				if removed > 0 {
					t.Errorf("%d were removed", removed)
				}
			})
			if (err == nil) != tc.done {
				t.Errorf("got %v", err)
			}
			if !tc.done && !errors.Is(err, errNotKubernetes) {
				t.Errorf("it says %v", err)
			}
		})
	}
}

// A 404 of a proxy does not mean that the chosen evaluator is gone. What the discovery lacks is asked of it once.
func TestEvaluatorsBehindAProxy(t *testing.T) {
	client := monitoringfake.NewSimpleClientset(aPrometheus("k"))
	missing := map[string]bool{}
	client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		resource := a.GetResource().Resource
		return missing[resource], nil, apierrors.NewGenericServerResponse(404, a.GetVerb(), a.GetResource().GroupResource(), "", "404 page not found", 0, true)
	})
	asked, lacks := 0, []string{"thanosrulers"}
	s := &session{rules: client, cluster: holding(), catalog: func(ctx context.Context, path string) ([]byte, error) {
		asked++
		return without(lacks...)(ctx, path)
	}}
	c := &connection{p: NewProvider(Options{})}
	discover := func(what string, listed, requests int, whyNot string) {
		t.Helper()
		asked = 0
		c.discover(t.Context(), s)
		is := c.seen.Evaluators
		if len(is.List) != listed || asked != requests || !strings.Contains(is.WhyNot, whyNot) || (is.WhyNot == "") != (whyNot == "") {
			t.Errorf("%s: %+v, with %d requests", what, is, asked)
		}
	}
	missing["thanosrulers"] = true
	discover("no ThanosRulers", 1, 1, "")
	discover("as before", 1, 0, "")
	missing["prometheuses"] = true
	discover("a proxy's 404", 1, 1, "the server answers 404 for prometheuses, which is in the list of its API resources (discovery)")
	lacks = append(lacks, "prometheuses")
	discover("the kind is gone", 0, 1, "")
	clear(missing)
	discover("both kinds are back", 1, 0, "")
	missing["thanosrulers"] = true
	discover("one is gone again", 1, 1, "")
	// One that is named is read on its own.
	missing["prometheuses"], lacks = true, nil
	err := s.readEvaluator(t.Context(), v1alpha1.EvaluatorReference{Kind: monitoringv1.PrometheusesKind, Namespace: "monitoring", Name: "k"}, &Sighting{})
	if err == nil || apierrors.IsNotFound(err) {
		t.Errorf("got %v", err)
	}
}
