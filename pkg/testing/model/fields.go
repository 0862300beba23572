package model

import (
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// fields has the field managers of the kinds that are applied.
var fields = map[string]*managedfields.FieldManager{
	"AlertRule": managedfieldstest.NewFakeFieldManager(managedfields.NewDeducedTypeConverter(), v1alpha1.GroupVersion.WithKind("AlertRule")),
}

// Apply makes a server-side apply of an AlertRule, and returns the result. It returns Conflict if another manager
// has another value of a field and force is false, or if the configuration has a resourceVersion that is not the
// present one.
func (s *Server) Apply(config *unstructured.Unstructured, manager string, force bool) (client.Object, error) {
	r := Ref{config.GetKind(), client.ObjectKeyFromObject(config)}
	fm := fields[r.Kind]
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
	fm := fields[r.Kind]
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
