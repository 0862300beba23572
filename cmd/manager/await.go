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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

const (
	// dialTimeout bounds the attempt to connect to a hub that may be down: TCP would try
	// less and less often, and notice late that it is back.
	dialTimeout = 3 * time.Second
	// answerTimeout bounds a request of such an attempt.
	answerTimeout = 5 * time.Second
	// firstRetry and lastRetry are the least and the longest time between two attempts to
	// prepare the hub.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// finalError is an error that no waiting mends.
type finalError struct{ error }

// Unwrap lets errors.Is look through it.
func (e finalError) Unwrap() error { return e.error }

// awaitHub prepares the hub, and tries again for as long as it can't: a process that ended
// would be started again later and later. Meanwhile it is alive, and not ready. What the hub
// lacks is for a person to put there, and is returned.
func awaitHub(ctx context.Context, o *options, log logr.Logger, prepare func(context.Context) (*corev1.ConfigMap, error)) (*corev1.ConfigMap, error) {
	state, err := prepare(ctx)
	if err == nil || isFinal(err) {
		return state, err
	}
	stop, listening := serveWaiting(ctx, o.healthAddress)
	if listening != nil {
		return nil, listening
	}
	defer stop()
	backoff := wait.Backoff{Duration: o.intervals.Of(firstRetry), Factor: 2, Steps: 100, Cap: o.intervals.Of(lastRetry)}
	for said := ""; err != nil && !isFinal(err); state, err = prepare(ctx) {
		if why := localPort.ReplaceAllString(err.Error(), ""); why != said {
			said = why
			log.Error(err, "the hub can't be used yet, so the manager waits for it")
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the hub: %w", err)
		case <-time.After(backoff.Step()):
		}
	}
	return state, err
}

func isFinal(err error) bool {
	_, ok := errors.AsType[finalError](err)
	return ok
}

// localPort is what differs between two errors of the same kind: this end of the connection.
var localPort = regexp.MustCompile(`\S+->`)

// serveWaiting answers the probes of a manager that waits for its hub: it is alive, and not ready.
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
		http.Error(w, "the hub can't be used yet", http.StatusServiceUnavailable)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: readyTimeout}
	go func() { _ = server.Serve(l) }() // it ends when it is closed
	return func() { _ = server.Close() }, nil
}

// dialSoon is the configuration of a hub that may be down, or accept connections and not answer.
func dialSoon(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = answerTimeout
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	return cfg
}
