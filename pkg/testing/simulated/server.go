// Package simulated serves many small API servers in one process: the spokes of a fleet that is too large for real ones.
// They serve only the requests that the manager sends to a spoke. TestConformance compares their answers with those of a
// real API server. All other requests are answered with 404 and counted.
package simulated

import (
	"encoding/pem"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
)

// Server is an HTTPS server on a loopback address. Each spoke has a path of its own. Its methods are safe for concurrent
// use.
type Server struct {
	server *httptest.Server
	mux    *http.ServeMux
	// closing is closed when watches must end.
	closing chan struct{}
	counters
	connections atomic.Int64
	observe     atomic.Pointer[func(Write)]

	mu       sync.Mutex
	spokes   map[string]*Spoke
	unserved map[string]int
}

// Write is a write to a PrometheusRule that was accepted.
type Write struct {
	Spoke string
	// Verb is create, update or delete.
	Verb            string
	Namespace, Name string
	// Object is the new content; nil for a deletion. It must not be changed.
	Object map[string]any
	At     time.Time
}

// Counts are numbers of requests to all spokes.
type Counts struct {
	Creates, Updates, Deletes int64
	// Pages are lists with a limit of more than one object, Gets are reads of a Deployment, and Watches are watches that
	// were opened.
	Pages, Gets, Watches int64
}

// Writes is the number of writes.
func (c Counts) Writes() int64 { return c.Creates + c.Updates + c.Deletes }

// counters are the Counts of a server, and the number of watches that are open.
type counters struct {
	creates, updates, deletes, pages, gets, watches, open atomic.Int64
}

// Start starts a server without spokes.
func Start() *Server {
	s := &Server{spokes: map[string]*Spoke{}, unserved: map[string]int{}, closing: make(chan struct{})}
	s.mux = s.routes()
	s.server = httptest.NewUnstartedServer(s.mux)
	s.server.EnableHTTP2 = true
	s.server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that end break connections
	s.server.Config.ConnState = s.connected
	s.server.StartTLS()
	return s
}

// Close ends the server and all its connections.
func (s *Server) Close() {
	close(s.closing)
	s.server.CloseClientConnections()
	s.server.Close()
}

// connected counts connections.
func (s *Server) connected(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.connections.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.connections.Add(-1)
	}
}

// Connections returns the number of open connections.
func (s *Server) Connections() int64 { return s.connections.Load() }

// OpenWatches returns the number of watches that are open.
func (s *Server) OpenWatches() int64 { return s.open.Load() }

// Counts returns the numbers of requests so far.
func (s *Server) Counts() Counts {
	return Counts{
		Creates: s.creates.Load(), Updates: s.updates.Load(), Deletes: s.deletes.Load(),
		Pages: s.pages.Load(), Gets: s.gets.Load(), Watches: s.watches.Load(),
	}
}

// Unserved returns the requests that were answered with 404 because they are not simulated, with their numbers.
func (s *Server) Unserved() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.unserved)
}

// Observe makes the server call a function for each write that was accepted. nil ends that.
func (s *Server) Observe(fn func(Write)) {
	if fn == nil {
		s.observe.Store(nil)
		return
	}
	s.observe.Store(&fn)
}

// Add adds a spoke. Its namespaces are those of a new cluster.
func (s *Server) Add(name string) *Spoke {
	spoke := newSpoke(s, name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spokes[name] = spoke
	return spoke
}

// Spoke returns a spoke by its name, or nil.
func (s *Server) Spoke(name string) *Spoke {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spokes[name]
}

// Kubeconfig returns a kubeconfig of a spoke.
func (s *Server) Kubeconfig(name string) ([]byte, error) {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
	server := &clientcmdapi.Cluster{Server: s.server.URL + "/" + name, CertificateAuthorityData: ca}
	return controlplane.EncodeKubeconfig(name, server, name, &clientcmdapi.AuthInfo{Token: tokenOf(name)})
}

// tokenOf returns the only token that a spoke accepts.
func tokenOf(name string) string { return "simulated-" + name }

// handler answers a request. It returns false if the request is not simulated.
type handler func(s *Spoke, w http.ResponseWriter, r *http.Request) bool

// routes returns the paths that are served.
func (s *Server) routes() *http.ServeMux {
	const rules = "/apis/monitoring.coreos.com/v1"
	mux := http.NewServeMux()
	for pattern, h := range map[string]handler{
		"GET /version": fixed(http.StatusOK, versionAnswer),
		"GET " + rules: fixed(http.StatusOK, discoveryAnswer),
		"POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews":         review,
		"GET /api/v1/namespaces":                                             collection(namespaces),
		"GET /api/v1/namespaces/{name}":                                      getNamespace,
		"GET /apis/apps/v1/deployments":                                      collection(deployments),
		"GET /apis/apps/v1/namespaces/{namespace}/deployments/{name}":        getDeployment,
		"GET /apis/apps/v1/statefulsets":                                     collection(statefulSets),
		"GET /apis/apps/v1/daemonsets":                                       collection(daemonSets),
		"GET /apis/batch/v1/cronjobs":                                        collection(cronJobs),
		"GET " + rules + "/prometheuses":                                     collection(prometheuses),
		"GET " + rules + "/thanosrulers":                                     collection(thanosRulers),
		"GET " + rules + "/prometheusrules":                                  collection(prometheusRules),
		"POST " + rules + "/namespaces/{namespace}/prometheusrules":          createRule,
		"PUT " + rules + "/namespaces/{namespace}/prometheusrules/{name}":    updateRule,
		"DELETE " + rules + "/namespaces/{namespace}/prometheusrules/{name}": deleteRule,
	} {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" /{spoke}"+path, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, h) })
	}
	none := func(*Spoke, http.ResponseWriter, *http.Request) bool { return false }
	mux.HandleFunc("/{spoke}/", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, none) })
	return mux
}

// serve answers a request to a spoke.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, h handler) {
	spoke := s.Spoke(r.PathValue("spoke"))
	w.Header().Set("Cache-Control", "no-cache, private")
	if spoke == nil || r.Header.Get("Authorization") != "Bearer "+tokenOf(spoke.name) {
		refuse(w, r, unauthorized())
		return
	}
	if h(spoke, w, r) {
		return
	}
	s.mu.Lock()
	s.unserved[r.Method+" "+r.URL.RequestURI()+", accepting "+r.Header.Get("Accept")]++
	s.mu.Unlock()
	http.NotFound(w, r)
}
