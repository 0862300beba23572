package model_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/model"
)

// mark is a moment between two requests: the version of a list of AlertRules, and the model's number of changes.
type mark struct {
	version string
	at      int
}

func (w *twins) mark() {
	w.marks = append(w.marks, mark{w.list(&metav1.ListOptions{}).ResourceVersion, w.model.Length()})
}

// list lists the AlertRules of a real API server, in pages if there is a limit.
func (w *twins) list(raw *metav1.ListOptions) *v1alpha1.AlertRuleList {
	all := &v1alpha1.AlertRuleList{}
	for {
		page := &v1alpha1.AlertRuleList{}
		if err := w.real.List(w.Context(), page, client.InNamespace(w.namespace), &client.ListOptions{Raw: raw, Limit: raw.Limit, Continue: raw.Continue}); err != nil {
			w.Fatal(err)
		}
		all.ResourceVersion, all.Items = page.ResourceVersion, append(all.Items, page.Items...)
		if page.Continue == "" {
			return all
		}
		raw = &metav1.ListOptions{Limit: raw.Limit, Continue: page.Continue}
	}
}

// state is what a list shows, as text.
func (w *twins) state(rules []v1alpha1.AlertRule) string {
	var out []string
	for i := range rules {
		out = append(out, rules[i].Name+" "+w.essence(&rules[i]))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// shows is what a cache of the model shows after a number of changes.
func (w *twins) shows(at int) string {
	var list v1alpha1.AlertRuleList
	if err := model.NewCache(w.model, at).List(context.Background(), &list); err != nil {
		w.Fatal(err)
	}
	return w.state(list.Items)
}

// listed compares a list as of an earlier moment, in pages, and one that may come from the watch cache, which is one of
// the states that there were.
func (w *twins) listed() {
	m := w.marks[rapid.IntRange(0, len(w.marks)-1).Draw(w.T, "moment")]
	then := w.list(&metav1.ListOptions{ResourceVersion: m.version, ResourceVersionMatch: metav1.ResourceVersionMatchExact, Limit: 1})
	if is, want := w.state(then.Items), w.shows(m.at); is != want {
		w.Fatalf("at version %s, a real API server had\n%s\nand the model\n%s", m.version, is, want)
	}
	some := w.state(w.list(&metav1.ListOptions{ResourceVersion: "0"}).Items)
	if !slices.ContainsFunc(w.marks, func(m mark) bool { return w.shows(m.at) == some }) {
		w.Fatalf("a real API server lists\n%s\nwhich the model never had", some)
	}
}

// seen is an event of a watch.
type seen struct {
	kind watch.EventType
	name string
	is   string
}

// watched compares the events since the beginning with the model's changes.
func (w *twins) watched() {
	const last = "last"
	u := w.typed(w.draw(client.ObjectKey{Namespace: w.namespace, Name: last}, false))
	if err := w.real.Create(w.Context(), u); err != nil {
		w.Fatal(err)
	}
	raw := &metav1.ListOptions{ResourceVersion: w.marks[0].version, AllowWatchBookmarks: true}
	events, err := w.real.Watch(w.Context(), &v1alpha1.AlertRuleList{}, client.InNamespace(w.namespace), &client.ListOptions{Raw: raw})
	if err != nil {
		w.Fatal(err)
	}
	defer events.Stop()
	var inReal, inModel []seen
	before := raw.ResourceVersion
	for e := range events.ResultChan() {
		o, ok := e.Object.(*v1alpha1.AlertRule)
		if !ok {
			w.Fatalf("an event is %v", e)
		}
		if o.Name == last {
			break
		}
		if order, err := resourceversion.CompareResourceVersion(o.ResourceVersion, before); err != nil || order < 0 || (order == 0 && e.Type != watch.Bookmark) {
			w.Fatalf("an event %s of %s has version %s, after %s: %v", e.Type, o.Name, o.ResourceVersion, before, err)
		}
		before = o.ResourceVersion
		if e.Type != watch.Bookmark {
			inReal = append(inReal, seen{e.Type, o.Name, w.essence(o)})
		}
	}
	cache := model.NewCache(w.model, 0)
	for cache.Behind() > 0 {
		change := cache.Next()
		kind, o := watch.Modified, change.New
		switch {
		case change.Kind != "AlertRule":
			continue
		case change.Old == nil:
			kind = watch.Added
		case change.New == nil:
			kind, o = watch.Deleted, change.Old
		}
		inModel = append(inModel, seen{kind, change.Name, w.essence(o)})
	}
	if is, want := different(inReal), different(inModel); !slices.Equal(is, want) {
		w.Fatalf("a watch of a real API server has\n%v\nand one of the model\n%v", is, want)
	}
}

// different leaves out events that change nothing of what is compared.
func different(events []seen) []seen {
	now := map[string]string{}
	return slices.DeleteFunc(events, func(e seen) bool {
		same := e.kind == watch.Modified && now[e.name] == e.is
		now[e.name] = e.is
		return same
	})
}

// another kind that the model has: edit changes the spec, and status the status.
type another struct {
	empty        func() client.Object
	edit, status func(o client.Object, n int)
	namespaced   bool
}

var others = map[string]another{
	"SpokeCluster": {
		empty:  func() client.Object { return &v1alpha1.SpokeCluster{} },
		edit:   func(o client.Object, n int) { o.(*v1alpha1.SpokeCluster).Spec.Suspend = new(n == 1) },
		status: func(o client.Object, n int) { o.(*v1alpha1.SpokeCluster).Status.ObservedGeneration = int64(n) },
	},
	"AlertRuleTemplate": {
		empty: func() client.Object { return &v1alpha1.AlertRuleTemplate{} },
		edit: func(o client.Object, n int) {
			o.(*v1alpha1.AlertRuleTemplate).Spec.AlertSpec = v1alpha1.AlertSpec{Alert: "Down", Expr: fmt.Sprintf("up == %d", n)}
		},
		status: func(o client.Object, n int) { o.(*v1alpha1.AlertRuleTemplate).Status.ObservedGeneration = int64(n) },
	},
	"PrometheusRule": {
		empty: func() client.Object { return &monitoringv1.PrometheusRule{} },
		edit: func(o client.Object, n int) {
			rule := monitoringv1.Rule{Alert: "Down", Expr: intstr.FromString(fmt.Sprintf("up == %d", n))}
			o.(*monitoringv1.PrometheusRule).Spec.Groups = []monitoringv1.RuleGroup{{Name: "g", Rules: []monitoringv1.Rule{rule}}}
		},
		status:     func(client.Object, int) {},
		namespaced: true,
	},
}

// another sends a request about an object of another kind.
func (w *twins) another(*rapid.T) {
	kind := rapid.SampledFrom(slices.Sorted(maps.Keys(others))).Draw(w.T, "kind")
	what := rapid.SampledFrom([]string{"create", "update", "update", "status", "delete"}).Draw(w.T, "what")
	n, k := rapid.IntRange(1, 2).Draw(w.T, "value"), others[kind]
	o := k.empty()
	o.SetName(w.namespace + "-" + w.pick().Name)
	if k.namespaced {
		o.SetNamespace(w.namespace)
	}
	id := kind + " " + o.GetName()
	var v version
	if what != "create" {
		v, _ = w.pickVersion(id)
		if v.real == nil && what != "delete" {
			w.Skip("an update needs a version")
		}
	}
	w.Logf("%s %s: %d", what, id, n)
	inReal, inModel := o, o.DeepCopyObject().(client.Object)
	if v.real != nil {
		inReal, inModel = v.real.DeepCopyObject().(client.Object), v.model.DeepCopyObject().(client.Object)
	}
	for _, o := range []client.Object{inReal, inModel} {
		o.SetLabels(map[string]string{"value": fmt.Sprint(n)})
		k.edit(o, n)
		if what != "create" {
			k.status(o, n)
		}
	}
	err, modelErr := w.send(what, inReal, inModel, v)
	w.agree(what, id, err, modelErr)
	w.same(what, id, o)
}

// send sends a request to both.
func (w *twins) send(what string, inReal, inModel client.Object, v version) (err, modelErr error) {
	switch what {
	case "create":
		err = w.real.Create(w.Context(), inReal)
		_, modelErr = w.model.Create(inModel)
	case "update":
		err = w.real.Update(w.Context(), inReal)
		_, modelErr = w.model.Update(inModel)
	case "status":
		err = w.real.Status().Update(w.Context(), inReal)
		_, modelErr = w.model.UpdateStatus(inModel)
	case "delete":
		var options []client.DeleteOption
		var conditions *metav1.Preconditions
		if v.real != nil {
			options = append(options, client.Preconditions{UID: new(v.real.GetUID()), ResourceVersion: new(v.real.GetResourceVersion())})
			conditions = &metav1.Preconditions{UID: new(v.model.GetUID()), ResourceVersion: new(v.model.GetResourceVersion())}
		}
		err = w.real.Delete(w.Context(), inReal, options...)
		modelErr = w.model.Delete(model.RefOf(inModel), conditions)
	}
	return err, modelErr
}

// same compares what is stored of another kind.
func (w *twins) same(what, id string, o client.Object) {
	stored, is := o.DeepCopyObject().(client.Object), w.model.Find(model.RefOf(o))
	err := w.real.Get(w.Context(), client.ObjectKeyFromObject(o), stored)
	if client.IgnoreNotFound(err) != nil || apierrors.IsNotFound(err) != (is == nil) {
		w.Fatalf("after %s %s, a real API server has %v (%v), and the model %v", what, id, stored, err, is)
	}
	if is == nil {
		w.past[id] = nil
		return
	}
	if inReal, inModel := essentials(stored), essentials(is); inReal != inModel {
		w.Fatalf("after %s %s, a real API server has\n%s\nand the model\n%s", what, id, inReal, inModel)
	}
	past := w.past[id]
	if len(past) > 0 {
		last := past[len(past)-1]
		inReal, inModel := last.real.GetResourceVersion() != stored.GetResourceVersion(), last.model.GetResourceVersion() != is.GetResourceVersion()
		if inModel && !inReal {
			w.Fatalf("after %s %s, the version is another one in the model alone", what, id)
		}
		if !inModel {
			past = past[:len(past)-1]
		}
	}
	w.past[id] = append(past, version{stored, is})
}

// essentials are what has to be equal of an object of another kind, as text.
func essentials(o client.Object) string {
	out := fmt.Sprintf("labels %v, generation %d", o.GetLabels(), o.GetGeneration())
	switch o := o.(type) {
	case *v1alpha1.SpokeCluster:
		out += fmt.Sprintf(", suspend %v, status of %d", *o.Spec.Suspend, max(o.Status.ObservedGeneration, 0))
	case *v1alpha1.AlertRuleTemplate:
		out += fmt.Sprintf(", %s, status of %d", o.Spec.Expr, max(o.Status.ObservedGeneration, 0))
	case *monitoringv1.PrometheusRule:
		out += fmt.Sprintf(", %v", o.Spec.Groups[0].Rules[0].Expr)
	}
	return out
}
