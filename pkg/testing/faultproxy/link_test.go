package faultproxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// A link has one rate for all of its connections together.
func TestLimit(t *testing.T) {
	const size, rate = 50 << 10, 100 << 10
	p, _, c := start(t)
	p.Set(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { _, _ = w.Write(make([]byte, size)) })
	clients := []*http.Client{c, another(t, p)}
	fetch := func() time.Duration {
		began, errs := time.Now(), make(chan error)
		for _, c := range clients {
			go func() {
				code, body, err := ask(t, c, http.MethodGet, p.URL()+pods)
				if err == nil && (code != http.StatusOK || len(body) != size) {
					err = fmt.Errorf("got %d and %d bytes", code, len(body))
				}
				errs <- err
			}()
		}
		for range clients {
			must(t, <-errs)
		}
		return time.Since(began)
	}
	fetch()
	p.Limit(rate)
	before, _ := p.Bytes()
	took := fetch()
	after, _ := p.Bytes()
	if sent := int(after - before); sent < 2*size || sent > 2*size*11/10 {
		t.Errorf("%d bytes were sent", sent)
	}
	if took < 900*time.Millisecond {
		t.Errorf("it took %v", took)
	}
	p.Limit(0)
	if is := fetch(); is > took/2 {
		t.Errorf("without a limit, it takes %v", is)
	}
}

// another returns a client with connections of its own.
func another(t *testing.T, p *Proxy) *http.Client {
	t.Helper()
	kubeconfig, err := p.Kubeconfig()
	must(t, err)
	cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	must(t, err)
	cfg.Dial = (&net.Dialer{}).DialContext
	c, err := rest.HTTPClientFor(cfg)
	must(t, err)
	return c
}

// What waits for the link ends with its connection.
func TestSeveredOnASlowLink(t *testing.T) {
	p, _, c := start(t)
	if code, _, err := ask(t, c, http.MethodGet, p.URL()+pods); err != nil || code != http.StatusOK {
		t.Fatal(code, err)
	}
	p.Limit(1000)
	p.Set(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { _, _ = w.Write(make([]byte, 1<<20)) })
	resp, err := c.Get(p.URL() + pods) //nolint:noctx // the test ends it
	if err == nil {
		defer func() { _ = resp.Body.Close() }()
		go func() { time.Sleep(100 * time.Millisecond); p.Sever() }() //nolint:forbidigo // lets the answer begin
		_, err = io.Copy(io.Discard, resp.Body)
	}
	if err == nil {
		t.Error("the answer is complete")
	}
}
