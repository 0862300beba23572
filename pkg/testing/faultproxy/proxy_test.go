package faultproxy

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	token = "proxy-token"
	pods  = "/api/v1/pods"
)

// standIn answers as an API server does, and counts what it was asked to change.
type standIn struct {
	writes atomic.Int32
	accept atomic.Value
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		http.Error(w, "the token of the proxy went upstream", http.StatusTeapot)
		return
	}
	s.accept.Store(r.Header.Get("Accept"))
	switch {
	case isWatch(r):
		_, _ = io.WriteString(w, `{"type":"ADDED"}`+"\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case r.Method != http.MethodGet:
		s.writes.Add(1)
	default:
		_, _ = io.WriteString(w, `{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"a":1}]}`)
	}
}

func start(t *testing.T) (*Proxy, *standIn, *http.Client) {
	t.Helper()
	s := &standIn{}
	upstream := httptest.NewUnstartedServer(s)
	upstream.EnableHTTP2 = true
	upstream.StartTLS()
	t.Cleanup(upstream.Close)
	cfg := clientcmdapi.NewConfig()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: upstream.Certificate().Raw})
	cfg.Clusters["x"] = &clientcmdapi.Cluster{Server: upstream.URL, CertificateAuthorityData: ca}
	cfg.Contexts["x"], cfg.CurrentContext = &clientcmdapi.Context{Cluster: "x"}, "x"
	kubeconfig, err := clientcmd.Write(*cfg)
	must(t, err)
	p, err := Start(kubeconfig, token)
	must(t, err)
	t.Cleanup(p.Close)
	kubeconfig, err = p.Kubeconfig()
	must(t, err)
	restConfig, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	must(t, err)
	client, err := rest.HTTPClientFor(restConfig)
	must(t, err)
	return p, s, client
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ask returns the status and the body of an answer.
func ask(t *testing.T, c *http.Client, method, url string) (int, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	must(t, err)
	req.Header.Set("Accept", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json")
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.ProtoMajor != 2 {
		t.Errorf("the answer comes by %s", resp.Proto)
	}
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

func TestEachFault(t *testing.T) {
	p, s, c := start(t)
	asked := 0
	for _, step := range []struct {
		name  string
		fault Fault
		path  string
		code  int
		body  string
	}{
		{"pass", Pass, pods, 200, `{"a":1}`},
		{"429", TooManyRequests(3 * time.Second), pods, 429, `"reason":"TooManyRequests"`},
		{"empty list", EmptyLists, pods, 200, `"items":[]`},
		{"one object of the empty lists", EmptyLists, pods + "/x", 200, `{"a":1}`},
		{"a watch of the empty lists", EmptyLists, pods + "?watch=1", 410, `"reason":"Expired"`},
		{"one that would begin with a list", EmptyLists, pods + "?watch=1&sendInitialEvents=true", 422, `"reason":"Invalid"`},
		{"gone list", Gone, pods + "?resourceVersion=5", 410, `"reason":"Expired"`},
		{"gone watch", Gone, pods + "?watch=1", 410, `"reason":"Expired"`},
		{"fresh list", Gone, pods, 200, `{"a":1}`},
		{"pass again", Pass, pods, 200, `{"a":1}`},
	} {
		t.Run(step.name, func(t *testing.T) {
			p.Set(step.fault)
			asked++
			code, body, err := ask(t, c, http.MethodGet, p.URL()+step.path)
			if err != nil || code != step.code || !strings.Contains(body, step.body) {
				t.Errorf("%s: %d %s, %v", step.name, code, body, err)
			}
		})
	}
	if n := p.Requests(); n != asked {
		t.Errorf("there were %d requests", n)
	}
	p.Set(Truncated)
	if code, body, err := ask(t, c, http.MethodGet, p.URL()+pods); err != nil || code != 200 || strings.HasSuffix(body, "}") {
		t.Errorf("truncated: %d %s, %v", code, body, err)
	}
	if got := s.accept.Load(); got != "application/json; as=PartialObjectMetadataList; g=meta.k8s.io; v=v1,application/json" {
		t.Errorf("the API server was asked for %q", got)
	}
	p.Set(Latency(50 * time.Millisecond))
	begun := time.Now()
	if _, _, err := ask(t, c, http.MethodGet, p.URL()+pods); err != nil || time.Since(begun) < 50*time.Millisecond {
		t.Errorf("latency: %v, %v", time.Since(begun), err)
	}
	p.Set(Storm(1))
	codes := map[int]int{}
	for range 40 {
		code, _, err := ask(t, c, http.MethodGet, p.URL()+pods)
		must(t, err)
		codes[code]++
	}
	if len(codes) != 2 || codes[500] < 8 || codes[503] < 8 {
		t.Errorf("the storm answers %v", codes)
	}
}

func TestReset(t *testing.T) {
	p, s, c := start(t)
	p.Set(Reset(0.5, 3))
	failed := 0
	for range 40 {
		if _, _, err := ask(t, c, http.MethodPost, p.URL()+pods); err != nil {
			failed++
		}
	}
	passed := 40 - failed
	t.Logf("%d requests got an answer, and %d were done", passed, s.writes.Load())
	if failed < 8 || passed < 8 || int(s.writes.Load()) <= passed {
		t.Errorf("%d of 40 were reset, and %d done", failed, s.writes.Load())
	}
}

func TestOnlyItsTokenPasses(t *testing.T) {
	p, _, c := start(t)
	c.Transport = strip{c.Transport}
	if code, _, err := ask(t, c, http.MethodGet, p.URL()+pods); err != nil || code != http.StatusUnauthorized {
		t.Errorf("without the token: %d, %v", code, err)
	}
}

// strip gives another credential.
type strip struct{ next http.RoundTripper }

func (s strip) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer other")
	return s.next.RoundTrip(r)
}

func TestWatchesFlushAndEnd(t *testing.T) {
	for name, end := range map[string]func(p *Proxy){
		"EndWatches": func(p *Proxy) { p.EndWatches() },
		"Sever":      func(p *Proxy) { p.Sever() },
	} {
		t.Run(name, func(t *testing.T) {
			p, _, c := start(t)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL()+pods+"?watch=true", http.NoBody)
			must(t, err)
			resp, err := c.Do(req)
			must(t, err)
			defer func() { _ = resp.Body.Close() }()
			line := make([]byte, 4)
			if _, err := io.ReadFull(resp.Body, line); err != nil {
				t.Fatalf("the first event does not come: %v", err)
			}
			end(p)
			rest, err := io.ReadAll(resp.Body)
			t.Logf("it ends with %q, %v", rest, err)
			if err == nil {
				t.Error("the watch ends as if it were complete")
			}
		})
	}
}

func TestPoints(t *testing.T) {
	p, s, c := start(t)
	for _, step := range []struct {
		after, goOn bool
		writes      int32 // that are done in the end
	}{{false, false, 0}, {false, true, 1}, {true, false, 1}, {true, true, 1}} {
		t.Run(fmt.Sprintf("after %t, going on %t", step.after, step.goOn), func(t *testing.T) {
			s.writes.Store(0)
			var during int32
			done := p.At(Point{Method: http.MethodPost, Resource: "pods/status", After: step.after, Skip: 1}, func() bool {
				during = s.writes.Load()
				return step.goOn
			})
			for _, passing := range []string{pods, pods + "/x/status"} {
				if _, _, err := ask(t, c, http.MethodPost, p.URL()+passing); err != nil {
					t.Errorf("%+v: %s does not pass: %v", step, passing, err)
				}
			}
			select {
			case <-done:
				t.Errorf("%+v: it was reached too early", step)
			default:
			}
			_, _, err := ask(t, c, http.MethodPost, p.URL()+"/api/v1/namespaces/a/pods/y/status")
			<-done
			was := int32(2)
			if step.after {
				was = 3
			}
			if (err == nil) != step.goOn || during != was || s.writes.Load() != step.writes+2 {
				t.Errorf("%+v: %v, with %d writes then, and %d in the end", step, err, during, s.writes.Load())
			}
		})
	}
}

func TestParse(t *testing.T) {
	for path, want := range map[string]request{
		"/version":                               {},
		"/api/v1/namespaces":                     {"namespaces", ""},
		"/api/v1/namespaces/a":                   {"namespaces", "a"},
		"/api/v1/namespaces/a/status":            {"namespaces/status", "a"},
		"/api/v1/namespaces/a/pods":              {"pods", ""},
		"/apis/apps/v1/deployments":              {"deployments", ""},
		"/apis/g/v1/namespaces/a/rules/x":        {"rules", "x"},
		"/apis/g/v1/namespaces/a/rules/x/status": {"rules/status", "x"},
		"/apis/g/v1/spokes/x/status":             {"spokes/status", "x"},
	} {
		t.Run(path, func(t *testing.T) {
			if got := parse(path); got != want {
				t.Errorf("%s: %+v", path, got)
			}
		})
	}
}

func TestDead(t *testing.T) {
	silent, err := Silent()
	must(t, err)
	hole, err := BlackHole(t.Context())
	must(t, err)
	dial := func(d *Dead) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(d.URL(), "https://"))
	}
	conn, err := dial(silent)
	must(t, err)
	must(t, conn.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	if _, err := conn.Read(make([]byte, 1)); !isTimeout(err) {
		t.Errorf("the silent listener says %v", err)
	}
	must(t, conn.Close())
	if _, err := dial(hole); !isTimeout(err) {
		t.Errorf("the black hole says %v", err)
	}
	must(t, silent.Close())
	must(t, hole.Close())
	if _, err := dial(hole); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after its end: %v", err)
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

func TestAhead(t *testing.T) {
	p, _, c := start(t)
	p.Set(Ahead(time.Hour))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL()+pods, http.NoBody)
	must(t, err)
	resp, err := c.Do(req)
	must(t, err)
	must(t, resp.Body.Close())
	date, err := http.ParseTime(resp.Header.Get("Date"))
	must(t, err)
	if ahead := time.Until(date).Round(time.Minute); ahead != time.Hour || len(resp.Header.Values("Date")) != 1 {
		t.Errorf("the header Date is %q", resp.Header.Values("Date"))
	}
}
