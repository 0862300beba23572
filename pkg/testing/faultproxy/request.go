package faultproxy

import (
	"mime"
	"net/http"
	"strings"
)

// request is a parsed request path.
type request struct {
	// resource is the plural, with the subresource after a slash; "" for a non-resource path such as /version.
	resource string
	// name is the object's, or "" for a collection.
	name string
}

// parse reads the path of a request to an API server:
// /api/v1/… or /apis/GROUP/VERSION/…, then [namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]].
func parse(path string) request {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return request{}
	}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		parts = parts[2:]
	}
	out := request{resource: parts[0]}
	if len(parts) > 1 {
		out.name = parts[1]
	}
	if len(parts) > 2 {
		out.resource += "/" + strings.Join(parts[2:], "/")
	}
	return out
}

func isWatch(r *http.Request) bool {
	watch := r.URL.Query().Get("watch")
	return watch == "true" || watch == "1"
}

// isList reports whether a request reads a collection, including a watch.
func isList(r *http.Request) bool {
	at := parse(r.URL.Path)
	return r.Method == http.MethodGet && at.resource != "" && at.name == ""
}

// askForJSON makes the API server answer in JSON even if the client also accepts a binary form.
func askForJSON(r *http.Request) {
	const json = "application/json"
	var accepted []string
	for entry := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		kind, params, err := mime.ParseMediaType(entry)
		switch {
		case err != nil:
			continue
		case kind != json:
			kind = json
		}
		delete(params, "q")
		if text := mime.FormatMediaType(kind, params); text != "" {
			accepted = append(accepted, text)
		}
	}
	if len(accepted) == 0 {
		accepted = []string{json}
	}
	r.Header.Set("Accept", strings.Join(accepted, ","))
	r.Header.Set("Accept-Encoding", "identity")
}
