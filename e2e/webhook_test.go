package e2e

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// hook is an admission webhook for PrometheusRules that the test serves.
type hook struct {
	name   string
	config admissionregistrationv1.WebhookClientConfig
	probed atomic.Int32
}

// serveHook serves a webhook for the API server of a spoke until the test ends. If review returns nil, the
// request is allowed.
func serveHook(t *testing.T, name string, review func(ctx context.Context, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) *hook {
	t.Helper()
	h := &hook{name: name}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var in admissionv1.AdmissionReview
		body, err := io.ReadAll(req.Body) // until its end is read, the server does not notice that the client has gone
		if err != nil || json.Unmarshal(body, &in) != nil || in.Request == nil {
			http.Error(w, "no AdmissionReview", http.StatusBadRequest)
			return
		}
		var out *admissionv1.AdmissionResponse
		if in.Request.UserInfo.Username == fleet.SpokeUser {
			out = review(req.Context(), in.Request)
		} else {
			h.probed.Add(1)
		}
		if out == nil {
			out = &admissionv1.AdmissionResponse{Allowed: true}
		}
		out.UID = in.Request.UID
		in.Response = out
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(&in)
	}))
	server.Config.BaseContext = func(net.Listener) context.Context { return t.Context() } // ends before Close waits
	server.StartTLS()
	t.Cleanup(server.Close)
	h.config = admissionregistrationv1.WebhookClientConfig{
		URL:      &server.URL,
		CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	return h
}

var noSideEffects = admissionregistrationv1.SideEffectClassNone

func hookRules(operations ...admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: operations,
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{"monitoring.coreos.com"}, APIVersions: []string{"v1"}, Resources: []string{"prometheusrules"},
		},
	}}
}

// validating returns the hook's validating configuration.
func (h *hook) validating() client.Object { return h.validatingWithin(30) }

// validatingWithin is validating with a timeout in seconds.
func (h *hook) validatingWithin(timeout int32) client.Object {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: h.name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: h.name + ".example.com", ClientConfig: h.config, TimeoutSeconds: &timeout, SideEffects: &noSideEffects,
			Rules:                   hookRules(admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}

// mutating returns the hook's mutating configuration.
func (h *hook) mutating() client.Object {
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: h.name},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: h.name + ".example.com", ClientConfig: h.config, SideEffects: &noSideEffects,
			Rules:                   hookRules(admissionregistrationv1.Create, admissionregistrationv1.Update),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}

// install registers the hook in a spoke, and waits until the API server calls it.
func (h *hook) install(t *testing.T, m *fleet.Member, config client.Object) {
	t.Helper()
	create(t, m, config)
	h.await(t, m, true)
}

// uninstall removes the hook from a spoke, and waits until it is no longer called.
func (h *hook) uninstall(t *testing.T, m *fleet.Member, config client.Object) {
	t.Helper()
	must(t, m.Client.Delete(t.Context(), config))
	h.await(t, m, false)
}

func (h *hook) await(t *testing.T, m *fleet.Member, asked bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("webhook %s in %s: asked is %v", h.name, m.Name(), asked), func(ctx context.Context) error {
		before := h.probed.Load()
		probe := &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "probe-"}}
		if err := m.Client.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if (h.probed.Load() > before) != asked {
			return errors.New("not yet")
		}
		return nil
	})
}

// rewrite changes a PrometheusRule as a policy engine might: it adds a label to each rule and changes 'for'.
func rewrite(_ context.Context, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	var pr monitoringv1.PrometheusRule
	if err := json.Unmarshal(r.Object.Raw, &pr); err != nil {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: err.Error()}}
	}
	for _, g := range pr.Spec.Groups {
		for i := range g.Rules {
			wait := monitoringv1.Duration("42m")
			g.Rules[i].For = &wait
			g.Rules[i].Labels["policy"] = "enforced"
		}
	}
	patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec", "value": pr.Spec}})
	if err != nil {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: err.Error()}}
	}
	patchType := admissionv1.PatchTypeJSONPatch
	return &admissionv1.AdmissionResponse{Allowed: true, Patch: patch, PatchType: &patchType}
}

// ruleWrites returns the verbs of the manager's writes to a spoke's PrometheusRules
// since the last reset of the audit log.
func ruleWrites(m *fleet.Member) ([]string, error) {
	events, err := m.Audit().Events(func(e controlplane.AuditEvent) bool {
		return e.IsWrite() && e.User.Username == fleet.SpokeUser && e.ObjectRef.Resource == "prometheusrules"
	})
	verbs := make([]string, 0, len(events))
	for _, e := range events {
		verbs = append(verbs, e.Verb)
	}
	return verbs, err
}

// wrote checks that the manager made exactly these writes to a spoke's PrometheusRules.
func wrote(m *fleet.Member, want ...string) error {
	verbs, err := ruleWrites(m)
	if err == nil && !slices.Equal(verbs, want) {
		err = fmt.Errorf("the writes are %v, not %v", verbs, want)
	}
	return err
}

// TestMutatingWebhookMakesNoLoop uses a webhook in the spoke that changes the rules.
func TestMutatingWebhookMakesNoLoop(t *testing.T) {
	long(t)
	parallel(t)
	f, dir := start(t, fleet.Options{Spokes: []string{spokeA}, Audit: true}), t.TempDir()
	m := f.Spoke(spokeA)
	h := serveHook(t, "rewrite", rewrite)
	config := h.mutating()
	h.install(t, m, config)
	must(t, f.Register(t.Context(), spokeA, nil))
	manager := startManager(t, f, dir)
	namespace(t, "shop", m)
	expectCondition(t, f, membership(spokeA), v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	must(t, m.Audit().Reset())

	ar := alertRule("web", "shop", onEvery())
	key := create(t, f.Hub, ar)
	expectMutated := func() {
		t.Helper()
		is := expectRow(t, f, key, spokeA, v1alpha1.PhasePending, v1alpha1.ReasonMutated)
		expectReady(t, f, key, metav1.ConditionFalse, v1alpha1.ReasonMutated)
		if is.Status.Summary.Failing != 1 || is.Status.Summary.Ready != "0/1" {
			t.Errorf("the summary is %+v", is.Status.Summary)
		}
	}
	expectMutated()
	pr := expectRule(t, m, key, "rewritten", func(r *monitoringv1.Rule) bool { return *r.For == "42m" && r.Labels["policy"] == "enforced" })
	throughout(t, 2*time.Second, "nothing is sent again", func(context.Context) error { return wrote(m, "create") })

	// A change of metadata is not a change of the rule, on either side.
	update(t, f.Hub, ar, func(r *v1alpha1.AlertRule) { r.Annotations = map[string]string{"example.com/touched": "yes"} })
	update(t, m, pr, func(r *monitoringv1.PrometheusRule) { r.Annotations["example.com/touched"] = "yes" })
	expectMutated()

	// A change on either side causes one write. Late writes of a step are counted in the next.
	update(t, f.Hub, ar, func(r *v1alpha1.AlertRule) { r.Spec.Expr = "up == 1" })
	expectRule(t, m, key, "the change", func(r *monitoringv1.Rule) bool {
		return r.Expr.String() == "up == 1" && r.Labels["policy"] == "enforced"
	})
	expectMutated()
	must(t, wrote(m, "create", "update"))
	update(t, m, pr, func(r *monitoringv1.PrometheusRule) { r.Spec.Groups[0].Rules[0].Labels["severity"] = "none" })
	expectRule(t, m, key, "the drift is put back", func(r *monitoringv1.Rule) bool { return r.Labels["severity"] == "warning" })

	// After a restart, the earlier answer is known.
	must(t, manager.Stop())
	manager = startManager(t, f, dir)
	eventually(t, "the rule was looked at", func(ctx context.Context) error {
		return metricAtLeast(ctx, manager, `controller_runtime_reconcile_total{controller="distribute",result="success"}`, 1)
	})
	throughout(t, time.Second, "a restart sends nothing", func(context.Context) error { return wrote(m, "create", "update", "update") })
	expectMutated()

	// Without the webhook, the next change restores the rule.
	h.uninstall(t, m, config)
	update(t, f.Hub, ar, func(r *v1alpha1.AlertRule) { r.Spec.Expr = "up == 2" })
	expectRule(t, m, key, "as it was sent", func(r *monitoringv1.Rule) bool {
		return r.Expr.String() == "up == 2" && *r.For == "5m" && r.Labels["policy"] == ""
	})
	expectReady(t, f, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	must(t, wrote(m, "create", "update", "update", "update"))
}
