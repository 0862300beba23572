package simulated_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// plain returns a value without what differs between two clusters: UIDs and resourceVersions become numbers in the order
// in which they were first seen, and times and the version of Kubernetes are left out.
func (s *side) plain(q request, v any) any {
	if q.path == "/version" {
		for key, value := range v.(map[string]any) { //nolint:forcetypeassert // a panic shows it
			if text, ok := value.(string); ok && strings.HasSuffix(strings.ToLower(key), "version") {
				v.(map[string]any)[key] = regexp.MustCompile(`\d+`).ReplaceAllString(strings.TrimSuffix(text, "+simulated"), "0") //nolint:forcetypeassert // as above
			}
		}
		return v
	}
	o, _ := v.(map[string]any)
	if o["kind"] == "SelfSubjectRulesReview" || o["kind"] == "APIResourceList" {
		sorted(v)
	}
	switch {
	case o["type"] == "BOOKMARK":
		s.latest(o["object"])
	case o["items"] != nil || strings.HasSuffix(fmt.Sprint(o["kind"]), "List"):
		s.latest(o)
	}
	return s.walk("", v)
}

// latest replaces the version of a list or a bookmark, which other writes in the cluster raise, and the token in a list.
func (s *side) latest(v any) {
	o, _ := v.(map[string]any)
	m, _ := o["metadata"].(map[string]any)
	if m == nil || m["resourceVersion"] == nil {
		return
	}
	if text, _ := m["continue"].(string); text != "" {
		token, _ := base64.RawURLEncoding.DecodeString(text)
		var decoded map[string]any
		_ = json.Unmarshal(token, &decoded)
		decoded["rv"] = fmt.Sprint(decoded["rv"]) == fmt.Sprint(m["resourceVersion"])
		m["continue"] = decoded
	}
	m["resourceVersion"] = "latest"
}

// bookmarked returns the kind of object of a bookmark, except of the one that ends a streamed list.
func bookmarked(v any) string {
	e, _ := v.(map[string]any)
	o, _ := e["object"].(map[string]any)
	m, _ := o["metadata"].(map[string]any)
	if e["type"] != "BOOKMARK" || m["annotations"] != nil {
		return ""
	}
	return fmt.Sprint(o["kind"])
}

var uids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// walk replaces the values in a value. The order is always the same.
func (s *side) walk(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			v[name] = s.walk(name, v[name])
		}
	case []any:
		for i := range v {
			v[i] = s.walk("", v[i])
		}
	case string:
		return s.text(key, v)
	}
	return v
}

func (s *side) text(key, text string) string {
	switch key {
	case "creationTimestamp", "time":
		return "T"
	case "resourceVersion":
		if text == "latest" {
			return text
		}
		return s.number("version ", text)
	case "message":
		text = regexp.MustCompile(`\((\d+)\)`).ReplaceAllStringFunc(text, func(n string) string { return s.number("version ", strings.Trim(n, "()")) })
	}
	return uids.ReplaceAllStringFunc(text, func(uid string) string { return s.number("uid ", uid) })
}

// number returns the number of a value.
func (s *side) number(kind, value string) string {
	if _, ok := s.names[kind+value]; !ok {
		s.names[kind+value] = fmt.Sprintf("%s%d", kind, len(s.names))
	}
	return s.names[kind+value]
}

// sorted sorts all lists in a value, for answers that list in any order.
func sorted(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, value := range v {
			sorted(value)
		}
	case []any:
		for _, value := range v {
			sorted(value)
		}
		slices.SortFunc(v, func(a, b any) int {
			x, _ := json.Marshal(a)
			y, _ := json.Marshal(b)
			return bytes.Compare(x, y)
		})
	}
}
