package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// attempt is a request with a credential of the manager.
type attempt struct {
	name    string
	refused bool
	send    func(ctx context.Context, c client.Client) error
}

// TestSpokePolicy sends requests as the account of a spoke, whose permissions would allow all of them. The manager
// itself works under this policy in a spoke of the shared fleet.
func TestSpokePolicy(t *testing.T) {
	parallel(t)
	f := start(t, fleet.Options{Spokes: []string{spokeA}})
	spoke := f.Spoke(spokeA)
	namespace(t, "shop", spoke)
	hub := map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.HubLabel: "hub"}
	object := func(name string, labels map[string]string) *monitoringv1.PrometheusRule {
		return &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: maps.Clone(labels)}}
	}
	for name, labels := range map[string]map[string]string{
		"ours": hub, "bare": nil, "theirs": {"team": "shop"},
		"helm": {v1alpha1.ManagedByLabel: "Helm", v1alpha1.HubLabel: "hub"}, "half": {v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue},
	} {
		create(t, spoke, object(name, labels))
	}
	made := func(labels map[string]string) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error { return c.Create(ctx, object("new", labels)) }
	}
	changed := func(name string, labels map[string]string) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error {
			pr := &monitoringv1.PrometheusRule{}
			if err := c.Get(ctx, client.ObjectKey{Namespace: "shop", Name: name}, pr); err != nil {
				return err
			}
			pr.Labels = labels
			return c.Update(ctx, pr)
		}
	}
	removed := func(name string) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error { return c.Delete(ctx, object(name, nil)) }
	}
	for _, o := range mayRequestTokens() {
		create(t, spoke, o)
	}
	requested := func(kind, version, bound string) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error {
			request := &authenticationv1.TokenRequest{}
			if kind != "" {
				request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: version, Kind: kind, Name: bound}
			}
			return c.SubResource("token").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "account"}}, request)
		}
	}
	attempts := []attempt{
		{"create without labels", true, made(nil)},
		{"create without the hub", true, made(map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue})},
		{"create with an empty hub", true, made(map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.HubLabel: ""})},
		{"create as another manager", true, made(map[string]string{v1alpha1.ManagedByLabel: "Helm", v1alpha1.HubLabel: "hub"})},
		{"create", false, made(hub)},
		{"change an object without labels", true, changed("bare", hub)},
		{"change an object of others", true, changed("theirs", hub)},
		{"change an object of another manager", true, changed("helm", hub)},
		{"change an object without a hub", true, changed("half", hub)},
		{"remove all labels", true, changed("ours", nil)},
		{"remove the hub", true, changed("ours", map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue})},
		{"adopt", false, changed("ours", map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.HubLabel: "another"})},
		{"delete an object without labels", true, removed("bare")},
		{"delete an object of others", true, removed("theirs")},
		{"delete an object without a hub", true, removed("half")},
		{"delete", false, removed("ours")},
		{"request a token that is not bound", true, requested("", "", "")},
		{"request a token that is bound to another Secret", true, requested("Secret", "v1", "other")},
		{"request a token that is bound to a pod", true, requested("Pod", "v1", "rulefleet-spoke-tokens")},
		{"request a token that is revoked with the others", false, requested("Secret", "v1", "rulefleet-spoke-tokens")},
	}
	c := actingAs(t, spoke, fleet.SpokeUser)
	for _, a := range attempts {
		if err := a.send(t.Context(), c); err != nil {
			t.Fatalf("%s: refused without the policy: %v", a.name, err)
		}
	}
	must(t, f.InstallSpokePolicy(t.Context(), spoke))
	expectAttempts(t, c, attempts)
	// Others are not limited.
	must(t, removed("theirs")(t.Context(), spoke.Client))
}

// mayRequestTokens returns an account for which the account of a spoke may request tokens, and what they may be bound to.
func mayRequestTokens() []client.Object {
	in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: name} }
	return []client.Object{
		&corev1.ServiceAccount{ObjectMeta: in("account")},
		&corev1.Secret{ObjectMeta: in("rulefleet-spoke-tokens")},
		&corev1.Secret{ObjectMeta: in("other")},
		&corev1.Pod{ObjectMeta: in("rulefleet-spoke-tokens"), Spec: corev1.PodSpec{ServiceAccountName: "account", Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
		&rbacv1.Role{ObjectMeta: in("renew"), Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}}}},
		&rbacv1.RoleBinding{
			ObjectMeta: in("renew"), Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: fleet.SpokeUser}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "renew"},
		},
	}
}

// TestHubPolicies sends requests as the manager's account on the hub, whose permissions would allow all of them.
// The manager itself works under these policies in all tests.
func TestHubPolicies(t *testing.T) {
	parallel(t)
	f := start(t, fleet.Options{})
	namespace(t, "shop", f.Hub)
	namespace(t, fleet.GeneratedNamespace, f.Hub)
	must(t, f.RegisterKubeconfig(t.Context(), spokeA, []byte("secret"), map[string]string{"env": "prod"}))
	must(t, f.InstallWebhook(t.Context(), "127.0.0.1:1"))
	config := &admissionv1.ValidatingWebhookConfiguration{}
	must(t, f.Hub.Client.Get(t.Context(), client.ObjectKey{Name: fleet.Release}, config))
	for i := range config.Webhooks {
		config.Webhooks[i].FailurePolicy = new(admissionv1.Ignore) // nobody serves it
	}
	first, last := &config.Webhooks[0], &config.Webhooks[len(config.Webhooks)-1]
	first.MatchConditions = []admissionv1.MatchCondition{{Name: "always", Expression: "true"}}
	last.ClientConfig.URL, last.ClientConfig.Service = nil, &admissionv1.ServiceReference{Namespace: fleet.Namespace, Name: "webhook"}
	must(t, f.Hub.Client.Update(t.Context(), config))

	tenants := alertRule("rule", "", onEvery())
	tenants.Namespace = "shop"
	template := func(name string, annotations map[string]string) *v1alpha1.AlertRuleTemplate {
		out := &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
		out.Spec.AlertSpec = v1alpha1.AlertSpec{Alert: "Extra", Expr: "up == 0", Severity: "info"}
		return out
	}
	builtIn := map[string]string{v1alpha1.BuiltInAnnotation: "digest"}
	sc := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: spokeA}}
	certificate := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "rulefleet-webhook-certs"}}
	for _, o := range []client.Object{tenants, template("person", nil), template("built-in", builtIn), sc, certificate} {
		must(t, f.Hub.Client.Create(t.Context(), o))
	}
	meta := func(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
	made := func(o client.Object) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error {
			return c.Create(ctx, o.DeepCopyObject().(client.Object))
		}
	}
	patched := func(o client.Object, patch string) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error {
			return c.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(patch)))
		}
	}
	injected := func(change func(*admissionv1.ValidatingWebhookConfiguration)) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error {
			next := config.DeepCopy()
			change(next)
			return c.Patch(ctx, next, client.StrategicMergeFrom(config))
		}
	}
	authority, _, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	must(t, err)
	secret := &corev1.Secret{ObjectMeta: meta(fleet.Namespace, spokeA)}
	// Secrets whose kubeconfig may be renewed, and some that lack something.
	renewable := func(ns, name string, change func(s *corev1.Secret)) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: meta(ns, name), Data: map[string][]byte{"kubeconfig": []byte("secret"), "other": []byte("x")}}
		s.Labels = map[string]string{v1alpha1.RegistrationLabel: "true", "env": "prod"}
		s.Annotations = map[string]string{v1alpha1.RenewTokenAnnotation: "true"}
		change(s)
		must(t, f.Hub.Client.Create(t.Context(), s))
		return &corev1.Secret{ObjectMeta: meta(ns, name)}
	}
	joined := renewable(fleet.Namespace, "joined", func(*corev1.Secret) {})
	declined := renewable(fleet.Namespace, "declined", func(s *corev1.Secret) { s.Annotations[v1alpha1.RenewTokenAnnotation] = "false" })
	unregistered := renewable(fleet.Namespace, "unregistered", func(s *corev1.Secret) { delete(s.Labels, v1alpha1.RegistrationLabel) })
	elsewhere := renewable("shop", "joined", func(*corev1.Secret) {})
	must(t, f.Hub.Client.Create(t.Context(), &rbacv1.Role{ObjectMeta: meta("shop", "secrets"), Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"patch"}}}}))
	must(t, f.Hub.Client.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta("shop", "secrets"), Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: fleet.HubUser}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "secrets"},
	}))
	token := &corev1.Secret{ObjectMeta: meta(fleet.Namespace, "token"), Type: corev1.SecretTypeServiceAccountToken}
	token.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
	generated := alertRule("made", "", onEvery())
	generated.Namespace = fleet.GeneratedNamespace
	admins := alertRule("admins", "", onEvery())

	expectAttempts(t, actingAs(t, f.Hub, fleet.HubUser), []attempt{
		{"create a Secret with a token of another account", true, made(token)},
		{"create the Secret of the certificate as such a token", true, func(ctx context.Context, c client.Client) error {
			token := token.DeepCopy()
			token.Name = certificate.Name
			return c.Create(ctx, token)
		}},
		{"create a Secret of a spoke", true, made(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: fleet.Namespace, Name: "spoke", Labels: map[string]string{v1alpha1.RegistrationLabel: "true"},
		}})},
		{"change a kubeconfig", true, patched(secret, `{"data":{"kubeconfig":"b3RoZXI="}}`)},
		{"remove another label of a Secret", true, patched(secret, `{"metadata":{"labels":{"env":null}}}`)},
		{"change a label of a Secret", true, patched(secret, `{"metadata":{"labels":{"env":"dev"}}}`)},
		{"add a label to a Secret", true, patched(secret, `{"metadata":{"labels":{"new":"x"}}}`)},
		{"annotate a Secret", true, patched(secret, `{"metadata":{"annotations":{"a":"b"}}}`)},
		{"add a finalizer to a Secret", true, patched(secret, `{"metadata":{"finalizers":["rulefleet.io/x"]}}`)},
		{"add an owner to a Secret", true, patched(secret, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]}}`)},
		{"make a Secret immutable", true, patched(secret, `{"immutable":true}`)},
		{"renew a kubeconfig", false, patched(joined, `{"data":{"kubeconfig":"b3RoZXI="}}`)},
		{"renew a kubeconfig by an apply", false, func(ctx context.Context, c client.Client) error {
			next := applycorev1.Secret(joined.Name, joined.Namespace).WithData(map[string][]byte{"kubeconfig": []byte("other")})
			return c.Apply(ctx, next, client.FieldOwner(v1alpha1.CredentialManager), client.ForceOwnership)
		}},
		{"renew a kubeconfig, and deregister the spoke", true, patched(joined, fmt.Sprintf(`{"data":{"kubeconfig":"b3RoZXI="},"metadata":{"labels":{%q:null}}}`, v1alpha1.RegistrationLabel))},
		{"renew a kubeconfig, and change a label", true, patched(joined, `{"data":{"kubeconfig":"b3RoZXI="},"metadata":{"labels":{"env":"dev"}}}`)},
		{"renew a kubeconfig, and annotate the Secret", true, patched(joined, `{"data":{"kubeconfig":"b3RoZXI="},"metadata":{"annotations":{"a":"b"}}}`)},
		{"change another key of a Secret that is renewed", true, patched(joined, `{"data":{"other":"eQ=="}}`)},
		{"add a key to a Secret that is renewed", true, patched(joined, `{"data":{"new":""}}`)},
		{"remove a key from a Secret that is renewed", true, patched(joined, `{"data":{"other":null}}`)},
		{"remove the kubeconfig", true, patched(joined, `{"data":{"kubeconfig":null}}`)},
		{"renew a kubeconfig whose annotation says no", true, patched(declined, `{"data":{"kubeconfig":"b3RoZXI="}}`)},
		{"mark a Secret for renewal", true, patched(secret, `{"data":{"kubeconfig":"b3RoZXI="},"metadata":{"annotations":{"rulefleet.io/renew-token":"true"}}}`)},
		{"renew a kubeconfig that registers no spoke", true, patched(unregistered, `{"data":{"kubeconfig":"b3RoZXI="}}`)},
		{"renew a kubeconfig in another namespace", true, patched(elsewhere, `{"data":{"kubeconfig":"b3RoZXI="}}`)},
		{"deregister a spoke", false, patched(secret, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, v1alpha1.RegistrationLabel))},
		{"change the certificate", false, patched(certificate, `{"data":{"tls.crt":"b3RoZXI="}}`)},

		{"create any ConfigMap", true, made(&corev1.ConfigMap{ObjectMeta: meta(fleet.Namespace, "other")})},
		{"create the hub's ConfigMap", false, made(&corev1.ConfigMap{ObjectMeta: meta(fleet.Namespace, "rulefleet-hub")})},
		{"create any Lease", true, made(&coordinationv1.Lease{ObjectMeta: meta(fleet.Namespace, "other")})},
		{"create the leader's Lease", false, made(&coordinationv1.Lease{ObjectMeta: meta(fleet.Namespace, "rulefleet-manager")})},
		{"create any namespace", true, made(&corev1.Namespace{ObjectMeta: meta("", "other")})},

		{"create an AlertRule of an administrator", true, made(admins)},
		{"change an AlertRule of a tenant", true, patched(tenants, `{"spec":{"expr":"vector(0)"}}`)},
		{"delete an AlertRule of a tenant", true, func(ctx context.Context, c client.Client) error { return c.Delete(ctx, tenants) }},
		{"create a generated AlertRule", false, made(generated)},
		{"create a template", true, made(template("new", nil))},
		{"create a built-in template", false, made(template("new", builtIn))},
		{"change a template of a person", true, patched(template("person", nil), `{"metadata":{"annotations":{"rulefleet.io/built-in":"x"}},"spec":{"expr":"vector(0)"}}`)},
		{"change a built-in template", false, patched(template("built-in", nil), `{"spec":{"expr":"vector(0)"}}`)},
		{"change the spec of a SpokeCluster", true, patched(sc, `{"spec":{"suspend":true}}`)},
		{"label a SpokeCluster", false, patched(sc, `{"metadata":{"labels":{"env":"prod"},"finalizers":["rulefleet.io/leave"]}}`)},

		{"change the failure policy", true, injected(func(c *admissionv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].FailurePolicy = new(admissionv1.Fail)
		})},
		{"let the webhook see other objects", true, injected(func(c *admissionv1.ValidatingWebhookConfiguration) { c.Webhooks[0].Rules[0].Resources = []string{"*"} })},
		{"exempt namespaces from the webhook", true, injected(func(c *admissionv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		})},
		{"change a condition", true, injected(func(c *admissionv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].MatchConditions[0].Expression = "false"
		})},
		{"remove the conditions", true, injected(func(c *admissionv1.ValidatingWebhookConfiguration) { c.Webhooks[0].MatchConditions = nil })},
		{"send the requests elsewhere", true, injected(func(c *admissionv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].ClientConfig.URL = new("https://example.com")
		})},
		{"send the requests to another Service", true, injected(func(c *admissionv1.ValidatingWebhookConfiguration) {
			c.Webhooks[len(c.Webhooks)-1].ClientConfig.Service.Name = "other"
		})},
		{"add a webhook", true, injected(func(c *admissionv1.ValidatingWebhookConfiguration) {
			added := c.Webhooks[0].DeepCopy()
			added.Name = "added.rulefleet.io"
			c.Webhooks = append(c.Webhooks, *added)
		})},
		{"remove a webhook", true, injected(func(c *admissionv1.ValidatingWebhookConfiguration) { c.Webhooks = c.Webhooks[1:] })},
		{"label the configuration", true, injected(func(c *admissionv1.ValidatingWebhookConfiguration) { c.Labels = map[string]string{"a": "b"} })},
		{"annotate the configuration", true, injected(func(c *admissionv1.ValidatingWebhookConfiguration) { c.Annotations = map[string]string{"a": "b"} })},
		{"add a finalizer to the configuration", true, injected(func(c *admissionv1.ValidatingWebhookConfiguration) { c.Finalizers = []string{"rulefleet.io/x"} })},
		{"add an owner to the configuration", true, injected(func(c *admissionv1.ValidatingWebhookConfiguration) {
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"}}
		})},
		{"inject the caBundle", false, injected(func(c *admissionv1.ValidatingWebhookConfiguration) {
			for i := range c.Webhooks {
				c.Webhooks[i].ClientConfig.CABundle = authority
			}
		})},
	})
}

// actingAs returns a client that sends dry runs as another user.
func actingAs(t *testing.T, m *fleet.Member, user string) client.Client {
	t.Helper()
	cfg := m.RESTConfig()
	cfg.Impersonate.UserName = user
	c, err := client.New(cfg, client.Options{Scheme: fleet.Scheme})
	must(t, err)
	return client.NewDryRunClient(c)
}

// expectAttempts sends all attempts, after the API server has noticed the policies.
func expectAttempts(t *testing.T, c client.Client, attempts []attempt) {
	t.Helper()
	for _, a := range attempts {
		if a.refused { // each policy refuses one of them
			eventually(t, a.name+" is refused", func(ctx context.Context) error { return refusedByPolicy(a.send(ctx, c)) })
		}
	}
	for _, a := range attempts {
		t.Run(a.name, func(t *testing.T) {
			switch err := a.send(t.Context(), c); {
			case a.refused:
				must(t, refusedByPolicy(err))
			default:
				must(t, err)
			}
		})
	}
}

func refusedByPolicy(err error) error {
	if err == nil {
		return errors.New("it is allowed")
	}
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
		return fmt.Errorf("it is refused, but not by a policy: %w", err)
	}
	return nil
}
