package spoke

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// holds is a cluster that holds some objects, in its cache as well.
type holds struct {
	cluster.Cluster

	client client.Client
}

func holding(objects ...client.Object) holds {
	return holds{client: fake.NewClientBuilder().WithScheme(Scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).WithObjects(objects...).Build()}
}

// GetClient and GetAPIReader are those of cluster.Cluster.
func (h holds) GetClient() client.Client { return h.client }

func (h holds) GetAPIReader() client.Reader { return h.client }

func operator(name string, args ...string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "monitoring", Name: name, UID: types.UID(name), Generation: 1, Labels: map[string]string{"app.kubernetes.io/name": "prometheus-operator"},
	}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "operator", Args: args}}
	return d
}

// One prometheus-operator says what it leaves out; of several, nobody knows which is whose.
func TestLimit(t *testing.T) {
	t.Parallel()
	one, webhook, other := operator("one", "--namespaces=a"), operator("webhook", "--namespaces=b"), operator("other")
	webhook.Labels["app.kubernetes.io/component"] = "admission-webhook"
	for name, c := range map[string]struct {
		objects []client.Object
		want    []string
	}{
		"none":    {},
		"one":     {[]client.Object{one, webhook}, []string{"a"}},
		"several": {[]client.Object{one, other}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			all := make([]v1alpha1.Evaluator, 2)
			s := &session{cluster: holding(c.objects...)}
			s.limit(t.Context(), all)
			for _, e := range all {
				if !slices.Equal(e.Namespaces, c.want) {
					t.Errorf("%s: %v", name, e.Namespaces)
				}
			}
		})
	}
}

// What prometheus-operator leaves out is what its flags say, in whichever way they are given.
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
