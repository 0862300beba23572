package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// definitionPath is the CustomResourceDefinition of AlertRules, from the folder of a package whose tests use the model.
const definitionPath = "../../../charts/rulefleet/files/crds/rulefleet.io_alertrules.yaml"

// fields returns the field manager of a kind, or nil for those that are not applied.
func fields(kind string) *managedfields.FieldManager {
	if kind != "AlertRule" {
		return nil
	}
	return ofAlertRules()
}

// ofAlertRules knows the schema, by which an API server merges. It panics if the definition can't be read.
var ofAlertRules = sync.OnceValue(func() *managedfields.FieldManager {
	types, err := readTypes()
	if err != nil {
		panic(err)
	}
	return managedfieldstest.NewFakeFieldManager(types, v1alpha1.GroupVersion.WithKind("AlertRule"))
})

func readTypes() (managedfields.TypeConverter, error) {
	data, err := os.ReadFile(definitionPath)
	if err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(data, crd); err != nil {
		return nil, err
	}
	api, err := builder.BuildOpenAPIV3(crd, v1alpha1.GroupVersion.Version, builder.Options{})
	if err != nil {
		return nil, err
	}
	return managedfields.NewTypeConverter(api.Components.Schemas, false)
}

// Apply makes a server-side apply of an AlertRule, and returns the result. It returns Conflict if another manager
// has another value of a field and force is false, or if the configuration has a resourceVersion that is not the
// present one. It returns Invalid if it removes the last key of a map that another manager owns, as API servers do
// (kubernetes/kubernetes#135841).
func (s *Server) Apply(config *unstructured.Unstructured, manager string, force bool) (client.Object, error) {
	r := Ref{config.GetKind(), client.ObjectKeyFromObject(config)}
	fm := fields(r.Kind)
	if fm == nil {
		return nil, fmt.Errorf("kind %s can't be applied", r.Kind)
	}
	var present runtime.Object = empty(r)
	if old := s.objects[r]; old != nil {
		if v := config.GetResourceVersion(); v != "" && v != old.GetResourceVersion() {
			return nil, apierrors.NewConflict(resource(r), r.Name, fmt.Errorf("resourceVersion %s is not %s", v, old.GetResourceVersion()))
		}
		present = asUnstructured(old)
	} else if config.GetResourceVersion() != "" {
		return nil, apierrors.NewConflict(resource(r), r.Name, errors.New("it does not exist"))
	}
	config = config.DeepCopy()
	config.SetResourceVersion("")
	merged, err := fm.Apply(present, config, manager, force)
	if err != nil {
		return nil, err
	}
	content := &unstructured.Unstructured{}
	convert(merged, content)
	for _, name := range []string{"labels", "annotations"} {
		if left, found, _ := unstructured.NestedMap(content.Object, "spec", name); found && len(left) == 0 {
			null := field.TypeInvalid(field.NewPath("spec", name), "null", "must be of type object")
			return nil, apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind(r.Kind).GroupKind(), r.Name, field.ErrorList{null})
		}
	}
	out := &v1alpha1.AlertRule{}
	convert(merged, out)
	if s.objects[r] == nil {
		return s.store(out)
	}
	return s.replace(out)
}

// manage records in a new version of an object which of its fields the present Writer has changed.
func (s *Server) manage(old, o client.Object) client.Object {
	r := RefOf(o)
	fm := fields(r.Kind)
	if fm == nil {
		return o
	}
	present := empty(r)
	if old != nil {
		present = asUnstructured(old)
	}
	managed := fm.UpdateNoErrors(present, asUnstructured(o), s.Writer)
	out := &v1alpha1.AlertRule{}
	convert(managed, out)
	return out
}

// manageStatus records who has written the status of an AlertRule, and when.
func (s *Server) manageStatus(o client.Object) {
	if fields(kindOf(o)) == nil {
		return
	}
	const status = "status"
	others := slices.DeleteFunc(slices.Clone(o.GetManagedFields()), func(e metav1.ManagedFieldsEntry) bool { return e.Manager == s.Writer && e.Subresource == status })
	now := metav1.NewTime(s.Now().Truncate(time.Second))
	o.SetManagedFields(append(others, metav1.ManagedFieldsEntry{
		Manager: s.Writer, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: status, Time: &now,
		APIVersion: v1alpha1.GroupVersion.String(), FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`),
	}))
}

func empty(r Ref) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(r.Kind))
	return u
}

func asUnstructured(o client.Object) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	convert(o, u)
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kindOf(o)))
	return u
}

// convert panics, because both are objects of the API.
func convert(from, to any) {
	text, err := json.Marshal(from)
	if err == nil {
		if u, ok := to.(*unstructured.Unstructured); ok {
			err = json.Unmarshal(text, &u.Object)
		} else {
			err = json.Unmarshal(text, to)
		}
	}
	if err != nil {
		panic(err)
	}
}
