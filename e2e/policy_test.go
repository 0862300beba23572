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
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	t.Parallel()
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

// TestHubPolicies sends requests as the manager's account on the hub, whose permissions would allow all of them.
// The manager itself works under these policies in all tests.
func TestHubPolicies(t *testing.T) {
	t.Parallel()
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
