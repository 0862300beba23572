package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/rulefleet/rulefleet/pkg/continuity"
	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/lean"
)

const (
	// dialTimeout limits the attempt to connect to a hub that may be down. TCP alone would retry less
	// and less often, and notice late that the hub is back.
	dialTimeout = 3 * time.Second
	// keepAlive is the time between two probes of a connection. It is client-go's default.
	keepAlive = 30 * time.Second
	// answerTimeout limits a request of such an attempt.
	answerTimeout = 5 * time.Second
	// firstRetry and lastRetry are the shortest and the longest time between two attempts to reach the
	// hub.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// finalError is an error that does not disappear by waiting.
type finalError struct{ error }

// Unwrap returns the wrapped error, for errors.Is.
func (e finalError) Unwrap() error { return e.error }

// awaitHub prepares the hub, and retries as long as it fails, because a process that exits is
// restarted with growing delays. In the meantime the process is live, but not ready. An error about an
// object that is missing on the hub, and that a user has to create, is returned.
func awaitHub(ctx context.Context, o *options, log logr.Logger, prepare func(context.Context) (*corev1.ConfigMap, error)) (*corev1.ConfigMap, error) {
	state, err := prepare(ctx)
	if err == nil || errors.As(err, new(finalError)) {
		return state, err
	}
	stop, listening := serveWaiting(ctx, o.healthAddress)
	if listening != nil {
		return nil, listening
	}
	defer stop()
	backoff := retries(o.intervals)
	for said := ""; err != nil && !errors.As(err, new(finalError)); state, err = prepare(ctx) {
		if why := localPort.ReplaceAllString(err.Error(), ""); why != said {
			said = why
			log.Error(err, "cannot prepare the hub; trying again. If the error says forbidden, correct the ClusterRole of the manager")
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the hub: %w", err)
		case <-time.After(backoff.Step()):
		}
	}
	return state, err
}

func retries(scale interval.Scale) *wait.Backoff {
	return &wait.Backoff{Duration: scale.Of(firstRetry), Factor: 2, Steps: 100, Cap: scale.Of(lastRetry)}
}

// localPort matches the local end of a connection, which differs between two errors of the same kind.
var localPort = regexp.MustCompile(`\S+->`)

// serveWaiting answers the probes of a manager that waits for its hub: it is live, but not ready.
func serveWaiting(ctx context.Context, address string) (stop func(), err error) {
	if address == "" || address == "0" {
		return func() {}, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening at --health-probe-bind-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the hub is not ready for Rulefleet yet; the log says why", http.StatusServiceUnavailable)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: readyTimeout}
	go func() { _ = server.Serve(l) }() // it ends when it is closed
	return func() { _ = server.Close() }, nil
}

// impatient returns a configuration for a hub that may accept connections without answering.
func impatient(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = answerTimeout
	return cfg
}

// newInformerFunc creates an informer.
type newInformerFunc = func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// newInformer creates informers of the hub whose lists and watches wait for a hub that is down. Those
// of client-go retry less and less often, up to a minute after the hub is back. It wraps the guard's
// watches: the guard decides where a watch starts after the wait.
func newInformer(guard *continuity.Guard, scale interval.Scale) newInformerFunc {
	return func(lw toolscache.ListerWatcher, o runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		inner := guard.ListerWatcher(lw, o)
		page := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return readPage(ctx, scale, options, inner)
		}
		return lean.Indexed(toolscache.NewSharedIndexInformer(lean.Unstreamed(&toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return lean.Paged(ctx, options, page)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return untilAnswered(ctx, scale, func() (watch.Interface, error) { return inner.WatchWithContext(ctx, options) })
			},
		}), o, resync, indexers))
	}
}

// readPage reads a page of a list, and makes its objects lean. Only the first page waits for a hub that is down: after an
// outage, the token of another page may be useless.
func readPage(ctx context.Context, scale interval.Scale, options metav1.ListOptions, inner *toolscache.ListWatch) (runtime.Object, error) {
	ask := func() (runtime.Object, error) { return inner.ListWithContext(ctx, options) }
	var page runtime.Object
	var err error
	if options.Continue == "" {
		page, err = untilAnswered(ctx, scale, ask)
	} else {
		page, err = ask()
	}
	if err != nil {
		return nil, err
	}
	return page, lean.Page(page)
}

// untilAnswered repeats a request to the hub until it is answered or ctx ends. Errors are answers,
// unless they say that the hub can't serve any request.
func untilAnswered[T any](ctx context.Context, scale interval.Scale, ask func() (T, error)) (T, error) {
	backoff := retries(scale)
	for first := true; ; first = false {
		out, err := ask()
		if err == nil || answered(err) || ctx.Err() != nil {
			return out, err
		}
		if first {
			klog.FromContext(ctx).Error(err, "the hub does not answer; retrying the list or watch until it does")
		}
		select {
		case <-ctx.Done():
			return out, err
		case <-time.After(backoff.Step()):
		}
	}
}

func answered(err error) bool {
	return apierrors.ReasonForError(err) != metav1.StatusReasonUnknown && !apierrors.IsServiceUnavailable(err)
}
