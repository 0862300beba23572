package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	gotemplate "text/template"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// template returns a template for the Deployments in some namespaces. Its alert has its name, by which its
// rules are found in the spokes.
func template(name string, namespaces ...v1alpha1.NamespaceName) *v1alpha1.AlertRuleTemplate {
	return &v1alpha1.AlertRuleTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.AlertRuleTemplateSpec{
			AlertSpec: v1alpha1.AlertSpec{
				Alert: name, Expr: `up{namespace="$(deployment.namespace)",deployment="$(deployment.name)"} == 0`,
				For: "5m", Severity: "warning",
				Labels: map[string]v1alpha1.LabelText{"spoke": "$(cluster.name)"},
			},
			Namespaces: &v1alpha1.NamespaceSelection{Names: namespaces},
		},
	}
}

// path names a Deployment of a spoke.
func path(spoke, namespace, name string) string { return spoke + "/" + namespace + "/" + name }

// made returns what a template generated: on the hub the AlertRules by Deployment, and in the spokes of the
// shared fleet the Deployments that have PrometheusRules.
func made(ctx context.Context, template string) (onHub map[string]client.ObjectKey, inSpokes []string, err error) {
	var rules v1alpha1.AlertRuleList
	if err := shared().Hub.Client.List(ctx, &rules, client.MatchingLabels{v1alpha1.TemplateLabel: template}); err != nil {
		return nil, nil, err
	}
	onHub = map[string]client.ObjectKey{}
	for i := range rules.Items {
		w := rules.Items[i].Spec.WorkloadRef
		onHub[path(string(w.Cluster), string(w.Namespace), w.Name)] = client.ObjectKeyFromObject(&rules.Items[i])
	}
	for _, spoke := range []string{spokeA, spokeB} {
		var list monitoringv1.PrometheusRuleList
		if err := shared().Spoke(spoke).Client.List(ctx, &list); err != nil {
			return nil, nil, err
		}
		for i := range list.Items {
			groups := list.Items[i].Spec.Groups
			if len(groups) == 0 || len(groups[0].Rules) == 0 {
				continue // another test has changed it by hand
			}
			if r := groups[0].Rules[0]; r.Alert == template {
				inSpokes = append(inSpokes, path(spoke, r.Labels["namespace"], r.Labels["deployment"]))
			}
		}
	}
	slices.Sort(inSpokes)
	return onHub, inSpokes, nil
}

// expectMade waits until a template has generated rules for exactly these Deployments, on the hub and in the
// spokes. It returns the AlertRules in order.
func expectMade(t *testing.T, template string, paths ...string) []client.ObjectKey {
	t.Helper()
	want := slices.Sorted(slices.Values(paths))
	var onHub map[string]client.ObjectKey
	eventually(t, fmt.Sprintf("template %s makes rules for %v", template, want), func(ctx context.Context) error {
		var inSpokes []string
		var err error
		if onHub, inSpokes, err = made(ctx, template); err != nil {
			return err
		}
		if hub := slices.Sorted(maps.Keys(onHub)); !slices.Equal(hub, want) || !slices.Equal(inSpokes, want) {
			return fmt.Errorf("on the hub there are %v, in the spokes %v", hub, inSpokes)
		}
		return nil
	})
	keys := make([]client.ObjectKey, len(paths))
	for i, p := range paths {
		keys[i] = onHub[p]
	}
	return keys
}

// TestTemplateSelects selects by the labels of Deployments, spokes and namespaces, and by name. TestMatches has every
// combination.
func TestTemplateSelects(t *testing.T) {
	parallelOnShared(t)
	name := unique(t)
	gold, plain := name+"-gold", name+"-plain"
	for _, m := range []*fleet.Member{shared().Spoke(spokeA), shared().Spoke(spokeB)} {
		namespace(t, plain, m)
		must(t, m.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: gold, Labels: map[string]string{name: "gold"}}}))
		for _, d := range []*appsv1.Deployment{deployment(gold, "web"), deployment(gold, "db"), deployment(plain, "web"), deployment(metav1.NamespaceSystem, name)} {
			d.Labels[name] = "on"
			create(t, m, d)
		}
		create(t, m, deployment(plain, "unlabeled"))
	}
	on := &metav1.LabelSelector{MatchLabels: map[string]string{name: "on"}}
	goldNamespaces := &metav1.LabelSelector{MatchLabels: map[string]string{name: "gold"}}
	everywhere := func(of ...string) []string {
		var out []string
		for _, p := range of {
			out = append(out, spokeA+"/"+p, spokeB+"/"+p)
		}
		return out
	}
	tpl := template(name)
	tpl.Spec.Namespaces, tpl.Spec.Workloads = nil, &v1alpha1.WorkloadSelection{Selector: on}
	create(t, shared().Hub, tpl)

	for _, c := range []struct {
		name   string
		change func(s *v1alpha1.AlertRuleTemplateSpec)
		want   []string
	}{
		{"workloads by label, no system namespace", func(*v1alpha1.AlertRuleTemplateSpec) {}, everywhere(gold+"/web", gold+"/db", plain+"/web")},
		{"clusters by label", func(s *v1alpha1.AlertRuleTemplateSpec) {
			of := onLabeled("region", spokeLabels[spokeB]["region"])
			s.Placement = &of
		}, []string{path(spokeB, gold, "web"), path(spokeB, gold, "db"), path(spokeB, plain, "web")}},
		{"namespaces by label, and a system namespace by name", func(s *v1alpha1.AlertRuleTemplateSpec) {
			s.Placement, s.Namespaces = nil, &v1alpha1.NamespaceSelection{Names: []v1alpha1.NamespaceName{metav1.NamespaceSystem}, Selector: goldNamespaces}
		}, everywhere(gold+"/web", gold+"/db", metav1.NamespaceSystem+"/"+name)},
		{"disabled", func(s *v1alpha1.AlertRuleTemplateSpec) { s.State = v1alpha1.Disabled }, nil},
		{"enabled", func(s *v1alpha1.AlertRuleTemplateSpec) { s.State, s.Namespaces = v1alpha1.Enabled, nil }, everywhere(gold+"/web", gold+"/db", plain+"/web")},
	} {
		t.Log(c.name)
		update(t, shared().Hub, tpl, func(r *v1alpha1.AlertRuleTemplate) { c.change(&r.Spec) })
		expectMade(t, name, c.want...)
	}
	must(t, shared().Hub.Client.Delete(t.Context(), tpl))
	expectMade(t, name)
}

// TestTemplateIsEdited changes the alert of a template.
func TestTemplateIsEdited(t *testing.T) {
	parallelOnShared(t)
	a, b, ns := shared().Spoke(spokeA), shared().Spoke(spokeB), unique(t)
	namespace(t, ns, a, b)
	tpl := template(ns, v1alpha1.NamespaceName(ns))
	create(t, shared().Hub, tpl)
	create(t, a, deployment(ns, "web"))
	create(t, b, deployment(ns, "web"))
	keys := expectMade(t, ns, path(spokeA, ns, "web"), path(spokeB, ns, "web"))
	members := []*fleet.Member{a, b}
	before := []*monitoringv1.PrometheusRule{expectPushed(t, a, keys[0], 1), expectPushed(t, b, keys[1], 1)}

	update(t, shared().Hub, tpl, func(r *v1alpha1.AlertRuleTemplate) {
		r.Spec.Expr, r.Spec.For, r.Spec.Severity = `absent(up{deployment="$(deployment.name)",region="$(cluster.labels.region)"})`, "", "critical"
		r.Spec.Labels = map[string]v1alpha1.LabelText{"app": "$(deployment.labels.app)"}
		r.Spec.Annotations = map[string]v1alpha1.LabelText{"summary": "$(deployment.name) in $(cluster.name)"}
	})
	for i, m := range members {
		after := expectRule(t, m, keys[i], "the template's new alert", func(r *monitoringv1.Rule) bool {
			return r.Expr.String() == fmt.Sprintf(`absent(up{deployment="web",region=%q})`, spokeLabels[m.Name()]["region"]) &&
				r.For == nil && r.Labels["severity"] == "critical" && r.Labels["app"] == "web" && r.Labels["spoke"] == "" &&
				r.Annotations["summary"] == "web in "+m.Name()
		})
		if after.UID != before[i].UID || after.Name != before[i].Name || after.Spec.Groups[0].Name != before[i].Spec.Groups[0].Name {
			t.Errorf("%s: %s/%s is not the same object or group as before", m.Name(), after.Namespace, after.Name)
		}
		expectReady(t, shared(), keys[i], metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	}
}

// TestTemplateFollowsLabels removes the labels by which a template selects, and restores them.
func TestTemplateFollowsLabels(t *testing.T) {
	parallelOnShared(t)
	a, name := shared().Spoke(spokeA), unique(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{name: "ns"}}}
	must(t, a.Client.Create(t.Context(), ns))
	labeled := func(deployment string) *appsv1.Deployment {
		d := deploymentOf(name, deployment, name, "on")
		create(t, a, d)
		return d
	}
	one := labeled("one")
	labeled("two")
	tpl := template(name)
	tpl.Spec.Namespaces = &v1alpha1.NamespaceSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{name: "ns"}}}
	tpl.Spec.Workloads = &v1alpha1.WorkloadSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{name: "on"}}}
	create(t, shared().Hub, tpl)
	both := []string{path(spokeA, name, "one"), path(spokeA, name, "two")}
	expectMade(t, name, both...)

	update(t, a, one, func(d *appsv1.Deployment) { delete(d.Labels, name) })
	expectMade(t, name, both[1])
	update(t, a, one, func(d *appsv1.Deployment) { d.Labels[name] = "on" })
	expectMade(t, name, both...)

	update(t, a, ns, func(n *corev1.Namespace) { n.Labels[name] = "other" })
	expectMade(t, name)
	update(t, a, ns, func(n *corev1.Namespace) { n.Labels[name] = "ns" })
	expectMade(t, name, both...)

	sc := membership(spokeA)
	t.Cleanup(func() { unlabel(t, shared(), spokeA, name) })
	update(t, shared().Hub, tpl, func(r *v1alpha1.AlertRuleTemplate) {
		of := onLabeled(name, "on")
		r.Spec.Placement = &of
	})
	expectMade(t, name)
	update(t, shared().Hub, sc, func(sc *v1alpha1.SpokeCluster) { sc.Labels[name] = "on" })
	expectMade(t, name, both...)
	update(t, shared().Hub, sc, func(sc *v1alpha1.SpokeCluster) { sc.Labels[name] = "off" })
	expectMade(t, name)
}

// deploymentOf returns a Deployment with one more label.
func deploymentOf(namespace, name, key, value string) *appsv1.Deployment {
	d := deployment(namespace, name)
	d.Labels[key] = value
	return d
}

// TestInvalidTemplateKeepsItsRules makes a template invalid: its rules stay until it is valid again.
func TestInvalidTemplateKeepsItsRules(t *testing.T) {
	parallelOnShared(t)
	a, ns := shared().Spoke(spokeA), unique(t)
	namespace(t, ns, a)
	tpl := template(ns, v1alpha1.NamespaceName(ns))
	create(t, shared().Hub, tpl)
	old, web := deployment(ns, "old"), deployment(ns, "web")
	create(t, a, old)
	create(t, a, web)
	key := expectMade(t, ns, path(spokeA, ns, "web"), path(spokeA, ns, "old"))[0]
	expectCondition(t, shared(), tpl, v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	good := tpl.Spec.Expr
	pr := expectPushed(t, a, key, 1)

	update(t, shared().Hub, tpl, func(r *v1alpha1.AlertRuleTemplate) { r.Spec.Expr, r.Spec.Severity = "sum(up", "critical" })
	c := expectCondition(t, shared(), tpl, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonInvalidExpr)
	if !strings.Contains(c.Message, "spec.expr") {
		t.Errorf("the message does not tell where: %q", c.Message)
	}
	// The rule of a new Deployment shows that everything queued before it is done.
	create(t, a, deployment(ns, "new"))
	expectGenerated(t, shared(), spokeA, ns, "new", 1) // of the built-in template
	must(t, a.Client.Delete(t.Context(), old))
	update(t, a, web, func(d *appsv1.Deployment) { d.Annotations = map[string]string{"example.com/touched": "yes"} })
	expectMade(t, ns, path(spokeA, ns, "web")) // a deleted Deployment has none
	throughout(t, time.Second, "the rule stays", func(ctx context.Context) error {
		if onHub, inSpokes, err := made(ctx, ns); err != nil || len(onHub) != 1 || len(inSpokes) != 1 {
			return fmt.Errorf("on the hub there are %v, in the spokes %v: %w", onHub, inSpokes, err)
		}
		return untouched(ctx, a, pr)
	})

	update(t, shared().Hub, tpl, func(r *v1alpha1.AlertRuleTemplate) { r.Spec.Expr = good })
	expectCondition(t, shared(), tpl, v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	for _, key := range expectMade(t, ns, path(spokeA, ns, "web"), path(spokeA, ns, "new")) {
		expectRule(t, a, key, "the rest of the change", func(r *monitoringv1.Rule) bool { return r.Labels["severity"] == "critical" })
	}
}

// rendered renders a text as Prometheus does, without data.
func rendered(t *testing.T, text string) string {
	t.Helper()
	var b strings.Builder
	parsed, err := gotemplate.New("").Parse(text)
	if err == nil {
		err = parsed.Execute(&b, nil)
	}
	if err != nil {
		t.Errorf("%q can't be rendered: %v", text, err)
	}
	return b.String()
}
