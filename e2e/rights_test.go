package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// removable are the roles that join creates, and how to read and write their rules.
var removable = []struct {
	object client.Object
	rules  func(client.Object) *[]rbacv1.PolicyRule
}{
	{&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: fleet.SpokeUser}}, rulesOfClusterRole},
	{&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: fleet.EvaluateGrant}}, rulesOfClusterRole},
	{&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "rulefleet-spoke-renew"}}, func(o client.Object) *[]rbacv1.PolicyRule { return &o.(*rbacv1.Role).Rules }},
}

func rulesOfClusterRole(o client.Object) *[]rbacv1.PolicyRule { return &o.(*rbacv1.ClusterRole).Rules }

// TestEachRight removes each right that join grants in turn. The SpokeCluster names it, and so does join.
func TestEachRight(t *testing.T) {
	long(t)
	parallel(t)
	onProcesses(t)
	f := start(t, fleet.Options{Spokes: []string{spokeA}})
	spoke := f.Spoke(spokeA)
	withoutAccount(t, spoke)
	// The chosen Prometheus and ThanosRuler are not in the namespace that is searched: that one needs list, and they need get.
	startManagerWith(t, f, fleet.ManagerOptions{Dir: t.TempDir(), Args: []string{"--renewal-scale=0.03", "--evaluator-namespaces=elsewhere"}})
	for _, crd := range []string{"prometheuses", "thanosrulers"} {
		must(t, f.InstallMonitoringCRD(t.Context(), spoke, crd))
	}
	namespace(t, "monitoring", spoke)
	prometheus := &monitoringv1.Prometheus{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: "main"}}
	prometheus.Spec.RuleSelector = &metav1.LabelSelector{}
	ruler := &monitoringv1.ThanosRuler{ObjectMeta: prometheus.ObjectMeta, Spec: monitoringv1.ThanosRulerSpec{RuleSelector: &metav1.LabelSelector{}}}
	must(t, spoke.Client.Create(t.Context(), prometheus.DeepCopy()))
	must(t, spoke.Client.Create(t.Context(), ruler))
	all := template("every-kind") // workloads of the other kinds are read because a template names them
	all.Spec.Expr = "vector(0) == 1"
	all.Spec.Workloads = &v1alpha1.WorkloadSelection{Kinds: rule.WorkloadKinds()}
	create(t, f.Hub, all)
	k := pluginFor(t, f.Hub, spoke)
	join := []string{"join", spokeA, "--spoke-context", spokeA, "--timeout", "0"}
	k.expect(t, exit.OK, "", append(join, "--duration", "10m", "--prometheus", "monitoring/main,ThanosRuler/monitoring/main")...)

	for _, role := range removable {
		must(t, spoke.Client.Get(t.Context(), client.ObjectKeyFromObject(role.object), role.object))
		rights := cluster.RightsOf(*role.rules(role.object))
		for i, right := range rights {
			t.Run(strings.NewReplacer(" ", "-", "/", "-").Replace(right.String()), func(t *testing.T) {
				if right.Name != "" && role.object.GetNamespace() == "" {
					serveAs(t, spoke, right.Name)
				}
				o := role.object.DeepCopyObject().(client.Object)
				must(t, spoke.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o))
				before := o.DeepCopyObject().(client.Object)
				*role.rules(o) = rulesFor(slices.Delete(slices.Clone(rights), i, i+1))
				must(t, spoke.Client.Patch(t.Context(), o, client.MergeFrom(before), client.FieldOwner("somebody")))
				named(t, f.Hub, shownFor(right))
				right.Namespace = o.GetNamespace()
				k.expect(t, exit.Failed, "it lacks: "+right.String()+"\n", join...)
				k.expect(t, exit.OK, "", append(join, "--force-conflicts")...)
			})
		}
	}
}

// withoutAccount removes the roles with which tests register a spoke.
func withoutAccount(t *testing.T, spoke *fleet.Member) {
	t.Helper()
	for _, o := range []client.Object{&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}} {
		for _, name := range []string{fleet.SpokeUser, fleet.EvaluateGrant} {
			o.SetName(name)
			must(t, spoke.Client.Delete(t.Context(), o))
		}
	}
}

// rulesFor returns rules that grant rights, one by one.
func rulesFor(rights []cluster.Right) []rbacv1.PolicyRule {
	out := []rbacv1.PolicyRule{}
	for _, r := range rights {
		rule := rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/")}, Verbs: []string{r.Verb}}
		if r.Name != "" {
			rule.ResourceNames = []string{r.Name}
		}
		out = append(out, rule)
	}
	return out
}

// serveAs has the Prometheus and the ThanosRuler use the port and the protocol in the name of a Service for the proxy.
func serveAs(t *testing.T, spoke *fleet.Member, name string) {
	t.Helper()
	parts := strings.Split(name, ":")
	var web *monitoringv1.WebTLSConfig
	if parts[0] == "https" {
		web = &monitoringv1.WebTLSConfig{CertFile: new("tls.crt"), KeyFile: new("tls.key")}
	}
	update(t, spoke, &monitoringv1.Prometheus{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: "main"}}, func(p *monitoringv1.Prometheus) {
		p.Spec.PortName, p.Spec.Web = parts[2], &monitoringv1.PrometheusWebSpec{WebConfigFileFields: monitoringv1.WebConfigFileFields{TLSConfig: web}}
	})
	update(t, spoke, &monitoringv1.ThanosRuler{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: "main"}}, func(r *monitoringv1.ThanosRuler) {
		r.Spec.PortName, r.Spec.Web = parts[2], &monitoringv1.ThanosRulerWebSpec{WebConfigFileFields: monitoringv1.WebConfigFileFields{TLSConfig: web}}
	})
}

// shownFor returns what a status says without a right.
func shownFor(r cluster.Right) []string {
	switch {
	case r.Subresource == "token":
		return []string{"the account in the spoke lacks the permission to create serviceaccounts/token"}
	case r.Subresource == "proxy":
		return []string{fmt.Sprintf("services %q is forbidden", r.Name), `cannot get resource "services/proxy"`}
	case r.Resource == "prometheuses", r.Resource == "thanosrulers":
		return []string{fmt.Sprintf("cannot %s resource %q", r.Verb, r.Resource)}
	}
	return []string{"Rulefleet's account in the spoke lacks permissions: " + r.String() + "; run kubectl rulefleet join again"}
}

// named waits until a condition of the spoke, or what its status says of an evaluator, has all words.
func named(t *testing.T, hub *fleet.Member, words []string) {
	t.Helper()
	eventually(t, "the SpokeCluster names the right", func(ctx context.Context) error {
		sc := &v1alpha1.SpokeCluster{}
		if err := hub.Client.Get(ctx, client.ObjectKey{Name: spokeA}, sc); err != nil {
			return err
		}
		var messages []string
		for _, c := range sc.Status.Conditions {
			messages = append(messages, c.Message)
		}
		for _, e := range sc.Status.Evaluators {
			messages = append(messages, e.Message)
		}
		if !slices.ContainsFunc(messages, func(m string) bool {
			return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(m, w) })
		}) {
			return fmt.Errorf("no message has %q: %q", words, messages)
		}
		return nil
	})
}
