package join

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
	"github.com/rulefleet/rulefleet/pkg/plugin/env"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
)

// TestChoose asks which Prometheus evaluates the rules, and only a person.
func TestChoose(t *testing.T) {
	names := []string{"monitoring/a", "ThanosRuler/monitoring/b"}
	for _, tc := range []struct {
		name, answer string
		terminal     bool
		denied       bool // to change SpokeClusters
		want         []v1alpha1.EvaluatorReference
		code         int
	}{
		{name: "a person", answer: "2\n", terminal: true, want: []v1alpha1.EvaluatorReference{{Kind: "ThanosRuler", Namespace: "monitoring", Name: "b"}}},
		{name: "automatically", answer: "3\n", terminal: true, denied: true},
		{name: "without the permission", answer: "1\n", terminal: true, denied: true, want: []v1alpha1.EvaluatorReference{{Kind: "Prometheus", Namespace: "monitoring", Name: "a"}}, code: exit.Denied},
		{name: "no number", answer: "b\n", terminal: true, code: exit.Failed},
		{name: "too large", answer: "4\n", terminal: true, code: exit.Failed},
		{name: "end of the input", terminal: true, code: exit.Failed},
		{name: "a script", answer: "1\n", code: exit.Usage},
	} {
		t.Run(tc.name, func(t *testing.T) {
			hub := fake.NewClientBuilder().WithScheme(cluster.Scheme).WithInterceptorFuncs(interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
					review := o.(*authorizationv1.SelfSubjectAccessReview)
					a := review.Spec.ResourceAttributes
					review.Status.Allowed = !tc.denied || a.Resource != "spokeclusters" || a.Verb == "get" || a.Verb == "list"
					return nil
				},
			}).Build()
			var asked bytes.Buffer
			j := &joining{hub: hub, options: &options{name: "eu-1"}, Env: &env.Env{
				IOStreams: genericiooptions.IOStreams{In: strings.NewReader(tc.answer), Out: io.Discard, ErrOut: &asked}, Interactive: tc.terminal,
			}}
			err := j.choose(t.Context(), names)
			if code, _ := exit.Of(err); code != tc.code {
				t.Errorf("%v: exit code %d, want %d", err, code, tc.code)
			}
			if len(j.refs) != len(tc.want) || len(tc.want) > 0 && j.refs[0] != tc.want[0] {
				t.Errorf("chosen: %+v", j.refs)
			}
			const question = "  1) monitoring/a\n  2) ThanosRuler/monitoring/b\n  3) auto\nWhich one is to evaluate the rules? [1-3] "
			if tc.terminal && asked.String() != question || !tc.terminal && asked.Len() > 0 {
				t.Errorf("it asks %q", asked.String())
			}
		})
	}
}

// TestKubeStateMetrics looks for a Service, and says nothing without the permission.
func TestKubeStateMetrics(t *testing.T) {
	service := func(name string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: name, Labels: map[string]string{nameLabel: name}}}
	}
	denied := interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("forbidden")
	}}
	for name, tc := range map[string]struct {
		services []client.Object
		funcs    interceptor.Funcs
		lacks    bool
	}{
		"there":             {services: []client.Object{service("other"), service(kubeStateMetrics)}},
		"not":               {services: []client.Object{service("other")}, lacks: true},
		"unknown":           {funcs: denied},
		"no Service at all": {lacks: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(cluster.Scheme).WithObjects(tc.services...).WithInterceptorFuncs(tc.funcs).Build()
			if got := lacksKubeStateMetrics(t.Context(), c); got != tc.lacks {
				t.Errorf("got %v", got)
			}
		})
	}
}

// TestUnknownMonitoring says that it is not known whether a spoke has several Prometheus, or that it has none of
// prometheus-operator's kinds.
func TestUnknownMonitoring(t *testing.T) {
	served := meta.NewDefaultRESTMapper(nil)
	served.Add(schema.GroupVersionKind{Group: monitoringGroup, Version: "v1", Kind: "PrometheusRule"}, meta.RESTScopeNamespace)
	for _, tc := range []struct {
		name   string
		mapper meta.RESTMapper
		chosen []string
		before *v1alpha1.SpokeCluster
		listed error
		want   string
	}{
		{name: "no permission", mapper: served, listed: apierrors.NewForbidden(schema.GroupResource{}, "", nil), want: "Warning: you have no permission to list Prometheus or ThanosRuler objects"},
		{name: "no permission, and one is chosen", mapper: served, chosen: []string{"monitoring/a"}, listed: apierrors.NewForbidden(schema.GroupResource{}, "", nil)},
		{name: "no permission, and one was chosen", mapper: served, before: &v1alpha1.SpokeCluster{Status: v1alpha1.SpokeClusterStatus{Evaluators: []v1alpha1.Evaluator{{Chosen: true}}}}, listed: apierrors.NewForbidden(schema.GroupResource{}, "", nil)},
		{name: "no kinds", mapper: meta.NewDefaultRESTMapper(nil), listed: &meta.NoKindMatchError{}, want: "Warning: the spoke does not serve PrometheusRules"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spoke := fake.NewClientBuilder().WithScheme(cluster.Scheme).WithRESTMapper(tc.mapper).WithInterceptorFuncs(interceptor.Funcs{
				List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
					return tc.listed
				},
			}).Build()
			var said bytes.Buffer
			j := &joining{spoke: &cluster.Spoke{Client: spoke}, options: &options{prometheus: tc.chosen}, present: tc.before, Env: &env.Env{IOStreams: genericiooptions.IOStreams{ErrOut: &said}}}
			if err := j.chooseEvaluators(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(said.String(), tc.want) || tc.want == "" && said.Len() > 0 {
				t.Errorf("it says %q", said.String())
			}
		})
	}
}
