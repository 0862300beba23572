package status

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/builtin"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
)

const (
	// maxGenerated is what an AlertRule of the template that is enabled by default may take as the API server returns
	// it, once it is evaluated.
	maxGenerated = 3 << 10
	// maxOverhead is what an AlertRule of any built-in template may take without its spec.
	maxOverhead = 2100
)

// TestSizeOfGeneratedRules measures an AlertRule of each built-in template. A hub has tens of thousands.
func TestSizeOfGeneratedRules(t *testing.T) {
	h := startHub(t)
	r := newReconciler(client.WithFieldOwner(h.Client, contest.Manager))
	r.Metrics = true
	connect(t, h.Client, "eu-1", up(metav1.NewTime(time.Now().Add(-time.Hour))))
	for _, template := range builtin.Templates(builtin.Options{}) {
		t.Run(template.Name, func(t *testing.T) {
			w := templating.Workload{Kind: rule.KindsOf(template)[0], Cluster: rule.Cluster{Name: "eu-1"}, Namespace: "shop", Name: "web"}
			ar, err := templating.Rule(template, w, namespace)
			must(t, err)
			// As generate does.
			ar.Annotations = map[string]string{v1alpha1.AppliedFieldsAnnotation: templating.Applied(ar, nil)}
			fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(ar)
			must(t, err)
			delete(fields, "status")
			unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
			must(t, h.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: fields}), client.FieldOwner(v1alpha1.FieldManager)))
			must(t, h.Client.Get(t.Context(), hub.Key(ar), ar))
			r.Board.Report(rule.KeyOf(ar), ar.UID, v1alpha1.ClusterStatus{
				Name: "eu-1", Phase: v1alpha1.PhaseEvaluating, Rule: "shop/" + rule.ObjectName("hub", rule.KeyOf(ar)),
				Evaluators: []string{"Prometheus monitoring/k8s"}, ObservedGeneration: ar.Generation,
			})
			ar = reconcileRule(t, r, ar)
			if ar.Status.Summary.Ready != "1/1" {
				t.Fatalf("it is not ready: %+v", ar.Status)
			}
			raw, err := h.Kubectl(t.Context(), "get", "--raw", "/apis/rulefleet.io/v1alpha1/namespaces/"+namespace+"/alertrules/"+ar.Name).Output()
			must(t, err)
			part := func(v any) int {
				data, err := json.Marshal(v)
				must(t, err)
				return len(data)
			}
			t.Logf("%d bytes: spec %d, status %d, managedFields %d\n%s", len(raw), part(ar.Spec), part(ar.Status), part(ar.ManagedFields), raw)
			if template.Name == builtin.Enabled()[0] && len(raw) > maxGenerated {
				t.Errorf("%d bytes, more than %d", len(raw), maxGenerated)
			}
			if overhead := len(raw) - part(ar.Spec); overhead > maxOverhead {
				t.Errorf("%d bytes without the spec, more than %d", overhead, maxOverhead)
			}
		})
	}
}
