package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// The hub is tried again until it can be used, and each error is told once.
func TestAwaitHub(t *testing.T) {
	refused := func(port int) error {
		return fmt.Errorf("reading: read tcp 127.0.0.1:%d->10.0.0.1:6443: connection reset by peer", port)
	}
	forbidden, lacking := errors.New("forbidden"), errors.New("CustomResourceDefinition not found")
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

// What is watched on the hub waits for a hub that is down, and is there seconds after it.
func TestInformersWait(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	starts := apierrors.NewServiceUnavailable("the API server starts")
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	for name, tc := range map[string]struct {
		errs []error // of the first attempts; the last one is repeated for a minute
		want error
	}{
		"the hub is there":   {},
		"it is down":         {errs: []error{refused}},
		"it starts":          {errs: []error{refused, starts}},
		"it refuses":         {errs: []error{refused, forbidden}, want: forbidden},
		"it refuses at once": {errs: []error{forbidden}, want: forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, asked := time.Now(), 0
				var last time.Time
				out, err := untilAnswered(t.Context(), 0, func() (int, error) {
					asked++
					if gap := time.Since(last); asked > 1 && gap > lastRetry {
						t.Errorf("attempt %d comes %v after the one before", asked, gap)
					}
					last = time.Now()
					if len(tc.errs) == 0 || time.Since(begin) > time.Minute {
						return asked, nil
					}
					return 0, tc.errs[min(asked, len(tc.errs))-1]
				})
				if !errors.Is(err, tc.want) || (err == nil) != (out > 0) {
					t.Errorf("got %d, %v", out, err)
				}
				if asked > 60 {
					t.Errorf("it was asked %d times", asked)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := untilAnswered(ctx, 0, func() (int, error) { return 0, refused }); !errors.Is(err, refused) {
			t.Errorf("when it is stopped: %v", err)
		}
	})
}

// A manager knows its kinds without asking the hub, as the API server names them.
func TestHubMapper(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "charts", "rulefleet", "files", "crds", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v: %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(data, &crd); err != nil {
			t.Fatal(err)
		}
		m, err := hubMapper().RESTMapping(schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}, crd.Spec.Versions[0].Name)
		if err != nil {
			t.Fatal(err)
		}
		if m.Resource.Resource != crd.Spec.Names.Plural || (m.Scope.Name() == meta.RESTScopeNameNamespace) != (crd.Spec.Scope == apiextensionsv1.NamespaceScoped) {
			t.Errorf("%s: %v, %s", crd.Name, m.Resource, m.Scope.Name())
		}
	}
}

// TestReadPage returns the error of a page that is not the first at once, and makes the objects of a page lean.
func TestReadPage(t *testing.T) {
	down := errors.New("connection refused")
	inner := &toolscache.ListWatch{ListWithContextFunc: func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
		if options.Continue != "" {
			return nil, down
		}
		labels := func() map[string]string { return map[string]string{v1alpha1.TemplateLabel: "t"} }
		return &v1alpha1.AlertRuleList{Items: []v1alpha1.AlertRule{{ObjectMeta: metav1.ObjectMeta{Labels: labels()}}, {ObjectMeta: metav1.ObjectMeta{Labels: labels()}}}}, nil
	}}
	page, err := readPage(t.Context(), 1, metav1.ListOptions{}, inner)
	if err != nil {
		t.Fatal(err)
	}
	list, ok := page.(*v1alpha1.AlertRuleList)
	if !ok || len(list.Items) != 2 {
		t.Fatalf("the page is %T: %+v", page, page)
	}
	if reflect.ValueOf(list.Items[0].Labels).Pointer() != reflect.ValueOf(list.Items[1].Labels).Pointer() {
		t.Error("the objects of the page do not share their labels")
	}
	if _, err := readPage(t.Context(), 1, metav1.ListOptions{Continue: "token"}, inner); !errors.Is(err, down) {
		t.Errorf("it returns %v, want %v", err, down)
	}
}
