package model

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cache is a cache of a Server's objects. It shows the Server as it was after some of its changes, and goes on
// only when it is told to.
type Cache struct {
	server  *Server
	at      int
	objects map[Ref]client.Object
	indexes map[string]*index
}

// index is an index of a kind by a field. Objects do not change, so each is indexed once.
type index struct {
	of     client.IndexerFunc
	values map[client.Object][]string
}

func (i *index) has(o client.Object, value string) bool {
	values, known := i.values[o]
	if !known {
		values = i.of(o)
		i.values[o] = values
	}
	return slices.Contains(values, value)
}

// NewCache returns a Cache whose first list shows a number of the Server's changes. A list with resourceVersion
// 0 may be as old as the watch cache of any replica of the API server.
func NewCache(s *Server, at int) *Cache {
	c := &Cache{server: s, indexes: map[string]*index{}}
	c.begin(at)
	return c
}

// begin lists again, as another cache with the same indexes does.
func (c *Cache) begin(at int) {
	c.at, c.objects = at, map[Ref]client.Object{}
	for _, change := range c.server.history[:at] {
		apply(c.objects, change)
	}
}

// IndexField implements client.FieldIndexer.
func (c *Cache) IndexField(_ context.Context, o client.Object, field string, fn client.IndexerFunc) error {
	c.indexes[kindOf(o)+" "+field] = &index{of: fn, values: map[client.Object][]string{}}
	return nil
}

// First returns the events of the first list.
func (c *Cache) First() []Change {
	var out []Change
	for _, r := range sorted(c.objects) {
		out = append(out, Change{Ref: r, New: c.objects[r]})
	}
	return out
}

// Behind returns how many changes the Cache does not show yet.
func (c *Cache) Behind() int { return len(c.server.history) - c.at }

// Next shows the next change.
func (c *Cache) Next() Change {
	change := c.server.history[c.at]
	c.at++
	apply(c.objects, change)
	return change
}

// Relist shows all changes at once, as after a watch that expired: what happened in between is missed.
func (c *Cache) Relist() []Change {
	before := maps.Clone(c.objects)
	for _, change := range c.server.history[c.at:] {
		apply(c.objects, change)
	}
	c.at = len(c.server.history)
	var out []Change
	for _, r := range sorted(before) {
		switch now := c.objects[r]; {
		case now == nil: // its last state is unknown
			out = append(out, Change{Ref: r, Old: before[r]})
		case now.GetResourceVersion() != before[r].GetResourceVersion():
			out = append(out, Change{Ref: r, Old: before[r], New: now})
		}
	}
	for _, r := range sorted(c.objects) {
		if before[r] == nil {
			out = append(out, Change{Ref: r, New: c.objects[r]})
		}
	}
	return out
}

// Get implements client.Reader.
func (c *Cache) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	return get(c.objects, key, o)
}

// List implements client.Reader.
func (c *Cache) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return listObjects(c.objects, c.indexes, list, opts...)
}

func get(objects map[Ref]client.Object, key client.ObjectKey, o client.Object) error {
	r := Ref{kindOf(o), key}
	found := objects[r]
	if found == nil {
		return apierrors.NewNotFound(resource(r), r.Name)
	}
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(found.DeepCopyObject()).Elem())
	return nil
}

func listObjects(objects map[Ref]client.Object, indexes map[string]*index, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	kind := strings.TrimSuffix(kindOf(list), "List")
	if m, ok := list.(*metav1.PartialObjectMetadataList); ok {
		kind = strings.TrimSuffix(m.Kind, "List")
	}
	matching := map[Ref]client.Object{}
	for r, found := range objects {
		if r.Kind != kind || (o.Namespace != "" && o.Namespace != r.Namespace) || (o.LabelSelector != nil && !o.LabelSelector.Matches(labels.Set(found.GetLabels()))) {
			continue
		}
		matches, err := matchesFields(indexes, kind, found, o)
		if err != nil {
			return err
		}
		if matches {
			matching[r] = found
		}
	}
	var items []runtime.Object
	for _, r := range sorted(matching) {
		items = append(items, matching[r].DeepCopyObject())
	}
	return meta.SetList(list, items)
}

func matchesFields(indexes map[string]*index, kind string, o client.Object, opts *client.ListOptions) (bool, error) {
	if opts.FieldSelector == nil {
		return true, nil
	}
	for _, q := range opts.FieldSelector.Requirements() {
		by := indexes[kind+" "+q.Field]
		if by == nil {
			return false, fmt.Errorf("there is no index %s of %s", q.Field, kind)
		}
		if !by.has(o, q.Value) {
			return false, nil
		}
	}
	return true, nil
}

func sorted(objects map[Ref]client.Object) []Ref {
	return slices.SortedFunc(maps.Keys(objects), func(a, b Ref) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}
