package spoke

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
)

// Every answer of an API server has bounds that depend on the request, and ends when it exceeds one.
func TestAnswersAreBounded(t *testing.T) {
	const (
		memory   = 48 << 20
		object   = memory / 24
		decoded  = memory / 12
		metadata = memory / 4
		page     = memory / 3
	)
	deep := strings.Repeat("[", keptNesting+1) + strings.Repeat("]", keptNesting+1)
	inside := strings.NewReplacer("[]", `[[{"a":"]]]"},[1,"\"]"]]]`)
	// unused has lists that nobody uses, and what looks like them.
	const unused = `{"metadata":{"ownerReferences":[],"managedFields" : [] ,"name":"managedFields","a":[1],"labels":{"ownerReferences":"[1]"},"b":["managedFields",[2]],"xownerReferences":[3],"owner\References":[4]}}` + "\n"
	for name, tc := range map[string]struct {
		query  string
		method string // "" is GET
		path   string
		code   int  // 0 is 200
		page   bool // of a list
		aside  bool
		// metadata means that only the metadata is requested.
		metadata bool
		// partial means that the caller can do without an object.
		partial bool
		body    io.Reader
		value   int64 // that passes the bound; 0 when none does
		unit    string
		quiet   bool   // nobody is told
		read    string // "" is all of the body
	}{
		"a version":                        {path: "/version", body: strings.NewReader(`{"gitVersion":"v1"}`)},
		"a version without an end":         {path: "/version", body: endless("a"), value: maxVersionAnswer, unit: "bytes"},
		"behind a path":                    {path: "/k8s/clusters/c/version", body: endless("a"), value: maxVersionAnswer, unit: "bytes"},
		"an object":                        {path: "/api/v1/namespaces/a", body: strings.NewReader(`{"a":"` + strings.Repeat("x", object-10) + `"}`)},
		"an object without an end":         {path: "/api/v1/namespaces/a", body: endless("a"), value: object, unit: "bytes"},
		"metadata without an end":          {path: "/apis/apps/v1/namespaces/a/deployments/a", metadata: true, body: endless(" "), value: decoded, unit: "bytes"},
		"metadata that is decoded":         {path: "/apis/apps/v1/namespaces/a/deployments/a", metadata: true, body: io.MultiReader(strings.NewReader(`{"a":"`), endless("a")), value: decoded, unit: "bytes"},
		"metadata without owners":          {path: "/apis/apps/v1/deployments", metadata: true, query: "watch=true", body: strings.NewReader(inside.Replace(unused)), read: unused},
		"metadata, byte by byte":           {path: "/apis/apps/v1/namespaces/a/deployments/a", metadata: true, body: iotest.OneByteReader(strings.NewReader(inside.Replace(unused))), read: unused},
		"owners of an object":              {path: "/apis/m/prometheusrules", query: "watch=true", body: strings.NewReader(inside.Replace(unused))},
		"an event of metadata, endless":    {path: "/apis/apps/v1/deployments", metadata: true, query: "watch=true", body: io.MultiReader(strings.NewReader(`{"a":"`), endless("a")), value: decoded, unit: "bytes"},
		"an event of owners, endless":      {path: "/apis/apps/v1/deployments", metadata: true, query: "watch=true", body: io.MultiReader(strings.NewReader(`{"metadata":{"ownerReferences":[`), endless(`"a"`)), value: metadata, unit: "bytes"},
		"a review without an end":          {method: http.MethodPost, path: "/apis/x/reviews", body: endless(" "), value: object, unit: "bytes"},
		"one object of a list":             {path: "/api/v1/namespaces", query: "limit=1", body: endless(" "), value: object, unit: "bytes"},
		"a page without an end":            {path: "/api/v1/namespaces", query: "limit=250", page: true, body: endless(" "), value: page, unit: "bytes", quiet: true},
		"a page of one without an end":     {path: "/api/v1/namespaces", query: "limit=1", page: true, body: endless(" "), value: page, unit: "bytes", quiet: true},
		"a page of too many":               {path: "/api/v1/namespaces", query: "limit=250", page: true, body: io.MultiReader(strings.NewReader(`{"items":[`), endless(`{},`)), value: DefaultMaxObjects, unit: "objects", quiet: true},
		"a page of too many that are none": {path: "/api/v1/namespaces", query: "limit=250", page: true, body: io.MultiReader(strings.NewReader(`{"items":[`), endless(`0,`)), value: DefaultMaxObjects, unit: "objects", quiet: true},
		"a page of too many values":        {path: "/api/v1/namespaces", query: "limit=250", page: true, body: io.MultiReader(strings.NewReader(`{"items":[{"metadata":{"managedFields":[`), endless(`{},`)), value: maxPageValues, unit: "JSON values", quiet: true},
		"a dense evaluator":                {path: "/apis/x/prometheuses", query: "limit=1", partial: true, body: io.MultiReader(strings.NewReader(`{"items":[{"spec":{"tolerations":[`), endless(`{},`)), value: maxShortValues, unit: "JSON values", quiet: true},
		"a long evaluator":                 {path: "/apis/x/prometheuses", query: "limit=1", partial: true, body: endless("x"), value: object, unit: "bytes"},
		"a short list of too many":         {path: "/apis/m/prometheuses", query: "limit=200", body: io.MultiReader(strings.NewReader(`{"items":[`), endless(`{},`)), value: maxShort, unit: "objects"},
		"too many values":                  {path: "/api/v1/namespaces/a", body: io.MultiReader(strings.NewReader(`{"a":[`), endless(`{},`)), value: maxValues, unit: "JSON values"},
		"deep":                             {path: "/api/v1/namespaces/a", body: strings.NewReader(deep)},
		"too deep":                         {path: "/api/v1/namespaces/a", body: strings.NewReader(inside.Replace(deep)), read: deep},
		"too deep, in an event":            {path: "/api/v1/namespaces", query: "watch=true", body: strings.NewReader(inside.Replace(deep) + "\n{}"), read: deep + "\n{}"},
		"too deep, byte by byte":           {path: "/api/v1/namespaces/a", body: iotest.OneByteReader(strings.NewReader(inside.Replace(deep))), read: deep},
		"too deep, behind the API server":  {path: "/api/v1/namespaces/a/services/x/proxy/api/v1/rules", aside: true, body: strings.NewReader(inside.Replace(deep))},
		"deep without an end":              {path: "/api/v1/namespaces/a", body: endless(`{"a":`), value: maxNesting, unit: "levels of JSON"},
		"no levels in a text":              {path: "/api/v1/namespaces/a", body: strings.NewReader(`{"a":"\"` + strings.Repeat(`[{\\`, 1000) + `"}`)},
		"a refusal":                        {path: "/version", code: 403, body: strings.NewReader(strings.Repeat("x", maxRefusal))},
		"a refusal without an end":         {path: "/version", code: 500, body: endless("<"), value: maxRefusal, unit: "bytes"},
		"a write that is refused":          {method: http.MethodPut, path: "/apis/x/y", code: 422, body: endless("a"), value: maxRefusal, unit: "bytes", quiet: true},
		"a watch that is refused":          {path: "/api/v1/namespaces", query: "watch=true", code: 410, body: endless("a"), value: maxRefusal, unit: "bytes"},
		"an event without an end":          {path: "/api/v1/namespaces", query: "watch=true", body: io.MultiReader(strings.NewReader(`{"a":"`), endless("a")), value: object, unit: "bytes"},
		"no event at all":                  {path: "/api/v1/namespaces", query: "watch=true", body: endless("\n"), value: object, unit: "bytes"},
		"an event that is deep":            {path: "/api/v1/namespaces", query: "watch=true", body: endless("["), value: maxNesting, unit: "levels of JSON"},
		"behind the API server":            {path: "/api/v1/namespaces/a/services/x/proxy/api/v1/rules", aside: true, body: endless("["), value: maxBehind, unit: "bytes", quiet: true},
	} {
		t.Run(name, func(t *testing.T) {
			var told *TooLargeError
			next := metered{tell: func(e *TooLargeError) { told = e }, next: roundTrip(func(req *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: max(tc.code, 200), Header: http.Header{"Content-Type": {"application/yaml"}}, Body: io.NopCloser(tc.body), Request: req}, nil
			})}
			req := get(t.Context(), t, "https://spoke"+tc.path+"?"+tc.query)
			if tc.method != "" {
				req.Method = tc.method
			}
			if tc.page {
				req = req.WithContext(context.WithValue(req.Context(), inflowKey{}, &inflow{}))
			}
			if tc.metadata {
				req.Header.Set("Accept", acceptMetadata)
			}
			if tc.partial {
				req = req.WithContext(context.WithValue(req.Context(), partialKey{}, true))
			}
			if tc.aside {
				req = req.WithContext(aside(req.Context()))
			}
			resp, err := next.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			want := "application/json"
			switch {
			case tc.aside:
				want = "application/yaml" // nobody decodes it by its type
			case tc.code >= 400:
				want = "text/plain"
			}
			if got := resp.Header.Get("Content-Type"); got != want {
				t.Errorf("it is read as %s, want %s", got, want)
			}
			read := &strings.Builder{}
			_, err = io.Copy(read, resp.Body)
			excess := tooLarge(err)
			if tc.value == 0 {
				if err != nil || told != nil || tc.read != "" && read.String() != tc.read {
					t.Errorf("got %v after %d bytes, told %v: %s", err, read.Len(), told, read)
				}
				return
			}
			if excess == nil || excess.Bound != tc.value || excess.Value <= tc.value || excess.Value > tc.value+(1<<20)+100 || excess.Unit != tc.unit {
				t.Fatalf("got %v (%+v)", err, excess)
			}
			if tc.unit == "objects" && excess.Value > tc.value+17_000 { // the rest of a read of 32 KiB
				t.Errorf("%d objects were read, and the limit is %d", excess.Value, tc.value)
			}
			if part := tc.page && tc.query == "limit=250" || tc.partial && tc.quiet; excess.part != part {
				t.Errorf("fewer can be asked for: %v", excess.part)
			}
			if (told == nil) != tc.quiet {
				t.Errorf("told %v", told)
			}
			if _, again := resp.Body.Read(make([]byte, 10)); !errors.Is(again, errTooLarge) {
				t.Errorf("it goes on: %v", again)
			}
		})
	}
}

// acceptMetadata is what client-go sends for metadata.
const acceptMetadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// No Deployment that etcd accepts ends a session: anyone who can write Deployments in the spoke could end it. etcd has
// them in a format that is much shorter than JSON.
func TestLargeDeploymentsEndNoSession(t *testing.T) {
	const etcd = 3 << 19 // bytes of a request
	const levels = 9_999 // and one more is what decoders accept
	owners := make([]metav1.OwnerReference, 88_000)
	for i := range owners { // their UIDs differ, or the API server drops them
		owners[i] = metav1.OwnerReference{APIVersion: "v1", Kind: "a", Name: "a", UID: types.UID(strconv.FormatInt(int64(i), 36))}
	}
	for name, meta := range map[string]metav1.ObjectMeta{
		"a text that is escaped": {OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "A", Name: strings.Repeat("<", etcd-200), UID: "a"}}},
		"many owners":            {OwnerReferences: owners},
		"nested managedFields": {ManagedFields: []metav1.ManagedFieldsEntry{{
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(strings.Repeat(`{"f:a":`, levels) + "{}" + strings.Repeat("}", levels)),
		}}},
		"wide managedFields": {ManagedFields: []metav1.ManagedFieldsEntry{{
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:":{}` + strings.Repeat(`,"f:":{}`, etcd/8-20) + "}"),
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			meta.Namespace, meta.Name = "shop", "web"
			if size := (&appsv1.Deployment{ObjectMeta: meta}).Size(); size > etcd {
				t.Fatalf("etcd does not accept its %d bytes", size)
			}
			object, err := json.Marshal(&metav1.PartialObjectMetadata{ObjectMeta: meta})
			if err != nil {
				t.Fatal(err)
			}
			for what, tc := range map[string]struct {
				query, body string
				page        bool
			}{
				"a read":  {"", string(object), false},
				"a page":  {"limit=1", `{"items":[` + string(object) + `]}`, true},
				"a watch": {"watch=true", `{"type":"MODIFIED","object":` + string(object) + `}`, false},
			} {
				next := metered{together: newTogether(Limits{}), tell: func(e *TooLargeError) { t.Errorf("%s: the session ends: %v", what, e) }, next: roundTrip(func(req *http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(tc.body)), Request: req}, nil
				})}
				req := get(t.Context(), t, "https://spoke/apis/apps/v1/deployments?"+tc.query)
				req.Header.Set("Accept", acceptMetadata)
				if tc.page {
					req = req.WithContext(context.WithValue(req.Context(), inflowKey{}, &inflow{}))
				}
				resp, err := next.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				read, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Errorf("%s of %d bytes ends after %d: %v", what, len(tc.body), len(read), err)
				}
				if err := utiljson.Unmarshal(read, new(any)); err != nil {
					t.Errorf("%s can't be decoded: %v", what, err)
				}
				_ = resp.Body.Close()
			}
		})
	}
}

// endless repeats a text without an end.
func endless(text string) io.Reader {
	block := []byte(strings.Repeat(text, max(1, 32<<10/len(text))))
	var rest []byte
	return readerFunc(func(p []byte) (int, error) {
		if len(rest) == 0 {
			rest = block
		}
		n := copy(p, rest)
		rest = rest[n:]
		return n, nil
	})
}

// Counting takes the same time for malicious input.
func TestMeterIsLinear(t *testing.T) {
	for name, text := range map[string]string{
		"plain":            `{"a":"b"}`,
		"escapes":          `\`,
		"quotes":           `"`,
		"escaped quotes":   `\"`,
		"an endless text":  `x`,
		"escapes, far off": strings.Repeat("x", 510) + `\`,
	} {
		t.Run(name, func(t *testing.T) {
			data := []byte(`"` + strings.Repeat(text, (4<<20)/len(text)))
			m := &meter{}
			began := time.Now()
			for rest := data; len(rest) > 0; {
				n, _, _, _ := m.add(rest)
				rest = rest[n:]
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("4 MiB took %v", took)
			}
		})
	}
}

// Compressed answers are counted as they are read, over HTTP/2 and HTTP/1.1.
func TestCompressedAnswersAreBounded(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			t.Error("it does not ask for gzip")
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		for zeros := make([]byte, 1<<20); r.Context().Err() == nil; {
			if _, err := z.Write(zeros); err != nil {
				return
			}
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	for name, ask := range map[string]struct {
		do    func(*connection) error
		bound int64
	}{
		"version":  {func(c *connection) error { return c.probe(t.Context()) }, maxVersionAnswer},
		"identity": {func(c *connection) error { _, err := c.readIdentity(t.Context()); return err }, DefaultMaxMemory / 24},
		"review":   {func(c *connection) error { _, err := c.review(t.Context(), nil); return err }, DefaultMaxMemory / 24},
	} {
		t.Run(name, func(t *testing.T) {
			c := connectWith(t, server, goodUser)
			defer c.disconnect()
			err := ask.do(c)
			if excess := tooLarge(err); excess == nil || excess.Bound != ask.bound || excess.Unit != "bytes" {
				t.Errorf("got %v", err)
			}
			if found := c.excess.err(); !errors.Is(found, errTooLarge) {
				t.Errorf("the connection knows of %v", found)
			}
			if f := disconnected(fmt.Errorf("asking: %w", err)); f.Reason != "TooLarge" || f.Status != metav1.ConditionFalse || !strings.Contains(f.Message, "the limit is") {
				t.Errorf("it is shown as %+v", f)
			}
		})
	}
}

// A refusal is decoded only if it is JSON. In YAML, references would make it thousands of times as large.
func TestRefusalsAreJSONOrText(t *testing.T) {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"not now","reason":"Forbidden","code":403}`
	yaml := "kind: Status\napiVersion: v1\nstatus: Failure\nreason: Forbidden\ncode: 403\nmessage: &a not now\n"
	for name, tc := range map[string]struct {
		contentType, body string
		decoded           bool
	}{
		"JSON":               {contentType: "application/json", body: status, decoded: true},
		"JSON in UTF-8":      {contentType: "application/json; charset=utf-8", body: status, decoded: true},
		"YAML":               {contentType: "application/yaml", body: yaml},
		"YAML with a suffix": {contentType: "Application/YAML; charset=utf-8", body: yaml},
		"protobuf":           {contentType: "application/vnd.kubernetes.protobuf", body: "k8s\x00"},
		"a proxy's page":     {contentType: "text/html", body: "<html>no entry</html>"},
		"no type":            {body: yaml},
		"a broken type":      {contentType: ";;;", body: yaml},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = []string{tc.contentType}
				w.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(w, tc.body)
			}))
			defer server.Close()
			cfg := &rest.Config{Host: server.URL, WrapTransport: func(next http.RoundTripper) http.RoundTripper { return metered{next: next} }}
			c, err := newHTTPClient(cfg, true)
			if err != nil {
				t.Fatal(err)
			}
			probes, err := newRESTClient(cfg, c)
			if err != nil {
				t.Fatal(err)
			}
			err = probes.Get().AbsPath("/version").Do(t.Context()).Error()
			var refusal apierrors.APIStatus
			if !errors.As(err, &refusal) || refusal.Status().Code != http.StatusForbidden {
				t.Fatalf("got %v", err)
			}
			if got := refusal.Status().Message == "not now"; got != tc.decoded {
				t.Errorf("it is read as %+v", refusal.Status())
			}
		})
	}
}

// An answer that would hand over the connection is refused, and its body is closed.
func TestProtocolsAreNotSwitched(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn) // until the client closes it
		_ = conn.Close()
	}))
	defer server.Close()     // it waits for the connections
	own := &http.Transport{} // the end of any httptest.Server closes the idle connections of http.DefaultTransport
	t.Cleanup(own.CloseIdleConnections)
	for name, sender := range map[string]http.RoundTripper{
		"an API server":           metered{next: paced{own}},
		"an evaluator behind it":  asker{next: metered{next: paced{own}}, link: &atomic.Int64{}},
		"an evaluator of its own": asker{next: paced{own}, link: &atomic.Int64{}},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := sender.RoundTrip(get(t.Context(), t, server.URL)) //nolint:bodyclose // there is none
			if !errors.Is(err, errSwitched) {
				t.Errorf("got %v, %v", resp, err)
			}
		})
	}
}

// Headers are bounded on each connection.
func TestHeadersAreBounded(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := range 2000 {
			w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 100))
		}
	}))
	defer server.Close()
	cfg := &rest.Config{Host: server.URL}
	look, err := newLookout(cfg)
	if err != nil {
		t.Fatal(err)
	}
	other, err := newHTTPClient(cfg, true)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy, dial, err := kubeconfig.Allowance{Loopback: true}.Route("url", u)
	if err != nil {
		t.Fatal(err)
	}
	for name, sender := range map[string]http.RoundTripper{
		"the probe's": look.http.Transport, "the others'": other.Transport, "an evaluator's": direct(proxy, dial),
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := sender.RoundTrip(get(t.Context(), t, server.URL))
			if err == nil {
				_ = resp.Body.Close()
				t.Fatal("it is read")
			}
			if !strings.Contains(err.Error(), "header") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// An API server is asked only for JSON.
func TestAnswersAreJSON(t *testing.T) {
	for accept, want := range map[string]string{
		"":                 "",
		"application/json": "application/json",
		"application/vnd.kubernetes.protobuf,application/json":                                         "application/json",
		"application/vnd.kubernetes.protobuf;as=Table,application/json;as=Table;v=v1,application/yaml": "application/json;as=Table;v=v1",
		"application/vnd.kubernetes.protobuf":                                                          "application/json",
		"application/json, */*":                                                                        "application/json, */*",
	} {
		t.Run(accept, func(t *testing.T) {
			req := get(t.Context(), t, "https://spoke/version")
			if accept != "" {
				req.Header.Set("Accept", accept)
			}
			if got := asJSON(req).Header.Get("Accept"); got != want {
				t.Errorf("got %q", got)
			}
			if req.Header.Get("Accept") != accept {
				t.Error("the request was changed")
			}
		})
	}
}

// A watch ends if one of its events does not complete. A quiet watch continues.
func TestEventsWithoutAnEnd(t *testing.T) {
	const event = `{"type":"ADDED","object":{}}`
	for name, tc := range map[string]struct {
		code  int
		sends func(i int) string // in each second
		late  bool
		shown bool // that an event takes long
	}{
		"quiet":               {200, func(int) string { return "" }, false, false},
		"whole events":        {200, func(int) string { return event }, false, false},
		"slow events":         {200, func(i int) string { return string(event[i%len(event)]) }, true, false}, // 28 s for each
		"always within one":   {200, func(i int) string { return event[i%9+1:] + event[:(i+1)%9+1] }, false, false},
		"one without an end":  {200, func(int) string { return "[" }, true, false},
		"a large one":         {200, func(int) string { return "[" + strings.Repeat(" ", 2*leastRate) }, false, true},
		"a refusal, in drips": {403, func(int) string { return " " }, true, false},
		"a large refusal":     {403, func(int) string { return strings.Repeat(" ", 2*leastRate) }, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w := io.Pipe()
				var told error
				ps := &paces{}
				next := metered{paces: ps, tell: func(e *TooLargeError) { told = e }, next: roundTrip(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: tc.code, Header: http.Header{}, Body: r}, nil
				})}
				resp, err := next.RoundTrip(get(t.Context(), t, "https://spoke/api/v1/namespaces?watch=true"))
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = w.Close() }()
					if name == "always within one" {
						_, _ = io.WriteString(w, event[:1])
					}
					for i := range 120 {
						time.Sleep(time.Second) //nolint:forbidigo // of the bubble's clock
						if _, err := io.WriteString(w, tc.sends(i)); err != nil {
							return
						}
					}
				}()
				began := time.Now()
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				took := time.Since(began)
				<-done
				if late := errors.Is(err, errTooLarge); late != tc.late || (told != nil) != tc.late {
					t.Errorf("after %v: %v, told %v", took, err, told)
				}
				if tc.late && took > eventTime+5*time.Second {
					t.Errorf("it took %v", took)
				}
				if shown := ps.late(time.Now()); strings.Contains(shown, "namespaces arrive late, because one of them is so large") != tc.shown {
					t.Errorf("it is shown that %q", shown)
				}
			})
		})
	}
}

// The time of an event does not end the next one, which begins at the same moment.
func TestOverdueBeginsAnew(t *testing.T) {
	o := newOverdue("an event", io.NopCloser(strings.NewReader("")), func(e *TooLargeError) { t.Errorf("it ends: %v", e) })
	o.start()
	o.stop()
	o.start()
	o.fire() // of the first time
	o.stop()
	if err := o.why(io.EOF); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}

// An event that nobody reads any more, because the session has ended, does not end the next session.
func TestOverdueEndsWithTheSession(t *testing.T) {
	for _, over := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			told := false
			next := metered{tell: func(*TooLargeError) { told = true }, next: roundTrip(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(`{"type":`))}, nil
			})}
			ctx, end := context.WithCancel(t.Context())
			defer end()
			resp, err := next.RoundTrip(get(ctx, t, "https://spoke/api/v1/namespaces?watch=true"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := resp.Body.Read(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			if over {
				end()
			}
			time.Sleep(eventTime) //nolint:forbidigo // of the bubble's clock
			synctest.Wait()
			if told == over {
				t.Errorf("the session has ended: %v; the event ends it: %v", over, told)
			}
			_ = resp.Body.Close()
		})
	}
}

// A page gets its share of the memory for all pages while others need the rest; a slow page delays no other.
func TestShares(t *testing.T) {
	b := &pageBudget{most: 1000}
	slow := b.join()
	if err := slow.take(600); err != nil {
		t.Fatalf("alone: %v", err)
	}
	other := b.join()
	if err := other.take(500); err != nil {
		t.Errorf("an equal share is refused: %v", err)
	}
	if err := slow.take(1); !errors.Is(err, errBusy) {
		t.Errorf("beyond its share: %v", err)
	}
	slow.end()
	if err := other.take(500); err != nil {
		t.Errorf("alone again: %v", err)
	}
	other.end()
	if b.total != 0 || b.active != 0 {
		t.Errorf("left: %d bytes of %d", b.total, b.active)
	}
	var none *pageBudget
	none.join().end()
}

// The pages of a spoke have a budget of their own within that of all spokes.
func TestSharesOfASpoke(t *testing.T) {
	fleet := &pageBudget{most: 1000}
	spoke, another := &pageBudget{most: 500, within: fleet}, &pageBudget{most: 900, within: fleet}
	first, second, other := spoke.join(), spoke.join(), another.join()
	for _, err := range []error{first.take(400), other.take(590), second.take(10)} {
		if err != nil {
			t.Errorf("within all budgets: %v", err)
		}
	}
	if err := first.take(100); !errors.Is(err, errBusy) {
		t.Errorf("beyond the share of the spoke's budget: %v", err)
	}
	if err := other.take(1); !errors.Is(err, errBusy) {
		t.Errorf("beyond the share of the fleet's budget: %v", err)
	}
	for _, s := range []*share{first, second, other} {
		s.end()
	}
	if spoke.total != 0 || fleet.total != 0 || fleet.active != 0 {
		t.Errorf("left: %d and %d bytes of %d", spoke.total, fleet.total, fleet.active)
	}
}

// Of a spoke, one large page is decoded at a time, also beside events. Small ones do not wait.
func TestLargePagesTakeTurns(t *testing.T) {
	for name, tc := range map[string]struct {
		size  int
		waits bool
		most  time.Duration // that it waits
	}{"large": {largeEvent, true, 0}, "small": {1000, false, 0}, "the first is not decoded": {largeEvent, true, pageTurn}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &connection{p: NewProvider(Options{})}
				bounds := c.listBounds(nil)
				read := func() (*share, <-chan error) {
					page := &inflow{share: bounds.page(&reading{}, "")}
					body := answerOf(context.WithValue(t.Context(), inflowKey{}, page), t, nil, `{"a":"`+strings.Repeat("x", tc.size)+`"}`)
					done := make(chan error, 1)
					go func() {
						_, err := io.Copy(io.Discard, body)
						_ = body.Close()
						done <- err
					}()
					synctest.Wait()
					return page.share, done
				}
				first, done := read()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				second, done := read()
				if waits := len(done) == 0; waits != tc.waits {
					t.Errorf("the second waits: %v", waits)
				}
				began := time.Now()
				if tc.most == 0 {
					first.end()
				}
				if err := <-done; err != nil || time.Since(began) != tc.most {
					t.Errorf("got %v after %v", err, time.Since(began))
				}
				first.end()
				second.end()
				if len(c.paces.turn.parts) > 0 {
					t.Error("a turn is left")
				}
			})
		})
	}
}
