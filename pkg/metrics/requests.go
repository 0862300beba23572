package metrics

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Verbs of requests beside Kubernetes' own.
const (
	// VerbProbe is a request that checks the health of a spoke.
	VerbProbe = "probe"
	// VerbAsk is a query to a Prometheus of the spoke, through its API server.
	VerbAsk   = "ask"
	verbOther = "other"
)

// Codes of requests that no answer came to.
const (
	// CodeError is a request that failed.
	CodeError = "error"
	// CodeCanceled is a request that the operator canceled.
	CodeCanceled = "canceled"
)

// Verb returns the Kubernetes verb of a request to an API server, as in RBAC, or "other". base is the
// prefix of all of the server's paths.
func Verb(req *http.Request, base string) string {
	switch req.Method {
	case http.MethodGet:
		return read(req, base)
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return verbOther
}

// read distinguishes get, list and watch as an API server does: by the path, which ends with a
// resource or with a name.
func read(req *http.Request, base string) string {
	segments := strings.Split(strings.Trim(strings.TrimPrefix(req.URL.Path, strings.TrimSuffix(base, "/")), "/"), "/")
	switch {
	case len(segments) > 2 && segments[0] == "api": // api/v1/…
		segments = segments[2:]
	case len(segments) > 3 && segments[0] == "apis": // apis/GROUP/VERSION/…
		segments = segments[3:]
	default:
		return "get" // not a resource, such as /version
	}
	if len(segments) > 2 && segments[0] == "namespaces" {
		segments = segments[2:]
	}
	if len(segments) > 1 {
		return "get"
	}
	if watch, err := strconv.ParseBool(req.URL.Query().Get("watch")); err == nil && watch {
		return "watch"
	}
	return "list"
}

// codes are the status codes of API servers, and of proxies in front of them.
var codes = []int{
	200, 201, 202, 204, 301, 302, 307, 308, 400, 401, 403, 404, 405, 406, 408, 409, 410, 413, 415, 422, 429,
	500, 501, 502, 503, 504,
}

// Code returns an HTTP status code as the value of a label. Unusual codes are mapped to 1xx, 2xx, 3xx,
// 4xx, 5xx and other, so that a spoke can't create any number of series.
func Code(code int) string {
	switch {
	case slices.Contains(codes, code):
		return strconv.Itoa(code)
	case code >= 100 && code < 600:
		return strconv.Itoa(code/100) + "xx"
	}
	return "other"
}
