package spoke

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/client/versioned"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/hostile"
	"github.com/rulefleet/rulefleet/pkg/testing/memory"
)

// hostileRequests are the requests to an API server, except watches and the first lists.
var hostileRequests = map[string]func(ctx context.Context, c *connection, s *session) error{
	"a create": func(ctx context.Context, _ *connection, s *session) error {
		_, err := s.rules.MonitoringV1().PrometheusRules("shop").Create(ctx, ruleOf("hub", "web"), metav1.CreateOptions{})
		return err
	},
	"an update": func(ctx context.Context, _ *connection, s *session) error {
		_, err := s.rules.MonitoringV1().PrometheusRules("shop").Update(ctx, ruleOf("hub", "web"), metav1.UpdateOptions{})
		return err
	},
	"a deletion": func(ctx context.Context, _ *connection, s *session) error {
		return s.rules.MonitoringV1().PrometheusRules("shop").Delete(ctx, "web", metav1.DeleteOptions{})
	},
	"a PrometheusRule": func(ctx context.Context, _ *connection, s *session) error {
		_, err := s.rules.MonitoringV1().PrometheusRules("shop").Get(ctx, "web", metav1.GetOptions{})
		return err
	},
	"a Prometheus": func(ctx context.Context, _ *connection, s *session) error {
		return s.readEvaluator(ctx, v1alpha1.EvaluatorReference{Kind: "Prometheus", Namespace: "monitoring", Name: "k"}, &Sighting{})
	},
	"the lists of evaluators": func(ctx context.Context, _ *connection, s *session) error {
		return s.listEvaluators(ctx, metav1.NamespaceAll, &Sighting{})
	},
	"the list of a spoke that leaves": func(ctx context.Context, c *connection, s *session) error {
		return pruneAll(ctx, c.ownRules(s.rules, s.catalog), s.rules, func(int, []string) {})
	},
	"the deletion in a spoke that leaves": func(ctx context.Context, _ *connection, s *session) error {
		return ownRule{namespace: "shop", name: "web"}.remove(ctx, s.rules)
	},
	"the discovery": func(ctx context.Context, c *connection, _ *session) error {
		_, err := c.catalog().lacks(ctx, "prometheusrules")
		return err
	},
	"the identity": func(ctx context.Context, c *connection, _ *session) error {
		_, err := c.readIdentity(ctx)
		return err
	},
	"the permissions": func(ctx context.Context, c *connection, _ *session) error {
		_, err := c.review(ctx, nil)
		return err
	},
	"the version": func(ctx context.Context, c *connection, _ *session) error { return c.probe(ctx) },
}

// identityAnswer is the answer to the read of the identity.
const identityAnswer = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"kube-system","uid":"uid"}}`

// No answer to any request takes much memory or is waited for without an end, and each is an error that can be shown.
func TestHostileAnswers(t *testing.T) {
	const items = `{"kind":"List","apiVersion":"v1","metadata":{},"items":[`
	for name, tc := range map[string]struct {
		lie hostile.Lie
		// timeout bounds the request, as writes are; 0 is no bound.
		timeout time.Duration
		// http2 lets the server speak HTTP/2, without which some lies can't be told.
		http2 bool
		// tooLarge means that the error names a bound.
		tooLarge bool
		// accepted are requests for which it is a success, and either those whose outcome the status of the answer
		// decides, so that the end of its body does not matter.
		accepted, either []string
	}{
		"endless":                     {lie: hostile.EndlessText, tooLarge: true, http2: true},
		"endless, gzipped":            {lie: hostile.Compressed(hostile.EndlessText), tooLarge: true, http2: true},
		"a million levels":            {lie: hostile.Deep, tooLarge: true},
		"a million objects":           {lie: hostile.Compressed(hostile.Million), tooLarge: true},
		"empty objects":               {lie: hostile.Dense(items), tooLarge: true},
		"values in an object":         {lie: hostile.Dense(items + `{"spec":{"groups":[{"rules":[`), tooLarge: true, accepted: []string{"the lists of evaluators"}},
		"in drips":                    {lie: hostile.Drip, timeout: 300 * time.Millisecond, either: []string{"a deletion", "the deletion in a spoke that leaves"}},
		"aliases of YAML":             {lie: hostile.Aliases, accepted: []string{"a deletion", "the deletion in a spoke that leaves"}},
		"JSON as YAML":                {lie: hostile.As("application/yaml", hostile.Compressed(hostile.EndlessText)), tooLarge: true},
		"JSON as protobuf":            {lie: hostile.As("application/vnd.kubernetes.protobuf", hostile.EndlessText), tooLarge: true},
		"a page":                      {lie: hostile.As("text/html", hostile.Endless("<html>", "x")), tooLarge: true},
		"a header without an end":     {lie: hostile.EndlessHeader},
		"a header of 1 MB":            {lie: hostile.LongHeader, http2: true},
		"another protocol":            {lie: hostile.Switched},
		"a refusal without an end":    {lie: hostile.Compressed(hostile.EndlessRefusal(http.StatusForbidden)), tooLarge: true},
		"an error without an end":     {lie: hostile.EndlessRefusal(http.StatusInternalServerError), tooLarge: true},
		"a redirect without an end":   {lie: hostile.EndlessRefusal(http.StatusFound), tooLarge: true},
		"nothing found, without end":  {lie: hostile.EndlessRefusal(http.StatusNotFound), tooLarge: true},
		"too many requests, endless":  {lie: hostile.EndlessRefusal(http.StatusTooManyRequests), tooLarge: true},
		"an expired list, endless":    {lie: hostile.EndlessRefusal(http.StatusGone), tooLarge: true},
		"a conflict without an end":   {lie: hostile.Compressed(hostile.EndlessRefusal(http.StatusConflict)), tooLarge: true},
		"an invalid object, endless":  {lie: hostile.EndlessRefusal(http.StatusUnprocessableEntity), tooLarge: true},
		"a gateway's page, endless":   {lie: hostile.As("text/html", hostile.EndlessRefusal(http.StatusBadGateway)), tooLarge: true},
		"a success that is a refusal": {lie: hostile.Endless(`{"kind":"Status","status":"Failure","message":"`, "x"), tooLarge: true},
	} {
		t.Run(name, func(t *testing.T) {
			var lies atomic.Value // the present request
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == pathSystem && lies.Load() != "the identity" { // writes need it
					_, _ = io.WriteString(w, identityAnswer)
					return
				}
				tc.lie(w, r)
			}))
			server.EnableHTTP2 = tc.http2
			server.StartTLS()
			defer server.Close()
			for request, send := range hostileRequests {
				t.Run(request, func(t *testing.T) {
					c := connectWith(t, server, goodUser)
					defer c.disconnect()
					c.gate.serve("uid")
					lies.Store(request)
					rules, err := monitoring.NewForConfigAndClient(c.cfg, c.http)
					if err != nil {
						t.Fatal(err)
					}
					ctx := asProbe(t.Context()) // so that one failure does not block the next request
					if tc.timeout > 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, tc.timeout)
						defer cancel()
					}
					const most = 60 << 20
					began := time.Now()
					peak := memory.Peak(most, func() { err = send(ctx, c, &session{rules: rules, catalog: c.catalog()}) })
					took := time.Since(began)
					t.Logf("%d KiB at most, %v: %s", peak>>10, took.Round(time.Millisecond), Clip(errorText(err), 200))
					switch {
					case apierrors.IsForbidden(err) && request == "the version": // it is an answer
					case slices.Contains(tc.accepted, request):
						if err != nil {
							t.Errorf("got %v", err)
						}
						return
					case err == nil && slices.Contains(tc.either, request):
						return
					case err == nil:
						t.Error("it is a success")
						return
					}
					if tc.tooLarge != (tooLarge(err) != nil) {
						t.Errorf("got %v", err)
					}
					if f := disconnected(err); f.Reason == "" || (tc.tooLarge && f.Reason != v1alpha1.ReasonTooLarge) || len(f.Message) > MaxMessage+len("…") {
						t.Errorf("it is shown as %+v", f)
					}
					if took > 15*time.Second || (peak > most && !raceDetector) {
						t.Errorf("it took %v and %d MiB", took, peak>>20)
					}
				})
			}
		})
	}
}

// connectHostile connects to a server that tells its identity, and answers everything else as a function does.
func connectHostile(t *testing.T, answer http.HandlerFunc) (*connection, *monitoring.Clientset) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodDelete && r.URL.Path == pathSystem {
			_, _ = io.WriteString(w, identityAnswer)
			return
		}
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	c := connectWith(t, server, goodUser)
	t.Cleanup(c.disconnect)
	c.gate.serve("uid")
	client, err := monitoring.NewForConfigAndClient(c.cfg, c.http)
	if err != nil {
		t.Fatal(err)
	}
	return c, client
}

// mostDense bounds the memory in which answers just below the bounds are decoded, in bytes.
const mostDense = 120 << 20

// Answers just below the bounds that come at once are decoded one after the other.
func TestDenseAnswersAtOnce(t *testing.T) {
	const (
		most = DefaultMaxMemory / 24
		head = `{"kind":"PrometheusRule","apiVersion":"monitoring.coreos.com/v1","metadata":{"name":"web","namespace":"shop","uid":"uid","resourceVersion":"1"`
	)
	dense := func(begin string, element func(i int) string, end string) string {
		body := strings.Builder{}
		body.WriteString(begin)
		values := strings.Count(begin, ",") + strings.Count(begin, "{") + strings.Count(begin, "[")
		for i := 0; ; i++ {
			next := element(i)
			values += strings.Count(next, ",") + strings.Count(next, "{") + strings.Count(next, "[") + 1
			if body.Len()+len(next)+len(end) > most-2 || values > maxValues-1 {
				return body.String() + end
			}
			if i > 0 {
				body.WriteString(",")
			}
			body.WriteString(next)
		}
	}
	always := func(text string) func(int) string { return func(int) string { return text } }
	key := func(i int) string { return fmt.Sprintf(`"%x":""`, i) }
	for name, tc := range map[string]struct {
		body string
		// code is that of a refusal, which is too large.
		code int
	}{
		"empty rules":   {body: dense(head+`},"spec":{"groups":[{"rules":[`, always(`{}`), `]}]}}`)},
		"small maps":    {body: dense(head+`},"spec":{"groups":[{"rules":[`, always(`{"labels":{"":""},"annotations":{"":""}}`), `]}]}}`)},
		"empty groups":  {body: dense(head+`},"spec":{"groups":[`, always(`{}`), `]}}`)},
		"keys":          {body: dense(head+`,"annotations":{`, key, `}}}`)},
		"managedFields": {body: dense(head+`,"managedFields":[`, always(`{}`), `]}}`)},
		"texts":         {body: dense(head+`,"annotations":{`, func(i int) string { return fmt.Sprintf(`"%x":%q`, i, strings.Repeat("x", 64<<10)) }, `}}}`)},
		"causes":        {code: http.StatusUnprocessableEntity, body: `{"kind":"Status","apiVersion":"v1","reason":"Invalid","details":{"causes":[{}` + strings.Repeat(",{}", maxRefusal/3-50) + `]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			c, client := connectHostile(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(cmp.Or(tc.code, http.StatusOK))
				_, _ = io.WriteString(w, tc.body)
			})
			errs := make(chan error, 16)
			peak := memory.Peak(mostDense, func() {
				var requests sync.WaitGroup
				for i := range cap(errs) {
					send := hostileRequests[[]string{"a create", "a PrometheusRule"}[i%2]]
					requests.Go(func() {
						ctx, done := context.WithTimeout(asProbe(t.Context()), time.Minute)
						defer done()
						errs <- send(ctx, c, &session{rules: client})
					})
				}
				requests.Wait()
			})
			close(errs)
			t.Logf("%d MiB at most", peak>>20)
			excess := 0
			for err := range errs { // after several that are too large, the rest is not sent
				if (err != nil) != (tc.code > 0) {
					t.Errorf("got %v", err)
				}
				if tooLarge(err) != nil {
					excess++
				}
			}
			if (excess > 0) != (tc.code > 0) {
				t.Errorf("%d answers were too large", excess)
			}
			if peak > mostDense && !raceDetector {
				t.Errorf("they took %d MiB", peak>>20)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}

// Answers just below the bounds are the largest that are decoded.
func TestDenseAnswers(t *testing.T) {
	const (
		rules  = `{"metadata":{"name":"web","namespace":"shop","resourceVersion":"1"},"spec":{"groups":[{"name":"a","rules":[`
		prom   = `{"metadata":{"name":"k","namespace":"monitoring"},"spec":{"containers":[`
		ends   = `]}]}}`
		within = 20 // values beside the empty objects
	)
	list := func(kind string) string {
		return `{"kind":"` + kind + `","apiVersion":"monitoring.coreos.com/v1","metadata":{"resourceVersion":"1"},"items":[`
	}
	for request, lie := range map[string]hostile.Lie{
		"a create":                        hostile.Sparse(rules, maxValues/2-within, ends),
		"a PrometheusRule":                hostile.Sparse(rules, maxValues/2-within, ends),
		"a Prometheus":                    hostile.Sparse(prom, maxShortValues/2-within, `]}}`),
		"the lists of evaluators":         hostile.Sparse(list("PrometheusList")+prom, maxShortValues/2-within, `]}}]}`),
		"the list of a spoke that leaves": hostile.Sparse(list("PrometheusRuleList")+rules, maxPageValues/2-within, ends+`]}`),
		"the permissions":                 hostile.Sparse(`{"status":{"resourceRules":[`, maxValues/2-within, `]}}`),
		"the discovery":                   hostile.Sparse(`{"kind":"APIResourceList","groupVersion":"monitoring.coreos.com/v1","resources":[`, maxValues/2-within, `]}`),
	} {
		t.Run(request, func(t *testing.T) {
			c, client := connectHostile(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodDelete {
					http.Error(w, "no", http.StatusForbidden)
					return
				}
				lie(w, r)
			})
			var err error
			peak := memory.Peak(mostDense, func() {
				err = hostileRequests[request](asProbe(t.Context()), c, &session{rules: client, catalog: c.catalog()})
			})
			t.Logf("%d MiB at most: %s", peak>>20, Clip(errorText(err), 200))
			if errors.Is(err, errTooLarge) || err != nil && !strings.Contains(err.Error(), "no") {
				t.Errorf("it is not decoded: %v", err)
			}
			if peak > mostDense && !raceDetector {
				t.Errorf("it took %d MiB", peak>>20)
			}
		})
	}
}
