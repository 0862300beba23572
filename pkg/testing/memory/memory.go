// Package memory finds out what a value still remembers of something that is gone: tests of what
// lives as long as the process ask it, so that a map that is added later is not forgotten.
package memory

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// own begins the import paths of the types that are looked into.
const own = "github.com/rulefleet/rulefleet/"

// Beside is Of without what is found below some fields, such as the options that a value was made
// with: what they lead to has an owner of its own.
func Beside(v any, name string, fields ...string) []string {
	return slices.DeleteFunc(Of(v, name), func(path string) bool {
		return slices.ContainsFunc(fields, func(field string) bool { return strings.HasPrefix(path, "."+field+".") })
	})
}

// Of returns where a value has a name in the key of a map: as the key or within it. It looks into
// all that hangs on the value, as far as the types are this project's or have no name.
func Of(v any, name string) []string {
	l := look{name: name, seen: map[visit]bool{}}
	l.into("", reflect.ValueOf(v))
	return l.found
}

type visit struct {
	at reflect.Type
	p  uintptr
}

type look struct {
	name  string
	seen  map[visit]bool
	found []string
}

func (l *look) into(path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Interface:
		if !v.IsNil() {
			l.into(path, v.Elem())
		}
	case reflect.Pointer:
		at := visit{v.Type(), v.Pointer()}
		if v.IsNil() || l.seen[at] {
			return
		}
		l.seen[at] = true
		l.into(path, v.Elem())
	case reflect.Struct:
		if pkg := v.Type().PkgPath(); pkg != "" && !strings.HasPrefix(pkg, own) {
			return
		}
		for i := range v.NumField() {
			l.into(path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			l.into(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if l.named(key) {
				l.found = append(l.found, fmt.Sprintf("%s[%v]", path, key))
			}
			l.into(fmt.Sprintf("%s[%v]", path, key), v.MapIndex(key))
		}
	}
}

// named tells whether a key is the name, or has it in a field.
func (l *look) named(key reflect.Value) bool {
	switch key.Kind() {
	case reflect.String:
		return key.String() == l.name
	case reflect.Struct:
		for _, field := range key.Fields() {
			if l.named(field) {
				return true
			}
		}
	case reflect.Interface:
		return !key.IsNil() && l.named(key.Elem())
	}
	return false
}
