package schema

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// path leads into a decoded object: names of fields, and indices of lists.
type path []any

// to returns the path of a step further, and leaves p as it is.
func (p path) to(step any) path { return append(slices.Clip(p), step) }

// String writes a path as the API server does.
func (p path) String() string {
	var b strings.Builder
	for _, step := range p {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", step)
		default:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			fmt.Fprint(&b, step)
		}
	}
	return b.String()
}

// absent is a value that is not there.
type absent struct{}

// with returns a copy of an object in which the value at a path is another one, or is
// gone. Maps on the way are made where they are missing.
func with(tree any, p path, value any) any {
	if len(p) == 0 {
		return value
	}
	switch step := p[0].(type) {
	case int:
		list, _ := tree.([]any)
		list = slices.Clone(list)
		list[step] = with(list[step], p[1:], value)
		return list
	default:
		m, _ := tree.(map[string]any)
		m = maps.Clone(m)
		if m == nil {
			m = map[string]any{}
		}
		key := step.(string)
		changed := with(m[key], p[1:], value)
		if _, gone := changed.(absent); gone {
			delete(m, key)
		} else {
			m[key] = changed
		}
		return m
	}
}
