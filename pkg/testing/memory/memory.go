// Package memory finds what a value still remembers about something that is gone. Tests of long-lived values
// use it, so that maps that are added later are covered. It also measures how much memory a function needs.
package memory

import (
	"fmt"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// own is the prefix of the import paths of the types that are searched.
const own = "github.com/rulefleet/rulefleet/"

// Beside is Of without what is reachable through some fields, such as the value's options, which have another
// owner.
func Beside(v any, name string, fields ...string) []string {
	return slices.DeleteFunc(Of(v, name), func(path string) bool {
		return slices.ContainsFunc(fields, func(field string) bool { return strings.HasPrefix(path, "."+field+".") })
	})
}

// Of returns the places where a value has a name in a map key: as the key or within it. It searches everything
// reachable from the value, as far as the types belong to this project or are unnamed.
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

// named reports whether a key is the name, or has it in a field.
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

// managerGC is the garbage collection target that the manager sets (cmd/manager/memory.go).
const managerGC = 50

// Peak returns the largest growth of the heap, in bytes, while a function runs. The garbage collection target is that of the
// manager. A memory limit of three quarters of bound has garbage collected before it would exceed bound: on a busy machine,
// a collection takes so long that it counts objects that are used one after the other as if they were used at once.
func Peak(bound uint64, run func()) uint64 {
	defer debug.SetGCPercent(debug.SetGCPercent(managerGC))
	debug.FreeOSMemory()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(int64(now.Sys - now.HeapReleased + bound/4*3))) //nolint:gosec // the sum is far below MaxInt64
	before, peak := now.HeapAlloc, now.HeapAlloc
	done := make(chan struct{})
	go func() {
		defer close(done)
		run()
	}()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return peak - before
		case <-tick.C:
			runtime.ReadMemStats(&now)
			peak = max(peak, now.HeapAlloc)
		}
	}
}
