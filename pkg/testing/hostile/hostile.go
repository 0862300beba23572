// Package hostile makes an API server send malicious answers. They are faults of a faultproxy, so that all
// other answers are real. Answers are generated while they are sent, and never stored.
package hostile

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rulefleet/rulefleet/pkg/testing/faultproxy"
)

// mostSent bounds one answer, in bytes before compression, so that a failing test does not exhaust the
// machine.
const mostSent = 2 << 30

// block is the number of bytes written at a time.
const block = 64 << 10

// Lie writes a malicious answer.
type Lie func(w http.ResponseWriter, r *http.Request)

// Liar replaces some answers with a lie, and counts them.
type Liar struct {
	// About selects the requests.
	About func(r *http.Request) bool
	// Lie is the answer to them.
	Lie Lie

	told atomic.Int64
}

// Fault implements faultproxy.Fault.
func (l *Liar) Fault(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if !l.About(r) {
		next.ServeHTTP(w, r)
		return
	}
	l.told.Add(1)
	l.Lie(w, r)
}

// Told returns the number of lies sent.
func (l *Liar) Told() int64 { return l.told.Load() }

var _ faultproxy.Fault = (&Liar{}).Fault

// Path selects all requests whose path has this suffix, except watches.
func Path(suffix string) func(*http.Request) bool {
	return func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, suffix) && !watches(r) }
}

// List selects lists of a resource. Watches of it get 410 (Gone), so that clients list.
func List(resource string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, "/"+resource) && r.Method == http.MethodGet && !watches(r)
	}
}

// Watch selects watches of a resource.
func Watch(resource string) func(*http.Request) bool {
	return func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/"+resource) && watches(r) }
}

// Write selects writes of a resource with a method.
func Write(method, resource string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		return r.Method == method && strings.Contains(r.URL.Path+"/", "/"+resource+"/")
	}
}

// Behind selects requests with this path suffix to servers behind the API server.
func Behind(suffix string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		return strings.Contains(r.URL.Path, "/proxy/") && strings.HasSuffix(r.URL.Path, suffix)
	}
}

// All selects all requests except those to servers behind the API server.
func All(r *http.Request) bool { return !strings.Contains(r.URL.Path, "/proxy/") }

func watches(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

// Endless begins like a real answer and never ends.
func Endless(begin, again string) Lie { return endless(http.StatusOK, begin, again) }

// EndlessRefusal is an error answer with an endless message.
func EndlessRefusal(code int) Lie { return endless(code, `{"kind":"Status","message":"`, "x") }

// EndlessText is an object with an endless string.
var EndlessText = Endless(`{"kind":"List","metadata":{"annotations":{"a":"`, "x")

func endless(code int, begin, again string) Lie {
	return func(w http.ResponseWriter, r *http.Request) {
		head(w, code)
		out := bounded(w, r)
		_, _ = io.WriteString(out, begin)
		repeat(out, again, 0)
	}
}

// Compressed compresses what a lie sends.
func Compressed(lie Lie) Lie {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			panic(fmt.Sprintf("a level of gzip is wrong: %v", err))
		}
		defer func() { _ = z.Close() }()
		lie(&compressed{ResponseWriter: w, to: z}, r)
	}
}

// compressed is an answer that is compressed.
type compressed struct {
	http.ResponseWriter
	to *gzip.Writer
}

// Write implements io.Writer.
func (c *compressed) Write(p []byte) (int, error) {
	return c.to.Write(p) //nolint:wrapcheck // a writer is transparent
}

// Million is a list of a million objects in one answer, whatever the limit.
func Million(w http.ResponseWriter, r *http.Request) {
	head(w, http.StatusOK)
	out := bounded(w, r)
	_, _ = io.WriteString(out, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[`)
	for i := range 1_000_000 {
		if i > 0 {
			_, _ = io.WriteString(out, ",")
		}
		if _, err := fmt.Fprintf(out, `{"metadata":{"name":"o-%d","namespace":"default","uid":"u-%d","resourceVersion":"1"}}`, i, i); err != nil {
			return
		}
	}
	_, _ = io.WriteString(out, "]}")
}

// Full is a list of this many objects of a kind with this many bytes of labels each, all different, in pages of the requested
// size. Nobody has alerts for them.
func Full(apiVersion, kind string, objects, labels int) Lie {
	return func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		from, _ := strconv.Atoi(query.Get("continue"))
		limit, _ := strconv.Atoi(query.Get("limit"))
		to := min(objects, from+max(1, limit))
		next := ""
		if to < objects {
			next = strconv.Itoa(to)
		}
		head(w, http.StatusOK)
		out := bounded(w, r)
		_, _ = fmt.Fprintf(out, `{"kind":"%sList","apiVersion":"%s","metadata":{"resourceVersion":"1","continue":"%s"},"items":[`, kind, apiVersion, next)
		for i := from; i < to; i++ {
			if i > from {
				_, _ = io.WriteString(out, ",")
			}
			_, _ = fmt.Fprintf(out, `{"kind":"%s","apiVersion":"%s","metadata":{"name":"o-%d","namespace":"default","uid":"u-%d","resourceVersion":"1","annotations":{"rulefleet.io/alerts":"disabled"},"labels":{`,
				kind, apiVersion, i, i)
			for at := 0; at < labels; at += block / 256 {
				_, _ = fmt.Fprintf(out, `"%s%d-%d":"",`, strings.Repeat("k", block/256-16), i, at)
			}
			if _, err := io.WriteString(out, `"a":"b"}}}`); err != nil {
				return
			}
		}
		_, _ = io.WriteString(out, "]}")
	}
}

// GiantEvent is a watch whose first event has 1 GiB.
func GiantEvent(w http.ResponseWriter, r *http.Request) {
	head(w, http.StatusOK)
	out := bounded(w, r)
	_, _ = io.WriteString(out, `{"type":"ADDED","object":{"metadata":{"name":"a","annotations":{"a":"`)
	repeat(out, "x", 1<<30)
	_, _ = io.WriteString(out, `"}}}}`)
}

// Flood is a watch with this many events per second, each of which changes a label of the same object. size is that of
// an annotation.
func Flood(perSecond, size int) Lie {
	padding := strings.Repeat("x", size)
	return func(w http.ResponseWriter, r *http.Request) {
		head(w, http.StatusOK)
		out := bounded(w, r)
		const beats = 20 // a second
		beat := time.NewTicker(time.Second / beats)
		defer beat.Stop()
		for i := 0; ; {
			var events bytes.Buffer
			for range perSecond / beats {
				i++
				fmt.Fprintf(&events, `{"type":"MODIFIED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",`+
					`"metadata":{"name":"flood","namespace":"default","uid":"flood","resourceVersion":"%d","labels":{"n":"%d"},"annotations":{"a":"%s"}}}}`+"\n", 1_000_000+i, i, padding)
			}
			if _, err := out.Write(events.Bytes()); err != nil || flush(w) != nil {
				return
			}
			select {
			case <-r.Context().Done():
				return
			case <-beat.C:
			}
		}
	}
}

// LongVersions is a watch whose events are deletions of objects that nobody knows, with versions of almost 4 MiB, or of
// almost 2 MiB if they are PrometheusRules.
func LongVersions(w http.ResponseWriter, r *http.Request) {
	head(w, http.StatusOK)
	out := bounded(w, r)
	for i := 0; ; i++ {
		kind, size := `"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"`, int64(4<<20)
		if strings.HasSuffix(r.URL.Path, "/prometheusrules") {
			kind, size = `"kind":"PrometheusRule","apiVersion":"monitoring.coreos.com/v1"`, 2<<20
		}
		_, _ = fmt.Fprintf(out, `{"type":"DELETED","object":{%s,"metadata":{"name":"a-%d","namespace":"default","uid":"a","resourceVersion":"`, kind, i)
		repeat(out, "1", size-block)
		if _, err := io.WriteString(out, `"}}}`+"\n"); err != nil || flush(w) != nil {
			return
		}
	}
}

// Drip sends one byte per second of an answer that is never complete.
func Drip(w http.ResponseWriter, r *http.Request) {
	const begin = `{"metadata":{"annotations":{"a":"`
	head(w, http.StatusOK)
	for i := range len(begin) {
		if _, err := io.WriteString(w, begin[i:i+1]); err != nil || flush(w) != nil || faultproxy.Hold(r.Context(), time.Second) != nil {
			return
		}
	}
	trickle(r.Context(), w, "x", time.Second)
}

// Prefix is the valid beginning of a list, object after object, as long as it is read.
func Prefix(every time.Duration) Lie {
	return Trickle(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[{}`, `,{"metadata":{"name":"a","namespace":"default"}}`, every)
}

// Trickle begins like a real answer and then repeats a text at an interval, as long as it is read.
func Trickle(begin, again string, every time.Duration) Lie {
	return func(w http.ResponseWriter, r *http.Request) {
		head(w, http.StatusOK)
		if _, err := io.WriteString(w, begin); err != nil || flush(w) != nil {
			return
		}
		trickle(r.Context(), w, again, every)
	}
}

func trickle(ctx context.Context, w http.ResponseWriter, text string, every time.Duration) {
	for faultproxy.Hold(ctx, every) == nil {
		if _, err := io.WriteString(w, text); err != nil || flush(w) != nil {
			return
		}
	}
}

// Deep is JSON with a million levels.
func Deep(w http.ResponseWriter, r *http.Request) {
	head(w, http.StatusOK)
	out := bounded(w, r)
	for range 1_000_000 / 1000 {
		if _, err := io.WriteString(out, strings.Repeat(`{"a":`, 1000)); err != nil {
			return
		}
	}
	_, _ = io.WriteString(out, "1"+strings.Repeat("}", 1_000_000))
}

// Dense is a list or an object with an endless number of empty objects. begin is the part before them.
func Dense(begin string) Lie { return Endless(begin+"{}", ",{}") }

// Sparse is JSON with a number of empty objects between two parts.
func Sparse(begin string, n int, end string) Lie {
	return func(w http.ResponseWriter, r *http.Request) {
		head(w, http.StatusOK)
		_, _ = io.WriteString(bounded(w, r), begin+strings.Repeat("{},", max(0, n-1))+"{}"+end)
	}
}

// As gives the answer of a lie another Content-Type.
func As(contentType string, lie Lie) Lie {
	return func(w http.ResponseWriter, r *http.Request) {
		lie(&faultproxy.Headed{ResponseWriter: w, Change: func(h http.Header) { h.Set("Content-Type", contentType) }}, r)
	}
}

// Aliases is a YAML document that a decoder expands to a billion strings.
func Aliases(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = io.WriteString(w, "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := range 9 {
		alias := fmt.Sprintf("*a%d", i)
		_, _ = fmt.Fprintf(w, "a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(alias+",", 10), ","))
	}
}

// EndlessHeader never ends its header. It needs HTTP/1.1.
func EndlessHeader(w http.ResponseWriter, r *http.Request) {
	hijack(w, r, "HTTP/1.1 200 OK\r\n", "X-Header: "+strings.Repeat("x", 1000)+"\r\n")
}

// LongHeader has a header of about 1 MB. The server holds it, so a longer one would take the memory of a test.
func LongHeader(w http.ResponseWriter, _ *http.Request) {
	value := strings.Repeat("x", 1000)
	for i := range 1000 {
		w.Header().Set(fmt.Sprintf("X-Header-%d", i), value)
	}
}

// Switched is the status 101 (Switching Protocols), and an endless body after it. It needs HTTP/1.1.
func Switched(w http.ResponseWriter, r *http.Request) {
	hijack(w, r, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", "x")
}

// hijack writes a text and then another one repeatedly to the connection.
func hijack(w http.ResponseWriter, r *http.Request, begin, again string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(fmt.Sprintf("the lie needs HTTP/1.1: %v", err))
	}
	defer func() { _ = conn.Close() }()
	out := &bound{to: conn, ctx: context.WithoutCancel(r.Context()), left: mostSent}
	_, _ = io.WriteString(out, begin)
	repeat(out, again, 0)
}

// TooOld answers watches with 410 (Gone), and everything else with a lie.
func TooOld(lie Lie) Lie {
	return func(w http.ResponseWriter, r *http.Request) {
		if watches(r) {
			head(w, http.StatusGone)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old"}`)
			return
		}
		lie(w, r)
	}
}

func head(w http.ResponseWriter, code int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
}

func flush(w http.ResponseWriter) error {
	return http.NewResponseController(w).Flush() //nolint:wrapcheck // it ends the lie
}

// repeat writes a text repeatedly, up to a number of bytes; 0 means endlessly.
func repeat(w io.Writer, text string, most int64) {
	part := []byte(strings.Repeat(text, max(1, block/len(text))))
	for sent := int64(0); most == 0 || sent < most; sent += int64(len(part)) {
		if _, err := w.Write(part); err != nil {
			return
		}
	}
}

// bounded returns a writer to an answer that fails above mostSent, or when the client is gone.
func bounded(w io.Writer, r *http.Request) io.Writer {
	return &bound{to: w, ctx: r.Context(), left: mostSent}
}

type bound struct {
	to   io.Writer
	ctx  context.Context
	left int64
}

// Write implements io.Writer.
func (b *bound) Write(p []byte) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, io.ErrShortWrite
	}
	if err := b.ctx.Err(); err != nil {
		return 0, err //nolint:wrapcheck // it ends the lie
	}
	return b.to.Write(p) //nolint:wrapcheck // a writer is transparent
}
