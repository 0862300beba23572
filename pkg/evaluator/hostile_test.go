package evaluator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rulefleet/rulefleet/pkg/testing/memory"
)

// realAnswer returns an answer of Prometheus 3.14 with rules of all states.
func realAnswer(tb testing.TB) []byte {
	tb.Helper()
	data, err := os.ReadFile("testdata/rules.json")
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// answering returns a client of a server that acts as an evaluator.
func answering(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &Client{Base: base}
}

// bodyOf answers everything with a body.
type bodyOf struct{ body io.Reader }

func (b bodyOf) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{Request: r, StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(b.body)}, nil
}

func clientOf(body io.Reader) *Client {
	return &Client{HTTP: &http.Client{Transport: bodyOf{body}}, Base: &url.URL{Scheme: "http", Host: "evaluator"}}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	const (
		kubernetes = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":"x","code":%d}`
		html       = "<!doctype html>\n<html><title>Sign in</title></html>"
	)
	for name, c := range map[string]struct {
		code        int
		contentType string
		body        string
		kind        Kind
		says        string
	}{
		"unauthorized, by the API server": {401, "application/json", fmt.Sprintf(kubernetes, "Unauthorized", 401), Unauthorized, "API server rejects"},
		"unauthorized":                    {401, "text/plain", "Unauthorized\n", Unauthorized, "requires a credential (HTTP 401): Unauthorized"},
		"forbidden, by the API server":    {403, "application/json", fmt.Sprintf(kubernetes, `services "prometheus-operated:web" is forbidden: no`, 403), Forbidden, `permission denied: Rulefleet's account in the spoke needs "get" on services/proxy for the queried Service (HTTP 403): services "prometheus-operated:web" is forbidden: no`},
		"forbidden":                       {403, "text/html", html, Forbidden, "denies access (HTTP 403): an HTML page"},
		"not found, by the API server":    {404, "application/json", fmt.Sprintf(kubernetes, `services "x" not found`, 404), NotFound, "no such Service"},
		"not found":                       {404, "text/plain", "404 page not found\n", NotFound, "route prefix"},
		"no endpoints":                    {503, "application/json", fmt.Sprintf(kubernetes, `no endpoints available for service "x"`, 503), Unavailable, "can't reach the pods"},
		"starting":                        {503, "text/plain", "Service Unavailable", Unavailable, "starting"},
		"a bad gateway":                   {502, "text/html", html, Unavailable, "an HTML page"},
		"too many requests":               {429, "text/plain", "slow down", Throttled, "the API server, or a proxy on the way, answers 'too many requests' (HTTP 429): slow down"},
		"a timeout of a query":            {503, "application/json", `{"status":"error","errorType":"timeout","error":"query timed out"}`, Rejected, "the query was canceled or failed (HTTP 503): timeout: query timed out"},
		"refused":                         {400, "application/json", `{"status":"error","errorType":"bad_data","error":"no"}`, Rejected, "rejects the query (HTTP 400): bad_data: no"},
		"refused, by something else":      {400, "text/plain", "no", NotAnEvaluator, "(HTTP 400): no"},
		"created":                         {201, "application/json", string(realAnswer(t)), NotAnEvaluator, "(HTTP 201)"},
		"a terminal is not spoiled":       {500, "text/plain", "\x1b[31ma\nb\u202e\xff" + strings.Repeat("€", 1000), Unavailable, "a b  "},
		"an error that is a success":      {200, "application/json", `{"status":"error","errorType":"internal","error":"no"}`, Rejected, "internal: no"},
		"a page for logging in":           {200, "text/html; charset=utf-8", html, NotAnEvaluator, "an HTML page; check for a login page"},
		"a page that says it is JSON":     {200, "application/json", html, NotAnEvaluator, "an HTML page; check for a login page"},
		"nothing":                         {200, "application/json", "", NotAnEvaluator, "ends too early"},
		"null":                            {200, "application/json", "null", NotAnEvaluator, "lacks a status"},
		"an array":                        {200, "application/json", "[]", NotAnEvaluator, "expected a {"},
		"an object":                       {200, "application/json", "{}", NotAnEvaluator, "lacks a status or data"},
		"no data":                         {200, "application/json", `{"status":"success"}`, NotAnEvaluator, "lacks a status or data"},
		"no groups":                       {200, "application/json", `{"status":"success","data":{}}`, NotAnEvaluator, "no groups"},
		"no status":                       {200, "application/json", `{"data":{"groups":[]}}`, NotAnEvaluator, "lacks a status"},
		"another status":                  {200, "application/json", `{"status":"Failure","data":{"groups":[]}}`, NotAnEvaluator, "lacks a status"},
		"groups that are none":            {200, "application/json", `{"status":"success","data":{"groups":{}}}`, NotAnEvaluator, "expected a ["},
		"a name that is none":             {200, "application/json", `{"status":"success","data":{"groups":[{"name":1}]}}`, NotAnEvaluator, "cannot unmarshal number"},
		"more after the end":              {200, "application/json", `{"status":"success","data":{"groups":[]}}{}`, NotAnEvaluator, "followed by more data"},
		"garbage after the end":           {200, "application/json", `{"status":"success","data":{"groups":[]}}x`, NotAnEvaluator, "invalid character"},
		"a token that is too long":        {200, "application/json", `{"status":"success","data":{"groups":[],"groupNextToken":"` + strings.Repeat("x", 2000) + `"}}`, NotAnEvaluator, "token"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := answering(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.contentType)
				w.WriteHeader(c.code)
				_, _ = io.WriteString(w, c.body)
			})
			_, _, err := all(t.Context(), client, "")
			checkError(t, name, err, c.kind, c.code, c.says)
			if bad := (*Error)(nil); errors.As(err, &bad) && bad.FromAPIServer != strings.HasPrefix(c.body, `{"kind":"Status"`) {
				t.Errorf("from the API server: %t", bad.FromAPIServer)
			}
		})
	}
}

// TestRedirects checks that neither a credential nor a cookie follows a redirect, whatever the caller's client
// would do.
func TestRedirects(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s was asked for, with %v", r.URL, r.Header)
	}))
	t.Cleanup(elsewhere.Close)
	for _, code := range []int{301, 302, 303, 307, 308} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			client := answering(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Cookie") != "" {
					t.Error("a cookie was kept")
				}
				http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
				http.Redirect(w, r, elsewhere.URL+"/login?state=secret", code)
			})
			jar, err := cookiejar.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			client.HTTP = &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return nil }}
			for range 2 {
				_, _, err := all(t.Context(), client, "")
				checkError(t, "a redirect", err, Redirected, code, elsewhere.URL+"/login,")
				if strings.Contains(err.Error(), "secret") {
					t.Error(err)
				}
			}
			if client.HTTP.Jar == nil || client.HTTP.CheckRedirect == nil {
				t.Error("the caller's client is changed")
			}
		})
	}
}

// TestOlderAnswers has answers of Prometheus 2 without pages or types, and with fields in any order.
func TestOlderAnswers(t *testing.T) {
	t.Parallel()
	asked := 0
	client := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = io.WriteString(w, `{"data":{"unknown":[{"a":[1,{}]},null,"x"],"groups":[
			{"interval":30,"rules":[
				{"alerts":[{"state":"firing","activeAt":"x"},{"state":"pending"},{"state":"odd"},null,{}],"name":"A","query":"up == 0","duration":300,"type":"alerting"},
				{"type":"recording","name":"R"},
				{"name":"untyped"},
				null,
				{"health":"unheard of","lastEvaluation":"yesterday","duration":-5,"keepFiringFor":1e300,"labels":null,"annotations":{},"alerts":null,"name":"B","type":"alerting","lastError":"a\nb"}
			],"file":"f","name":"g"},
			null, {}, {"name":"empty","rules":[]},
			{"interval":1,"rules":[{"name":"again","type":"alerting"}],"file":"f","name":"g"}
		]},"warnings":["some"],"status":"success"}`)
	})
	found, stats, err := all(t.Context(), client, "")
	if got := slices.Sorted(maps.Keys(found)); err != nil || !slices.Equal(got, []string{"A", "B"}) || asked != 1 {
		t.Fatalf("%v, %v after %d requests", got, err, asked)
	}
	if stats.Groups != 1 || stats.Rules != 2 {
		t.Errorf("%+v", stats)
	}
	if a := found["A"]; a.Firing != 1 || a.Pending != 1 || a.For != 5*time.Minute || a.Interval != 30*time.Second || a.File != "f" || a.Group != "g" || a.Health != HealthUnknown {
		t.Errorf("%+v", a)
	}
	if b := found["B"]; b.Health != HealthUnknown || !b.LastEvaluation.IsZero() || b.For != 0 || b.KeepFiringFor <= 0 || b.LastError != "a b" {
		t.Errorf("%+v", b)
	}
}

// TestAnswersThatBreakOff checks that a partial answer never counts as complete.
func TestAnswersThatBreakOff(t *testing.T) {
	t.Parallel()
	body := bytes.TrimSpace(realAnswer(t))
	for n := range body {
		_, _, err := all(t.Context(), clientOf(bytes.NewReader(body[:n])), "")
		if bad := (*Error)(nil); !errors.As(err, &bad) || bad.Kind != NotAnEvaluator || !strings.Contains(bad.Message, "too early") {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	for n := range body {
		wrong := slices.Clone(body)
		wrong[n] = 0
		if _, _, err := all(t.Context(), clientOf(bytes.NewReader(wrong)), ""); err == nil {
			t.Fatalf("byte %d is wrong, and that is fine", n)
		}
	}
	client := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000000")
		_, _ = w.Write(body[:len(body)/2])
	})
	_, _, err := all(t.Context(), client, "")
	checkError(t, "a length that is a lie", err, Unreachable, 0, "ended early: unexpected EOF")
	client = answering(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(body)
		panic(http.ErrAbortHandler)
	})
	_, _, err = all(t.Context(), client, "")
	checkError(t, "a connection that breaks at the end", err, Unreachable, 0, "")
}

func TestSlowAnswers(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	client := answering(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"status":"success","data":{"groups":[`)
		w.(http.Flusher).Flush()
		select {
		case <-over:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(over) })
	client.Timeout = 100 * time.Millisecond
	_, _, err := all(t.Context(), client, "")
	checkError(t, "slow", err, Unreachable, 0, "did not answer in time")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestPagesWithoutEnd checks that endless pages, repeated or new, are not read forever.
func TestPagesWithoutEnd(t *testing.T) {
	t.Parallel()
	n := 0
	client := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		n++
		_, _ = fmt.Fprintf(w, `{"status":"success","data":{"groups":[{"name":"g","rules":[{"name":"A","type":"alerting"}]}],"groupNextToken":"%d"}}`, n%2)
	})
	client.MaxRequests = 20
	found, stats, err := all(t.Context(), client, "")
	checkError(t, "a circle", err, TooMuch, 0, "one poll: 21 requests; the limit is 20; reduce")
	if len(found) != 1 || stats.Requests != 20 || n != 20 {
		t.Errorf("%d rules, %d requests, %+v", len(found), n, stats)
	}
}

// TestPresentLies checks that unrequested series are ignored.
func TestPresentLies(t *testing.T) {
	t.Parallel()
	vector := func(series ...string) string {
		return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(series, ",") + `]}}`
	}
	const zero = `{"metric":{"i":"0"},"value":[1,"1"]}`
	for name, c := range map[string]struct {
		body string
		kind Kind
		want []Presence
	}{
		"the truth":         {vector(zero), "", []Presence{Present, Absent}},
		"twice":             {vector(zero, zero), "", []Presence{Present, Absent}},
		"another index":     {vector(`{"metric":{"i":"2"}}`), NotAnEvaluator, []Presence{Unknown, Unknown}},
		"an index and more": {vector(`{"metric":{"i":"0","a":"b"}}`), NotAnEvaluator, []Presence{Unknown, Unknown}},
		"no index":          {vector(`{"metric":{}}`), NotAnEvaluator, []Presence{Unknown, Unknown}},
		"a number":          {`{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}`, NotAnEvaluator, []Presence{Unknown, Unknown}},
		"no result":         {`{"status":"success","data":{"resultType":"vector"}}`, NotAnEvaluator, []Presence{Unknown, Unknown}},
		"a part": {
			`{"status":"success","warnings":["a store is down"],"data":{"resultType":"vector","result":[` + zero + `]}}`, Partial, []Presence{Present, Unknown},
		},
		"remarks": {
			`{"status":"success","infos":["be careful"],"warnings":[],"data":{"resultType":"vector","result":[]}}`, "", []Presence{Absent, Absent},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := clientOf(strings.NewReader(c.body)).Present(t.Context(), []string{"a", "b"})
			if !slices.Equal(got, c.want) {
				t.Errorf("%s: got %v, want %v", name, got, c.want)
			}
			if c.kind == "" && err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if c.kind != "" {
				checkError(t, name, err, c.kind, http.StatusOK, "")
			}
		})
	}
}

// endless is a body that repeats itself, in small pieces.
type endless struct {
	head, again string
	read        int64
}

func (e *endless) Read(p []byte) (int, error) {
	if e.head == "" {
		e.head = strings.Repeat(e.again, 1+pieceSize/len(e.again))
	}
	n := copy(p[:min(len(p), pieceSize)], e.head)
	e.head = e.head[n:]
	e.read += int64(n)
	return n, nil
}

const pieceSize = 64

// TestAnswersAreBounded checks that endless answers are read only up to a limit, with little memory and time.
func TestAnswersAreBounded(t *testing.T) {
	const (
		start  = `{"status":"success","data":{"groups":[`
		inRule = start + `{"name":"g","rules":[{"type":"alerting",`
	)
	for name, c := range map[string]struct {
		head, again string
		says        string
	}{
		"spaces":            {"", " ", " bytes; the limit is 1,048,576; check that the Service or the address leads to a Prometheus"},
		"spaces inside":     {start, " \n", " bytes; the limit is 1,048,576; check that the Service or the address leads to a Prometheus"},
		"a text":            {inRule + `"lastError":"`, "x", " bytes; the limit is 1,048,576; check that the Service or the address leads to a Prometheus"},
		"a field's name":    {inRule + `"`, "x", " bytes; the limit is 1,048,576; check that the Service or the address leads to a Prometheus"},
		"a number":          {inRule + `"duration":1`, "0", " bytes; the limit is 1,048,576; check that the Service or the address leads to a Prometheus"},
		"an unknown field":  {start + `{"x":"`, "x", " bytes; the limit is 1,048,576; check that the Service or the address leads to a Prometheus"},
		"depth":             {start + `{"x":`, "[", " levels of JSON; the limit is 256; check that the Service or the address leads to a Prometheus"},
		"depth of fields":   {start + `{"x":`, `{"x":`, " levels of JSON; the limit is 256; check that the Service or the address leads to a Prometheus"},
		"labels":            {inRule + `"labels":{"a":"b"`, `,"a":"b"`, " bytes; the limit is 1,048,576; check that the Service or the address leads to a Prometheus"},
		"alerts":            {inRule + `"alerts":[{}`, `,{"state":"firing","labels":{"a":"b"}}`, "the answer: 4,194,305 bytes; the limit is 4,194,304; reduce"},
		"rules":             {start + `{"name":"g","rules":[{"type":"alerting"}`, `,{"type":"alerting","query":"up"}`, " bytes; the limit is 8,388,608; split the group"},
		"records":           {start + `{"name":"g","rules":[{"type":"recording"}`, `,{"type":"recording"}`, "the answer: 50,001 rules; the limit is 50,000; reduce"},
		"groups":            {start + `{}`, `,{"name":"g","rules":[]}`, "the answer: 50,001 groups without rules; the limit is 50,000; reduce"},
		"unknown elements":  {`{"x":[1`, `,1`, " bytes; the limit is 1,048,576; check that the Service or the address leads to a Prometheus"},
		"warnings":          {`{"warnings":["x"`, `,"x"`, " bytes; the limit is 1,048,576; check that the Service or the address leads to a Prometheus"},
		"many pages' worth": {start + `{}`, `,{"rules":[{"type":"alerting","query":"` + strings.Repeat("x", 1<<16) + `"}]}`, "the answer: 4,194,305 bytes; the limit is 4,194,304; reduce"},
	} {
		t.Run(name, func(t *testing.T) {
			body := &endless{head: c.head, again: c.again}
			client := clientOf(body)
			client.MaxBytes = 4 << 20
			begin := time.Now()
			var err error
			const most = 10 << 20
			peak := memory.Peak(most, func() { _, err = client.Rules(t.Context(), Filter{}, func(*Rule) {}) })
			took := time.Since(begin)
			t.Logf("%s: %v, %d KiB at most, %d KiB read: %v", name, took.Round(time.Millisecond), peak>>10, body.read>>10, err)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
			if peak > most || took > 20*time.Second || body.read > client.MaxBytes+1 {
				t.Errorf("%s: %v, %d KiB at most, %d KiB read", name, took, peak>>10, body.read>>10)
			}
		})
	}
}

// TestMeterFills checks the size of reads: a decoder scans its buffer again for each piece.
func TestMeterFills(t *testing.T) {
	t.Parallel()
	left := int64(1 << 20)
	m := &meter{ctx: t.Context(), from: &endless{again: "x"}, left: &left, decoded: func() int64 { return 0 }}
	if n, err := m.Read(make([]byte, 100*pieceSize)); n != 100*pieceSize || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// FuzzRules checks that no answer causes a panic, that results are bounded, and that only JSON is accepted.
func FuzzRules(f *testing.F) {
	f.Add(realAnswer(f))
	for _, s := range []string{
		`{"status":"success","data":{"groups":[{"rules":[{"type":"alerting","lastError":"\u001b\ud800"}]}],"groupNextToken":"x"}}`,
		`{"status":"error","errorType":"bad_data","error":"x"}`, `{"warnings":[],"infos":null}`, "<html>", "[[[[", "\xff",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		client := clientOf(bytes.NewReader(body))
		client.MaxRequests, client.MaxRules, client.MaxBytes = 1, 10, 1<<16
		rules := 0
		stats, err := client.Rules(t.Context(), Filter{}, func(r *Rule) {
			rules++
			if clip(r.LastError, maxLastError) != r.LastError || r.For < 0 || r.KeepFiringFor < 0 || r.Interval < 0 ||
				!slices.Contains([]string{HealthOK, HealthErr, HealthUnknown}, r.Health) {
				t.Errorf("%+v", r)
			}
		})
		if rules > 10 || stats.Rules != rules || stats.Bytes > 1<<16+1 || stats.Requests != 1 {
			t.Errorf("%d rules, %+v", rules, stats)
		}
		if err == nil {
			if !json.Valid(body) {
				t.Error("it is no JSON")
			}
			return
		}
		if bad := (*Error)(nil); !errors.As(err, &bad) || len(bad.Message) > 1000 || bad.Kind == "" {
			t.Errorf("%#v", err)
		}
	})
}

// Groups without rules are bounded as well: they take time but no memory.
func TestGroupsWithoutAnEnd(t *testing.T) {
	t.Parallel()
	const group = `{"name":"a","file":"b","rules":[]},`
	for name, tc := range map[string]struct {
		groups int
		kind   Kind
	}{
		"as many as rules": {10, ""},
		"one more":         {11, TooMuch},
		"very many":        {1 << 20, TooMuch},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := clientOf(io.MultiReader(strings.NewReader(`{"status":"success","data":{"groups":[`),
				strings.NewReader(strings.TrimSuffix(strings.Repeat(group, tc.groups), ",")), strings.NewReader(`]}}`)))
			c.MaxRules = 10
			_, stats, err := all(t.Context(), c, "")
			if kindOf(err) != tc.kind || stats.Bytes > 1<<20 {
				t.Errorf("got %v after %d bytes", err, stats.Bytes)
			}
		})
	}
}

// An evaluator that does not know the filter by groups returns all rules with the first request.
func TestRulesWithoutFilter(t *testing.T) {
	t.Parallel()
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		_, _ = w.Write([]byte(`{"status":"success","data":{"groups":[
			{"name":"a","file":"x","rules":[{"type":"recording","name":"one","query":"1","health":"ok"}]},
			{"name":"other","file":"x","rules":[{"type":"alerting","name":"Two","query":"2","health":"ok"}]}]}}`))
	}))
	defer server.Close()
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	groups := make([]string, 300)
	for i := range groups {
		groups[i] = strings.Repeat("a", i)
	}
	var names []string
	_, err = (&Client{Base: base}).Rules(t.Context(), Filter{Groups: groups}, func(r *Rule) { names = append(names, r.Name) })
	if err != nil || requests != 1 || !slices.Equal(names, []string{"one", "Two"}) {
		t.Errorf("%d requests, %q, %v", requests, names, err)
	}
}
