package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	"github.com/rulefleet/rulefleet/pkg/testing/oracle"
)

// breakage chooses a fault.
func (x *exploration) breakage() breakage {
	switch x.rnd.IntN(4) {
	case 0:
		return x.ofTheHub()
	case 1:
		return x.ofTheManager()
	}
	s := x.spoke(x.one("one", "two"))
	if x.rnd.IntN(2) == 0 {
		return x.ofALink(s)
	}
	return x.ofASpoke(s)
}

func nothing() error { return nil }

func (x *exploration) ofTheHub() breakage {
	if x.rnd.IntN(5) == 0 {
		return x.losesOurs()
	}
	return x.ofACluster("hub", x.Hub, func() { x.touched["all"], x.losing = true, true })
}

// losesOurs deletes the CustomResourceDefinition of AlertRules or of templates, and restores both from a backup.
// Generated AlertRules are not restored, because they would belong to the person: they are generated again.
func (x *exploration) losesOurs() breakage {
	rules := x.rnd.IntN(2) == 0
	plural := map[bool]string{true: "alertrules", false: "alertruletemplates"}[rules]
	var backup []client.Object
	return breakage{
		what: "the kind " + plural + " is lost", at: "hub", closed: true,
		inject: func() (err error) {
			x.losing = true
			if backup, err = x.backup(rules); err == nil {
				deleteKind(x.t, x.Hub, plural+"."+v1alpha1.Group)
			}
			return err
		},
		heal: func() error {
			err := x.Hub.InstallCRDs(x.t.Context(), filepath.Join("..", "charts", "rulefleet", "files", "crds"), "*_"+plural+".yaml")
			for _, o := range backup {
				err = errors.Join(err, client.IgnoreAlreadyExists(x.Hub.Client.Create(x.t.Context(), o)))
			}
			return err
		},
	}
}

// backup returns the AlertRules that people made, or all templates, as they are restored.
func (x *exploration) backup(rules bool) (out []client.Object, err error) {
	var made v1alpha1.AlertRuleList
	var templates v1alpha1.AlertRuleTemplateList
	if rules {
		err = x.Hub.Client.List(x.t.Context(), &made)
	} else {
		err = x.Hub.Client.List(x.t.Context(), &templates)
	}
	for i := range made.Items {
		if ar := &made.Items[i]; ar.Spec.WorkloadRef == nil {
			ar.Status = v1alpha1.RuleStatus{}
			out = append(out, ar)
		}
	}
	for i := range templates.Items {
		templates.Items[i].Status = v1alpha1.AlertRuleTemplateStatus{}
		out = append(out, &templates.Items[i])
	}
	for _, o := range out {
		o.SetResourceVersion("")
		o.SetUID("")
	}
	return out, err
}

func (x *exploration) ofASpoke(s *explored) breakage {
	switch x.rnd.IntN(10) {
	case 0:
		return x.ofAWebhook(s, "denies", 30, func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "not now"}}
		})
	case 1:
		return x.ofAWebhook(s, "hangs", 2, func(ctx context.Context, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			<-ctx.Done() // the API server gives up
			return nil
		})
	case 2:
		return x.ofAQuota(s)
	case 3:
		return x.losesKind(s)
	case 4:
		return x.revokes(s)
	case 5:
		return x.mutates(s)
	}
	return x.ofACluster(s.name, s.m, func() { s.replaced, x.touched["all"] = true, true })
}

func (x *exploration) ofAWebhook(s *explored, what string, timeout int32, review func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) breakage {
	config := serveHook(x.t, fmt.Sprintf("%s-%d", what, x.rounds), review).validatingWithin(timeout)
	return breakage{
		what: "an admission webhook " + what, at: s.name,
		inject: func() error { return s.m.Client.Create(x.t.Context(), config) },
		heal:   func() error { return s.m.Client.Delete(x.t.Context(), config) },
	}
}

// mutates has an admission webhook change what is written. What it has changed stays after it, until somebody changes it:
// so somebody deletes it.
func (x *exploration) mutates(s *explored) breakage {
	h := serveHook(x.t, fmt.Sprintf("mutates-%d", x.rounds), rewrite)
	config := h.mutating()
	return breakage{
		what: "an admission webhook mutates", at: s.name,
		inject: func() error { h.install(x.t, s.m, config); return nil },
		heal: func() error {
			h.uninstall(x.t, s.m, config)
			held, err := x.held(x.t.Context(), s)
			for key, o := range held {
				if o.Spec.Groups[0].Rules[0].Labels["policy"] != "" {
					x.drifted[s.name+key.String()] = x.rounds
					x.touched[o.Annotations[v1alpha1.AlertRuleAnnotation]] = true
					err = errors.Join(err, client.IgnoreNotFound(s.m.Client.Delete(x.t.Context(), o)))
				}
			}
			return err
		},
	}
}

// ofAQuota leaves no room for another PrometheusRule. kube-controller-manager, which would count them, does not run.
func (x *exploration) ofAQuota(s *explored) breakage {
	const counted, full = "count/prometheusrules.monitoring.coreos.com", "1"
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: exploredNamespace, Name: "rules"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{counted: resource.MustParse(full)}},
	}
	return breakage{
		what: "a ResourceQuota is full", at: s.name,
		inject: func() error {
			if err := s.m.Client.Create(x.t.Context(), quota); err != nil {
				return err
			}
			quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: quota.Spec.Hard}
			return s.m.Client.Status().Update(x.t.Context(), quota)
		},
		heal: func() error { return s.m.Client.Delete(x.t.Context(), quota) },
	}
}

// losesKind deletes the CustomResourceDefinition of PrometheusRules in a spoke, with all of them.
func (x *exploration) losesKind(s *explored) breakage {
	return breakage{
		what: "the kind of PrometheusRules is lost", at: s.name, dead: true,
		inject: func() error {
			s.replaced = true
			x.forgetForeignRules(s.m)
			deleteKind(x.t, s.m, "prometheusrules.monitoring.coreos.com")
			return nil
		},
		heal: func() error { return x.InstallMonitoringCRD(x.t.Context(), s.m, "prometheusrules") },
	}
}

// revokes takes a permission from the spoke's account.
func (x *exploration) revokes(s *explored) breakage {
	role, resources := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: fleet.SpokeUser}}, x.one("deployments", "namespaces", "prometheusrules")
	var all []rbacv1.PolicyRule
	set := func(rules []rbacv1.PolicyRule) error {
		role.Rules = rules
		return s.m.Client.Update(x.t.Context(), role)
	}
	return breakage{
		what: "a permission is revoked", at: s.name, dead: true,
		inject: func() error {
			if err := read(x.t.Context(), s.m, client.ObjectKeyFromObject(role), role); err != nil {
				return err
			}
			all = role.DeepCopy().Rules
			return set(slices.DeleteFunc(slices.Clone(role.Rules), func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, resources) }))
		},
		heal: func() error { return set(all) },
	}
}

// ofACluster chooses a fault of an API server or of etcd.
func (x *exploration) ofACluster(name string, m *fleet.Member, restored func()) breakage {
	ctx := context.WithoutCancel(x.t.Context())
	switch x.rnd.IntN(4) {
	case 0:
		return breakage{what: "killed", at: name, dead: true, inject: m.Kill, heal: func() error { return m.Restart(ctx) }}
	case 1:
		return breakage{what: "frozen", at: name, dead: true, inject: m.Pause, heal: m.Resume}
	case 2:
		return breakage{
			what: "etcd is full", at: name, closed: true,
			inject: func() error { return m.Fill(ctx) }, heal: func() error { return m.Drain(ctx) },
		}
	}
	return breakage{
		what: "etcd is restored", at: name,
		inject: func() error {
			if err := m.Save(); err != nil {
				return err
			}
			x.operate(1 + x.rnd.IntN(4))
			pause(x.t, time.Duration(x.rnd.Int64N(int64(3*time.Second))))
			restored()
			return m.Restore(ctx)
		},
		heal: nothing,
	}
}

// operate makes changes.
func (x *exploration) operate(n int) {
	operations := []func() string{
		x.appliesRule, x.appliesRule, x.appliesRule, x.deletesRule, x.labels, x.editsTemplate, x.deploys, x.deploys, x.undeploys, x.drifts, x.drifts,
	}
	for range n {
		if what := operations[x.rnd.IntN(len(operations))](); what != "" {
			x.ran(what)
		}
		pause(x.t, time.Duration(x.rnd.Int64N(int64(500*time.Millisecond))))
	}
}

// target chooses a spoke that answers an administrator. Faults of links are not met by administrators.
func (x *exploration) target() *explored {
	s := x.spokes[x.rnd.IntN(len(x.spokes))]
	if x.closed[s.name] || x.broken[s.name] != "" && !x.answers(s.m) {
		return nil
	}
	return s
}

func (x *exploration) answers(m *fleet.Member) bool {
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Second)
	defer cancel()
	return m.Client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}) == nil
}

func (x *exploration) hubAnswers() bool {
	return !x.closed["hub"] && (x.broken["hub"] == "" || x.answers(x.Hub))
}

func (x *exploration) appliesRule() string {
	name, where, n := fmt.Sprintf("explored-%d", x.rnd.IntN(6)), x.one("one", "two", healthyName, "prod", "dev", "all"), x.rnd.IntN(1000)
	state := v1alpha1.State(x.one(string(v1alpha1.Enabled), string(v1alpha1.Enabled), string(v1alpha1.Disabled)))
	if !x.hubAnswers() {
		return ""
	}
	ar := alertRule(name, exploredNamespace, onNamed(v1alpha1.ClusterName(where)))
	switch where {
	case "prod", "dev":
		ar.Spec.Placement = onLabeled("env", where)
	case "all":
		ar.Spec.Placement = onEvery()
	}
	ar.Spec.Expr, ar.Spec.State = fmt.Sprintf("up == %d", n), state
	x.say("a person applies %s: up == %d on %s, %s", name, n, where, state)
	x.touched[client.ObjectKeyFromObject(ar).String()] = true
	now := &v1alpha1.AlertRule{}
	if err := read(x.t.Context(), x.Hub, client.ObjectKeyFromObject(ar), now); err == nil {
		update(x.t, x.Hub, now, func(now *v1alpha1.AlertRule) { now.Spec = ar.Spec })
		return "apply a rule"
	}
	must(x.t, x.Hub.Client.Create(x.t.Context(), ar))
	return "apply a rule"
}

func (x *exploration) deletesRule() string {
	name := fmt.Sprintf("explored-%d", x.rnd.IntN(6))
	if !x.hubAnswers() {
		return ""
	}
	ar := alertRule(name, "", v1alpha1.ClusterSelection{})
	x.touched[client.ObjectKeyFromObject(ar).String()] = true
	if err := x.Hub.Client.Delete(x.t.Context(), ar); client.IgnoreNotFound(err) != nil {
		x.t.Fatal(err)
	} else if err != nil {
		return ""
	}
	x.say("a person deletes %s", name)
	return "delete a rule"
}

func (x *exploration) labels() string {
	s, env := x.spokes[x.rnd.IntN(len(x.spokes))], x.one("prod", "dev")
	if !x.hubAnswers() {
		return ""
	}
	x.say("a person labels %s env=%s", s.name, env)
	x.touched["all"] = true
	update(x.t, x.Hub, membership(s.name), func(sc *v1alpha1.SpokeCluster) { metav1.SetMetaDataLabel(&sc.ObjectMeta, "env", env) })
	return "label a spoke"
}

func (x *exploration) editsTemplate() string {
	n, kinds := x.rnd.IntN(1000), rule.WorkloadKinds()
	kinds = kinds[:1+x.rnd.IntN(len(kinds))]
	if !x.hubAnswers() {
		return ""
	}
	x.say("a person edits the template: %d, for %v", n, kinds)
	x.touched["all"] = true
	update(x.t, x.Hub, template("explored"), func(t *v1alpha1.AlertRuleTemplate) {
		t.Spec.Expr, t.Spec.Workloads = fmt.Sprintf(`up{workload="$(workload.name)"} == %d`, n), &v1alpha1.WorkloadSelection{Kinds: kinds}
	})
	return "edit the template"
}

// workload picks a workload of a spoke.
func (x *exploration) workload() (*explored, client.Object) {
	kinds := rule.WorkloadKinds()
	return x.target(), workload(kinds[x.rnd.IntN(len(kinds))], exploredNamespace, fmt.Sprintf("explored-%d", x.rnd.IntN(2)))
}

func (x *exploration) deploys() string {
	s, w := x.workload()
	off := x.rnd.IntN(4) == 0
	if s == nil {
		return ""
	}
	what := fmt.Sprintf("%T %s", w, w.GetName())
	if err := read(x.t.Context(), s.m, client.ObjectKeyFromObject(w), w.DeepCopyObject().(client.Object)); err != nil {
		x.say("%s is created in %s", what, s.name)
		must(x.t, s.m.Client.Create(x.t.Context(), w))
		return "create a workload"
	}
	value := map[bool]string{true: "disabled", false: "enabled"}[off]
	x.say("%s in %s wants its alerts: %s", what, s.name, value)
	x.touched["all"] = true
	update(x.t, s.m, w, func(w client.Object) {
		w.SetAnnotations(map[string]string{alertsAnnotation: value})
	})
	return "annotate a workload"
}

func (x *exploration) undeploys() string {
	s, w := x.workload()
	if s == nil || s.m.Client.Delete(x.t.Context(), w) != nil {
		return ""
	}
	x.say("%T %s is deleted in %s", w, w.GetName(), s.name)
	x.touched["all"] = true
	return "delete a workload"
}

// drifts has somebody change or delete a PrometheusRule in a spoke.
func (x *exploration) drifts() string {
	s, deletes, n := x.target(), x.rnd.IntN(2) == 0, x.rnd.IntN(1000)
	if s == nil {
		return ""
	}
	held, err := x.held(x.t.Context(), s)
	if x.broken[s.name] != "" && err != nil {
		return "" // the kind is lost
	}
	must(x.t, err)
	var keys []types.NamespacedName
	for key := range held {
		if was, ok := x.drifted[s.name+key.String()]; !ok || x.rounds-was > driftedRounds {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return ""
	}
	slices.SortFunc(keys, oracle.CompareKeys)
	key := keys[n%len(keys)]
	x.drifted[s.name+key.String()] = x.rounds
	o := held[key]
	x.touched[o.Annotations[v1alpha1.AlertRuleAnnotation]] = true
	if deletes {
		x.say("somebody deletes PrometheusRule %s in %s", key, s.name)
		_ = s.m.Client.Delete(x.t.Context(), o)
		return "delete a PrometheusRule in a spoke"
	}
	x.say("somebody changes PrometheusRule %s in %s", key, s.name)
	o.Spec.Groups[0].Rules[0].Alert = "Changed"
	_ = s.m.Client.Update(x.t.Context(), o) // it may have been written meanwhile
	return "change a PrometheusRule in a spoke"
}
