package evaluator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

const (
	maxSaid    = 300     // bytes of an answer that a message quotes
	maxProblem = 8 << 10 // bytes read of an error answer
)

// Kind classifies errors.
type Kind string

// The kinds of errors.
const (
	// Unreachable: there was no answer, only part of one, or none in time.
	Unreachable Kind = "Unreachable"
	// Unauthorized: the credential is missing or not valid (401).
	Unauthorized Kind = "Unauthorized"
	// Forbidden: the credential lacks the permission (403).
	Forbidden Kind = "Forbidden"
	// NotFound: there is no such Service, or no such API behind it (404). A ThanosRuler has no query API.
	NotFound Kind = "NotFound"
	// Throttled: the API server, or a proxy in front of the evaluator, has too many requests (429).
	Throttled Kind = "Throttled"
	// Unavailable: the evaluator is down, starting or overloaded (500, 502 to 504).
	Unavailable Kind = "Unavailable"
	// Redirected: the answer is a redirect, which was not followed.
	Redirected Kind = "Redirected"
	// Rejected: the evaluator rejects this query.
	Rejected Kind = "Rejected"
	// NotAnEvaluator: the answer is not from the Prometheus API.
	NotAnEvaluator Kind = "NotAnEvaluator"
	// TooMuch: the answer or the query exceeds a limit. The message gives the value and the limit.
	TooMuch Kind = "TooMuch"
	// Changing: the rules kept changing while they were read.
	Changing Kind = "Changing"
	// Partial: the evaluator says that its answer is incomplete.
	Partial Kind = "Partial"
)

// Error is the reason why an evaluator's answer is missing or incomplete.
type Error struct {
	// Code is the HTTP status, or 0.
	Code int

	// Kind says what the caller can do.
	Kind Kind

	// FromAPIServer is true if the API server answered instead of the evaluator.
	FromAPIServer bool

	// Message says in one line what is wrong and what to check. It has a bounded length, and may quote the
	// answer without characters that a terminal would interpret.
	Message string

	cause      error
	staleToken bool // the requested page no longer exists
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause if it was an error, such as that of a context.
func (e *Error) Unwrap() error { return e.cause }

// NewTooMuch returns the error for something with more units than a limit allows. todo says what to change.
func NewTooMuch(what string, value, limit int64, unit, todo string) *Error {
	return &Error{Kind: TooMuch, Message: message.NewPrinter(language.English).Sprintf("%s: %d %s; the limit is %d; %s", what, value, unit, limit, todo)}
}

// checkServer is what to do about an answer that no Prometheus sends.
const checkServer = "check that the Service or the address leads to a Prometheus"

// kindOf returns the kind of an error of this package, or "" for any other.
func kindOf(err error) Kind {
	if bad := (*Error)(nil); errors.As(err, &bad) {
		return bad.Kind
	}
	return ""
}

// said is the body of an error: an API server sends a metav1.Status, Prometheus an error type.
type said struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`

	ErrorType string `json:"errorType"`
	Error     string `json:"error"`
}

// fromAPIServer reports whether the API server answered, not the evaluator.
func (s said) fromAPIServer() bool { return s.Kind == "Status" }

func (s said) fromEvaluator() bool { return s.ErrorType != "" || s.Error != "" }

// words returns the text of the answer for a message.
func (s said) words(body []byte, contentType string) string {
	switch {
	case s.fromAPIServer():
		return clip(s.Message, maxSaid)
	case s.fromEvaluator():
		return clip(strings.TrimPrefix(s.ErrorType+": "+s.Error, ": "), maxSaid)
	case isHTML(body, contentType):
		return "an HTML page"
	}
	return clip(string(bytes.TrimSpace(body)), maxSaid)
}

// problem returns the error for an answer with a status other than 200.
func problem(res *http.Response) *Error {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxProblem)) // a partial body is better than none
	var s said
	_ = json.Unmarshal(body, &s) // it may not be JSON
	out := &Error{Code: res.StatusCode, FromAPIServer: s.fromAPIServer()}
	var what string
	out.Kind, what = judge(res, s)
	out.Message = fmt.Sprintf("%s (HTTP %d)", what, res.StatusCode)
	if words := s.words(body, res.Header.Get("Content-Type")); words != "" {
		out.Message += ": " + words
	}
	out.staleToken = res.StatusCode == http.StatusBadRequest && s.ErrorType == "bad_data" &&
		strings.Contains(s.Error, "invalid group_next_token")
	return out
}

// verdicts are the meanings of statuses: from the API server, and from a server behind it. 500 stands for all
// higher ones.
var verdicts = map[int]struct {
	kind           Kind
	api, evaluator string
}{
	http.StatusUnauthorized: {
		Unauthorized, "the API server rejects the credential",
		"it, or a proxy in front of it, requires a credential",
	},
	http.StatusForbidden: {
		Forbidden, `permission denied: Rulefleet's account in the spoke needs "get" on services/proxy for the queried Service`,
		"it, or a proxy in front of it, denies access",
	},
	http.StatusNotFound: {
		NotFound, "the API server finds no such Service, or no endpoints of it",
		"the API was not found at this address; check the route prefix",
	},
	http.StatusTooManyRequests: { // an overloaded API server answers in plain text
		Throttled, "the API server answers 'too many requests'",
		"the API server, or a proxy on the way, answers 'too many requests'",
	},
	http.StatusInternalServerError: {
		Unavailable, "the API server can't reach the pods behind the Service",
		"it is starting, overloaded or broken",
	},
}

// judge returns the kind of an answer's status, and a description.
func judge(res *http.Response, s said) (Kind, string) {
	code := res.StatusCode
	switch {
	case code >= 300 && code < 400:
		return Redirected, "the answer is a redirect" + destination(res) + ", which is not followed because it would pass the credential on; " +
			"check for a login page at this address, and for a missing route prefix"
	case s.ErrorType == "timeout" || s.ErrorType == "canceled" || s.ErrorType == "execution":
		return Rejected, "the query was canceled or failed"
	}
	verdict, known := verdicts[min(code, http.StatusInternalServerError)]
	switch {
	case known && s.fromAPIServer():
		return verdict.kind, verdict.api
	case known:
		return verdict.kind, verdict.evaluator
	case code >= 400 && s.fromEvaluator():
		return Rejected, "it rejects the query"
	}
	return NotAnEvaluator, "the answer is not from the Prometheus API"
}

// destination returns where a redirect leads, without parts that may be secret.
func destination(res *http.Response) string {
	u, err := url.Parse(res.Header.Get("Location"))
	if err != nil || u.Host+u.Path == "" {
		return ""
	}
	return " to " + clip((&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String(), maxSaid)
}

func isHTML(body []byte, contentType string) bool {
	media, _, _ := mime.ParseMediaType(contentType)
	return media == "text/html" || bytes.HasPrefix(bytes.TrimSpace(body), []byte("<"))
}

// clip limits an untrusted text to a number of bytes with an ellipsis, and replaces characters that a terminal
// would interpret.
func clip(s string, limit int) string {
	const ellipsis = "…"
	cut := len(s) > limit
	if cut {
		s = s[:limit] // before it is copied
	}
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	if !cut {
		return s
	}
	// A partial character became spaces.
	end := min(limit-len(ellipsis), len(s))
	for end < len(s) && !utf8.RuneStart(s[end]) {
		end--
	}
	return strings.TrimRight(s[:end], " ") + ellipsis
}
