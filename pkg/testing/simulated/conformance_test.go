package simulated_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	"github.com/rulefleet/rulefleet/pkg/testing/simulated"
)

// side is one of the two API servers that get the same requests.
type side struct {
	host            string
	client, unknown *http.Client
	// memory has what earlier answers contain, by the name of the request.
	memory map[string]string
	// names has the number of each UID and each resourceVersion, in the order in which they were first seen.
	names map[string]string
	// bookmarks are the last ones by kind. When an API server sends one depends on when the watch began.
	bookmarks map[string]any
}

func newSide(t *testing.T, kubeconfig []byte, err error) *side {
	t.Helper()
	must(t, err)
	cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	must(t, err)
	cfg.DisableCompression = true // requests ask for it themselves
	s := &side{host: cfg.Host, memory: map[string]string{}, names: map[string]string{}, bookmarks: map[string]any{}}
	s.client, err = rest.HTTPClientFor(cfg)
	must(t, err)
	s.unknown, err = rest.HTTPClientFor(rest.AnonymousClientConfig(cfg))
	must(t, err)
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open sends a request, with what is remembered.
func (s *side) open(ctx context.Context, q request) (*http.Response, error) {
	expand := func(text string) string { return os.Expand(text, func(name string) string { return s.memory[name] }) }
	r, err := http.NewRequestWithContext(ctx, q.method, s.host+expand(q.path), bytes.NewBufferString(expand(q.body)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", q.name, err)
	}
	r.Header.Set("Accept", q.accept)
	r.Header.Set("Accept-Encoding", "gzip")
	r.Header.Set("User-Agent", "rulefleet-manager/test")
	if q.contentType != "" {
		r.Header.Set("Content-Type", q.contentType)
	}
	c := s.client
	if q.anonymous {
		c = s.unknown
		r.Header.Set("Authorization", "Bearer unknown")
	}
	return c.Do(r) //nolint:wrapcheck // the caller names the request
}

// result is an answer of which everything that differs between clusters was replaced.
type result struct {
	Code    int
	Headers map[string]string
	// Bodies are the JSON values of the answer: one, or those of a watch.
	Bodies []any
}

// read reads an answer to its end.
func (s *side) read(t *testing.T, q request, resp *http.Response) result {
	t.Helper()
	defer func() { _ = resp.Body.Close() }()
	out := result{Code: resp.StatusCode, Headers: map[string]string{}}
	for _, name := range []string{"Content-Type", "Content-Encoding", "Cache-Control", "Retry-After", "Warning"} {
		out.Headers[name] = resp.Header.Get(name)
	}
	body := io.Reader(resp.Body)
	if out.Headers["Content-Encoding"] == "gzip" {
		z, err := gzip.NewReader(body)
		must(t, err)
		body = z
	}
	d := json.NewDecoder(body)
	d.UseNumber()
	for {
		var v any
		if err := d.Decode(&v); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatalf("%s: reading the answer of %s: %v", q.name, s.host, err)
		}
		s.remember(q.name, v)
		v = s.plain(q, v)
		if kind := bookmarked(v); kind != "" {
			s.bookmarks[kind] = v
			continue
		}
		out.Bodies = append(out.Bodies, v)
	}
}

// remember notes what later requests refer to.
func (s *side) remember(name string, v any) {
	o, _ := v.(map[string]any)
	metadata, _ := o["metadata"].(map[string]any)
	for key, as := range map[string]string{"resourceVersion": "version", "uid": "uid", "continue": "continue"} {
		if text, ok := metadata[key].(string); ok {
			s.memory[name+"."+as] = text
		}
	}
}

// lines prints a result.
func lines(t *testing.T, r any) []string {
	t.Helper()
	data, err := json.MarshalIndent(r, "", " ")
	must(t, err)
	return strings.Split(string(data), "\n")
}

// twins are a real API server and a simulated one.
type twins struct {
	real, simulated *side
	spoke           *fleet.Member
	twin            *simulated.Spoke
}

// both sends a request to both, and compares the answers. In between, it calls a function, unless that is nil.
func (w *twins) both(t *testing.T, q request, meanwhile func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var answers [2]*http.Response
	for i, s := range []*side{w.real, w.simulated} {
		var err error
		answers[i], err = s.open(ctx, q) //nolint:bodyclose // read closes it
		must(t, err)
	}
	if meanwhile != nil {
		meanwhile()
	}
	agree(t, q.name, w.real.read(t, q, answers[0]), w.simulated.read(t, q, answers[1]))
}

// agree compares two answers.
func agree(t *testing.T, name string, of, by any) {
	t.Helper()
	if a, b := lines(t, of), lines(t, by); !slices.Equal(a, b) {
		i := 0
		for i < len(a) && i < len(b) && a[i] == b[i] {
			i++
		}
		from := max(0, i-10)
		t.Errorf("%s: the real answer has, from line %d on:\n%s\nand the simulated one:\n%s", name, i,
			strings.Join(a[from:min(len(a), i+20)], "\n"), strings.Join(b[from:min(len(b), i+20)], "\n"))
	}
}

// fill creates the same Deployments in both.
func (w *twins) fill(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		name := fmt.Sprintf("d-%03d", i)
		must(t, w.spoke.Client.Create(t.Context(), deployment(name), client.FieldOwner(simulated.FieldManager)))
		w.twin.AddDeployment(namespace, name)
	}
}

// change adds, changes and deletes a Deployment in both.
func (w *twins) change(t *testing.T) {
	t.Helper()
	c := w.spoke.Client
	must(t, c.Create(t.Context(), deployment("e"), client.FieldOwner(simulated.FieldManager)))
	w.twin.AddDeployment(namespace, "e")
	d := &appsv1.Deployment{}
	must(t, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "d-001"}, d))
	d.Annotations = map[string]string{"example.org/a": "b"}
	must(t, c.Update(t.Context(), d, client.FieldOwner(simulated.FieldManager)))
	w.twin.AnnotateDeployment(namespace, "d-001", map[string]string{"example.org/a": "b"})
	must(t, c.Delete(t.Context(), deployment("d-002")))
	w.twin.DeleteDeployment(namespace, "d-002")
}

const (
	namespace = "bench"
	// filled is the number of Deployments. Their list is compressed.
	filled = 130
)

// deployment is one that AddDeployment imitates.
func deployment(name string) *appsv1.Deployment {
	app := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: app},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: app},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "nginx"}}},
			},
		},
	}
}

// TestConformance sends the same requests to a real spoke and to a simulated one, and compares the answers. The requests
// include all that the manager sends to the real one.
func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-all runs it")
	}
	f, err := fleet.Start(t.Context(), fleet.Options{Intervals: 0.2})
	must(t, err)
	t.Cleanup(func() { must(t, f.Stop()) })
	m, err := f.StartSpoke(t.Context(), "s", "prometheusrules", "prometheuses", "thanosrulers")
	must(t, err)
	server := simulated.Start()
	t.Cleanup(server.Close)
	w := &twins{spoke: m, twin: server.Add("s")}
	kubeconfig, err := m.UserKubeconfig(fleet.SpokeUser)
	w.real = newSide(t, kubeconfig, err)
	kubeconfig, err = server.Kubeconfig("s")
	w.simulated = newSide(t, kubeconfig, err)
	must(t, m.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, client.FieldOwner(simulated.FieldManager)))
	w.twin.AddNamespace(namespace)
	w.fill(t, filled)
	script := requests()
	for _, q := range script {
		var meanwhile func()
		if q.meanwhile {
			meanwhile = func() { w.change(t) }
		}
		t.Run(q.name, func(t *testing.T) { w.both(t, q, meanwhile) })
	}
	for kind, bookmark := range w.real.bookmarks {
		agree(t, "a bookmark of "+kind, bookmark, w.simulated.bookmarks[kind])
	}
	t.Run("manager", func(t *testing.T) { asked(t, f, m, script) })
	if unserved := server.Unserved(); len(unserved) > 0 {
		t.Errorf("requests that are not simulated: %v", unserved)
	}
}
