package spoke

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/continuity"
	"github.com/rulefleet/rulefleet/pkg/lean"
)

const (
	// firstPage, leastPage and mostPage are numbers of objects in a page of a list. For uncompressed answers the
	// first page is the smallest one. Otherwise it is just large enough to be compressed, because a smaller page
	// would take more bytes.
	firstPage, leastPage, mostPage = 100, 25, 500
	// pageTime is the target duration of a page. Other requests wait behind it, and kube-apiserver ends an
	// answer that takes a minute.
	pageTime = 5 * time.Second
	// compressedFrom is slightly more than the size from which kube-apiserver compresses a page, in bytes.
	// Smaller pages would take more bytes.
	compressedFrom = 160 << 10
	// progressShown is the interval at which the progress of first lists is shown. Each time is a write to the
	// hub.
	progressShown = 10 * time.Second
	// syncTimeout is how long the first list of a kind may make no progress.
	syncTimeout = time.Minute
	// refusedTimeout is how long the spoke may refuse the first list of a kind, for which the account has the permission.
	// A permission that was just granted takes moments to reach all API servers of the spoke.
	refusedTimeout = 10 * time.Second
)

// errEmptyPage ends a list that would never end. No API server sends such a page.
var errEmptyPage = errors.New("the spoke returned an empty page that is not the last one")

// readings are the lists that fill the cache of a session, by kind.
type readings struct {
	mu    sync.Mutex
	kinds map[schema.GroupVersionKind]*reading
	last  *reading // the one that began last
	// bounds are those of all lists.
	bounds *listBounds
}

func newReadings() *readings { return &readings{kinds: map[schema.GroupVersionKind]*reading{}} }

// informer creates an informer that lists in pages, trims each page, and whose watches a guard checks.
func (rs *readings) informer(c *connection, g *continuity.Guard, trim func(runtime.Object) error) newInformerFunc {
	return func(lw toolscache.ListerWatcher, o runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		a := &earlyWatch{inner: asInformer(lw), trim: trim, bounds: rs.bounds}
		guarded := g.ListerWatcher(a.listWatch(), o)
		gvk, err := apiutil.GVKForObject(o, Scheme)
		if err != nil {
			return newInformer(guarded, o, resync, indexers) // a kind that is not read from spokes
		}
		r := newReading(gvk.Kind, guarded, trim, c.received, c.cfg.DisableCompression)
		r.early, r.expired = a, func() bool { return g.Expired(gvk.Kind) }
		r.bounds = rs.bounds
		rs.mu.Lock()
		rs.kinds[gvk], rs.last = r, r
		rs.mu.Unlock()
		return newInformer(r.pages(), o, resync, indexers)
	}
}

// of returns the reading of a kind, or nil if its informer does not exist yet.
func (rs *readings) of(gvk schema.GroupVersionKind) *reading {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.kinds[gvk]
}

// forget drops a kind whose informer has ended.
func (rs *readings) forget(gvk schema.GroupVersionKind) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.last == rs.kinds[gvk] {
		rs.last = nil
	}
	delete(rs.kinds, gvk)
	rs.bounds.forget(gvk.Kind)
}

// progress returns the progress of the latest list, or "".
func (rs *readings) progress() string {
	rs.mu.Lock()
	r := rs.last
	rs.mu.Unlock()
	if r == nil {
		return ""
	}
	return r.progress()
}

// again returns a message about a kind whose repeated list takes long, or "".
func (rs *readings) again() string {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.kinds {
		if kind := r.lasts(progressShown); kind != "" {
			return fmt.Sprintf("%ss are being listed again: %s", kind, whyAgain)
		}
	}
	return ""
}

// whyAgain is the reason why a list starts again.
const whyAgain = "the resourceVersion has expired (410 Gone), because the list took too long or the watch was interrupted. If this repeats, look for a proxy that ends long requests"

// reading lists a kind in pages. It retries a page that fails without listing the earlier pages again.
// A list that is streamed as events would be uncompressed, ten times the bytes, and would start from the beginning
// whenever the stream breaks.
type reading struct {
	kind  string
	inner toolscache.ListerWatcherWithContext
	// trim drops the fields that are not cached. The informer would do so only at the end of the list.
	trim func(runtime.Object) error
	link *atomic.Int64
	// early opens the watch of a long list, and expired means that the last watch was too late; nil for lists
	// without a watch.
	early   *earlyWatch
	expired func() bool
	// bounds are those of the session's lists. kept is the size of the present list so far.
	bounds *listBounds
	kept   amount

	mu    sync.Mutex
	limit int64 // of the next page
	// began is when the list began; zero if no list is being read. again means that the previous list could not
	// be used, because its version had expired.
	began   time.Time
	again   bool
	ended   chan struct{} // closed when the list ends
	objects int
	from    int64 // of link, when the list began
	// most is the largest number of objects that a list reached, and moved is when it did, or when the first
	// list began. A complete list resets both.
	most  int
	moved time.Time
	page  *inflow // in flight
	// slow is why a list was given up, and failed is the error of the last page that failed. unusable is the error of
	// that page if it is not that of an API server.
	slow, failed, unusable error
	// refused is since when the spoke refuses each list at its first page; zero if it does not.
	refused time.Time
}

// newReading returns a reading of a kind. link counts the bytes received, and plain means that answers are not
// compressed.
func newReading(kind string, inner toolscache.ListerWatcherWithContext, trim func(runtime.Object) error, link *atomic.Int64, plain bool) *reading {
	r := &reading{kind: kind, inner: inner, trim: trim, link: link, limit: firstPage}
	if plain {
		r.limit = leastPage
	}
	return r
}

// pages returns the ListerWatcher of an informer.
func (r *reading) pages() toolscache.ListerWatcher {
	return lean.Unstreamed(&toolscache.ListWatch{ListWithContextFunc: r.list, WatchFuncWithContext: r.inner.WatchWithContext})
}

// list reads all pages.
func (r *reading) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	r.begin()
	list, err := lean.Paged(ctx, options, r.read)
	r.end(err)
	return list, err
}

func (r *reading) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objects, r.from, r.began, r.ended = 0, r.link.Load(), time.Now(), make(chan struct{})
	r.again = r.again || (r.expired != nil && r.expired())
	if r.moved.IsZero() {
		r.moved = r.began
	}
}

func (r *reading) end(err error) {
	r.bounds.ended(r)
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.ended)
	r.began = time.Time{}
	switch {
	case r.objects > 0 || !refuses(err) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		r.refused = time.Time{}
	case r.refused.IsZero(): // the first of them
		r.refused = time.Now()
	}
	if err == nil {
		r.most, r.moved, r.slow, r.failed, r.unusable, r.again = 0, time.Time{}, nil, nil, nil, false
		return
	}
	r.again = r.again || apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
	if slow, ok := errors.AsType[*slowError](err); ok {
		r.slow = slow
	}
	if r.early != nil {
		r.early.drop()
	}
}

// lasts returns the kind if its list started again and has taken longer than d.
func (r *reading) lasts(d time.Duration) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.again || r.began.IsZero() || time.Since(r.began) < d {
		return ""
	}
	return r.kind
}

// read reads one page, with retries while they are useful.
func (r *reading) read(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 100, Cap: 10 * time.Second}
	for expired := false; ; {
		list, err := r.try(ctx, options)
		if err == nil {
			return list, nil
		}
		if r.smaller(err) {
			continue
		}
		next, again := r.retry(options, err)
		if ctx.Err() != nil || !again {
			return nil, err
		}
		if next != options.Continue {
			options.Continue = next
			if !expired { // retries at once, but only once
				expired = true
				continue
			}
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(backoff.Step()):
		}
	}
}

// try requests a page once.
func (r *reading) try(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	page := &inflow{window: stallWindow, link: r.link, since: time.Now(), share: r.bounds.page(r, options.Continue)}
	defer page.share.end()
	r.mu.Lock()
	options.Limit, r.page = r.limit, page
	r.mu.Unlock()
	began := time.Now()
	list, err := r.inner.ListWithContext(context.WithValue(ctx, inflowKey{}, page), options)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.page = nil
	if err != nil {
		if page.body.Load() > 0 { // it was too large for the link or for memory
			r.limit = max(r.limit/2, leastPage)
		}
		r.failed, r.unusable = err, nil
		if page.unusable() {
			r.unusable = err
		}
		return nil, err //nolint:wrapcheck // its caller knows client-go's
	}
	r.refused = time.Time{}
	n := 0
	err = meta.EachListItem(list, func(o runtime.Object) error {
		n++
		err := r.trim(o)
		r.kept.add(o)
		return err
	})
	if r.objects += n; err == nil {
		err = r.bounds.fits(r, list)
	}
	l, bad := meta.ListAccessor(list)
	if err == nil && bad == nil {
		err = tokenFits(r.kind, l.GetContinue())
	}
	switch {
	case err != nil || bad != nil || l.GetContinue() == "":
	case n == 0:
		err = fmt.Errorf("listing %ss: %w", r.kind, errEmptyPage)
	case options.Continue == "" && r.early != nil:
		go r.early.open(ctx, l.GetResourceVersion(), r.ended)
	}
	if r.objects > r.most {
		r.most, r.moved = r.objects, time.Now()
	}
	r.limit = nextPage(r.limit, n, page.body.Load(), page.compressed.Load(), time.Since(began))
	return list, err
}

// maxToken bounds the token for the next page of a list, which is sent back in the address of a request.
const maxToken = 8 << 10

// tokenFits returns a TooLargeError for a token that no API server sends.
func tokenFits(kind, token string) error {
	if len(token) <= maxToken {
		return nil
	}
	return &TooLargeError{What: "the continue token of a list of " + kind + "s", Value: int64(len(token)), Bound: maxToken, Unit: "bytes"}
}

// nextPage returns the number of objects of the next page, from the size and duration of the last one.
func nextPage(limit int64, objects int, bytes int64, compressed bool, took time.Duration) int64 {
	if objects == 0 || bytes == 0 {
		return limit
	}
	next := min(int64(float64(limit)*pageTime.Seconds()/max(took, time.Millisecond).Seconds()), 2*limit)
	if compressed {
		next = max(next, 1+compressedFrom*int64(objects)/bytes)
	}
	return min(max(next, min(leastPage, 2*limit)), mostPage) // pages of large objects grow slowly
}

// retry reports whether to request a page again, and from which token.
func (r *reading) retry(options metav1.ListOptions, err error) (from string, again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var status apierrors.APIStatus
	_, slow := errors.AsType[*slowError](err)
	switch {
	case options.Continue == "", slow, errors.Is(err, errTooLarge), errors.Is(err, errEmptyPage), time.Since(r.moved) > syncTimeout:
		return "", false // the informer starts again, or is given up
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		// etcd was compacted. The rest of the list is newer than its beginning. The watch starts at the beginning,
		// so it reports the changes, or it fails and the list is read again.
		if errors.As(err, &status) {
			from = status.Status().Continue
		}
		if tokenFits(r.kind, from) != nil {
			from = ""
		}
		return from, from != "" && from != options.Continue
	case errors.As(err, &status):
		code := status.Status().Code
		return options.Continue, code == 429 || code >= 500
	}
	return options.Continue, true
}

// progress describes the progress of the list and the bytes received.
func (r *reading) progress() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	received := float64(r.link.Load()-r.from) / 1e6
	text := message.NewPrinter(language.English).Sprintf("listing %ss: %d so far, %.1f MB", r.kind, r.objects, received)
	if r.again {
		text += "; the list started again: " + whyAgain
	}
	return text
}

// lost returns why the list makes no progress, or nil.
func (r *reading) lost() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.page == nil && !r.refused.IsZero() && time.Since(r.refused) > refusedTimeout {
		return r.failed
	}
	sent := r.page != nil && r.page.began.Load() // a slow answer ends by itself
	if r.slow == nil && !sent && !r.moved.IsZero() && time.Since(r.moved) > syncTimeout {
		return &stalledError{last: r.failed}
	}
	return r.slow
}

// stalledError says that a first list makes no progress, although its pages are requested again.
type stalledError struct {
	// last is the error of the last page; it may be nil.
	last error
}

// Error implements error.
func (e *stalledError) Error() string {
	text := "no progress for " + syncTimeout.String()
	if e.last != nil {
		text += ": " + e.last.Error()
	}
	return text
}

// Is makes it a timeout.
func (e *stalledError) Is(target error) bool { return target == context.DeadlineExceeded }

// Unwrap returns the error of the last page.
func (e *stalledError) Unwrap() error { return e.last }

// bound returns a context that ends when the first list of a kind makes no progress.
func (rs *readings) bound(ctx context.Context, gvk schema.GroupVersionKind) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go wait.UntilWithContext(ctx, func(context.Context) {
		if r := rs.of(gvk); r != nil {
			if err := r.lost(); err != nil {
				cancel(err)
			}
		}
	}, paceBeat)
	return ctx, func() { cancel(nil) }
}

// tellProgress shows the progress of a spoke that is connecting until ctx ends, while data arrive.
func (c *connection) tellProgress(ctx context.Context) {
	beat := time.NewTicker(progressShown)
	defer beat.Stop()
	was := c.received.Load()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		}
		received := c.received.Load()
		// Without data, the status is about to show that the spoke does not answer.
		if message := c.reads.progress(); message != "" && received-was >= int64(leastRate*progressShown/time.Second) {
			c.p.connecting(c, Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonConnecting, Message: message})
		}
		was = received
	}
}
