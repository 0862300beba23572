package simulated

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// bookmarkEvery is the time between two bookmarks, and bookmarkBefore is how long before the end of a watch its last
	// bookmark is sent, as by kube-apiserver.
	bookmarkEvery, bookmarkBefore = time.Minute, 2 * time.Second
	// defaultTimeout is how long a watch without a timeout lasts.
	defaultTimeout = 45 * time.Minute
)

// watchOptions are the options of a watch that are simulated.
type watchOptions struct {
	// from is the version after which events are sent.
	from int64
	// initial sends all objects first, and then a bookmark.
	initial   bool
	bookmarks bool
	timeout   time.Duration
}

// watchOptionsOf reads a query. It returns false for one that is not simulated.
func watchOptionsOf(query url.Values) (o watchOptions, ok bool) {
	if !only(query, "watch", "allowWatchBookmarks", "resourceVersion", "resourceVersionMatch", "sendInitialEvents", "timeout", "timeoutSeconds") {
		return o, false
	}
	o.timeout, o.bookmarks = defaultTimeout, query.Get("allowWatchBookmarks") == "true"
	if text := query.Get("timeoutSeconds"); text != "" {
		seconds, err := strconv.Atoi(text)
		if err != nil {
			return o, false
		}
		o.timeout = time.Duration(seconds) * time.Second
	}
	if o.initial = query.Get("sendInitialEvents") == "true"; o.initial {
		return o, o.bookmarks && query.Get("resourceVersion") == "" && query.Get("resourceVersionMatch") == "NotOlderThan"
	}
	var err error
	o.from, err = strconv.ParseInt(query.Get("resourceVersion"), 10, 64)
	return o, err == nil && o.from > 0 && query.Get("resourceVersionMatch") == ""
}

// stream is a watch that is served.
type stream struct {
	w     http.ResponseWriter
	spoke *Spoke
	of    resource
	form  int
	// at is the version up to which events were sent.
	at int64
}

func (s *Spoke) watch(w http.ResponseWriter, r *http.Request, of resource, query url.Values) bool {
	o, ok := watchOptionsOf(query)
	form := formOf(r, false)
	if !ok || form == 0 || (form == whole) != (of == prometheusRules) || of > prometheusRules {
		return false
	}
	s.server.watches.Add(1)
	s.server.open.Add(1)
	defer s.server.open.Add(-1)
	w.Header().Set("Content-Type", jsonType)
	x := &stream{w: w, spoke: s, of: of, form: form, at: o.from}
	if o.initial {
		x.initial()
	}
	end := time.NewTimer(o.timeout)
	defer end.Stop()
	mark := time.NewTimer(nextBookmark(o.timeout))
	defer mark.Stop()
	for began := time.Now(); ; {
		news, open := x.pass()
		if !open {
			return true
		}
		select {
		case <-news:
		case <-mark.C:
			if o.bookmarks {
				x.bookmark(nil)
			}
			mark.Reset(nextBookmark(o.timeout - time.Since(began)))
		case <-end.C:
			return true
		case <-r.Context().Done():
			return true
		case <-s.server.closing:
			return true
		}
	}
}

// nextBookmark returns the time until a bookmark is due, for a watch of which so much time is left.
func nextBookmark(left time.Duration) time.Duration {
	if before := left - bookmarkBefore; before > 0 {
		return min(before, bookmarkEvery)
	}
	return bookmarkEvery
}

// initial sends all objects and the bookmark that ends them.
func (x *stream) initial() {
	x.spoke.mu.Lock()
	objects := x.spoke.kinds[x.of].objects
	x.at = x.spoke.version
	x.spoke.mu.Unlock()
	for _, o := range objects {
		x.send("ADDED", o.encode(x.of, x.form))
	}
	x.mark(x.at, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
}

// pass sends the events since the last ones. It returns the channel that is closed when more follow, and false when the
// watch is over.
func (x *stream) pass() (news <-chan struct{}, open bool) {
	x.spoke.mu.Lock()
	k := x.spoke.kinds[x.of]
	news = k.news
	dropped := k.dropped
	i, _ := slices.BinarySearchFunc(k.events, x.at+1, func(e event, version int64) int { return int(e.object.version - version) })
	events := k.events[i:]
	x.spoke.mu.Unlock()
	if x.at < dropped {
		x.send("ERROR", encoded(tooOld(x.at, dropped)))
		return nil, false
	}
	for _, e := range events {
		x.send(e.kind, e.object.encode(x.of, x.form))
		x.at = e.object.version
	}
	return news, http.NewResponseController(x.w).Flush() == nil
}

// bookmark sends the present version.
func (x *stream) bookmark(annotations map[string]string) {
	x.spoke.mu.Lock()
	k, version := x.spoke.kinds[x.of], x.spoke.version
	last := x.at
	if n := len(k.events); n > 0 {
		last = k.events[n-1].object.version
	}
	x.spoke.mu.Unlock()
	if last > x.at {
		version = x.at // there are events to send before
	}
	x.mark(version, annotations)
}

func (x *stream) mark(version int64, annotations map[string]string) {
	o := metav1.PartialObjectMetadata{TypeMeta: typeOf(x.of, x.form)}
	o.ResourceVersion, o.Annotations = strconv.FormatInt(version, 10), annotations
	x.send("BOOKMARK", encoded(o))
}

func (x *stream) send(kind string, object []byte) {
	// A client that has ended is noticed when the events are flushed.
	_, _ = x.w.Write(encoded(struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}{kind, object}))
}
