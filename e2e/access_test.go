package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// TestAccess runs the manager with the chart's Role and ClusterRole: with all rules, where each verb must be
// used and nothing may be refused, and then without each rule in turn, where something must fail.
func TestAccess(t *testing.T) {
	long(t)
	parallel(t)
	t.Run("used", allIsUsed)
	t.Run("removed", eachIsNeeded)
}

// notSeen lists permissions whose use does not appear in an audit log of a minute, and why they are needed.
var notSeen = func() map[string]string {
	out := map[string]string{
		"patch events.events.k8s.io":        "client-go patches an Event that comes again within 6 minutes, and puts that off by up to 30",
		"create alertrules.rulefleet.io":    "server-side apply is a patch, and asks for create, too, when the object is new",
		"create spokeclusters.rulefleet.io": "likewise",
	}
	for _, resource := range []string{
		"alertrules.rulefleet.io", "spokeclusters.rulefleet.io", "secrets",
		"validatingwebhookconfigurations.admissionregistration.k8s.io", "namespaces",
	} {
		out["list "+resource] = "an API server that can't stream a list (KEP-3157) is asked for it"
	}
	return out
}()

func allIsUsed(t *testing.T) {
	t.Parallel()
	a := startAccess(t)
	granted := map[string]bool{}
	for _, role := range a.roles(t) {
		for _, rule := range role.rules {
			for _, g := range expand(rule) {
				granted[g] = true
			}
		}
	}
	used, refused := map[string]bool{}, map[string]int{}
	look := func() {
		for _, e := range a.events(t) {
			if e.ResponseStatus.Code == http.StatusForbidden {
				refused[request(e)]++
			} else {
				used[request(e)] = true
			}
		}
	}
	first := a.startManager(t)
	within(t, 2*time.Minute, "each verb that the chart grants is used", func(ctx context.Context) error {
		a.provoke(ctx, first)
		look()
		left := slices.DeleteFunc(slices.Sorted(maps.Keys(granted)), func(g string) bool {
			// Only another version or other flags change built-in templates.
			return used[g] || notSeen[g] != "" || g == "patch alertruletemplates.rulefleet.io"
		})
		if len(left) > 0 {
			return fmt.Errorf("the manager had no use for: %s", strings.Join(left, ", "))
		}
		return nil
	})
	must(t, a.scrape(t.Context(), first, a.token))
	for token, want := range map[string]string{"": "401 Unauthorized", a.stranger: "403 Forbidden"} {
		if err := a.scrape(t.Context(), first, token); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("metrics for %.10q: got %v, want %s", token, err, want)
		}
	}
	must(t, first.Stop())
	a.startManager(t, "--kube-state-metrics-selector=job=\"ksm\"")
	eventually(t, "built-in templates follow a flag", func(context.Context) error {
		look()
		if !used["patch alertruletemplates.rulefleet.io"] {
			return errors.New("none was patched")
		}
		return nil
	})
	if len(refused) > 0 {
		t.Errorf("the manager was refused: %v", refused)
	}
	t.Logf("%d grants: %d were used, %d can't be seen", len(granted), len(granted)-len(notSeen), len(notSeen))
}

func eachIsNeeded(t *testing.T) {
	t.Parallel()
	a := startAccess(t)
	for _, role := range a.roles(t) {
		// The first manager with the permission creates the namespace of generated AlertRules, once.
		slices.SortStableFunc(role.rules, func(x, y rbacv1.PolicyRule) int {
			first := func(r rbacv1.PolicyRule) int {
				return -strings.Count(strings.Join(expand(r), " "), "create namespaces")
			}
			return first(x) - first(y)
		})
		for i, rule := range role.rules {
			t.Run(strings.NewReplacer(" ", "-", "/", "-").Replace(expand(rule)[0]), func(t *testing.T) {
				a.without(t, role, i)
				grants := expand(rule)
				refused, said := "", ""
				m, err := a.tryManager(t, plainManager)
				within(t, time.Minute, "something fails without "+strings.Join(grants, ", "), func(ctx context.Context) error {
					for _, e := range a.events(t) {
						if e.ResponseStatus.Code == http.StatusForbidden && slices.Contains(grants, request(e)) {
							refused = request(e)
						}
					}
					if said = complaint(m, err, rule); refused != "" && said != "" {
						return nil
					}
					if m != nil {
						a.provoke(ctx, m)
					}
					return fmt.Errorf("refused is %q, and the manager says %q", refused, said)
				})
				if m != nil {
					must(t, m.Kill())
				}
				t.Logf("without the rule for %s: %q is refused, and the manager says: %s", strings.Join(rule.Resources, ", "), refused, said)
			})
		}
	}
}

// access is a hub with one spoke, and the hub's audit log.
type access struct {
	*fleet.Fleet
	token, stranger string // tokens of accounts; only one of them may scrape metrics

	round    int
	provoked time.Time
}

// provokeEvery leaves the manager time for writes that it delays.
const provokeEvery = 500 * time.Millisecond

// grantedRole is a Role or a ClusterRole of the manager, with the rules from the chart.
type grantedRole struct {
	object client.Object
	rules  []rbacv1.PolicyRule
}

func startAccess(t *testing.T) *access {
	t.Helper()
	a := &access{Fleet: start(t, fleet.Options{Spokes: []string{spokeA}, Audit: true})}
	namespace(t, "shop", a.Spoke(spokeA), a.Hub)
	must(t, a.Register(t.Context(), spokeA, nil))
	sc := membership(spokeA)
	sc.Spec.Tenants = &v1alpha1.TenantSelection{Selector: &metav1.LabelSelector{}} // so that namespaces are watched
	must(t, a.Hub.Client.Create(t.Context(), sc))

	a.token, a.stranger = a.account(t, "scraper"), a.account(t, "stranger")
	must(t, a.Hub.Client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "scraper"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: fleet.Namespace, Name: "scraper"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: fleet.Release + "-metrics-reader"},
	}))
	must(t, a.Hub.Client.Create(t.Context(), badRule(0)))
	must(t, a.Hub.Client.Create(t.Context(), tenantsRule("shop", "tenant", onEvery())))
	must(t, a.Spoke(spokeA).Client.Create(t.Context(), deployment("shop", "stays")))
	return a
}

// account makes a ServiceAccount and returns a token of it.
func (a *access) account(t *testing.T, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: name}}
	must(t, a.Hub.Client.Create(t.Context(), account))
	request := &authenticationv1.TokenRequest{}
	must(t, a.Hub.Client.SubResource("token").Create(t.Context(), account, request))
	return request.Status.Token
}

// badRule returns an invalid AlertRule, for which the manager emits an Event.
func badRule(round int) *v1alpha1.AlertRule {
	ar := alertRule(fmt.Sprintf("bad-%d", round), "shop", onEvery())
	ar.Spec.Expr = "up =="
	return ar
}

// roles returns the manager's Role and ClusterRole.
func (a *access) roles(t *testing.T) []grantedRole {
	t.Helper()
	role, cluster := &rbacv1.Role{}, &rbacv1.ClusterRole{}
	must(t, a.Hub.Client.Get(t.Context(), client.ObjectKey{Namespace: fleet.Namespace, Name: fleet.Release}, role))
	must(t, a.Hub.Client.Get(t.Context(), client.ObjectKey{Name: fleet.Release}, cluster))
	if len(role.Rules) == 0 || len(cluster.Rules) == 0 {
		t.Fatal("the chart's roles have no rules")
	}
	return []grantedRole{{cluster, cluster.Rules}, {role, role.Rules}}
}

// expand returns what a rule grants in the format of request.
func expand(rule rbacv1.PolicyRule) []string {
	var out []string
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				out = append(out, grant(verb, group, resource))
			}
		}
	}
	return out
}

func grant(verb, group, resource string) string {
	resource, sub, _ := strings.Cut(resource, "/")
	return strings.TrimSuffix(strings.TrimSuffix(verb+" "+resource+"."+group, ".")+"/"+sub, "/")
}

func request(e controlplane.AuditEvent) string {
	return grant(e.Verb, e.ObjectRef.APIGroup, strings.TrimSuffix(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/"))
}

// events returns the manager's requests to the hub since the last call.
func (a *access) events(t *testing.T) []controlplane.AuditEvent {
	t.Helper()
	events, err := a.Hub.Audit().Events(func(e controlplane.AuditEvent) bool { return e.User.Username == fleet.HubUser })
	must(t, err)
	return events
}

// startManager starts a manager with the webhook and short-lived certificates.
func (a *access) startManager(t *testing.T, args ...string) *fleet.Manager {
	t.Helper()
	m, err := a.tryManager(t, managerFor(t), args...)
	must(t, err)
	return m
}

// tryManager is startManager for a manager that may refuse to start, on a hub without the objects that a
// manager creates for itself.
func (a *access) tryManager(t *testing.T, path string, args ...string) (*fleet.Manager, error) {
	t.Helper()
	for _, o := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "rulefleet-webhook-certs"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "rulefleet-hub"}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "rulefleet-manager"}},
	} {
		must(t, client.IgnoreNotFound(a.Hub.Client.Delete(t.Context(), o)))
	}
	address, err := fleet.FreeAddress()
	must(t, err)
	must(t, a.UninstallWebhook(t.Context()))
	config, err := a.WebhookConfig(address)
	must(t, err)
	for i := range config.Webhooks {
		// Some of these managers may not serve it.
		config.Webhooks[i].FailurePolicy = new(admissionregistrationv1.Ignore)
	}
	must(t, a.Hub.Client.Create(t.Context(), config))
	m, err := a.StartManager(t.Context(), fleet.ManagerOptions{
		Path: path, Dir: t.TempDir(), LeaderElect: true, Webhook: address, HubID: "hub",
		Args: append([]string{"--metrics-secure", "--deletion-hold=0", "--webhook-cert-lifetime=6s"}, args...),
	})
	if m != nil {
		t.Cleanup(func() {
			_ = m.Kill()
			checkLog(t, m)
		})
	}
	return m, err
}

// without removes a rule from a role until the test ends, and waits until that is effective.
func (a *access) without(t *testing.T, role grantedRole, i int) {
	t.Helper()
	set := func(ctx context.Context, rules []rbacv1.PolicyRule) error {
		o := role.object.DeepCopyObject().(client.Object)
		if err := read(ctx, a.Hub, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		switch o := o.(type) {
		case *rbacv1.Role:
			o.Rules = rules
		case *rbacv1.ClusterRole:
			o.Rules = rules
		}
		return a.Hub.Client.Update(ctx, o)
	}
	must(t, set(t.Context(), slices.Delete(slices.Clone(role.rules), i, i+1)))
	t.Cleanup(func() { must(t, set(context.WithoutCancel(t.Context()), role.rules)) })

	rule := role.rules[i]
	resource, sub, _ := strings.Cut(rule.Resources[0], "/")
	attributes := &authorizationv1.ResourceAttributes{Namespace: role.object.GetNamespace(), Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: sub}
	if len(rule.ResourceNames) > 0 {
		attributes.Name = rule.ResourceNames[0]
	}
	eventually(t, "the rule counts no more", func(ctx context.Context) error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: fleet.HubUser, ResourceAttributes: attributes}}
		if err := a.Hub.Client.Create(ctx, review); err != nil {
			return err
		}
		if review.Status.Allowed {
			return errors.New("it is allowed: " + review.Status.Reason)
		}
		return nil
	})
	a.events(t) // of before
}

// provoke makes changes that require each kind of request of the manager. Failures of the test's own requests
// are retried later.
func (a *access) provoke(ctx context.Context, m *fleet.Manager) {
	if time.Since(a.provoked) < provokeEvery {
		return
	}
	a.provoked = time.Now()
	a.round++
	spoke, hub := a.Spoke(spokeA).Client, a.Hub.Client
	// Create, change and delete Deployments.
	d := deployment("shop", fmt.Sprintf("web-%d", a.round/4))
	switch a.round % 4 {
	case 0:
		_ = spoke.Create(ctx, d)
	case 2:
		_ = spoke.Patch(ctx, d, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"rulefleet.io/for":"7m"}}}`)))
	case 3:
		_ = spoke.Delete(ctx, d)
	}
	// Create and delete a template.
	template := &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: "extra"}}
	template.Spec.AlertSpec = v1alpha1.AlertSpec{Alert: "Extra", Expr: "up == 0", Severity: "info"}
	if a.round%8 < 4 {
		_ = hub.Create(ctx, template)
	} else {
		_ = hub.Delete(ctx, template)
	}
	// Create and delete an invalid AlertRule.
	_ = hub.Create(ctx, badRule(a.round))
	_ = hub.Delete(ctx, badRule(a.round-8))
	// Create and delete a RulePack.
	pack := &v1alpha1.RulePack{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "extra"}}
	pack.Spec.Placement = onEvery()
	pack.Spec.RuleNamespace = "shop"
	pack.Spec.Groups = []monitoringv1.RuleGroup{{Name: "extra", Rules: []monitoringv1.Rule{{Record: "extra", Expr: intstr.FromInt(1)}}}}
	if a.round%8 < 4 {
		_ = hub.Create(ctx, pack)
	} else {
		_ = hub.Delete(ctx, pack)
	}
	// Register and remove a spoke.
	_ = a.RegisterKubeconfig(ctx, "leaver", []byte("nothing"), nil)
	_ = hub.Delete(ctx, membership("leaver"))
	if secret := registration("leaver"); hub.Get(ctx, client.ObjectKeyFromObject(secret), secret) == nil && secret.Labels[v1alpha1.RegistrationLabel] == "" {
		_ = hub.Delete(ctx, secret)
	}
	_ = a.scrape(ctx, m, a.token)
}

// scrape reads the metrics as Prometheus does, with a token, or without one for "".
func (a *access) scrape(ctx context.Context, m *fleet.Manager, token string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.Replace(m.MetricsURL, "http:", "https:", 1), http.NoBody)
	if err != nil {
		return fmt.Errorf("asking for metrics: %w", err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	c := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	resp, err := c.Do(req)
	if err != nil {
		return fmt.Errorf("asking for metrics: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("asking for metrics: %s", resp.Status)
	}
	return nil
}

// complaint returns the manager's message about the missing rule, or "".
func complaint(m *fleet.Manager, err error, rule rbacv1.PolicyRule) string {
	said := ""
	switch {
	case err != nil:
		said = err.Error()
	case m != nil:
		said = m.Log()
	}
	for line := range strings.SplitSeq(said, "\n") {
		resource, _, _ := strings.Cut(rule.Resources[0], "/")
		if strings.Contains(line, "forbidden") && strings.Contains(line, resource) {
			return line
		}
	}
	return ""
}
