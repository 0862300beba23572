package spoke

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/client/versioned"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/transport"

	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
)

// connectWith returns a connection to a server of this test, by a user's fields.
func connectWith(t *testing.T, server *httptest.Server, user string, wrap ...transport.WrapperFunc) *connection {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	cfg, err := kubeconfig.RESTConfig([]byte(kubeconfigText("server: '"+server.URL+"', certificate-authority-data: "+b64(string(ca)), user)), kubeconfig.Allowance{Loopback: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewProvider(Options{Wrap: transport.Wrappers(wrap...)}).newConnection("s", cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A spoke that redirects gets no request to its target, least of all with the
// credential: client-go would add that anew.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var mu sync.Mutex
	var followed []string
	target := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		followed = append(followed, fmt.Sprintf("%s %s with %q", req.Method, req.URL, req.Header))
	}))
	defer target.Close()
	for _, code := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			asked := 0
			spoke := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				asked++
				if !strings.Contains(req.Header.Get("Authorization"), canary) {
					t.Error("the spoke itself gets no credential")
				}
				http.Redirect(w, req, target.URL+req.URL.Path, code)
			}))
			spoke.EnableHTTP2 = true
			spoke.StartTLS()
			c := connectWith(t, spoke, goodUser)
			if err := c.probe(t.Context()); err == nil {
				t.Errorf("%d: taken for an answer", code)
			}
			rules, err := monitoring.NewForConfigAndClient(c.cfg, c.http)
			if err != nil {
				t.Fatal(err)
			}
			api := rules.MonitoringV1().PrometheusRules("default")
			if _, err := api.Create(t.Context(), &monitoringv1.PrometheusRule{}, metav1.CreateOptions{}); err == nil {
				t.Errorf("%d: a redirected write is taken for done", code)
			}
			if _, err := api.Watch(t.Context(), metav1.ListOptions{}); err == nil {
				t.Errorf("%d: a redirected watch is taken for one", code)
			}
			c.disconnect()
			spoke.Close()
			if asked != 3 {
				t.Errorf("%d: the spoke was asked %d times", code, asked)
			}
		})
	}
	if len(followed) > 0 {
		t.Errorf("the target was asked:\n%s", strings.Join(followed, "\n"))
	}
}

// What the operator refuses to send says nothing about the spoke, and opens no circuit.
func TestWrapIsOutermost(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	closed := errors.New("closed")
	c := connectWith(t, server, goodUser, func(http.RoundTripper) http.RoundTripper { return refusing{closed} })
	defer c.disconnect()
	ctx, cancel := context.WithTimeout(t.Context(), requestTimeout)
	defer cancel()
	for range 2 * breakerThreshold {
		if err := c.probes.Get().AbsPath("/version").Do(ctx).Error(); !errors.Is(err, closed) {
			t.Errorf("got %v", err)
		}
	}
	if c.breaker.Open() {
		t.Error("the circuit is open")
	}
}

type refusing struct{ err error }

func (r refusing) RoundTrip(*http.Request) (*http.Response, error) { return nil, r.err }

// crowd counts the connections to a server.
type crowd struct {
	mu   sync.Mutex
	open map[net.Conn]bool
	ever int
}

func (c *crowd) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.open[conn] = true
		c.ever++
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	default:
	}
}

func (c *crowd) count() (open, ever int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open), c.ever
}

// Every kubeconfig has a transport of its own, and takes it along when it goes, with its
// connections: also that on which something is still on its way.
func TestRotationsLeaveNothing(t *testing.T) {
	rotations := 500
	if raceDetector {
		rotations = 100
	}
	asked := make(chan struct{}, 1)
	conns := &crowd{open: map[net.Conn]bool{}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked <- struct{}{}
		if strings.HasSuffix(req.Header.Get("Authorization"), "0") {
			<-req.Context().Done()
		}
		w.WriteHeader(http.StatusUnauthorized)
	}))
	server.EnableHTTP2 = true
	server.Config.ConnState = conns.note
	server.StartTLS()
	defer server.Close()
	rotate := func(n int) {
		c := connectWith(t, server, fmt.Sprintf("token: secret-%d", n))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.run(ctx)
		}()
		<-asked
		cancel()
		<-done
	}
	rotate(1)
	goroutines := runtime.NumGoroutine()
	for n := range rotations {
		rotate(n)
	}
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		open, _ := conns.count()
		return open == 0 && runtime.NumGoroutine() < goroutines+10, nil
	})
	open, ever := conns.count()
	t.Logf("%d connections, of which %d are open; %d goroutines, and %d before", ever, open, runtime.NumGoroutine(), goroutines)
	if err != nil {
		t.Error("they have not ended")
	}
	if ever < rotations {
		t.Error("two kubeconfigs share a connection")
	}
}
