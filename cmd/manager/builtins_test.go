package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/builtin"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// TestBuiltIns keeps the built-in templates on a real hub, under the account that the
// manager has there. Each part begins with what the one before has left.
func TestBuiltIns(t *testing.T) {
	f, err := fleet.Start(t.Context(), fleet.Options{Output: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	h := &testHub{admin: f.Hub.Client, manager: managerClient(t, f)}
	if _, err := hubState(t.Context(), h.manager, &options{namespace: fleet.Namespace, hubID: "hub-1"}); err != nil {
		t.Fatal(err)
	}
	t.Run("refused at first", h.refusedAtFirst)
	t.Run("restart", h.restart)
	t.Run("new version", h.newVersion)
	t.Run("edit in between", h.editInBetween)
	t.Run("kind made anew", h.kindMadeAnew)
}

func managerClient(t *testing.T, f *fleet.Fleet) client.Client {
	t.Helper()
	kubeconfig, err := f.HubKubeconfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{Scheme: newScheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// testHub is a hub, as a person and as the manager see it.
type testHub struct {
	admin, manager client.Client
}

func (h *testHub) builtIns(log logr.Logger, selector string) *builtIns {
	return &builtIns{
		client: h.manager, reader: h.manager, log: log,
		templates: builtin.Templates(builtin.Options{KubeStateMetrics: selector}),
		configMap: client.ObjectKey{Namespace: fleet.Namespace, Name: hubConfigMap},
		backoff:   wait.Backoff{Duration: 20 * time.Millisecond},
	}
}

func (h *testHub) ensure(t *testing.T, selector string) {
	t.Helper()
	for _, err := range h.builtIns(logr.Discard(), selector).ensure(t.Context()) {
		t.Error(err)
	}
}

// templates returns what is on the hub by name.
func (h *testHub) templates(t *testing.T) map[string]*v1alpha1.AlertRuleTemplate {
	t.Helper()
	var list v1alpha1.AlertRuleTemplateList
	if err := h.admin.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	out := map[string]*v1alpha1.AlertRuleTemplate{}
	for i := range list.Items {
		out[list.Items[i].Name] = &list.Items[i]
	}
	return out
}

func (h *testHub) edit(t *testing.T, template *v1alpha1.AlertRuleTemplate, edit func(*v1alpha1.AlertRuleTemplate)) {
	t.Helper()
	edit(template)
	if err := h.admin.Update(t.Context(), template); err != nil {
		t.Fatal(err)
	}
}

// writesNothing starts once more, with nothing to change.
func (h *testHub) writesNothing(t *testing.T, selector string) {
	t.Helper()
	writes := &counter{Client: h.manager}
	b := h.builtIns(logr.Discard(), selector)
	b.client = writes
	for _, err := range b.ensure(t.Context()) {
		t.Error(err)
	}
	if len(writes.tries) > 0 {
		t.Errorf("a restart writes: %v", writes.tries)
	}
}

// lines keeps what is logged.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) logger() logr.Logger {
	return funcr.New(func(_, line string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.text = append(l.text, line)
	}, funcr.Options{})
}

// with returns the lines that hold a text.
func (l *lines) with(text string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.text), func(s string) bool { return !strings.Contains(s, text) })
}

// refusedAtFirst starts while a webhook for one of the templates can't be reached.
func (h *testHub) refusedAtFirst(t *testing.T) {
	const refused = "crash-looping"
	fail, none, scope, url := admissionv1.Fail, admissionv1.SideEffectClassNone, admissionv1.ClusterScope, "https://127.0.0.1:1/"
	webhook := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "templates"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "templates.example.com", FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig:    admissionv1.WebhookClientConfig{URL: &url},
			MatchConditions: []admissionv1.MatchCondition{{Name: "one", Expression: "request.name == '" + refused + "' || object.metadata.name == '" + refused + "'"}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{v1alpha1.Group}, APIVersions: []string{"*"}, Resources: []string{"alertruletemplates"}, Scope: &scope},
			}},
		}},
	}
	if err := h.admin.Create(t.Context(), webhook); err != nil {
		t.Fatal(err)
	}
	h.awaitRefusal(t, refused)

	log, attempts := &lines{}, &counter{Client: h.manager}
	b := h.builtIns(log.logger(), "")
	b.client = attempts
	ended := make(chan error, 1)
	go func() { ended <- b.Start(t.Context()) }()
	eventually(t, "it tries again", func() error {
		if n := attempts.of(refused); n < 5 {
			return fmt.Errorf("%d attempts", n)
		}
		return nil
	})
	if got := h.templates(t); len(got) != len(b.templates)-1 || got[refused] != nil {
		t.Errorf("while one is refused, there are %d", len(got))
	}
	if got := log.with(refused); len(got) != 1 || !strings.Contains(got[0], "templates.example.com") {
		t.Errorf("it is logged %d times: %v", len(got), got)
	}
	if n := attempts.of("deployment-down"); n != 1 {
		t.Errorf("another template was made %d times", n)
	}
	if err := h.admin.Delete(t.Context(), webhook); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("it goes on after the webhook is gone: %v", log.with(""))
	}
	if got := h.templates(t); len(got) != len(b.templates) || got[refused].Spec.State != v1alpha1.Disabled || got["deployment-down"].Spec.State != v1alpha1.Enabled {
		t.Errorf("in the end there are %d: %v", len(got), got)
	}
}

// awaitRefusal waits until the API server asks the webhook.
func (h *testHub) awaitRefusal(t *testing.T, name string) {
	t.Helper()
	eventually(t, "the webhook takes effect", func() error {
		probe := builtin.Templates(builtin.Options{})[0]
		probe.Name = name
		if err := h.admin.Create(t.Context(), probe, client.DryRunAll); err == nil {
			return fmt.Errorf("%s is let through", name)
		}
		return nil
	})
}

// counter counts attempts to write objects, by name.
type counter struct {
	client.Client
	mu    sync.Mutex
	tries map[string]int
}

func (c *counter) count(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tries == nil {
		c.tries = map[string]int{}
	}
	c.tries[name]++
}

func (c *counter) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	c.count(o.GetName())
	return c.Client.Create(ctx, o, opts...)
}

func (c *counter) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	c.count(o.GetName())
	return c.Client.Patch(ctx, o, p, opts...)
}

func (c *counter) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tries[name]
}

func (h *testHub) restart(t *testing.T) { h.writesNothing(t, "") }

// newVersion starts with another selector, which every expression depends on, after
// people have done this and that.
func (h *testHub) newVersion(t *testing.T) {
	const selector = `job="kube-state-metrics"`
	before := h.templates(t)
	h.edit(t, before["replicas-mismatch"], func(t *v1alpha1.AlertRuleTemplate) { t.Spec.State = v1alpha1.Enabled })
	h.edit(t, before["rollout-stuck"], func(t *v1alpha1.AlertRuleTemplate) { t.Spec.For = "20m" })
	h.edit(t, before["hpa-maxed-out"], func(t *v1alpha1.AlertRuleTemplate) { t.Annotations = nil })
	h.edit(t, before["crash-looping"], func(t *v1alpha1.AlertRuleTemplate) { t.Labels = map[string]string{"mine": "yes"} })
	if err := h.admin.Delete(t.Context(), before["container-waiting"]); err != nil {
		t.Fatal(err)
	}
	h.ensure(t, selector)
	after := h.templates(t)
	for name, follows := range map[string]bool{
		"deployment-down": true, "replicas-mismatch": true, "generation-mismatch": true, "crash-looping": true,
		"rollout-stuck": true, "hpa-maxed-out": false,
	} {
		if got := strings.Contains(after[name].Spec.Expr, selector); got != follows {
			t.Errorf("%s follows: %v", name, got)
		}
		if !follows && after[name].ResourceVersion != before[name].ResourceVersion {
			t.Errorf("%s was written", name)
		}
	}
	if after["container-waiting"] != nil {
		t.Error("one that was deleted is back")
	}
	if after["replicas-mismatch"].Spec.State != v1alpha1.Enabled || after["crash-looping"].Labels["mine"] != "yes" || after["rollout-stuck"].Spec.For != "20m" {
		t.Error("what people set is lost")
	}
	h.writesNothing(t, selector)
}

// editInBetween edits a template after it was read.
func (h *testHub) editInBetween(t *testing.T) {
	b := h.builtIns(logr.Discard(), "")
	read := h.templates(t)["deployment-down"]
	h.edit(t, read.DeepCopy(), func(t *v1alpha1.AlertRuleTemplate) { t.Spec.For = "9m" })
	if err := b.ensureOne(t.Context(), b.templates[0], read, true); err == nil {
		t.Error("the edit is overwritten")
	}
	h.ensure(t, "")
	if got := h.templates(t)["deployment-down"]; got.Spec.For != "9m" {
		t.Errorf("the edit is lost: %v", got.Spec)
	}
}

func eventually(t *testing.T, what string, condition func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		last = condition()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, last)
	}
}

// kindMadeAnew deletes the CustomResourceDefinition, and with it all templates, and makes it
// again: that is no decision about each of them, and they come back.
func (h *testHub) kindMadeAnew(t *testing.T) {
	name := "alertruletemplates." + v1alpha1.Group
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := h.admin.Get(t.Context(), client.ObjectKey{Name: name}, crd); err != nil {
		t.Fatal(err)
	}
	if err := h.admin.Delete(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	again := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: crd.Spec}
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		return h.admin.Create(ctx, again.DeepCopy()) == nil, nil
	})
	if err != nil {
		t.Fatalf("making the CustomResourceDefinition again: %v", err)
	}
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		var list v1alpha1.AlertRuleTemplateList
		failures := h.builtIns(logr.Discard(), "").ensure(ctx)
		return len(failures) == 0 && h.admin.List(ctx, &list) == nil && len(list.Items) == len(builtin.Names()), nil
	})
	if err != nil {
		t.Fatalf("the built-in templates do not come back: %v", err)
	}
}
