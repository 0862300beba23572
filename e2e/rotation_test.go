package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// late is how late an API server may learn of a new caBundle in these tests.
const late = 400 * time.Millisecond

// traffic calls the webhook continuously: by requests to the hub, and by connections like those of an API
// server that has just started or learns late of a new caBundle.
type traffic struct {
	hub     *fleet.Member
	address string
	done    context.CancelFunc
	wg      sync.WaitGroup

	mu                    sync.Mutex
	requests, connections int
	failures              []error
	authorities           map[string]bool // that signed what was served, by their key ids
}

func startTraffic(t *testing.T, hub *fleet.Member, address string) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	tr := &traffic{hub: hub, address: address, done: cancel, authorities: map[string]bool{}}
	for range 2 {
		tr.wg.Go(func() { tr.repeat(ctx, &tr.requests, asked(hub)) })
	}
	tr.wg.Go(func() { tr.repeat(ctx, &tr.connections, tr.connector()) })
	t.Cleanup(tr.stop)
	return tr
}

func (tr *traffic) repeat(ctx context.Context, count *int, ask func(context.Context) error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := ask(ctx)
		if ctx.Err() != nil {
			return
		}
		tr.mu.Lock()
		*count++
		if err != nil {
			tr.failures = append(tr.failures, fmt.Errorf("%s: %w", time.Now().Format(time.StampMilli), err))
		}
		tr.mu.Unlock()
	}
}

// connector returns a function that connects to the webhook with the present caBundle and, for as long as an
// API server may be late, with the previous one.
func (tr *traffic) connector() func(ctx context.Context) error {
	var current, before []byte
	// seen is when the current bundle was last read. A different bundle has replaced it since then.
	var seen, replaced time.Time
	return func(ctx context.Context) error {
		var config admissionregistrationv1.ValidatingWebhookConfiguration
		asked := time.Now()
		if err := tr.hub.Client.Get(ctx, client.ObjectKey{Name: "rulefleet"}, &config); err != nil {
			return err
		}
		if bundle := config.Webhooks[0].ClientConfig.CABundle; !bytes.Equal(bundle, current) {
			before, current, replaced = current, bundle, seen
		}
		seen = asked
		errs := []error{tr.connect(ctx, current)}
		if before != nil && time.Since(replaced) < late {
			if err := tr.connect(ctx, before); time.Since(replaced) < late { // the connection may have taken longer
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	}
}

func (tr *traffic) connect(ctx context.Context, bundle []byte) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots}}
	conn, err := dialer.DialContext(ctx, "tcp", tr.address)
	if err != nil {
		return fmt.Errorf("connecting to the webhook: %w", err)
	}
	defer func() { _ = conn.Close() }()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.authorities[string(conn.(*tls.Conn).ConnectionState().PeerCertificates[0].AuthorityKeyId)] = true
	return nil
}

func (tr *traffic) signers() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return len(tr.authorities)
}

func (tr *traffic) asked() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.requests
}

func (tr *traffic) stop() {
	tr.done()
	tr.wg.Wait()
}

// expectNoFailure ends the traffic, and reports its failures.
func (tr *traffic) expectNoFailure(t *testing.T) {
	t.Helper()
	tr.stop()
	t.Logf("%d requests (2 questions each) and %d connections through %d authorities; %d failures",
		tr.requests, tr.connections, len(tr.authorities), len(tr.failures))
	if tr.requests == 0 || tr.connections == 0 {
		t.Error("nothing was asked")
	}
	if len(tr.failures) > 0 {
		t.Errorf("the first failures are %v", tr.failures[:min(3, len(tr.failures))])
	}
}

// certificates returns the Secret.
func certificates(ctx context.Context, m *fleet.Member) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	return secret, read(ctx, m, client.ObjectKey{Namespace: fleet.Namespace, Name: "rulefleet-webhook-certs"}, secret)
}

// firstAuthority returns the first certificate of the bundle.
func firstAuthority(s *corev1.Secret) string {
	const end = "-----END CERTIFICATE-----\n"
	first, _, _ := strings.Cut(string(s.Data["ca.crt"]), end)
	return first + end
}

// TestRotationCostsNoRequest uses certificates that live for seconds, and calls the webhook during all
// rotations.
func TestRotationCostsNoRequest(t *testing.T) {
	long(t)
	parallel(t)
	f, address := start(t, fleet.Options{}), freeAddress(t)
	// The hub calls the webhook from the beginning, also for the manager's own objects.
	must(t, f.InstallWebhook(t.Context(), address))
	startManagerWith(t, f, fleet.ManagerOptions{Dir: t.TempDir(), Webhook: address, Args: []string{"--webhook-cert-lifetime=20s"}})
	eventually(t, "the webhook is asked", asked(f.Hub))
	eventually(t, "the built-in template is made", func(ctx context.Context) error {
		return f.Hub.Client.Get(ctx, client.ObjectKey{Name: "deployment-down"}, &v1alpha1.AlertRuleTemplate{})
	})
	secret, err := certificates(t.Context(), f.Hub)
	must(t, err)

	begun := time.Now()
	tr := startTraffic(t, f.Hub, address)
	within(t, 8*time.Minute, "two rotations of the authority, and the end of the first", func(ctx context.Context) error {
		is, err := certificates(ctx, f.Hub)
		if err != nil {
			return err
		}
		if n := tr.signers(); n < 3 {
			return fmt.Errorf("%d authorities have signed", n)
		}
		if strings.Contains(string(is.Data["ca.crt"]), firstAuthority(secret)) {
			return errors.New("the first authority still is trusted")
		}
		return nil
	})
	t.Logf("two rotations took %v", time.Since(begun).Round(time.Millisecond))
	tr.expectNoFailure(t)
}

// front is a stand-in for a Service: an address that leads to one of several servers.
type front struct {
	listener net.Listener
	mu       sync.Mutex
	backend  string
}

func startFront(t *testing.T, backend string) *front {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	f, ctx := &front{listener: l, backend: backend}, t.Context()
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go f.forward(ctx, conn)
		}
	}()
	return f
}

func (f *front) lead(backend string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.backend = backend
}

func (f *front) forward(ctx context.Context, conn net.Conn) {
	f.mu.Lock()
	backend := f.backend
	f.mu.Unlock()
	to, err := (&net.Dialer{}).DialContext(ctx, "tcp", backend)
	if err != nil {
		_ = conn.Close()
		return
	}
	go func() {
		_, _ = io.Copy(to, conn)
		_ = to.Close()
	}()
	_, _ = io.Copy(conn, to)
	_ = conn.Close()
}

// TestReplicasServeTheWebhook runs two managers and kills the leader during a rotation.
func TestReplicasServeTheWebhook(t *testing.T) {
	long(t)
	parallel(t)
	f := start(t, fleet.Options{})
	hub := f.Hub
	// The Secret is invalid, and nobody repairs it while another process leads: a replica creates a missing
	// Secret, but changes none.
	must(t, hub.Client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "rulefleet-webhook-certs"},
	}))
	seconds, now, somebody := int32(3600), metav1.NowMicro(), "somebody"
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "rulefleet-manager"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &somebody, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now},
	}
	must(t, hub.Client.Create(t.Context(), lease))
	replica := func() (*fleet.Manager, string) {
		t.Helper()
		address := freeAddress(t)
		return startManagerWith(t, f, fleet.ManagerOptions{
			// Long enough for the lease of a killed replica to expire.
			Dir: t.TempDir(), Webhook: address, LeaderElect: true, Args: []string{"--webhook-cert-lifetime=1m"},
		}), address
	}
	leader, leaderAddress := replica()
	eventually(t, "for want of a certificate alone it is not ready", func(ctx context.Context) error {
		ok, body, err := readyz(ctx, leader)
		if err == nil && (ok || !strings.Contains(body, "[+]hub-cache ok") || !strings.Contains(body, "[-]webhook failed")) {
			err = fmt.Errorf("it says %q", body)
		}
		return err
	})
	must(t, hub.Client.Delete(t.Context(), lease))
	isReady := func(m *fleet.Manager) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			ok, body, err := readyz(ctx, m)
			if err == nil && !ok {
				err = fmt.Errorf("it says %q", body)
			}
			return err
		}
	}
	eventually(t, "the leader is ready", isReady(leader))
	follower, followerAddress := replica()
	eventually(t, "the follower is ready", isReady(follower))
	if strings.Contains(follower.Log(), "wrote the webhook's certificates") {
		t.Error("the follower writes certificates")
	}

	service := startFront(t, leaderAddress)
	must(t, f.InstallWebhook(t.Context(), service.listener.Addr().String()))
	eventually(t, "the leader is asked", asked(hub))
	secret, err := certificates(t.Context(), hub)
	must(t, err)

	// The leader is removed from the Service, and killed when it has begun to rotate. An authority without its
	// key is rotated at once.
	tr := startTraffic(t, hub, followerAddress)
	service.lead(followerAddress)
	update(t, hub, secret, func(s *corev1.Secret) { delete(s.Data, "ca.key") })
	eventually(t, "the rotation begins", func(ctx context.Context) error {
		is, err := certificates(ctx, hub)
		if err == nil && is.Data["next-ca.key"] == nil {
			err = errors.New("no authority follows")
		}
		if err != nil {
			return err
		}
		return configured(ctx, hub, is.Data["ca.crt"])
	})
	// With the new caBundle, the hub opens a new connection to the follower. Earlier requests are answered
	// first.
	seen := tr.asked()
	eventually(t, "the leader is asked no more", func(context.Context) error {
		if n := tr.asked() - seen; n < 50 {
			return fmt.Errorf("there were %d requests", n)
		}
		return nil
	})
	must(t, leader.Kill())
	within(t, time.Minute, "the rotation ends, and what the follower serves is of the new authority", func(ctx context.Context) error {
		is, err := certificates(ctx, hub)
		if err == nil && (is.Data["ca.key"] == nil || tr.signers() < 2) {
			err = errors.New("the new authority does not sign yet")
		}
		return err
	})
	tr.expectNoFailure(t)
}
