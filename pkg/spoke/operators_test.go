package spoke

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	monitoringfake "github.com/prometheus-operator/prometheus-operator/pkg/client/versioned/fake"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/hostile"
)

// holds is a cluster that holds some objects, in its cache as well.
type holds struct {
	cluster.Cluster

	client client.Client
	// reader bypasses the cache; nil is client.
	reader client.Reader
}

func holding(objects ...client.Object) holds {
	return holds{client: fake.NewClientBuilder().WithScheme(Scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).WithObjects(objects...).Build()}
}

// GetClient and GetAPIReader are those of cluster.Cluster.
func (h holds) GetClient() client.Client { return h.client }

func (h holds) GetAPIReader() client.Reader {
	if h.reader != nil {
		return h.reader
	}
	return h.client
}

func operator(namespace, name string, args ...string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(namespace + name), Generation: 1, Labels: map[string]string{"app.kubernetes.io/name": "prometheus-operator"},
	}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "operator", Args: args}}
	return d
}

// The prometheus-operator in the chosen evaluator's namespace, or in a named namespace, determines the
// exclusions; with several, nothing is known. Deployments elsewhere do not count, whatever their labels are.
func TestLimit(t *testing.T) {
	t.Parallel()
	one, webhook, other := operator("monitoring", "one", "--namespaces=a"), operator("monitoring", "webhook", "--namespaces=b"), operator("monitoring", "other")
	webhook.Labels["app.kubernetes.io/component"] = "admission-webhook"
	tenants, apart := operator("team", "mine", "--deny-namespaces=shop", "--namespaces=team"), operator("operators", "one", "--namespaces=c")
	for name, c := range map[string]struct {
		objects []client.Object
		others  []string
		want    []string
	}{
		"none":                       {},
		"one":                        {objects: []client.Object{one, webhook}, want: []string{"a"}},
		"several":                    {objects: []client.Object{one, other}},
		"a tenant's":                 {objects: []client.Object{tenants}},
		"one, and a tenant's":        {objects: []client.Object{one, tenants}, want: []string{"a"}},
		"elsewhere":                  {objects: []client.Object{apart}},
		"elsewhere, named":           {objects: []client.Object{apart, tenants}, others: []string{"none", "operators"}, want: []string{"c"}},
		"its own comes first":        {objects: []client.Object{apart, one}, others: []string{"operators"}, want: []string{"a"}},
		"its own are not told apart": {objects: []client.Object{apart, one, other}, others: []string{"operators"}},
	} {
		t.Run(name, func(t *testing.T) {
			chosen := v1alpha1.Evaluator{Namespace: "monitoring", Chosen: true}
			gone := chosen
			gone.MissingTime, gone.Namespaces = metav1.Now(), []string{"as", "seen"}
			all := []v1alpha1.Evaluator{chosen, {Namespace: "team"}, gone}
			s := &session{cluster: holding(c.objects...)}
			for range 2 {
				s.limit(t.Context(), c.others, all)
				if !slices.Equal(all[0].Namespaces, c.want) || len(all[0].DeniedNamespaces) > 0 {
					t.Errorf("%s: %v, without %v", name, all[0].Namespaces, all[0].DeniedNamespaces)
				}
				if all[1].Namespaces != nil || !slices.Equal(all[2].Namespaces, gone.Namespaces) {
					t.Errorf("others are limited: %+v", all[1:])
				}
			}
		})
	}
}

// A Deployment that is too large has unknown flags, and the session goes on: anyone who can write Deployments in the
// evaluator's namespace can make it large. It is read again when it has changed.
func TestLargeOperators(t *testing.T) {
	const begin = `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"generation":1},"spec":{"template":{"spec":{"containers":[`
	for name, tc := range map[string]struct {
		lie  hostile.Lie
		want []string
	}{
		"a usual one":              {lie: hostile.Sparse(begin, 1, `,{"args":["--namespaces=a"]}]}}}}`), want: []string{"a"}},
		"a long one":               {lie: hostile.Sparse(begin, 1, `,{"args":["--namespaces=a","`+strings.Repeat("x", 9<<20)+`"]}]}}}}`)},
		"a dense one":              {lie: hostile.Sparse(begin, maxShortValues, `]}}}}`)},
		"one without an end":       {lie: hostile.Compressed(hostile.EndlessText)},
		"a refusal without an end": {lie: hostile.EndlessRefusal(http.StatusForbidden)},
	} {
		t.Run(name, func(t *testing.T) {
			reads := 0
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				reads++
				tc.lie(w, r)
			}))
			defer server.Close()
			c := connectWith(t, server, goodUser)
			defer c.disconnect()
			reader, err := client.New(c.cfg, client.Options{HTTPClient: c.http, Scheme: Scheme, Mapper: restMapper()})
			if err != nil {
				t.Fatal(err)
			}
			s := &session{cluster: holds{client: holding(operator("monitoring", "one")).client, reader: reader}}
			all := []v1alpha1.Evaluator{{Namespace: "monitoring", Chosen: true}}
			for range 2 {
				s.limit(t.Context(), nil, all)
			}
			if !slices.Equal(all[0].Namespaces, tc.want) || reads != 1 {
				t.Errorf("after %d reads: %v", reads, all[0].Namespaces)
			}
			if err := c.excess.err(); err != nil {
				t.Errorf("the session ends: %v", err)
			}
		})
	}
}

// A Deployment that is not answered delays the session for a limited time.
func TestOperatorIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &connection{p: NewProvider(Options{})}
		s := &session{rules: monitoringfake.NewSimpleClientset(), cluster: holds{client: holding(operator("monitoring", "one")).client, reader: silent{}}}
		c.choose = func(ctx context.Context, _, _ string, _ Evaluators, look Look) ([]v1alpha1.Evaluator, error) {
			seen, err := look(ctx, nil)
			if err != nil {
				return nil, err
			}
			list := []v1alpha1.Evaluator{{Namespace: "monitoring", Chosen: true}}
			for range 4 { // the SpokeCluster was written meanwhile
				seen.Limit(ctx, list)
			}
			return list, nil
		}
		began := time.Now()
		c.discover(t.Context(), s)
		if took := time.Since(began); !c.seen.Evaluators.Known || took != readTimeout {
			t.Errorf("it is known: %v, after %v", c.seen.Evaluators.Known, took)
		}
	})
}

// silent is an API server that does not answer.
type silent struct{ client.Reader }

// Get is that of client.Reader.
func (silent) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	<-ctx.Done()
	return ctx.Err()
}

// The exclusions follow from the flags of prometheus-operator in any notation.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ args, namespaces, denied []string }{
		"nothing":         {args: []string{"--kubelet-service=kube-system/kubelet", "--namespaces="}},
		"one flag":        {args: []string{"--namespaces=a, b,"}, namespaces: []string{"a", "b"}},
		"one dash":        {args: []string{"-deny-namespaces=a"}, denied: []string{"a"}},
		"apart":           {args: []string{"--namespaces", "a", "--log-level=info"}, namespaces: []string{"a"}},
		"twice":           {args: []string{"--namespaces=a", "--namespaces=b"}, namespaces: []string{"a", "b"}},
		"other flags":     {args: []string{"--prometheus-instance-namespaces=a", "namespaces=b"}},
		"a variable":      {args: []string{"-namespaces=$(NAMESPACES)"}},
		"variable denied": {args: []string{"--deny-namespaces=$(A),b"}, denied: []string{"b"}},
		"more than known": {args: []string{"--namespaces=a,$(MORE)"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := &appsv1.Deployment{}
			d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "operator", Args: c.args}}
			if got := leftOut(d); !slices.Equal(got.namespaces, c.namespaces) || !slices.Equal(got.denied, c.denied) {
				t.Errorf("%s: %v, without %v", name, got.namespaces, got.denied)
			}
		})
	}
}
