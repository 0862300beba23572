package membership

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
	"github.com/rulefleet/rulefleet/pkg/spoke/renewal"
)

// expiresAt is when the credential of these tests expires. Its life is 900 s.
var expiresAt = time.Date(2026, 1, 1, 12, 15, 0, 0, time.UTC)

var (
	connectedTo = spoke.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConnected, Message: "the spoke answers"}
	servedBy    = spoke.Finding{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonServed, Message: "PrometheusRules can be read"}
)

func tokenOf(expires time.Time) kubeconfig.Credential {
	return kubeconfig.Credential{Kind: "token", Issued: expires.Add(-900 * time.Second), Expires: expires}
}

func TestValidity(t *testing.T) {
	rejected := spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAuthFailed, Message: "the spoke rejects the credential (401); put a kubeconfig"}
	const when, again = "2026-01-01T12:15:00Z", "kubectl rulefleet join s --spoke-context CONTEXT"
	for name, tc := range map[string]struct {
		credential kubeconfig.Credential
		left       time.Duration
		connected  spoke.Finding
		status     metav1.ConditionStatus
		reason     string
		says       []string // the message has each of these
		ready      metav1.ConditionStatus
		authFailed string // is in the message of Ready
		wait       time.Duration
	}{
		"new":              {credential: tokenOf(expiresAt), left: 900 * time.Second, status: "True", reason: "Valid", says: []string{when}, ready: "True", wait: 600 * time.Second},
		"before renewal":   {credential: tokenOf(expiresAt), left: 301 * time.Second, status: "True", reason: "Valid", says: []string{when}, ready: "True", wait: time.Second},
		"a third is left":  {credential: tokenOf(expiresAt), left: 300 * time.Second, status: "True", reason: "Expiring", says: []string{when, again}, ready: "True", wait: 300 * time.Second},
		"a second is left": {credential: tokenOf(expiresAt), left: time.Second, status: "True", reason: "Expiring", says: []string{when, again}, ready: "True", wait: time.Second},
		"expired":          {credential: tokenOf(expiresAt), status: "False", reason: "Expired", says: []string{"expired at " + when, again}, ready: "True"},
		"expired and rejected": {
			credential: tokenOf(expiresAt), left: -time.Hour, connected: rejected, status: "False", reason: "Expired", says: []string{when, again},
			ready: "False", authFailed: "the token expired at " + when,
		},
		"rejected": {
			credential: tokenOf(expiresAt), left: time.Hour, connected: rejected, status: "False", reason: "AuthFailed", says: []string{"revoked", again},
			ready: "False", authFailed: "the spoke rejects the credential (401); put a kubeconfig", wait: time.Hour - 300*time.Second,
		},
		"rejected, without an end":  {credential: kubeconfig.Credential{Kind: "token", Endless: true}, connected: rejected, status: "False", reason: "AuthFailed", ready: "False"},
		"not rejected, but expired": {credential: tokenOf(expiresAt), left: -time.Hour, connected: spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonUnreachable}, status: "False", reason: "Expired", ready: "False"},
		"far away":                  {credential: kubeconfig.Credential{Kind: "token", Expires: expiresAt}, left: 1000 * time.Hour, status: "True", reason: "Valid", says: []string{when}, ready: "True", wait: time.Hour},
		"an unknown life":           {credential: kubeconfig.Credential{Kind: "token", Expires: expiresAt}, left: time.Second, status: "True", reason: "Valid", ready: "True", wait: time.Second},
		"endless":                   {credential: kubeconfig.Credential{Kind: "token", Endless: true}, status: "True", reason: "Valid", says: []string{"does not expire"}, ready: "True"},
		"unknown":                   {credential: kubeconfig.Credential{Kind: "password"}, status: "Unknown", reason: "ExpirationUnknown", says: []string{"password"}, ready: "True"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.connected.Status == "" {
				tc.connected = connectedTo
			}
			sc := memberOf("s", "id")
			now := metav1.NewTime(expiresAt.Add(-tc.left))
			n := news{seen: &spoke.Observation{Connected: tc.connected, Served: servedBy, Credential: tc.credential}}
			status := statusOf(sc, n, now)
			c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionCredentialValid)
			if c == nil || c.Status != tc.status || c.Reason != tc.reason {
				t.Fatalf("CredentialValid is %+v", c)
			}
			for _, text := range tc.says {
				if !strings.Contains(c.Message, text) {
					t.Errorf("%q does not say %q", c.Message, text)
				}
			}
			if ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); ready.Status != tc.ready || !strings.Contains(ready.Message, tc.authFailed) {
				t.Errorf("Ready is %+v", ready)
			}
			if got := n.validity(sc, now.Time).wait(); got != tc.wait {
				t.Errorf("waits %s, want %s", got, tc.wait)
			}
			switch {
			case tc.credential.Expires.IsZero():
				if status.Credential != nil {
					t.Errorf("shown: %+v", status.Credential)
				}
			case !status.Credential.ExpirationTime.Time.Equal(tc.credential.Expires), !status.Credential.RenewalTime.Time.Equal(tc.credential.Renewal()):
				t.Errorf("shown: %+v", status.Credential)
			}
		})
	}
}

// renewer is what the controller for tokens says.
type renewer renewal.State

func (r renewer) Renewal(string) renewal.State { return renewal.State(r) }

// TestRenewing has tokens that the manager renews.
func TestRenewing(t *testing.T) {
	rejected := spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAuthFailed, Message: "the spoke rejects the credential (401); put a kubeconfig"}
	ours := []metav1.ManagedFieldsEntry{{Manager: v1alpha1.CredentialManager, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:kubeconfig":{}}}`)}}
	theirs := []metav1.ManagedFieldsEntry{{Manager: "external-secrets", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: ours[0].FieldsV1}}
	const when, again = "2026-01-01T12:15:00Z", "kubectl rulefleet join s --spoke-context CONTEXT"
	failed := renewal.State{Failure: "forbidden; do this"}
	for name, tc := range map[string]struct {
		state     renewal.State
		off       bool // the manager renews no tokens
		unasked   bool // the Secret does not ask for it
		fields    []metav1.ManagedFieldsEntry
		left      time.Duration
		connected spoke.Finding
		was       string // the reason shown for this token
		other     bool   // it is shown for another token
		status    metav1.ConditionStatus
		reason    string
		says      []string
		without   string
	}{
		"joined":                         {fields: ours, left: 900 * time.Second, status: "True", reason: "Valid", says: []string{when, "the manager renews it before 2026-01-01T12:10:00Z"}, without: again},
		"renewed":                        {fields: ours, left: 900 * time.Second, state: renewal.State{Renewed: expiresAt}, status: "True", reason: "Renewed", says: []string{when, "it renews it again before 2026-01-01T12:10:00Z"}, without: again},
		"renewed before a restart":       {fields: ours, left: 900 * time.Second, was: "Renewed", status: "True", reason: "Renewed"},
		"another one was renewed":        {fields: ours, left: 900 * time.Second, state: renewal.State{Renewed: expiresAt.Add(time.Second)}, status: "True", reason: "Valid"},
		"due":                            {fields: ours, left: 300 * time.Second, was: "Renewed", status: "True", reason: "Expiring", says: []string{when, "the manager renews it when the spoke is connected"}, without: again},
		"failed":                         {fields: ours, left: 310 * time.Second, state: failed, was: "Renewed", status: "True", reason: "Expiring", says: []string{when, "could not renew it: forbidden; do this"}},
		"failed for long":                {fields: ours, left: time.Second, state: failed, status: "True", reason: "Expiring", says: []string{"could not renew it: forbidden; do this"}},
		"expired":                        {fields: ours, state: failed, status: "False", reason: "Expired", says: []string{again, "could not renew it: forbidden; do this"}},
		"revoked":                        {fields: ours, left: 900 * time.Second, connected: rejected, state: failed, status: "False", reason: "AuthFailed", says: []string{"it was revoked", again}},
		"of somebody else":               {fields: theirs, left: 900 * time.Second, was: "Renewed", status: "True", reason: "Unmanaged", says: []string{`"external-secrets"`, again + " --force-conflicts"}},
		"of somebody else, too":          {fields: append(ours[:1:1], theirs...), left: time.Second, status: "True", reason: "Unmanaged", says: []string{when}},
		"of somebody else, and expired":  {fields: theirs, status: "False", reason: "Expired", says: []string{again}},
		"of somebody else, switched off": {off: true, fields: theirs, left: 900 * time.Second, status: "True", reason: "Valid", without: "manager"},
		"by hand, and due":               {unasked: true, fields: theirs, left: time.Second, status: "True", reason: "Expiring", says: []string{again}, without: "manager"},
		"renewed, and joined again":      {fields: ours, left: 900 * time.Second, was: "Renewed", other: true, status: "True", reason: "Valid"},
		"switched off":                   {off: true, fields: ours, left: time.Second, status: "True", reason: "Expiring", says: []string{again}, without: "manager"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.connected.Status == "" {
				tc.connected = connectedTo
			}
			secret := secretOf("s", map[string][]byte{v1alpha1.KubeconfigKey: []byte("k")})
			secret.Annotations, secret.ManagedFields = map[string]string{v1alpha1.RenewTokenAnnotation: "true"}, tc.fields
			if tc.unasked {
				secret.Annotations = nil
			}
			r := &Reconciler{Renewals: renewer(tc.state)}
			if tc.off {
				r.Renewals = nil
			}
			sc, now := memberOf("s", "id"), metav1.NewTime(expiresAt.Add(-tc.left))
			if tc.was != "" {
				sc.Status.Credential = &v1alpha1.SpokeCredential{ExpirationTime: metav1.NewTime(expiresAt)}
				sc.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionCredentialValid, Reason: tc.was, Status: metav1.ConditionTrue}}
			}
			if tc.other {
				sc.Status.Credential.ExpirationTime = metav1.NewTime(expiresAt.Add(-time.Hour))
			}
			n := news{seen: &spoke.Observation{Connected: tc.connected, Served: servedBy, Credential: tokenOf(expiresAt)}, renewing: r.renewing(secret)}
			status := statusOf(sc, n, now)
			c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionCredentialValid)
			if c == nil || c.Status != tc.status || c.Reason != tc.reason {
				t.Fatalf("CredentialValid is %+v", c)
			}
			for _, text := range tc.says {
				if !strings.Contains(c.Message, text) {
					t.Errorf("%q does not say %q", c.Message, text)
				}
			}
			if tc.without != "" && strings.Contains(c.Message, tc.without) {
				t.Errorf("%q says %q", c.Message, tc.without)
			}
		})
	}
}

// Until a spoke was observed after a start, what was shown stays. It goes with the kubeconfig.
func TestValidityIsKept(t *testing.T) {
	sc := memberOf("s", "id")
	now := metav1.NewTime(expiresAt.Add(-time.Minute))
	sc.Status = statusOf(sc, news{seen: &spoke.Observation{Connected: connectedTo, Served: servedBy, Credential: tokenOf(expiresAt)}}, now)
	if status := statusOf(sc, news{}, now); status.Credential == nil || meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionCredentialValid) == nil {
		t.Errorf("after a start: %+v", status)
	}
	gone := spoke.Finding{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonKubeconfigMissing, Message: "no Secret"}
	if status := statusOf(sc, news{finding: &gone}, now); status.Credential != nil || meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionCredentialValid) != nil {
		t.Errorf("without a kubeconfig: %+v", status)
	}
}

// A credential costs a write when it is first seen, when a third of its life is left, and when it expires.
func TestValidityIsWrittenOnce(t *testing.T) {
	secret := secretOf("s", map[string][]byte{v1alpha1.KubeconfigKey: []byte("k")})
	r, recorder := registrar(t, memberOf("s", "id"), secret)
	writes := countStatusWrites(r)
	seen := &spoke.Observation{Connected: connectedTo, Served: servedBy, Identity: "id", Credential: tokenOf(expiresAt)}
	for i, step := range []struct {
		left   time.Duration
		writes int
	}{
		{900 * time.Second, 1}, {900 * time.Second, 1}, {301 * time.Second, 1}, {300 * time.Second, 2}, {time.Second, 2}, {0, 3}, {-time.Hour, 3},
	} {
		var sc v1alpha1.SpokeCluster
		if err := r.Client.Get(t.Context(), client.ObjectKey{Name: "s"}, &sc); err != nil {
			t.Fatal(err)
		}
		_, err := r.show(t.Context(), &sc, secret, statusOf(&sc, news{seen: seen}, metav1.NewTime(expiresAt.Add(-step.left))))
		if err != nil || *writes != step.writes {
			t.Errorf("step %d: %d writes, %v", i, *writes, err)
		}
	}
	var told []string
	for len(recorder.Events) > 0 {
		told = append(told, <-recorder.Events)
	}
	all := strings.Join(told, "\n")
	for _, of := range []string{"Warning Expiring", "Warning Expired"} {
		if strings.Count(all, of) != 2 { // on the SpokeCluster and on the Secret
			t.Errorf("not 2 Events %q: %s", of, all)
		}
	}
	if strings.Contains(all, " Valid ") {
		t.Errorf("an Event about a valid credential: %s", all)
	}
}

// countStatusWrites returns the number of writes of a status from now on.
func countStatusWrites(r *Reconciler) *int {
	writes := new(int)
	r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			*writes++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	return writes
}

// A credential that the spoke rejects is looked at again when it expires.
func TestReconcileAtTheExpiration(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	t.Cleanup(server.Close)
	enc := base64.RawURLEncoding.EncodeToString
	token := enc([]byte("{}")) + "." + enc(fmt.Appendf(nil, `{"iat":%d,"exp":%d}`, expiresAt.Unix()-900, expiresAt.Unix())) + ".x"
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	text := fmt.Appendf(nil, `{"current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
		"clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority-data":%q}}],"users":[{"name":"u","user":{"token":%q}}]}`,
		server.URL, base64.StdEncoding.EncodeToString(ca), token)
	r, _ := registrar(t, memberOf("s", "id"), secretOf("s", map[string][]byte{v1alpha1.KubeconfigKey: text}))
	allow, err := kubeconfig.ParseAllowances("loopback")
	if err != nil {
		t.Fatal(err)
	}
	r.Rules, r.Provider = noRules{}, spoke.NewProvider(spoke.Options{Allow: allow})
	writes := countStatusWrites(r)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { _ = r.Provider.Start(ctx, nil); close(ended) }()
	t.Cleanup(func() { stop(); <-ended; r.Provider.Remove("s") })
	if _, err := r.Provider.Register(ctx, "s", text, nil); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); r.Provider.Observation("s") == nil; time.Sleep(time.Millisecond) { //nolint:forbidigo // until the first probe
		if time.Now().After(deadline) {
			t.Fatal("the spoke is not observed")
		}
	}
	for i, step := range []struct {
		left, wait time.Duration
		writes     int
	}{{900 * time.Second, 600 * time.Second, 1}, {300 * time.Second, 300 * time.Second, 1}, {0, 0, 2}, {-time.Hour, 0, 2}} {
		r.now = func() time.Time { return expiresAt.Add(-step.left) }
		got, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "s"}})
		if err != nil || got.RequeueAfter != step.wait || *writes != step.writes {
			t.Errorf("step %d: %d writes, %+v, %v", i, *writes, got, err)
		}
	}
}
