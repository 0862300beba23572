package lean

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

func alertRule(name string) *v1alpha1.AlertRule {
	at := metav1.NewTime(time.Unix(1, 0).UTC())
	return &v1alpha1.AlertRule{
		TypeMeta: metav1.TypeMeta{APIVersion: "rulefleet.io/v1alpha1", Kind: "AlertRule"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "rulefleet-generated", Name: name, UID: "u", ResourceVersion: "7",
			Labels:      map[string]string{v1alpha1.TemplateLabel: "deployment-down", v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue},
			Annotations: map[string]string{v1alpha1.AppliedFieldsAnnotation: "alert,expr"},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: v1alpha1.FieldManager, Operation: "Apply", APIVersion: "rulefleet.io/v1alpha1", Time: &at, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)},
				{Manager: "none", Operation: "Update"},
			},
		},
		Spec: v1alpha1.AlertRuleSpec{
			AlertSpec: v1alpha1.AlertSpec{
				Alert: "Down", Expr: "up == 0", For: "5m", Severity: "warning",
				Labels:      map[string]v1alpha1.LabelText{"deployment": v1alpha1.LabelText(name), "namespace": "shop"},
				Annotations: map[string]v1alpha1.LabelText{"summary": "It is down."},
			},
			Placement:   v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"eu-1"}},
			WorkloadRef: &v1alpha1.WorkloadReference{Cluster: "eu-1", Kind: "Deployment", Namespace: "shop", Name: name},
			State:       v1alpha1.Enabled,
		},
		Status: v1alpha1.RuleStatus{
			Conditions: []metav1.Condition{{Type: "Ready", Status: "True", Reason: "AllApplied", Message: "in 1 of 1", LastTransitionTime: at}},
			Clusters:   []v1alpha1.ClusterStatus{{Name: "eu-1", Phase: "Applied", Reason: "NoEvaluator", Evaluators: []string{"p"}, LastTransitionTime: at}},
		},
	}
}

func prometheusRule(name string) *monitoringv1.PrometheusRule {
	return &monitoringv1.PrometheusRule{
		TypeMeta: metav1.TypeMeta{APIVersion: "monitoring.coreos.com/v1", Kind: "PrometheusRule"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, Labels: map[string]string{v1alpha1.HubLabel: "hub", v1alpha1.AlertRuleHashLabel: name},
			Annotations: map[string]string{v1alpha1.AlertRuleAnnotation: "rulefleet-generated/" + name},
		},
		Spec: monitoringv1.PrometheusRuleSpec{Groups: []monitoringv1.RuleGroup{{
			Name: "rulefleet-generated/" + name, Interval: new(monitoringv1.Duration("30s")),
			Rules: []monitoringv1.Rule{{
				Alert: "Down", Expr: intstr.FromString("up == 0"), For: new(monitoringv1.Duration("5m")),
				Labels: map[string]string{"deployment": name, "namespace": "shop"}, Annotations: map[string]string{"summary": "It is down."},
			}},
		}}},
	}
}

// decoded returns an object as an API server sends it: nothing in it is shared.
func decoded[T any](t *testing.T, in *T) *T {
	t.Helper()
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	out := new(T)
	if err := json.Unmarshal(data, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func same[T ~string](a, b T) bool {
	return a == b && unsafe.StringData(string(a)) == unsafe.StringData(string(b))
}

func TestAlertRule(t *testing.T) {
	var lean []*v1alpha1.AlertRule
	for i := range 2 {
		in := decoded(t, alertRule(fmt.Sprint("rule-", i)))
		want := in.DeepCopy()
		got, err := AlertRule(in)
		if err != nil || !equality.Semantic.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v; want %+v", got, err, want)
		}
		lean = append(lean, got.(*v1alpha1.AlertRule))
	}
	a, b := lean[0], lean[1]
	if a.ManagedFields[0].FieldsV1 != b.ManagedFields[0].FieldsV1 {
		t.Error("managed fields are not shared")
	}
	if !same(a.Spec.Alert, b.Spec.Alert) || !same(a.Status.Conditions[0].Message, b.Status.Conditions[0].Message) || !same(a.Spec.Placement.Names[0], b.Spec.WorkloadRef.Cluster) {
		t.Error("texts are not shared")
	}
	a.Labels["x"] = "y" // a test may do it
	if b.Labels["x"] != "y" {
		t.Error("labels are not shared")
	}
	delete(a.Labels, "x")
	if o, err := AlertRule(&v1alpha1.SpokeCluster{}); err != nil || o == nil {
		t.Errorf("another kind: %v, %v", o, err)
	}
}

// The labels and annotations of a person's rules are not remembered.
func TestOtherLabelsAreNotShared(t *testing.T) {
	a, b := alertRule("a"), alertRule("b")
	for _, r := range []*v1alpha1.AlertRule{a, b} {
		r.Labels = map[string]string{"team": "shop"}
		if _, err := AlertRule(r); err != nil {
			t.Fatal(err)
		}
	}
	a.Labels["x"] = "y"
	if b.Labels["x"] != "" {
		t.Error("they are")
	}
}

func TestPrometheusRule(t *testing.T) {
	var lean []*monitoringv1.PrometheusRule
	for i := range 2 {
		in := decoded(t, prometheusRule(fmt.Sprint("rule-", i)))
		want := in.DeepCopy()
		PrometheusRule(in)
		if !equality.Semantic.DeepEqual(in, want) {
			t.Fatalf("got %+v; want %+v", in, want)
		}
		lean = append(lean, in)
	}
	a, b := lean[0], lean[1]
	if !same(a.Spec.Groups[0].Rules[0].Alert, b.Spec.Groups[0].Rules[0].Alert) || !same(a.Labels[v1alpha1.HubLabel], b.Labels[v1alpha1.HubLabel]) {
		t.Error("texts are not shared")
	}
}

func TestMetadata(t *testing.T) {
	in := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Labels: map[string]string{"app": "web"}}}
	want := in.DeepCopy()
	Metadata(in)
	if !equality.Semantic.DeepEqual(in, want) || in.Annotations != nil {
		t.Errorf("got %+v", in)
	}
}

// What is too long is left as it is.
func TestLongTexts(t *testing.T) {
	long := strings.Repeat("x", maxBytes+1)
	in := map[string]string{"key": long}
	if got := sharedMap(in); len(got) != 1 || sharedMaps.Len() > maxShared {
		t.Errorf("got %v", got)
	}
	was := unsafe.StringData(long)
	text(&long)
	if unsafe.StringData(long) != was {
		t.Error("it was copied")
	}
	entries := []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(long)}}
	managed(entries)
	if _, known := sharedFields.Get(long); known {
		t.Error("managed fields are remembered")
	}
}

func TestIndexed(t *testing.T) {
	i := Indexed(toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, &v1alpha1.AlertRule{}, 0, toolscache.Indexers{}))
	err := i.AddIndexers(toolscache.Indexers{
		"field:object": func(any) ([]string, error) {
			return []string{"shop/a", "__all_namespaces/a"}, nil
		},
		toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc,
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{"field:object": {"__all_namespaces/a"}, toolscache.NamespaceIndex: {"rulefleet-generated"}} {
		if got, err := i.GetIndexer().GetIndexers()[name](alertRule("a")); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, want)
		}
	}
}

// TestPaged lists in pages, without a resourceVersion, and makes the objects of each page lean before it reads the next.
func TestPaged(t *testing.T) {
	object := func(name string) v1alpha1.AlertRule {
		return v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.TemplateLabel: "t"}}}
	}
	first := &v1alpha1.AlertRuleList{Items: []v1alpha1.AlertRule{object("a"), object("b")}}
	pages := map[string]*v1alpha1.AlertRuleList{"": first, "more": {Items: []v1alpha1.AlertRule{object("c")}}}
	first.Continue = "more"
	same := func(a, b map[string]string) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }
	list, err := Paged(t.Context(), metav1.ListOptions{ResourceVersion: "0"}, func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
		if options.ResourceVersion != "" || options.Limit == 0 {
			t.Errorf("it sends %+v", options)
		}
		if options.Continue != "" && !same(first.Items[0].Labels, first.Items[1].Labels) {
			t.Error("the first page is not lean when the second one is read")
		}
		page := pages[options.Continue]
		return page, Page(page)
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := meta.LenList(list); n != 3 {
		t.Errorf("it returns %d objects, want 3", n)
	}
}

// TestPagedExpires begins a list again whose token has expired, and never asks for all objects at once.
func TestPagedExpires(t *testing.T) {
	_, err := Paged(t.Context(), metav1.ListOptions{}, func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
		if options.Limit == 0 {
			t.Error("it asks for all objects at once")
		}
		if options.Continue != "" {
			return nil, apierrors.NewResourceExpired("the continue token has expired")
		}
		return &v1alpha1.AlertRuleList{ListMeta: metav1.ListMeta{Continue: "more"}, Items: make([]v1alpha1.AlertRule, 1)}, nil
	})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("it returns %v", err)
	}
}
