package rule

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// An edit on the hub wins over the template. What people have made their own in a
// generated AlertRule is read from two records: managedFields (KEP-555) has what they
// set, and AppliedFieldsAnnotation what the operator set last, so that what is gone
// since then was removed by somebody.
//
// Fields are named as people write them: for, labels.team.

// mapFields are the fields of a spec whose entries have owners of their own.
var mapFields = []string{"labels", "annotations"}

// fixedFields are the fields of a generated AlertRule that are nobody's to edit.
var fixedFields = []string{"placement", "workloadRef"}

// AllFields stands in ResetFieldsAnnotation for every field.
const AllFields = "*"

// Overridden returns the fields of a generated AlertRule's spec that people have made
// their own: those that another field manager than the operator owns, and those that
// somebody removed. The operator leaves them alone.
func Overridden(r *v1alpha1.AlertRule) []string {
	fields := ownedByOthers(r)
	present := fieldsOf(r.Spec)
	for _, field := range list(r.Annotations[v1alpha1.AppliedFieldsAnnotation]) {
		if !present.Has(field) {
			fields.Insert(field)
		}
	}
	return slices.Sorted(maps.Keys(fields))
}

// LeftAlone returns the fields that the operator does not apply: those that are
// overridden, and the other name of the severity where one of the two is. The API
// refuses both together.
func LeftAlone(r *v1alpha1.AlertRule) []string {
	const field, label = "severity", "labels." + severityLabel
	fields := Overridden(r)
	for _, alias := range [][2]string{{field, label}, {label, field}} {
		if slices.Contains(fields, alias[0]) && !slices.Contains(fields, alias[1]) {
			return append(fields, alias[1])
		}
	}
	return fields
}

// Applied returns the value of AppliedFieldsAnnotation for what a template makes: its
// fields but those that others own. What was removed stays in it, to be known as such.
func Applied(desired, existing *v1alpha1.AlertRule) string {
	fields := fieldsOf(desired.Spec)
	if existing != nil {
		fields = fields.Difference(ownedByOthers(existing))
	}
	return strings.Join(slices.Sorted(maps.Keys(fields)), ",")
}

// Reset gives the fields that ResetFieldsAnnotation names back to the template: nobody
// else owns them any more, and those that the template does not set are gone. It
// returns the AlertRule to write, which field names it gave back, and which it does
// not know as overridden.
func Reset(existing, desired *v1alpha1.AlertRule) (next *v1alpha1.AlertRule, given, unknown []string) {
	overridden := Overridden(existing)
	for _, field := range list(existing.Annotations[v1alpha1.ResetFieldsAnnotation]) {
		switch {
		case field == AllFields:
			given = append(given, overridden...)
		case slices.Contains(overridden, field):
			given = append(given, field)
		default:
			unknown = append(unknown, excerpt(field))
		}
	}
	slices.Sort(given)
	given = slices.Compact(given)
	next = existing.DeepCopy()
	delete(next.Annotations, v1alpha1.ResetFieldsAnnotation)
	disown(next, given)
	remove(&next.Spec, sets.New(given...).Difference(fieldsOf(desired.Spec)))
	applied := sets.New(list(next.Annotations[v1alpha1.AppliedFieldsAnnotation])...).Delete(given...)
	if _, found := next.Annotations[v1alpha1.AppliedFieldsAnnotation]; found {
		next.Annotations[v1alpha1.AppliedFieldsAnnotation] = strings.Join(slices.Sorted(maps.Keys(applied)), ",")
	}
	return next, given, unknown
}

// ownedByOthers returns the fields of the spec that another manager than the operator
// owns.
func ownedByOthers(r *v1alpha1.AlertRule) sets.Set[string] {
	fields := sets.New[string]()
	for i := range r.ManagedFields {
		if set := specOf(&r.ManagedFields[i]); set != nil {
			set.Iterate(func(p fieldpath.Path) {
				if name := fieldName(p); name != "" {
					fields.Insert(name)
				}
			})
		}
	}
	return fields
}

// disown takes fields out of what others than the operator own.
func disown(r *v1alpha1.AlertRule, fields []string) {
	for i := range r.ManagedFields {
		entry := &r.ManagedFields[i]
		set := specOf(entry)
		if set == nil {
			continue
		}
		kept := fieldpath.NewSet()
		set.Iterate(func(p fieldpath.Path) {
			if !slices.Contains(fields, fieldName(p)) {
				kept.Insert(p.Copy())
			}
		})
		if data, err := kept.ToJSON(); err == nil {
			entry.FieldsV1 = &metav1.FieldsV1{}
			entry.FieldsV1.SetRawBytes(data)
		}
	}
	r.ManagedFields = slices.DeleteFunc(r.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		return e.FieldsV1 != nil && bytes.Equal(e.FieldsV1.GetRawBytes(), []byte("{}"))
	})
}

// specOf returns what an entry says that its manager owns, or nil where that is the
// operator or a writer of the status.
func specOf(entry *metav1.ManagedFieldsEntry) *fieldpath.Set {
	if entry.Manager == v1alpha1.FieldManager || entry.Subresource != "" || entry.FieldsV1 == nil {
		return nil
	}
	set := &fieldpath.Set{}
	if set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())) != nil {
		return nil
	}
	return set
}

// fieldName names the field of the spec that a path is in, or "" where it is in none
// that people can make their own.
func fieldName(p fieldpath.Path) string {
	if len(p) < 2 || p[0].FieldName == nil || *p[0].FieldName != "spec" || p[1].FieldName == nil {
		return ""
	}
	name := *p[1].FieldName
	switch {
	case slices.Contains(fixedFields, name):
		return ""
	case !slices.Contains(mapFields, name):
		return name
	case len(p) > 2 && p[2].FieldName != nil:
		return name + "." + *p[2].FieldName
	}
	return ""
}

// fieldsOf returns the names of the fields that a spec has.
func fieldsOf(spec v1alpha1.AlertRuleSpec) sets.Set[string] {
	fields := sets.New[string]()
	walk(reflect.ValueOf(&spec).Elem(), func(name string, v reflect.Value) {
		switch {
		case slices.Contains(fixedFields, name), v.IsZero():
		case slices.Contains(mapFields, name):
			for _, key := range v.MapKeys() {
				fields.Insert(name + "." + key.String())
			}
		default:
			fields.Insert(name)
		}
	})
	return fields
}

// remove takes fields out of a spec.
func remove(spec *v1alpha1.AlertRuleSpec, fields sets.Set[string]) {
	walk(reflect.ValueOf(spec).Elem(), func(name string, v reflect.Value) {
		switch {
		case slices.Contains(fixedFields, name):
		case slices.Contains(mapFields, name):
			for _, key := range v.MapKeys() {
				if fields.Has(name + "." + key.String()) {
					v.SetMapIndex(key, reflect.Value{})
				}
			}
		case fields.Has(name):
			v.SetZero()
		}
	})
}

// walk calls fn with the name that each field of a struct has in JSON.
func walk(v reflect.Value, fn func(name string, v reflect.Value)) {
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name == "" { // inline
			walk(v.Field(i), fn)
			continue
		}
		fn(name, v.Field(i))
	}
}
