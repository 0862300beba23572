package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// freeAddress is a loopback address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := fleet.FreeAddress()
	must(t, err)
	return address
}

// alertTemplate returns a valid AlertRuleTemplate.
func alertTemplate(name string) *v1alpha1.AlertRuleTemplate {
	return &v1alpha1.AlertRuleTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.AlertRuleTemplateSpec{AlertSpec: v1alpha1.AlertSpec{Alert: "TestAlert", Expr: "up == 0"}},
	}
}

// admitted creates a valid AlertRule without storing it.
func admitted(ctx context.Context, m *fleet.Member) error {
	ar := alertRule("", "shop", onEvery())
	ar.GenerateName = "admitted-"
	return m.Client.Create(ctx, ar, client.DryRunAll)
}

// refused checks that the webhook rejects an invalid AlertRule.
func refused(ctx context.Context, m *fleet.Member) error {
	ar := alertRule("", "shop", onEvery())
	ar.GenerateName, ar.Spec.Expr = "refused-", "up =="
	err := m.Client.Create(ctx, ar, client.DryRunAll)
	if err == nil {
		return errors.New("what is not valid was admitted")
	}
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `admission webhook "alertrules.rulefleet.io" denied the request`) {
		return fmt.Errorf("it was not the webhook that refused: %w", err)
	}
	return nil
}

// asked checks that the hub calls the webhook and follows its answers.
func asked(m *fleet.Member) func(ctx context.Context) error {
	return func(ctx context.Context) error { return errors.Join(refused(ctx, m), admitted(ctx, m)) }
}

// mistakes returns invalid AlertRules and templates that the schema accepts.
func mistakes() map[string]client.Object {
	rule := func(edit func(*v1alpha1.AlertRule)) client.Object {
		ar := alertRule("", "shop", onEvery())
		edit(ar)
		return ar
	}
	template := func(edit func(*v1alpha1.AlertRuleTemplate)) client.Object {
		t := alertTemplate("")
		edit(t)
		return t
	}
	return map[string]client.Object{
		"cut-off":      rule(func(r *v1alpha1.AlertRule) { r.Spec.Expr = "up == 1 and\n\tsum(up" }),
		"function":     rule(func(r *v1alpha1.AlertRule) { r.Spec.Expr = `nope("ü", "\"%s") > 1` }),
		"range-vector": rule(func(r *v1alpha1.AlertRule) { r.Spec.Expr = "up[5m]" }),
		"placeholder":  rule(func(r *v1alpha1.AlertRule) { r.Spec.Expr = `up{a="$(deployment.name)"}` }),
		"override": rule(func(r *v1alpha1.AlertRule) {
			r.Spec.Overrides = []v1alpha1.Override{{ClusterSelection: onNamed("a"), Labels: map[string]v1alpha1.LabelText{"team": "{{"}}}
		}),
		"go-template": rule(func(r *v1alpha1.AlertRule) {
			r.Spec.Annotations = map[string]v1alpha1.LabelText{"summary": "{{ $labels.job | nope }}"}
		}),
		"for": rule(func(r *v1alpha1.AlertRule) { r.Spec.For = "999999999999y" }),
		"selector": rule(func(r *v1alpha1.AlertRule) {
			r.Spec.Placement.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "env", Operator: "Like", Values: []string{"x"}}}
		}),
		"tenancy": rule(func(r *v1alpha1.AlertRule) { r.Namespace, r.Spec.RuleNamespace = "team-a", "team-b" }),
		"template-expr": template(func(t *v1alpha1.AlertRuleTemplate) {
			t.Spec.Expr = "up ==\n"
		}),
		"template-label": template(func(t *v1alpha1.AlertRuleTemplate) {
			t.Spec.Labels = map[string]v1alpha1.LabelText{"team": "$(nope)"}
		}),
		"template-workloads": template(func(t *v1alpha1.AlertRuleTemplate) {
			t.Spec.Workloads = &v1alpha1.WorkloadSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}}
		}),
	}
}

// rejection waits until an object that bypassed the webhook has Accepted=False, and returns that condition.
func rejection(t *testing.T, m *fleet.Member, o client.Object) *metav1.Condition {
	t.Helper()
	var c *metav1.Condition
	eventually(t, fmt.Sprintf("%T %s: Accepted=False", o, o.GetName()), func(ctx context.Context) error {
		if err := read(ctx, m, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		var all []metav1.Condition
		switch o := o.(type) {
		case *v1alpha1.AlertRule:
			all = o.Status.Conditions
		case *v1alpha1.AlertRuleTemplate:
			all = o.Status.Conditions
		}
		if c = meta.FindStatusCondition(all, v1alpha1.ConditionAccepted); c == nil || c.Status != metav1.ConditionFalse {
			return fmt.Errorf("the conditions are %+v", all)
		}
		return nil
	})
	return c
}

// sameWords checks that a refusal has the text of the condition Accepted: in the message, and in the only
// cause, of which kubectl prints the field and the message.
func sameWords(t *testing.T, doing string, err error, accepted *metav1.Condition) {
	t.Helper()
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
		t.Fatalf("%s: the answer is %v, not Invalid", doing, err)
	}
	if !strings.HasSuffix(status.Status().Message, ": "+accepted.Message) {
		t.Errorf("%s: the refusal\n%s\nis not in the words of the condition\n%s", doing, status.Status().Message, accepted.Message)
	}
	causes := status.Status().Details.Causes
	if len(causes) != 1 || causes[0].Field+": "+causes[0].Message != accepted.Message {
		t.Errorf("%s: the causes are %+v, and the condition says %q", doing, causes, accepted.Message)
	}
}

// TestAdmission tests the webhook with valid and invalid objects.
func TestAdmission(t *testing.T) {
	parallel(t)
	f, dir, address := start(t, fleet.Options{OpenAPI: true}), t.TempDir(), freeAddress(t)
	hub := f.Hub
	manager := startManagerWith(t, f, fleet.ManagerOptions{Dir: dir, Webhook: address})
	namespace(t, "team-a", hub)

	// The condition reports an object that bypassed the webhook.
	accepted, stored := map[string]*metav1.Condition{}, map[string]client.Object{}
	for name, o := range mistakes() {
		o.SetName("past-" + name)
		must(t, hub.Client.Create(t.Context(), o))
		stored[name], accepted[name] = o, rejection(t, hub, o)
	}
	if c := accepted["tenancy"]; c.Reason != v1alpha1.ReasonNamespaceNotAllowed {
		t.Errorf("what writes into another's namespace is refused for %s", c.Reason)
	}
	must(t, f.InstallWebhook(t.Context(), address))
	eventually(t, "the webhook is asked", asked(hub))

	for name, o := range mistakes() {
		t.Run(name, func(t *testing.T) {
			bad := o.DeepCopyObject().(client.Object)
			bad.SetName("new-" + name)
			sameWords(t, "create", hub.Client.Create(t.Context(), bad), accepted[name])

			good := client.Object(alertRule("good-"+name, "", onEvery()))
			if _, isTemplate := o.(*v1alpha1.AlertRuleTemplate); isTemplate {
				good = alertTemplate("good-" + name)
			}
			good.SetNamespace(o.GetNamespace())
			create(t, hub, good)
			sameWords(t, "update", tryUpdate(t, hub, good, func() client.Object {
				bad.SetName(good.GetName())
				bad.SetResourceVersion(good.GetResourceVersion())
				return bad
			}), accepted[name])

			// An existing invalid object can be labeled, corrected and deleted, but not changed to another invalid
			// state.
			was := stored[name]
			update(t, hub, was, func(o client.Object) {
				o.SetLabels(map[string]string{"example.com/touched": "yes"})
				o.SetAnnotations(map[string]string{"example.com/touched": "yes"})
				o.SetFinalizers([]string{"example.com/mine"})
			})
			sameWords(t, "update of another field", tryUpdate(t, hub, was, func() client.Object {
				switch o := was.(type) {
				case *v1alpha1.AlertRule:
					o.Spec.Alert = "Another"
				case *v1alpha1.AlertRuleTemplate:
					o.Spec.Alert = "Another"
				}
				return was
			}), accepted[name])
			must(t, hub.Client.Delete(t.Context(), was))
			update(t, hub, was, func(o client.Object) { o.SetFinalizers(nil) })
			eventually(t, "it is gone", func(ctx context.Context) error {
				if err := hub.Client.Get(ctx, client.ObjectKeyFromObject(was), was); !apierrors.IsNotFound(err) {
					return fmt.Errorf("it is there: %w", err)
				}
				return nil
			})
		})
	}
	t.Run("kubectl", func(t *testing.T) { kubectlShowsTheFault(t, hub, accepted["cut-off"]) })
	t.Run("warnings", func(t *testing.T) { kubectlShowsWarnings(t, hub) })
	t.Run("damage", func(t *testing.T) { damageIsHealed(t, f, address) })
	t.Run("absence", func(t *testing.T) { absenceConcernsOurKindsAlone(t, f, manager, dir, address) })
}

// tryUpdate updates an object, and retries if the manager's status write was faster. It returns the hub's
// answer.
func tryUpdate(t *testing.T, hub *fleet.Member, o client.Object, change func() client.Object) (answer error) {
	t.Helper()
	eventually(t, fmt.Sprintf("an answer to an update of %T %s", o, o.GetName()), func(ctx context.Context) error {
		if err := read(ctx, hub, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if answer = hub.Client.Update(ctx, change()); apierrors.IsConflict(answer) {
			return answer
		}
		return nil
	})
	return answer
}

// kubectlShowsTheFault checks the output of kubectl: the field, and a caret under the fault.
func kubectlShowsTheFault(t *testing.T, hub *fleet.Member, accepted *metav1.Condition) {
	t.Helper()
	cmd := hub.Kubectl(t.Context(), "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(`
apiVersion: rulefleet.io/v1alpha1
kind: AlertRule
metadata: {name: by-hand, namespace: ` + fleet.Namespace + `}
spec:
  alert: TestAlert
  expr: "up == 1 and\n\tsum(up"
  placement: {selector: {}}
`)
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Error("kubectl succeeds")
	}
	t.Logf("kubectl says:\n%s", out)
	if want := `The AlertRule "by-hand" is invalid: ` + accepted.Message + "\n"; string(out) != want {
		t.Errorf("kubectl says\n%s\nand not\n%s", out, want)
	}
}

// kubectlShowsWarnings creates valid but suspicious objects: kubectl and the condition Accepted show the same
// warnings.
func kubectlShowsWarnings(t *testing.T, hub *fleet.Member) {
	t.Helper()
	ar := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "warned"}}
	remove(t, hub, ar)
	cmd := hub.Kubectl(t.Context(), "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(`
apiVersion: rulefleet.io/v1alpha1
kind: AlertRule
metadata: {name: warned, namespace: ` + fleet.Namespace + `}
spec:
  alert: TestAlert
  expr: sum by (job) ({job="x"}) > 1
  annotations: {summary: "{{ $labels.pod }} is slow"}
  placement: {selector: {}}
`)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl: %v\n%s", err, out)
	}
	t.Logf("kubectl says:\n%s", out)
	c := &metav1.Condition{}
	eventually(t, "the condition Accepted", func(ctx context.Context) error {
		if err := read(ctx, hub, client.ObjectKeyFromObject(ar), ar); err != nil {
			return err
		}
		if c = meta.FindStatusCondition(ar.Status.Conditions, v1alpha1.ConditionAccepted); c == nil || c.Status != metav1.ConditionTrue {
			return fmt.Errorf("the conditions are %+v", ar.Status.Conditions)
		}
		return nil
	})
	warned := 0
	for line := range strings.Lines(string(out)) {
		warning, found := strings.CutPrefix(strings.TrimSpace(line), "Warning: ")
		if !found {
			continue
		}
		warned++
		if !strings.Contains(c.Message, warning) {
			t.Errorf("the condition says %q, and not %q", c.Message, warning)
		}
	}
	if warned != 4 { // no for, no severity, no metric's name, and an aggregated label
		t.Errorf("there are %d warnings", warned)
	}
}

// absenceConcernsOurKindsAlone checks that without the webhook only Rulefleet's own kinds are affected.
func absenceConcernsOurKindsAlone(t *testing.T, f *fleet.Fleet, manager *fleet.Manager, dir, address string) {
	t.Helper()
	hub := f.Hub
	must(t, f.InstallMonitoringCRD(t.Context(), hub, "prometheusrules"))
	ar, template := alertRule("kept", "shop", onEvery()), alertTemplate("kept")
	must(t, hub.Client.Create(t.Context(), ar))
	must(t, hub.Client.Create(t.Context(), template))
	must(t, manager.Stop())

	failing := func(doing string, err error) {
		t.Helper()
		if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "failed calling webhook") {
			t.Errorf("%s with nobody to ask: %v", doing, err)
		}
	}
	failing("creating an AlertRule", hub.Client.Create(t.Context(), alertRule("another", "shop", onEvery())))
	failing("creating an AlertRuleTemplate", hub.Client.Create(t.Context(), alertTemplate("another")))
	changed := ar.DeepCopy()
	changed.Spec.Expr = "up == 1"
	failing("updating an AlertRule", hub.Client.Update(t.Context(), changed))

	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "untouched"}},
		&v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "untouched"}},
		&monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "untouched"}},
	} {
		create(t, hub, o)
		o.SetLabels(map[string]string{"example.com/touched": "yes"})
		must(t, hub.Client.Update(t.Context(), o))
	}
	ar.Status.ObservedGeneration = ar.Generation
	must(t, hub.Client.Status().Update(t.Context(), ar))
	must(t, hub.Client.Delete(t.Context(), ar))
	must(t, hub.Client.Delete(t.Context(), template))

	startManagerWith(t, f, fleet.ManagerOptions{Dir: dir, Webhook: address})
	eventually(t, "the webhook is back", asked(hub))
}

// damageIsHealed damages the Secret of the certificates.
func damageIsHealed(t *testing.T, f *fleet.Fleet, address string) {
	t.Helper()
	hub := f.Hub
	key := client.ObjectKey{Namespace: fleet.Namespace, Name: "rulefleet-webhook-certs"}
	secret := &corev1.Secret{}
	must(t, read(t.Context(), hub, key, secret))
	if secret.Type != corev1.SecretTypeTLS || secret.Labels[v1alpha1.ManagedByLabel] != v1alpha1.ManagedByValue {
		t.Errorf("the Secret is of type %s, with labels %v", secret.Type, secret.Labels)
	}
	healed := func(ctx context.Context) error {
		is := &corev1.Secret{}
		if err := read(ctx, hub, key, is); err != nil {
			return err
		}
		if is.ResourceVersion == secret.ResourceVersion || is.Labels[v1alpha1.ManagedByLabel] != v1alpha1.ManagedByValue {
			return errors.New("the Secret is as it was left")
		}
		for _, k := range []string{"ca.crt", "tls.crt", "tls.key"} {
			if !strings.HasPrefix(string(is.Data[k]), "-----BEGIN ") {
				return fmt.Errorf("%s is garbage", k)
			}
		}
		// An authority that lost its key stays trusted until its successor is trusted as well.
		if keys := string(is.Data["ca.key"]) + string(is.Data["next-ca.key"]); !strings.HasPrefix(keys, "-----BEGIN ") {
			return errors.New("no authority has a key")
		}
		return configured(ctx, hub, is.Data["ca.crt"])
	}
	expectHealed := func(what string) {
		t.Helper()
		eventually(t, what+" is healed", healed)
		eventually(t, "the webhook works after "+what, asked(hub))
	}
	must(t, hub.Client.Delete(t.Context(), secret))
	expectHealed("a deleted Secret")
	for _, k := range []string{"ca.crt", "ca.key", "tls.crt", "tls.key"} {
		update(t, hub, secret, func(s *corev1.Secret) { s.Data[k] = []byte("garbage") })
		expectHealed("garbage in " + k)
	}
	update(t, hub, secret, func(s *corev1.Secret) {
		s.Labels = nil
		s.Data = map[string][]byte{"tls.crt": nil, "tls.key": nil}
	})
	expectHealed("an emptied Secret")

	for what, bundle := range map[string][]byte{"no caBundle": nil, "another's caBundle": hub.RESTConfig().CAData} {
		config := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "rulefleet"}}
		update(t, hub, config, func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[1].ClientConfig.CABundle = bundle
			c.Webhooks[0].ClientConfig.CABundle = bundle
		})
		must(t, read(t.Context(), hub, key, secret))
		eventually(t, what+" is healed", func(ctx context.Context) error { return configured(ctx, hub, secret.Data["ca.crt"]) })
		eventually(t, "the webhook works after "+what, asked(hub))
	}

	// Create the configuration again, beside another webhook.
	must(t, f.UninstallWebhook(t.Context()))
	config, err := f.WebhookConfig("127.0.0.1:1")
	must(t, err)
	foreign := config.Webhooks[0]
	foreign.Name, foreign.Rules = "foreign.example.com", hookRules(admissionregistrationv1.Create)
	config.Webhooks = append(config.Webhooks, foreign)
	must(t, hub.Client.Create(t.Context(), config))
	eventually(t, "a new configuration is served", func(ctx context.Context) error { return configured(ctx, hub, secret.Data["ca.crt"]) })
	must(t, read(t.Context(), hub, client.ObjectKeyFromObject(config), config))
	if got := config.Webhooks[3].ClientConfig.CABundle; got != nil {
		t.Errorf("another's webhook got the caBundle %q", got)
	}
	must(t, f.UninstallWebhook(t.Context()))
	must(t, f.InstallWebhook(t.Context(), address))
	eventually(t, "the webhook is asked again", asked(hub))
}

// configured checks that our webhooks in the configuration have a caBundle.
func configured(ctx context.Context, m *fleet.Member, bundle []byte) error {
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := read(ctx, m, client.ObjectKey{Name: "rulefleet"}, config); err != nil {
		return err
	}
	for i := range config.Webhooks[:3] {
		if !bytes.Equal(config.Webhooks[i].ClientConfig.CABundle, bundle) {
			return fmt.Errorf("webhook %s has another caBundle", config.Webhooks[i].Name)
		}
	}
	return nil
}

// readyz returns a manager's readiness.
func readyz(ctx context.Context, m *fleet.Manager) (bool, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.ReadyURL, http.NoBody)
	if err != nil {
		return false, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode == http.StatusOK, string(body), err
}
