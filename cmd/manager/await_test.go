package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
)

// The hub is tried again until it can be used, and each error is told once.
func TestAwaitHub(t *testing.T) {
	refused := func(port int) error {
		return fmt.Errorf("reading: read tcp 127.0.0.1:%d->10.0.0.1:6443: connection reset by peer", port)
	}
	forbidden, lacking := errors.New("forbidden"), errors.New("the hub has no CustomResourceDefinition")
	for name, tc := range map[string]struct {
		errs   []error // of the attempts; those after them succeed
		told   int
		within time.Duration
		want   error
	}{
		"the hub is there":            {},
		"the hub is down":             {errs: []error{refused(1), refused(2), refused(3)}, told: 1, within: 2 * time.Second},
		"down, and then forbidden":    {errs: []error{refused(1), forbidden, forbidden, refused(2)}, told: 3, within: 4 * time.Second},
		"something lacks":             {errs: []error{finalError{lacking}}, want: lacking},
		"down, and something lacks":   {errs: []error{refused(1), finalError{lacking}}, told: 1, within: time.Second, want: lacking},
		"it was down for a long time": {errs: make([]error, 100), told: 1, within: 100 * lastRetry},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told []string
				log := funcr.New(func(_, args string) { told = append(told, args) }, funcr.Options{})
				attempts, begin := 0, time.Now()
				state, err := awaitHub(t.Context(), &options{healthAddress: "0"}, log, func(context.Context) (*corev1.ConfigMap, error) {
					attempts++
					if attempts > len(tc.errs) {
						return &corev1.ConfigMap{}, nil
					}
					if err := tc.errs[attempts-1]; err != nil {
						return nil, err
					}
					return nil, refused(attempts)
				})
				if !errors.Is(err, tc.want) || (state == nil) != (tc.want != nil) {
					t.Errorf("got %v, %v", state, err)
				}
				if took := time.Since(begin); took > tc.within {
					t.Errorf("it took %v, and should %v", took, tc.within)
				}
				if len(told) != tc.told {
					t.Errorf("it told %q", told)
				}
			})
		})
	}
}

// A manager that waits is alive, and not ready; when the hub is there, the address is free again.
func TestWaitingIsServed(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	attempts := 0
	_, err = awaitHub(t.Context(), &options{healthAddress: address, intervals: 0.01}, logr.Discard(), func(ctx context.Context) (*corev1.ConfigMap, error) {
		attempts++
		if attempts == 1 {
			return nil, errors.New("refused")
		}
		for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != want {
				t.Errorf("%s answers %s", path, resp.Status)
			}
			_ = resp.Body.Close()
		}
		return &corev1.ConfigMap{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", address); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

// A manager that is stopped while it waits ends, and tells why it waited.
func TestStoppedWhileWaiting(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := awaitHub(ctx, &options{healthAddress: "0"}, logr.Discard(), func(context.Context) (*corev1.ConfigMap, error) {
		cancel()
		return nil, errors.New("connection refused")
	})
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v", err)
	}
}
