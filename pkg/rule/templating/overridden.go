package templating

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
	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// An edit on the hub takes precedence over the template. The edited fields of a generated AlertRule are
// derived from two records: managedFields (KEP-555) lists the fields that others set, and
// AppliedFieldsAnnotation lists the fields that the operator set last, so that fields missing since
// then were removed by an edit.
//
// Fields are named as users write them: for, labels.team.

// mapFields are the fields of a spec whose entries have owners of their own.
var mapFields = []string{"labels", "annotations"}

// fixedFields are the fields of a generated AlertRule that can't be edited.
var fixedFields = []string{"placement", "workloadRef"}

// AllFields is the value of ResetFieldsAnnotation for every field.
const AllFields = "*"

// Overridden returns the edited fields of a generated AlertRule's spec: those that a field manager
// other than the operator owns, and those that were removed. The operator does not change them.
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

// LeftAlone returns the fields that the operator does not apply: those that are overridden, and, if
// one of the two fields for the severity is overridden, the other one as well. The API refuses both
// together.
func LeftAlone(r *v1alpha1.AlertRule) []string {
	const field, label = "severity", "labels." + rule.SeverityLabel
	fields := Overridden(r)
	for _, alias := range [][2]string{{field, label}, {label, field}} {
		if slices.Contains(fields, alias[0]) && !slices.Contains(fields, alias[1]) {
			return append(fields, alias[1])
		}
	}
	return fields
}

// Applied returns the value of AppliedFieldsAnnotation for an AlertRule from a template: its fields
// except those that others own. Fields that were removed by an edit stay in it, so that they are
// recognized as removed.
func Applied(desired, existing *v1alpha1.AlertRule) string {
	fields := fieldsOf(desired.Spec)
	if existing != nil {
		fields = fields.Difference(ownedByOthers(existing))
	}
	return strings.Join(slices.Sorted(maps.Keys(fields)), ",")
}

// Reset returns the fields that ResetFieldsAnnotation names to the template: other owners lose them,
// and fields that the template does not set are removed. It returns the AlertRule to write, the fields
// that were reset, and the fields that are not known as overridden.
func Reset(existing, desired *v1alpha1.AlertRule) (next *v1alpha1.AlertRule, given, unknown []string) {
	overridden := Overridden(existing)
	for _, field := range list(existing.Annotations[v1alpha1.ResetFieldsAnnotation]) {
		switch {
		case field == AllFields:
			given = append(given, overridden...)
		case slices.Contains(overridden, field):
			given = append(given, field)
		default:
			unknown = append(unknown, clip.Excerpt(field))
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

// ownedByOthers returns the fields of the spec that a manager other than the operator owns.
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

// disown removes fields from the fields that managers other than the operator own.
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

// specOf returns the fields of the spec that an entry's manager owns, or nil if it is the operator or
// a writer of the status.
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

// fieldName returns the name of the field of the spec that contains a path, or "" if it is not in a
// field that can be edited.
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

// remove removes fields from a spec.
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

// walk calls fn for each field of a struct, with its JSON name.
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
