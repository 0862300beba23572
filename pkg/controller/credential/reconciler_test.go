package credential

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/metrics"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
)

const namespace = "rulefleet-system"

// spokeOf is a spoke that grants tokens by the clock of a test.
type spokeOf struct {
	now      func() time.Time
	life     time.Duration
	err      error
	requests []int64
	granted  []string
}

func (s *spokeOf) RequestToken(_ context.Context, of kubeconfig.Binding, seconds int64) (string, error) {
	s.requests = append(s.requests, seconds)
	if s.err != nil {
		return "", s.err
	}
	token := tokenOf(s.now(), s.life, of)
	s.granted = append(s.granted, token)
	return token, nil
}

func tokenOf(issued time.Time, life time.Duration, of kubeconfig.Binding) string {
	enc := base64.RawURLEncoding.EncodeToString
	claims := fmt.Appendf(nil, `{"iat":%d,"exp":%d,"kubernetes.io":{"namespace":%q,"serviceaccount":{"name":%q},"secret":{"name":%q,"uid":%q}}}`,
		issued.Unix(), issued.Add(life).Unix(), of.Namespace, of.Account, of.Secret, of.UID)
	return enc([]byte(`{"alg":"RS256"}`)) + "." + enc(claims) + ".c2ln"
}

var account = kubeconfig.Binding{Namespace: namespace, Account: "rulefleet-spoke", Secret: "rulefleet-spoke-tokens", UID: "u"}

// world is a hub with a Secret that join has made, and a spoke.
type world struct {
	*testing.T

	r     *Reconciler
	hub   client.Client
	spoke *spokeOf // nil while it is not connected
	now   time.Time
	told  int
	log   strings.Builder
	// writes counts the writes of the Reconciler, and failWrite is what they fail with.
	writes    int
	failWrite error
}

func newWorld(t *testing.T, life time.Duration) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	w.hub = fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().Build()
	w.spoke = &spokeOf{now: func() time.Time { return w.now }, life: life}
	w.apply("rulefleet-register", applycorev1.Secret("eu-1", namespace).WithType(corev1.SecretTypeOpaque).
		WithLabels(map[string]string{v1alpha1.RegistrationLabel: "true", "env": "prod"}).WithAnnotations(map[string]string{v1alpha1.RenewTokenAnnotation: "true"}))
	w.join(v1alpha1.CredentialManager, tokenOf(w.now, life, account))
	w.restart()
	return w
}

// restart makes a new Reconciler, as a restart and a fail-over do.
func (w *world) restart() {
	c := interceptor.NewClient(w.hub.(client.WithWatch), interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			w.writes++
			if w.failWrite != nil {
				return w.failWrite
			}
			return c.Apply(ctx, o, opts...)
		},
	})
	w.r = NewReconciler(Options{
		Hub: c, Namespace: namespace, Scale: 1, Now: func() time.Time { return w.now }, Changed: func(string) { w.told++ },
		Log: funcr.New(func(prefix, args string) { w.log.WriteString(prefix + args + "\n") }, funcr.Options{}),
		Spoke: func(string) Requester {
			if w.spoke == nil {
				return nil
			}
			return w.spoke
		},
	})
}

func (w *world) apply(manager string, s *applycorev1.SecretApplyConfiguration) {
	w.Helper()
	if err := w.hub.Apply(w.Context(), s, client.FieldOwner(manager), client.ForceOwnership); err != nil {
		w.Fatal(err)
	}
}

// join writes a kubeconfig with a token.
func (w *world) join(manager, token string) {
	w.Helper()
	text := fmt.Appendf(nil, `{"current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
		"clusters":[{"name":"c","cluster":{"server":"https://eu-1.example.com"}}],"users":[{"name":"u","user":{"token":%q}}]}`, token)
	w.apply(manager, applycorev1.Secret("eu-1", namespace).WithData(map[string][]byte{v1alpha1.KubeconfigKey: text}))
}

func (w *world) secret() *corev1.Secret {
	w.Helper()
	s := &corev1.Secret{}
	if err := w.hub.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: "eu-1"}, s); err != nil {
		w.Fatal(err)
	}
	return s
}

// reconcile runs one Reconcile, and returns when the next one is due.
func (w *world) reconcile() time.Duration {
	w.Helper()
	got, err := w.r.Reconcile(w.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "eu-1"}})
	if err != nil {
		w.Fatal(err)
	}
	return got.RequeueAfter
}

// run lets time pass, and reconciles when it is due.
func (w *world) run(d time.Duration) {
	w.Helper()
	for end := w.now.Add(d); ; {
		wait := w.reconcile()
		if wait <= 0 || w.now.Add(wait).After(end) {
			w.now = end
			return
		}
		w.now = w.now.Add(wait)
	}
}

// For three lives of a token, it is renewed when a third is left, with one request and one write each time, whatever
// restarts. The spoke grants less than at first, and that counts from then on.
func TestRenew(t *testing.T) {
	for name, restart := range map[string]bool{"one manager": false, "a manager for every look": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 24*time.Hour)
			w.spoke.life = 12 * time.Hour
			before := w.secret()
			var ends []time.Time
			for begin := w.now; w.now.Sub(begin) < 48*time.Hour; w.now = w.now.Add(5 * time.Minute) {
				if restart {
					w.restart()
				}
				if len(w.spoke.granted) > len(ends) {
					ends = append(ends, w.now)
				}
				w.reconcile()
				credential, _ := kubeconfig.TokenOf(w.secret().Data[v1alpha1.KubeconfigKey])
				if left := credential.Expires.Sub(w.now); left < credential.Expires.Sub(credential.Issued)/3-5*time.Minute {
					t.Fatalf("after %s, %s of %s is left", w.now.Sub(begin), left, credential.Expires.Sub(credential.Issued))
				}
			}
			if n := len(w.spoke.requests); n != w.writes || n < 4 || n > 6 || w.spoke.requests[0] != 24*3600 || w.spoke.requests[1] != 12*3600 {
				t.Errorf("requests %v, %d writes", w.spoke.requests, w.writes)
			}
			after := w.secret()
			if !kubeconfig.SameButToken(before.Data[v1alpha1.KubeconfigKey], after.Data[v1alpha1.KubeconfigKey]) ||
				len(after.Data) != 1 || after.Labels["env"] != "prod" || after.Annotations[v1alpha1.RenewTokenAnnotation] != "true" {
				t.Errorf("the Secret is %+v", after)
			}
		})
	}
}

func TestRenewalIsRemembered(t *testing.T) {
	w := newWorld(t, time.Hour)
	renewed := testutil.ToFloat64(metrics.TokenRenewals.WithLabelValues(metrics.TokenRenewed))
	w.run(41 * time.Minute)
	credential, _ := kubeconfig.TokenOf(w.secret().Data[v1alpha1.KubeconfigKey])
	if s := w.r.Renewal("eu-1"); !s.Renewed.Equal(credential.Expires) || s.Failure != "" || w.told == 0 || len(w.spoke.requests) != 1 {
		t.Errorf("%+v, told %d times, %d requests", s, w.told, len(w.spoke.requests))
	}
	if n := testutil.ToFloat64(metrics.TokenRenewals.WithLabelValues(metrics.TokenRenewed)) - renewed; n != 1 {
		t.Errorf("the metric counts %v", n)
	}
}

// While the cache still has the former Secret, no other token is requested.
func TestRenewBehindTheCache(t *testing.T) {
	w := newWorld(t, time.Hour)
	stale := w.secret()
	w.r.Hub = interceptor.NewClient(w.r.Hub.(client.WithWatch), interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			stale.DeepCopyInto(o.(*corev1.Secret))
			return nil
		},
	})
	w.now = w.now.Add(45 * time.Minute)
	for range 5 {
		if wait := w.reconcile(); wait != behindCheck {
			t.Errorf("waits %s", wait)
		}
	}
	if len(w.spoke.requests) != 1 || w.writes != 1 {
		t.Errorf("%d requests, %d writes", len(w.spoke.requests), w.writes)
	}
	// A manager that starts with such a cache requests one, and does not write it over the new one.
	w.r.attempts = map[string]*attempts{}
	now := w.secret()
	w.now = w.now.Add(time.Second)
	w.reconcile()
	if got := w.secret(); got.ResourceVersion != now.ResourceVersion || !strings.Contains(w.r.Renewal("eu-1").Failure, "writing Secret") {
		t.Errorf("version %s, and before %s: %+v", got.ResourceVersion, now.ResourceVersion, w.r.Renewal("eu-1"))
	}
}

// The kubeconfig of another owner stays, and no token is requested for it.
func TestRenewUnmanaged(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"External Secrets": func(w *world) { w.join("external-secrets", tokenOf(w.now, time.Hour, account)) },
		"with the same content": func(w *world) {
			w.apply("argocd-controller", applycorev1.Secret("eu-1", namespace).WithData(w.secret().Data))
		},
		"without the annotation": func(w *world) {
			s := w.secret()
			s.Annotations = nil
			if err := w.hub.Update(w.Context(), s); err != nil {
				w.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, time.Hour)
			change(w)
			before := w.secret()
			for range 12 {
				w.now = w.now.Add(10 * time.Minute)
				w.reconcile()
			}
			if after := w.secret(); after.ResourceVersion != before.ResourceVersion || !slices.Equal(before.Data[v1alpha1.KubeconfigKey], after.Data[v1alpha1.KubeconfigKey]) {
				t.Errorf("the Secret was changed: %+v", after)
			}
			if len(w.spoke.requests) > 0 || w.writes > 0 {
				t.Errorf("%d requests, %d writes", len(w.spoke.requests), w.writes)
			}
		})
	}
}

// An owner that the cache does not show yet keeps the kubeconfig, because nothing is forced.
func TestRenewWithoutForce(t *testing.T) {
	w := newWorld(t, time.Hour)
	stale := w.secret()
	w.join("external-secrets", tokenOf(w.now, time.Hour, account))
	before := w.secret()
	stale.ResourceVersion = before.ResourceVersion // otherwise that would refuse it
	w.now = w.now.Add(45 * time.Minute)
	w.r.Hub = interceptor.NewClient(w.r.Hub.(client.WithWatch), interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			stale.DeepCopyInto(o.(*corev1.Secret))
			return nil
		},
	})
	w.reconcile()
	if after := w.secret(); !slices.Equal(before.Data[v1alpha1.KubeconfigKey], after.Data[v1alpha1.KubeconfigKey]) || w.writes != 1 {
		t.Errorf("%d writes: %+v", w.writes, after)
	}
	if f := w.r.Renewal("eu-1").Failure; !strings.Contains(f, "external-secrets") {
		t.Errorf("%q", f)
	}
}

// A failure is shown with what to do, and tried again, less and less often. It ends with a new token.
func TestRenewFails(t *testing.T) {
	accounts := schema.GroupResource{Resource: "serviceaccounts/token"}
	for name, tc := range map[string]struct {
		err, write error
		life       time.Duration // of the next token
		says       string
	}{
		"forbidden":      {err: apierrors.NewForbidden(accounts, "rulefleet-spoke", errors.New("no")), says: "lacks the permission to create serviceaccounts/token"},
		"deleted":        {err: apierrors.NewNotFound(accounts, "rulefleet-spoke"), says: "was deleted in the spoke"},
		"another Secret": {err: apierrors.NewConflict(accounts, "rulefleet-spoke", errors.New("UID")), says: "was deleted in the spoke"},
		"unreachable":    {err: errors.New("request not sent"), says: "Rulefleet tries again"},
		"a short life":   {life: time.Minute, says: "valid for less than 10m0s"},
		"the hub denies": {write: apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "eu-1", errors.New("policy")), says: "renewTokens"},
		"the hub fails":  {write: errors.New("etcd is slow"), says: "Rulefleet tries again"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, time.Hour)
			w.spoke.err, w.failWrite = tc.err, tc.write
			if tc.life > 0 {
				w.spoke.life = tc.life
			}
			before := w.secret()
			w.run(45 * time.Minute)
			if f := w.r.Renewal("eu-1").Failure; !strings.Contains(f, tc.says) {
				t.Errorf("%q", f)
			}
			// Within 20 minutes, between 5 and 20 attempts; after the end none.
			w.run(20 * time.Minute)
			n := len(w.spoke.requests)
			if n < 5 || n > 25 {
				t.Errorf("%d requests", n)
			}
			w.run(3 * time.Hour)
			if len(w.spoke.requests) != n || w.secret().ResourceVersion != before.ResourceVersion {
				t.Errorf("%d requests, %d after the token had expired", n, len(w.spoke.requests)-n)
			}
			for _, token := range append(w.spoke.granted, tokenOf(w.now.Add(-245*time.Minute), time.Hour, account)) {
				if strings.Contains(w.log.String(), token) || strings.Contains(w.r.Renewal("eu-1").Failure, token) {
					t.Errorf("a token is shown:\n%s", w.log.String())
				}
			}
			w.join(v1alpha1.CredentialManager, tokenOf(w.now, time.Hour, account))
			w.reconcile()
			if f := w.r.Renewal("eu-1").Failure; f != "" {
				t.Errorf("after a new token: %q", f)
			}
		})
	}
}

// An event of the Secret, such as that of a label, does not shorten the wait after a failure.
func TestRenewWaitsAfterAFailure(t *testing.T) {
	w := newWorld(t, 24*time.Hour)
	w.spoke.err = errors.New("refused")
	w.now = w.now.Add(17 * time.Hour)
	wait := w.reconcile()
	if wait < 5*time.Second {
		t.Fatalf("waits %s", wait)
	}
	w.apply("somebody", applycorev1.Secret("eu-1", namespace).WithLabels(map[string]string{"tier": "gold"}))
	if left := w.reconcile(); left != wait || len(w.spoke.requests) != 1 {
		t.Errorf("waits %s, and then %s: %d requests", wait, left, len(w.spoke.requests))
	}
	w.now = w.now.Add(wait)
	w.reconcile()
	if len(w.spoke.requests) != 2 {
		t.Errorf("%d requests", len(w.spoke.requests))
	}
}

// What the hub says about the new token is not shown with the token.
func TestTokenIsRedacted(t *testing.T) {
	w := newWorld(t, time.Hour)
	w.now = w.now.Add(45 * time.Minute)
	token := tokenOf(w.now, time.Hour, account)
	w.failWrite = fmt.Errorf("a webhook denied %s", token)
	w.reconcile()
	if f := w.r.Renewal("eu-1").Failure; strings.Contains(f, token) || !strings.Contains(f, "a webhook denied [redacted]") || strings.Contains(w.log.String(), token) {
		t.Errorf("%q\n%s", f, w.log.String())
	}
}

// While the spoke is not connected, nothing is requested; when it is back, the token is renewed.
func TestRenewWhenTheSpokeIsBack(t *testing.T) {
	w := newWorld(t, time.Hour)
	of := w.spoke
	w.spoke = nil
	w.run(50 * time.Minute)
	w.spoke = of
	w.run(time.Minute)
	if len(of.requests) != 1 || w.writes != 1 {
		t.Errorf("%d requests, %d writes", len(of.requests), w.writes)
	}
}

// A token that is not bound to a Secret, such as one of an earlier version, is not renewed.
func TestRenewUnbound(t *testing.T) {
	w := newWorld(t, time.Hour)
	w.join(v1alpha1.CredentialManager, tokenOf(w.now, time.Hour, kubeconfig.Binding{Namespace: namespace, Account: "rulefleet-spoke"}))
	w.run(45 * time.Minute)
	if f := w.r.Renewal("eu-1").Failure; len(w.spoke.requests) > 0 || !strings.Contains(f, "not bound") || !strings.Contains(f, "kubectl rulefleet join eu-1") {
		t.Errorf("%d requests, %q", len(w.spoke.requests), f)
	}
}

// Nothing stays of a spoke that has left, and Secrets elsewhere do not count.
func TestForget(t *testing.T) {
	w := newWorld(t, time.Hour)
	w.run(45 * time.Minute)
	if err := w.hub.Delete(w.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "eu-1"}}); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	if len(w.r.attempts) > 0 {
		t.Errorf("%+v", w.r.attempts)
	}
	w = newWorld(t, time.Hour)
	w.r.Namespace, w.r.Log = "elsewhere", logr.Discard()
	w.run(45 * time.Minute)
	if len(w.spoke.requests) > 0 {
		t.Errorf("%d requests", len(w.spoke.requests))
	}
}
