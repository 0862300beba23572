package spoke

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// everything is metadata with something in every field.
func everything(labels map[string]string) metav1.ObjectMeta {
	created := metav1.NewTime(time.Unix(1, 0))
	return metav1.ObjectMeta{
		Name: "name", GenerateName: "n", Namespace: "ns", UID: "uid", ResourceVersion: "7", Generation: 3,
		CreationTimestamp: created, DeletionTimestamp: &created, DeletionGracePeriodSeconds: new(int64(1)),
		Labels:          labels,
		Annotations:     map[string]string{"team": "shop", "kubectl.kubernetes.io/last-applied-configuration": "{…}", "deployment.kubernetes.io/revision": "3", "deprecated.daemonset.template.generation": "3"},
		OwnerReferences: []metav1.OwnerReference{{Name: "owner"}}, Finalizers: []string{"f"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1("{}")}},
	}
}

func TestTrimRule(t *testing.T) {
	spec := monitoringv1.PrometheusRuleSpec{Groups: []monitoringv1.RuleGroup{{Name: "g"}}}
	typeMeta := metav1.TypeMeta{APIVersion: "monitoring.coreos.com/v1", Kind: "PrometheusRule"}
	ours := map[string]string{v1alpha1.HubLabel: "hub", "release": "kps"}
	whole := everything(ours)
	whole.ManagedFields = nil
	all := everything(nil)
	identity := &monitoringv1.PrometheusRule{TypeMeta: typeMeta, ObjectMeta: metav1.ObjectMeta{
		Namespace: all.Namespace, Name: all.Name, UID: all.UID, ResourceVersion: all.ResourceVersion, CreationTimestamp: all.CreationTimestamp,
	}}
	for name, tc := range map[string]struct {
		labels map[string]string
		want   *monitoringv1.PrometheusRule
	}{
		"this hub's": {labels: ours, want: &monitoringv1.PrometheusRule{
			TypeMeta: typeMeta, ObjectMeta: whole, Spec: spec,
			Status: monitoringv1.ConfigResourceStatus{Bindings: []monitoringv1.WorkloadBinding{{Name: "p"}}},
		}},
		"another hub's":  {labels: map[string]string{v1alpha1.HubLabel: "other"}, want: identity},
		"somebody's":     {labels: map[string]string{"release": "kps"}, want: identity},
		"without labels": {want: identity},
	} {
		t.Run(name, func(t *testing.T) {
			in := &monitoringv1.PrometheusRule{
				TypeMeta: typeMeta, ObjectMeta: everything(tc.labels), Spec: spec,
				Status: monitoringv1.ConfigResourceStatus{Bindings: []monitoringv1.WorkloadBinding{{Name: "p"}}},
			}
			got, err := trimRule("hub")(in)
			if err != nil {
				t.Fatal(err)
			}
			if !equality.Semantic.DeepEqual(got, tc.want) {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			// client-go may hand in what was trimmed before.
			if again, err := trimRule("hub")(got); err != nil || !equality.Semantic.DeepEqual(again, tc.want) {
				t.Errorf("the second time: %+v, %v", again, err)
			}
		})
	}
	t.Run("something else", func(t *testing.T) {
		in := cache.DeletedFinalStateUnknown{Key: "ns/name"}
		if got, err := trimRule("hub")(in); err != nil || got != any(in) {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

func TestTrimMetadata(t *testing.T) {
	kept := everything(map[string]string{"app": "shop"})
	kept.ManagedFields, kept.OwnerReferences, kept.Finalizers = nil, nil, nil
	kept.Annotations = map[string]string{"team": "shop"}

	for name, tc := range map[string]struct{ in, want any }{
		"a Deployment's metadata": {
			in:   &metav1.PartialObjectMetadata{ObjectMeta: everything(map[string]string{"app": "shop"})},
			want: &metav1.PartialObjectMetadata{ObjectMeta: kept},
		},
		"annotations of any length": {
			in: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
				"long": strings.Repeat("x", 256<<10), "fits": strings.Repeat("x", 1025), "rulefleet.io/labels": strings.Repeat("x", 9000),
			}}},
			want: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
				"long": strings.Repeat("x", 1025), "fits": strings.Repeat("x", 1025), "rulefleet.io/labels": strings.Repeat("x", 8193),
			}}},
		},
		"names that no API server has": {
			in:   &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: strings.Repeat("n", 254), Name: strings.Repeat("é", 200)}},
			want: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: strings.Repeat("n", 253), Name: strings.Repeat("é", 126)}},
		},
		"without annotations": {in: &metav1.PartialObjectMetadata{}, want: &metav1.PartialObjectMetadata{}},
		"a whole object": {
			in:   &corev1.Namespace{ObjectMeta: everything(map[string]string{"app": "shop"})},
			want: &corev1.Namespace{ObjectMeta: kept},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := trimMetadata(tc.in)
			if err != nil {
				t.Fatal(err)
			}
			if !equality.Semantic.DeepEqual(got, tc.want) {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
	t.Run("no object", func(t *testing.T) {
		if _, err := trimMetadata("x"); err == nil {
			t.Error("no error")
		}
	})
}

// leanGet is a reader that fills in objects.
type leanGet struct {
	client.Reader
	fill func(o client.Object)
}

// Get implements client.Reader.
func (g leanGet) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	g.fill(o)
	return nil
}

// What is read past the cache is kept for a second, and a spoke chooses how much it is.
func TestLeanReader(t *testing.T) {
	keys := func(n int) map[string]string {
		out := map[string]string{}
		for i := range n {
			out[fmt.Sprint(i)] = ""
		}
		return out
	}
	for name, tc := range map[string]struct {
		is, want metav1.ObjectMeta
		tooLarge bool
	}{
		"usual":                {is: metav1.ObjectMeta{UID: "u", Labels: keys(2), ManagedFields: []metav1.ManagedFieldsEntry{{}}, Finalizers: []string{"a/b"}}, want: metav1.ObjectMeta{UID: "u", Labels: keys(2)}},
		"too many labels":      {is: metav1.ObjectMeta{Labels: keys(maxKeys + 1)}, tooLarge: true},
		"too many annotations": {is: metav1.ObjectMeta{Annotations: keys(maxKeys + 1)}, tooLarge: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := &monitoringv1.PrometheusRule{}
			err := leanReader{leanGet{fill: func(o client.Object) {
				*o.(*monitoringv1.PrometheusRule) = monitoringv1.PrometheusRule{ObjectMeta: tc.is, Spec: monitoringv1.PrometheusRuleSpec{Groups: make([]monitoringv1.RuleGroup, 1)}}
			}}}.Get(t.Context(), client.ObjectKey{Name: "a"}, p)
			if tc.tooLarge != errors.Is(err, errTooLarge) || (err != nil) != tc.tooLarge {
				t.Errorf("got %v", err)
			}
			if !tc.tooLarge && len(p.Spec.Groups) > 0 || !equality.Semantic.DeepEqual(p.ObjectMeta, tc.want) {
				t.Errorf("got %+v", p)
			}
		})
	}
}
