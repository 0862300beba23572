// Package model has a model of an API server and of the caches in front of it. It is for tests that explore
// many schedules in memory: caches lag, lists are old, and watches miss what happened in between.
package model

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Ref names an object of a Server.
type Ref struct {
	Kind string
	types.NamespacedName
}

// RefOf returns the Ref of an object. One that is read as metadata must have its kind.
func RefOf(o client.Object) Ref {
	return Ref{kindOf(o), client.ObjectKeyFromObject(o)}
}

func kindOf(o any) string {
	if m, ok := o.(*metav1.PartialObjectMetadata); ok {
		return m.Kind
	}
	return reflect.TypeOf(o).Elem().Name()
}

// Change is an event of a watch.
type Change struct {
	Ref

	// Old is nil if the object was created. If it was deleted, New is nil, and Old has the version of the deletion.
	Old, New client.Object
}

// Server is a model of an API server. Its objects, also those that it returns, must not be changed.
type Server struct {
	// Writer is the field manager of those who create or update AlertRules.
	Writer string
	// Ahead is how far its clock is ahead. It may be negative.
	Ahead time.Duration

	now     func() time.Time
	version int64
	uids    int
	objects map[Ref]client.Object
	history []Change
	// versions are the versions after each change of the history.
	versions []int64
}

// NewServer returns a Server without objects.
func NewServer(now func() time.Time) *Server {
	return &Server{Writer: "kubectl", now: now, objects: map[Ref]client.Object{}}
}

// Now is the time by its clock.
func (s *Server) Now() time.Time { return s.now().Add(s.Ahead) }

// Length is the number of changes so far.
func (s *Server) Length() int { return len(s.history) }

// Find returns an object, or nil.
func (s *Server) Find(r Ref) client.Object { return s.objects[r] }

// Objects returns the objects of a kind, by name.
func (s *Server) Objects(kind string) map[types.NamespacedName]client.Object {
	out := map[types.NamespacedName]client.Object{}
	for r, o := range s.objects {
		if r.Kind == kind {
			out[r.NamespacedName] = o
		}
	}
	return out
}

// Create stores an object, and returns it as stored. It returns AlreadyExists.
func (s *Server) Create(o client.Object) (client.Object, error) {
	r := RefOf(o)
	if s.objects[r] != nil {
		return nil, apierrors.NewAlreadyExists(resource(r), r.Name)
	}
	return s.store(s.manage(nil, o.DeepCopyObject().(client.Object)))
}

func (s *Server) store(o client.Object) (client.Object, error) {
	s.stamp(o)
	s.uids++
	o.SetUID(types.UID(fmt.Sprintf("uid-%d", s.uids)))
	o.SetGeneration(1)
	o.SetCreationTimestamp(metav1.NewTime(s.Now().Truncate(time.Second)))
	s.record(Change{Ref: RefOf(o), New: o})
	return o, nil
}

// Update replaces an object except its status, and returns it as stored. It returns NotFound or, if the object has a
// resourceVersion that is not the present one, Conflict. One without a resourceVersion, which an API server refuses,
// stands for one that was just read.
func (s *Server) Update(o client.Object) (client.Object, error) {
	old, err := s.present(o)
	if err != nil {
		return nil, err
	}
	next := o.DeepCopyObject().(client.Object)
	copyStatus(old, next)
	return s.replace(s.manage(old, next))
}

// UpdateStatus replaces the status of an object. Its answers are those of Update.
func (s *Server) UpdateStatus(o client.Object) (client.Object, error) {
	old, err := s.present(o)
	if err != nil {
		return nil, err
	}
	next := old.DeepCopyObject().(client.Object)
	copyStatus(o, next)
	if !equality.Semantic.DeepEqual(next, old) {
		s.manageStatus(next)
	}
	return s.replace(next)
}

// present returns the object that a write replaces.
func (s *Server) present(o client.Object) (client.Object, error) {
	r := RefOf(o)
	old := s.objects[r]
	switch {
	case old == nil:
		return nil, apierrors.NewNotFound(resource(r), r.Name)
	case o.GetResourceVersion() != "" && o.GetResourceVersion() != old.GetResourceVersion():
		return nil, apierrors.NewConflict(resource(r), r.Name, errors.New("the object has been modified"))
	}
	return old, nil
}

func copyStatus(from, to client.Object) {
	switch to := to.(type) {
	case *v1alpha1.AlertRule:
		to.Status = *from.(*v1alpha1.AlertRule).Status.DeepCopy()
	case *v1alpha1.RulePack:
		to.Status = *from.(*v1alpha1.RulePack).Status.DeepCopy()
	case *v1alpha1.SpokeCluster:
		to.Status = *from.(*v1alpha1.SpokeCluster).Status.DeepCopy()
	case *v1alpha1.AlertRuleTemplate:
		to.Status = *from.(*v1alpha1.AlertRuleTemplate).Status.DeepCopy()
	case *monitoringv1.PrometheusRule:
		to.Status = *from.(*monitoringv1.PrometheusRule).Status.DeepCopy()
	}
}

func (s *Server) replace(o client.Object) (client.Object, error) {
	r := RefOf(o)
	old := s.objects[r]
	o.SetUID(old.GetUID())
	o.SetCreationTimestamp(old.GetCreationTimestamp())
	o.SetGeneration(old.GetGeneration())
	if !equality.Semantic.DeepEqual(spec(o), spec(old)) {
		o.SetGeneration(old.GetGeneration() + 1)
	}
	o.SetResourceVersion(old.GetResourceVersion())
	if equality.Semantic.DeepEqual(o, old) {
		return old, nil
	}
	s.stamp(o)
	s.record(Change{Ref: r, Old: old, New: o})
	return o, nil
}

// Delete removes an object. It returns NotFound or, if a precondition is not met, Conflict.
func (s *Server) Delete(r Ref, p *metav1.Preconditions) error {
	old := s.objects[r]
	switch {
	case old == nil:
		return apierrors.NewNotFound(resource(r), r.Name)
	case p != nil && p.UID != nil && *p.UID != old.GetUID(), p != nil && p.ResourceVersion != nil && *p.ResourceVersion != old.GetResourceVersion():
		return apierrors.NewConflict(resource(r), r.Name, errors.New("a precondition is not met"))
	}
	last := old.DeepCopyObject().(client.Object)
	s.stamp(last)
	s.record(Change{Ref: r, Old: last})
	return nil
}

func (s *Server) stamp(o client.Object) {
	s.version++
	o.SetResourceVersion(strconv.FormatInt(s.version, 10))
}

func (s *Server) record(c Change) {
	s.history, s.versions = append(s.history, c), append(s.versions, s.version)
	apply(s.objects, c)
}

// Restore returns to the state after a number of changes, at least 1, as a restore of etcd from a backup does. Later
// changes reuse resourceVersions.
func (s *Server) Restore(at int) {
	was := map[Ref]client.Object{}
	for _, c := range s.history[:at] {
		apply(was, c)
	}
	s.version = s.versions[at-1]
	for _, r := range sorted(s.objects) {
		if was[r] == nil {
			s.record(Change{Ref: r, Old: s.objects[r]})
		}
	}
	for _, r := range sorted(was) {
		if is := s.objects[r]; is != was[r] {
			s.record(Change{Ref: r, Old: is, New: was[r]})
		}
	}
}

func apply(objects map[Ref]client.Object, c Change) {
	if c.New == nil {
		delete(objects, c.Ref)
		return
	}
	objects[c.Ref] = c.New
}

func resource(r Ref) schema.GroupResource {
	return schema.GroupResource{Resource: strings.ToLower(r.Kind) + "s"}
}

func spec(o client.Object) any {
	switch o := o.(type) {
	case *v1alpha1.AlertRule:
		return o.Spec
	case *v1alpha1.RulePack:
		return o.Spec
	case *v1alpha1.AlertRuleTemplate:
		return o.Spec
	case *v1alpha1.SpokeCluster:
		return o.Spec
	case *monitoringv1.PrometheusRule:
		return o.Spec
	default:
		return nil
	}
}

// Get implements client.Reader without a cache.
func (s *Server) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	return get(s.objects, key, o)
}

// List implements client.Reader without a cache.
func (s *Server) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return listObjects(s.objects, nil, list, opts...)
}
