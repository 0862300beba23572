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
)

const (
	maxSaid    = 300     // bytes of an answer's words in a message
	maxProblem = 8 << 10 // bytes read of an answer that is an error
)

// Kind tells errors apart.
type Kind string

// The kinds of errors.
const (
	// Unreachable: no answer came, or not all of it, or not in time.
	Unreachable Kind = "Unreachable"
	// Unauthorized: the credential is missing or not accepted (401).
	Unauthorized Kind = "Unauthorized"
	// Forbidden: the credential may not ask (403).
	Forbidden Kind = "Forbidden"
	// NotFound: there is no such Service, or no such API behind it (404). A ThanosRuler
	// has no API for queries.
	NotFound Kind = "NotFound"
	// Unavailable: the evaluator is down, starting or overloaded (429, 500, 502 to 504).
	Unavailable Kind = "Unavailable"
	// Redirected: the answer is elsewhere, and was not asked for there.
	Redirected Kind = "Redirected"
	// Rejected: the evaluator does not want to answer this question.
	Rejected Kind = "Rejected"
	// NotAnEvaluator: the answer is not one of Prometheus' API.
	NotAnEvaluator Kind = "NotAnEvaluator"
	// TooMuch: the answer, or the question, is above a limit.
	TooMuch Kind = "TooMuch"
	// Changing: the rules changed each time while they were read.
	Changing Kind = "Changing"
	// Partial: the evaluator says that it could not look everywhere.
	Partial Kind = "Partial"
)

// Error is why an evaluator's answer is missing, or not whole.
type Error struct {
	// Code is the HTTP status, or 0.
	Code int

	// Kind tells what a caller may do about it.
	Kind Kind

	// Message tells a person, in one line of bounded length, what is wrong and what to
	// look at. It may quote the answer, without characters that would spoil a terminal.
	Message string

	cause      error
	staleToken bool // the page that was asked for is gone
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Unwrap returns what was the cause where that was an error, as that of a context.
func (e *Error) Unwrap() error { return e.cause }

// KindOf returns the kind of an error of this package, or "" when it is none.
func KindOf(err error) Kind {
	if bad := (*Error)(nil); errors.As(err, &bad) {
		return bad.Kind
	}
	return ""
}

// said is what the body of an error may hold: that of an API server is a
// metav1.Status, and that of Prometheus has an error type.
type said struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`

	ErrorType string `json:"errorType"`
	Error     string `json:"error"`
}

// fromAPIServer tells whether it was not the evaluator that answered.
func (s said) fromAPIServer() bool { return s.Kind == "Status" }

func (s said) fromEvaluator() bool { return s.ErrorType != "" || s.Error != "" }

// words are the answer's own words for a message.
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

// problem makes an error of an answer whose status is not 200.
func problem(res *http.Response) *Error {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxProblem)) // what came is better than nothing
	var s said
	_ = json.Unmarshal(body, &s) // it need not be JSON
	out := &Error{Code: res.StatusCode}
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

// verdicts are what statuses mean: by the API server, and by what is behind it. 500
// stands for all from there on.
var verdicts = map[int]struct {
	kind           Kind
	api, evaluator string
}{
	http.StatusUnauthorized: {
		Unauthorized, "the API server rejects the credential",
		"the evaluator, or a proxy in front of it, requires a credential",
	},
	http.StatusForbidden: {
		Forbidden, `permission denied: the account needs "get" on services/proxy for it`,
		"the evaluator, or a proxy in front of it, denies access",
	},
	http.StatusNotFound: {
		NotFound, "the API server finds no such Service, or no endpoints of it",
		"the API was not found at this address; check the evaluator's route prefix",
	},
	http.StatusTooManyRequests: {
		Unavailable, "the API server answers 'too many requests'",
		"the evaluator, or a proxy in front of it, answers 'too many requests'",
	},
	http.StatusInternalServerError: {
		Unavailable, "the evaluator is down: the API server can't reach it behind its Service",
		"the evaluator is starting, overloaded or broken",
	},
}

// judge tells of what kind an answer's status is, and what to look at.
func judge(res *http.Response, s said) (Kind, string) {
	code := res.StatusCode
	switch {
	case code >= 300 && code < 400:
		return Redirected, "the answer is a redirect" + destination(res) + ", which is not followed because it would pass the credential on; " +
			"check for a login page in front of the evaluator, and for a missing route prefix"
	case s.ErrorType == "timeout" || s.ErrorType == "canceled" || s.ErrorType == "execution":
		return Rejected, "the evaluator gave up on the query"
	}
	verdict, known := verdicts[min(code, http.StatusInternalServerError)]
	switch {
	case known && s.fromAPIServer():
		return verdict.kind, verdict.api
	case known:
		return verdict.kind, verdict.evaluator
	case code >= 400 && s.fromEvaluator():
		return Rejected, "the evaluator rejects the query"
	}
	return NotAnEvaluator, "the answer is not from the Prometheus API"
}

// destination is where a redirect leads, without what may be secret.
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

// clip bounds an untrusted text to limit bytes, with an ellipsis at its end, and takes
// out of it what would spoil a terminal.
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
	// What was cut within a character became spaces.
	end := min(limit-len(ellipsis), len(s))
	for end < len(s) && !utf8.RuneStart(s[end]) {
		end--
	}
	return strings.TrimRight(s[:end], " ") + ellipsis
}
