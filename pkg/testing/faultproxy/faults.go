package faultproxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fault handles a request. next forwards it to the API server.
type Fault func(w http.ResponseWriter, r *http.Request, next http.Handler)

// Pass is the absence of a fault.
func Pass(w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(w, r) }

// chance is a random source with the same sequence in every run.
type chance struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

func newChance(seed uint64) *chance { return &chance{rnd: rand.New(rand.NewPCG(seed, seed))} }

func (c *chance) below(p float64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rnd.Float64() < p
}

// Reset resets the connections of a part of the requests (RST): half of those before they are forwarded, half
// after the API server has processed them.
func Reset(part float64, seed uint64) Fault {
	coin := newChance(seed)
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !coin.below(part) {
			next.ServeHTTP(w, r)
			return
		}
		if coin.below(0.5) && !isWatch(r) {
			next.ServeHTTP(nowhere{}, r)
		}
		if conn, ok := r.Context().Value(connKey{}).(net.Conn); ok {
			reset(conn)
		}
		panic(http.ErrAbortHandler)
	}
}

// nowhere discards an answer.
type nowhere struct{}

func (nowhere) Header() http.Header         { return http.Header{} }
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) WriteHeader(int)             {}
func (nowhere) FlushError() error           { return nil }

// TooManyRequests answers 429 with a Retry-After to all requests.
func TooManyRequests(retryAfter time.Duration) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
		answer(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "Too many requests, please try again later.")
	}
}

// Storm answers 500 to one half of the requests, and 503 to the other.
func Storm(seed uint64) Fault {
	coin := newChance(seed)
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		if coin.below(0.5) {
			answer(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the server is currently unable to handle the request")
			return
		}
		answer(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "Internal error occurred")
	}
}

// Latency delays every request.
func Latency(d time.Duration) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if Hold(r.Context(), d) == nil {
			next.ServeHTTP(w, r)
		}
	}
}

// Ahead makes the clock of the API server seem to be ahead, by the header Date of its answers.
func Ahead(by time.Duration) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		date := func(h http.Header) { h.Set("Date", time.Now().Add(by).UTC().Format(http.TimeFormat)) }
		next.ServeHTTP(&Headed{w, date}, r)
	}
}

// Headed is an answer whose header is changed before it is sent.
type Headed struct {
	http.ResponseWriter

	Change func(http.Header)
}

// WriteHeader implements http.ResponseWriter.
func (h *Headed) WriteHeader(code int) {
	h.Change(h.Header())
	h.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (h *Headed) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// Gone answers 410 to all watches, and to lists that begin at a version.
func Gone(w http.ResponseWriter, r *http.Request, next http.Handler) {
	version := r.URL.Query().Get("resourceVersion")
	if isWatch(r) || (isList(r) && version != "" && version != "0") || r.URL.Query().Get("continue") != "" {
		answer(w, http.StatusGone, metav1.StatusReasonExpired, "The resourceVersion for the provided watch is too old.")
		return
	}
	next.ServeHTTP(w, r)
}

// Truncated sends half of every answer as if it were complete.
func Truncated(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if isWatch(r) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"type":"ADDED","object":{"kind":`)
		return
	}
	rewrite(w, r, next, func(body []byte) []byte { return body[:len(body)/2] })
}

// EmptyLists answers every list with 200 and no objects. Watches are refused, so that clients list; those that
// would begin with a list are refused as by a server without support for them. Reads of single objects are not
// affected.
func EmptyLists(w http.ResponseWriter, r *http.Request, next http.Handler) {
	switch {
	case isWatch(r) && r.URL.Query().Get("sendInitialEvents") == "true":
		answer(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch")
	case isWatch(r):
		answer(w, http.StatusGone, metav1.StatusReasonExpired, "The resourceVersion for the provided watch is too old.")
	case isList(r):
		rewrite(w, r, next, withoutItems)
	default:
		next.ServeHTTP(w, r)
	}
}

func withoutItems(body []byte) []byte {
	var list map[string]json.RawMessage
	if err := json.Unmarshal(body, &list); err != nil || list["items"] == nil {
		return body
	}
	list["items"] = json.RawMessage("[]")
	out, err := json.Marshal(list)
	if err != nil {
		return body
	}
	return out
}

// Trickle sends the answers to lists of more than one object at this rate. Other requests are not affected.
func Trickle(bytesPerSecond int) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !isList(r) || r.URL.Query().Get("limit") == "1" {
			next.ServeHTTP(w, r)
			return
		}
		kept := &keeper{header: http.Header{}, code: http.StatusOK}
		next.ServeHTTP(kept, r)
		maps.Copy(w.Header(), kept.header)
		w.WriteHeader(kept.code)
		for part := range slices.Chunk(kept.body.Bytes(), bytesPerSecond) {
			if _, err := w.Write(part); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			if Hold(r.Context(), time.Second) != nil {
				return
			}
		}
	}
}

// rewrite forwards a request for JSON, and changes the body of the answer.
func rewrite(w http.ResponseWriter, r *http.Request, next http.Handler, change func([]byte) []byte) {
	askForJSON(r)
	kept := &keeper{header: http.Header{}, code: http.StatusOK}
	next.ServeHTTP(kept, r)
	body := change(kept.body.Bytes())
	maps.Copy(w.Header(), kept.header)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(kept.code)
	_, _ = w.Write(body)
}

// keeper records an answer.
type keeper struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (k *keeper) Header() http.Header         { return k.header }
func (k *keeper) Write(b []byte) (int, error) { return k.body.Write(b) }
func (k *keeper) WriteHeader(code int)        { k.code = code }
func (k *keeper) FlushError() error           { return nil }

// answer is an error answer of an API server.
func answer(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
	if err != nil {
		panic(fmt.Sprintf("a status can't be written: %v", err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}
