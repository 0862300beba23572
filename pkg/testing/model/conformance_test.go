package model_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/explore"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	"github.com/rulefleet/rulefleet/pkg/testing/model"
)

// twins are a real API server and the model, which are sent the same requests.
type twins struct {
	*rapid.T

	real      client.WithWatch
	model     *model.Server
	namespace string
	// past has the versions of each AlertRule so far: the present one is the last.
	past  map[string][]version
	marks []mark
}

// version is a version of an AlertRule on both.
type version struct {
	real, model client.Object
}

var (
	names    = []string{"a", "b"}
	versions = []string{"none", "present", "present", "stale"}
)

func (w *twins) pick() types.NamespacedName {
	return types.NamespacedName{Namespace: w.namespace, Name: rapid.SampledFrom(names).Draw(w.T, "name")}
}

// pickVersion returns a version that a request is conditional on, which is zero for "none". It skips the request if there
// is no such version.
func (w *twins) pickVersion(name string) (v version, kind string) {
	kind = rapid.SampledFrom(versions).Draw(w.T, "version")
	past := w.past[name]
	switch {
	case kind == "present" && len(past) > 0:
		v = past[len(past)-1]
	case kind == "stale" && len(past) > 1:
		v = past[len(past)-2]
	case kind != "none":
		w.Skip("no such version")
	}
	return v, kind
}

// draw returns some fields of an AlertRule. Those of a configuration to apply are a part of them. The model has no
// defaults, so all fields with one are set.
func (w *twins) draw(key types.NamespacedName, part bool) *unstructured.Unstructured {
	some := func(value string) bool { return !part || rapid.Bool().Draw(w.T, "with "+value) }
	number := rapid.IntRange(1, 2)
	spec := map[string]any{"alert": "Down", "expr": "up == 0", "state": "Enabled", "placement": map[string]any{"names": []any{"s"}}}
	meta := map[string]any{"namespace": key.Namespace, "name": key.Name}
	if some("expr") {
		spec["expr"] = fmt.Sprintf("up == %d", number.Draw(w.T, "expr"))
	}
	if some("for") {
		spec["for"] = fmt.Sprintf("%dm", number.Draw(w.T, "for"))
	}
	if some("label") {
		spec["labels"] = map[string]any{fmt.Sprintf("l%d", number.Draw(w.T, "label")): fmt.Sprint(number.Draw(w.T, "its value"))}
	}
	if some("annotation") {
		meta["annotations"] = map[string]any{fmt.Sprintf("example.org/a%d", number.Draw(w.T, "annotation")): fmt.Sprint(number.Draw(w.T, "its value"))}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "AlertRule", "metadata": meta, "spec": spec,
	}}
}

func (w *twins) typed(u *unstructured.Unstructured) *v1alpha1.AlertRule {
	out := &v1alpha1.AlertRule{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		w.Fatal(err)
	}
	return out
}

// create, update, remove and apply are the requests. A person writes with kubectl.

func (w *twins) create(*rapid.T) {
	u := w.draw(w.pick(), false)
	w.Logf("create %s", u.GetName())
	inReal := w.typed(u)
	err := w.real.Create(w.Context(), inReal, client.FieldOwner("kubectl"))
	inModel, modelErr := w.model.Create(w.typed(u))
	w.compare("create", u.GetName(), inReal, inModel, err, modelErr)
}

func (w *twins) update(*rapid.T) {
	key := w.pick()
	v, kind := w.pickVersion(key.Name)
	if kind == "none" {
		w.Skip("an update needs a version")
	}
	u := w.draw(key, false)
	inReal, inModel := w.typed(u), w.typed(u)
	inReal.ResourceVersion, inModel.ResourceVersion = v.real.GetResourceVersion(), v.model.GetResourceVersion()
	// A client sends back what it has read.
	inReal.ManagedFields, inModel.ManagedFields = v.real.GetManagedFields(), v.model.GetManagedFields()
	w.Logf("update %s, version %s", key.Name, kind)
	err := w.real.Update(w.Context(), inReal, client.FieldOwner("kubectl"))
	stored, modelErr := w.model.Update(inModel)
	w.compare("update", key.Name, inReal, stored, err, modelErr)
}

// updateStatus writes a status with what the client has read of the rest, which is ignored.
func (w *twins) updateStatus(*rapid.T) {
	key := w.pick()
	v, kind := w.pickVersion(key.Name)
	if kind == "none" {
		w.Skip("an update needs a version")
	}
	inReal, inModel := v.real.DeepCopyObject().(*v1alpha1.AlertRule), v.model.DeepCopyObject().(*v1alpha1.AlertRule)
	for _, ar := range []*v1alpha1.AlertRule{inReal, inModel} {
		ar.Spec.Expr = "ignored"
	}
	generation := rapid.Int64Range(1, 2).Draw(w.T, "observed generation")
	inReal.Status.ObservedGeneration, inModel.Status.ObservedGeneration = generation, generation
	w.Logf("update the status of %s, version %s", key.Name, kind)
	err := w.real.Status().Update(w.Context(), inReal, client.FieldOwner("kubectl"))
	stored, modelErr := w.model.UpdateStatus(inModel)
	w.compare("update the status of", key.Name, inReal, stored, err, modelErr)
}

func (w *twins) remove(*rapid.T) {
	key := w.pick()
	v, kind := w.pickVersion(key.Name)
	var inReal, inModel *metav1.Preconditions
	if v.real != nil {
		by := rapid.SampledFrom([]string{"uid", "version", "both"}).Draw(w.T, "precondition")
		condition := func(o client.Object) *metav1.Preconditions {
			p := &metav1.Preconditions{}
			if by != "version" {
				p.UID = new(o.GetUID())
			}
			if by != "uid" {
				p.ResourceVersion = new(o.GetResourceVersion())
			}
			return p
		}
		kind += " " + by
		inReal, inModel = condition(v.real), condition(v.model)
	}
	w.Logf("delete %s, %s", key.Name, kind)
	ar := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	var options []client.DeleteOption
	if inReal != nil {
		options = append(options, client.Preconditions(*inReal))
	}
	err := w.real.Delete(w.Context(), ar, options...)
	modelErr := w.model.Delete(model.RefOf(ar), inModel)
	w.compare("delete", key.Name, nil, nil, err, modelErr)
}

func (w *twins) apply(*rapid.T) {
	key := w.pick()
	v, kind := w.pickVersion(key.Name)
	u := w.draw(key, true)
	manager, force := rapid.SampledFrom([]string{v1alpha1.FieldManager, "kubectl"}).Draw(w.T, "manager"), rapid.Bool().Draw(w.T, "force")
	w.Logf("apply %s by %s, force %v, version %s", key.Name, manager, force, kind)
	inReal, inModel := u.DeepCopy(), u.DeepCopy()
	if v.real != nil {
		inReal.SetResourceVersion(v.real.GetResourceVersion())
		inModel.SetResourceVersion(v.model.GetResourceVersion())
	}
	options := []client.ApplyOption{client.FieldOwner(manager)}
	if force {
		options = append(options, client.ForceOwnership)
	}
	err := w.real.Apply(w.Context(), client.ApplyConfigurationFromUnstructured(inReal), options...)
	stored, modelErr := w.model.Apply(inModel, manager, force)
	w.compare("apply", key.Name, inReal, stored, err, modelErr)
}

// agree compares two answers.
func (w *twins) agree(what, name string, err, modelErr error) {
	if apierrors.ReasonForError(err) != apierrors.ReasonForError(modelErr) || (err == nil) != (modelErr == nil) {
		w.Fatalf("%s %s: a real API server answers %v, and the model %v", what, name, err, modelErr)
	}
}

// compare compares the answers, and what is stored afterwards.
func (w *twins) compare(what, name string, answered, inModel client.Object, err, modelErr error) {
	w.agree(what, name, err, modelErr)
	defer w.mark()
	stored := &v1alpha1.AlertRule{}
	key := types.NamespacedName{Namespace: w.namespace, Name: name}
	switch err := w.real.Get(w.Context(), key, stored); {
	case apierrors.IsNotFound(err):
		stored = nil
	case err != nil:
		w.Fatal(err)
	}
	is := w.model.Find(model.Ref{Kind: "AlertRule", NamespacedName: key})
	if (stored == nil) != (is == nil) {
		w.Fatalf("after %s, a real API server has %v, and the model %v", what, stored, is)
	}
	if stored == nil {
		w.past[name] = nil
		return
	}
	if inReal, inModel := w.essence(stored), w.essence(is); inReal != inModel {
		w.Fatalf("after %s %s, a real API server has\n%s\nand the model\n%s", what, name, inReal, inModel)
	}
	if err == nil && answered.GetResourceVersion() != stored.ResourceVersion || modelErr == nil && inModel.GetResourceVersion() != is.GetResourceVersion() {
		w.Fatalf("%s %s: the answer is not what is stored", what, name)
	}
	now, past := version{stored, is}, w.past[name]
	if len(past) > 0 {
		last := past[len(past)-1]
		inReal, inModel := last.real.GetResourceVersion() != stored.ResourceVersion, last.model.GetResourceVersion() != is.GetResourceVersion()
		if inModel && !inReal {
			w.Fatalf("after %s %s, the version is another one in the model alone", what, name)
		}
		if !inModel { // a real API server also writes an object to store defaults
			past = past[:len(past)-1]
		}
	}
	w.past[name] = append(past, now)
}

// essence is what has to be equal of an object, as text: all but its identity, its times, and its status.
func (w *twins) essence(o client.Object) string {
	ar := o.(*v1alpha1.AlertRule)
	managed := map[string]any{}
	for _, m := range ar.ManagedFields {
		if m.Subresource == "" { // of a status, the model knows who has written it, and when
			managed[fmt.Sprintf("%s %s", m.Manager, m.Operation)] = m.FieldsV1
		} else {
			managed[fmt.Sprintf("%s %s of %s", m.Manager, m.Operation, m.Subresource)] = m.Time != nil
		}
	}
	spec, annotations := ar.Spec.DeepCopy(), maps.Clone(ar.Annotations)
	if len(annotations) == 0 {
		annotations = nil
	}
	if len(spec.Labels) == 0 {
		spec.Labels = nil
	}
	text, err := json.MarshalIndent(map[string]any{
		"spec": spec, "annotations": annotations, "generation": ar.Generation, "managed": managed, "status": max(ar.Status.ObservedGeneration, 0),
	}, "", " ")
	if err != nil {
		w.Fatal(err)
	}
	return string(text)
}

// TestConformance sends the same requests to a real API server and to the model, in a random order, and compares the
// answers and what is stored.
func TestConformance(t *testing.T) {
	f, err := fleet.Start(t.Context(), fleet.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	hub, err := client.NewWithWatch(f.Hub.RESTConfig(), client.Options{Scheme: fleet.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.InstallMonitoringCRD(t.Context(), f.Hub, "prometheusrules"); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"rapid.seed": "1", "rapid.checks": "20"} {
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		w := &twins{T: rt, real: hub, model: model.NewServer(time.Now), namespace: fmt.Sprintf("run-%d", runs), past: map[string][]version{}}
		if err := w.real.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}); err != nil {
			rt.Fatal(err)
		}
		operations := map[string]func(*rapid.T){"create": w.create, "update": w.update, "delete": w.remove, "status": w.updateStatus, "apply": w.apply, "applyMore": w.apply, "another": w.another, "anotherMore": w.another, "anotherToo": w.another}
		for name, operation := range operations {
			operations[name] = func(rt *rapid.T) { w.T = rt; explore.Try(rt, operation) }
		}
		w.mark()
		rt.Repeat(operations)
		w.T = rt
		w.listed()
		w.watched()
	})
}
