package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/why"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	"github.com/rulefleet/rulefleet/pkg/testing/pipeline"
)

const (
	// linkLimit is how soon the hub must show that a link of the chain broke or was repaired.
	linkLimit = time.Minute

	prometheusMain = "Prometheus monitoring/main"
	latency        = "job:request_latency_seconds:mean5m"
	thirdSpoke     = "us-2"
	wantedLabel    = "release"
)

// evaluating is a fleet with real alerts in two of its three spokes: Prometheus evaluates the rules there,
// with a configuration by prometheus-operator.
type evaluating struct {
	*fleet.Fleet

	t             *testing.T // the present test or subtest
	shop          string
	dir           string
	manager       *fleet.Manager
	alertmanager  *pipeline.Alertmanager
	first, second *pipeline.Pipeline // of spokeA, whose Prometheus requires a label, and of spokeB
}

// startEvaluating starts it, for a manager with scaled intervals.
func startEvaluating(t *testing.T, intervals float64) *evaluating {
	t.Helper()
	e := &evaluating{
		t: t, Fleet: start(t, fleet.Options{Spokes: []string{spokeA, spokeB, thirdSpoke}, ControllerManager: true, Audit: true, Intervals: intervals}),
		shop: "shop", dir: t.TempDir(),
	}
	var err error
	e.alertmanager, err = pipeline.StartAlertmanager(t.Context(), "")
	must(t, err)
	t.Cleanup(func() { must(t, e.alertmanager.Stop()) })
	begin := func(name string, selector map[string]string) *pipeline.Pipeline {
		p, err := pipeline.Start(t.Context(), e.Spoke(name), pipeline.Options{
			Prometheus: monitoringv1.PrometheusSpec{
				CommonPrometheusFields: monitoringv1.CommonPrometheusFields{ExternalLabels: map[string]string{"cluster": "prod-" + name}},
				RuleSelector:           &metav1.LabelSelector{MatchLabels: selector},
				RuleNamespaceSelector:  &metav1.LabelSelector{},
			},
			Alertmanager: e.alertmanager,
		})
		must(t, err)
		t.Cleanup(func() {
			if t.Failed() {
				p.Dump(t.Output())
			}
			must(t, p.Stop())
		})
		return p
	}
	e.first = begin(spokeA, map[string]string{wantedLabel: "monitoring"})
	e.second = begin(spokeB, nil)
	for _, name := range []string{spokeA, spokeB, thirdSpoke} {
		namespace(t, e.shop, e.Spoke(name))
	}
	e.run()
	for name, env := range map[string]string{spokeA: "prod", spokeB: "prod", thirdSpoke: "dev"} {
		must(t, e.Register(t.Context(), name, map[string]string{"env": env}))
	}
	return e
}

// run starts the manager.
func (e *evaluating) run() {
	e.t.Helper()
	e.manager = startManagerWith(e.t, e.Fleet, fleet.ManagerOptions{Dir: e.dir, HubID: "evaluating", Args: []string{
		"--evaluator-poll-interval=5s", // shorter than the interval of writes about firing alerts
		// Features of the fleet's Prometheus that one of them lacks.
		"--prometheus-features=promql-experimental-functions",
		"--protected-labels=team",
	}})
}

// expect waits until a rule has this phase and reason in a spoke, with all parts in its message.
func (e *evaluating) expect(t *testing.T, key client.ObjectKey, spoke string, phase v1alpha1.Phase, reason string, parts ...string) {
	t.Helper()
	begun := time.Now()
	within(t, linkLimit, fmt.Sprintf("%s is %s in %s, reason %q", key.Name, phase, spoke, reason), func(ctx context.Context) error {
		ar := &v1alpha1.AlertRule{}
		if err := read(ctx, e.Hub, key, ar); err != nil {
			return err
		}
		r := row(ar, spoke)
		if r == nil || r.ObservedGeneration != ar.Generation || r.Phase != phase || r.Reason != reason {
			return fmt.Errorf("the status is %+v", ar.Status)
		}
		for _, part := range parts {
			if !strings.Contains(r.Message, part) {
				return fmt.Errorf("the message is %q, without %q", r.Message, part)
			}
		}
		return nil
	})
	t.Logf("%s is %s in %s, reason %q, after %v", key.Name, phase, spoke, reason, time.Since(begun).Round(100*time.Millisecond))
}

func (e *evaluating) evaluates(t *testing.T, key client.ObjectKey, spoke string) {
	t.Helper()
	e.expect(t, key, spoke, v1alpha1.PhaseEvaluating, "")
}

// firing waits until the hub shows these numbers of alerts of a rule, in all spokes and in one.
func (e *evaluating) firing(t *testing.T, key client.ObjectKey, spoke string, all, there int32) {
	t.Helper()
	within(t, linkLimit, fmt.Sprintf("%d alerts of %s fire, and %d in %s", all, key.Name, there, spoke), func(ctx context.Context) error {
		ar := &v1alpha1.AlertRule{}
		if err := read(ctx, e.Hub, key, ar); err != nil {
			return err
		}
		s := ar.Status.Summary
		if s == nil || s.Firing == nil || *s.Firing != all || row(ar, spoke) == nil || row(ar, spoke).Firing != there {
			return fmt.Errorf("the status is %+v", ar.Status)
		}
		return nil
	})
}

// shown waits until the first SpokeCluster has this condition, with all parts in its message.
func (e *evaluating) shown(t *testing.T, kind string, status metav1.ConditionStatus, reason string, parts ...string) {
	t.Helper()
	within(t, linkLimit, fmt.Sprintf("SpokeCluster %s: %s=%s, reason %s", spokeA, kind, status, reason), func(ctx context.Context) error {
		sc := membership(spokeA)
		if err := read(ctx, e.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
			return err
		}
		c := meta.FindStatusCondition(sc.Status.Conditions, kind)
		if c == nil || c.Status != status || c.Reason != reason {
			return fmt.Errorf("the conditions are %+v", sc.Status.Conditions)
		}
		for _, part := range parts {
			if !strings.Contains(c.Message, part) {
				return fmt.Errorf("the message is %q, without %q", c.Message, part)
			}
		}
		return nil
	})
}

// prometheus changes the Prometheus object of the first spoke.
func (e *evaluating) prometheus(t *testing.T, change func(*monitoringv1.PrometheusSpec)) {
	t.Helper()
	p := &monitoringv1.Prometheus{ObjectMeta: metav1.ObjectMeta{Namespace: pipeline.Namespace, Name: pipeline.Name}}
	update(t, e.Spoke(spokeA), p, func(p *monitoringv1.Prometheus) { change(&p.Spec) })
}

// written returns an AlertRule of the hub's own namespace about the test's metrics.
func written(name, expr string, placement v1alpha1.ClusterSelection) *v1alpha1.AlertRule {
	ar := alertRule(name, "", placement)
	ar.Spec.Alert, ar.Spec.Expr, ar.Spec.For = "Of"+strings.ReplaceAll(name, "-", ""), expr, "1s"
	return ar
}

// TestEvaluation follows rules from the hub to their notifications, and breaks each link of the chain in turn.
func TestEvaluation(t *testing.T) {
	parallel(t)
	e := startEvaluating(t, quick/2) // it often waits until the manager has looked at the Prometheus objects
	t.Run("Deployment", e.deployment)
	t.Run("Kinds", e.kinds)
	t.Run("Paging", e.paging)
	t.Run("Packs", e.packs)
	t.Run("Tenants", e.tenants)
	t.Run("Links", e.links)
}

// TestFiring tests alerts in several spokes, and large numbers of alerts.
func TestFiring(t *testing.T) {
	long(t)
	parallel(t)
	e := startEvaluating(t, quick)

	// It needs a minute to fire, so it comes first.
	high := written("high-latency", latency+`{job="myjob"} > 0.5`, onLabeled("env", "prod"))
	high.Spec.Alert, high.Spec.For = "HighRequestLatency", "1m"
	high.Spec.Annotations = map[string]v1alpha1.LabelText{
		"summary":     "High request latency in $(cluster.name)",
		"description": `{{ $labels.job }} takes {{ $value | humanizeDuration }}`,
	}
	highKey := create(t, e.Hub, high)
	for _, p := range []*pipeline.Pipeline{e.first, e.second} {
		p.SetMetric(latency, map[string]string{"job": "myjob"}, 0.75)
	}
	e.evaluates(t, highKey, spokeA)
	e.evaluates(t, highKey, spokeB)
	since := map[string]time.Time{}
	for spoke, p := range map[string]*pipeline.Pipeline{spokeA: e.first, spokeB: e.second} {
		within(t, linkLimit, "the alert is pending or firing in "+spoke, func(ctx context.Context) error {
			pending, err := activeSince(ctx, p.PrometheusURL(), high.Spec.Alert, "pending", "firing")
			if err != nil {
				return err
			}
			since[spoke], err = time.Parse(time.RFC3339Nano, pending)
			return err
		})
	}

	t.Run("Storm", e.storm)
	t.Run("Latency", func(t *testing.T) { e.latency(t, highKey, since) })
	t.Run("Restart", e.restart) // when no alert is about to fire
}

// deployment breaks a Deployment's pods where Prometheus requires a label that nobody sets by hand.
func (e *evaluating) deployment(t *testing.T) {
	d := deployment(e.shop, "web")
	d.Annotations = map[string]string{"rulefleet.io/for": "2s"}
	must(t, e.Spoke(spokeA).Client.Create(t.Context(), d))
	ar := expectGenerated(t, e.Fleet, spokeA, e.shop, "web", 1)
	key := client.ObjectKeyFromObject(ar)
	e.evaluates(t, key, spokeA)
	pr := expectPushed(t, e.Spoke(spokeA), key, 1)
	if pr.Labels[wantedLabel] != "monitoring" {
		t.Errorf("the labels are %v", pr.Labels)
	}
	web := types.NamespacedName{Namespace: e.shop, Name: "web"}
	of := map[string]string{"alertname": "DeploymentDown", "deployment": "web", "namespace": e.shop, "cluster": "prod-" + spokeA}
	e.first.Break(web)
	e.notified(t, linkLimit, pipeline.Firing, of)
	e.firing(t, key, spokeA, 1, 1)
	out, err := e.Hub.Kubectl(t.Context(), "get", "ar", "-n", key.Namespace, key.Name).CombinedOutput()
	must(t, err)
	if fields := strings.Fields(string(out)); !slices.Contains(fields, "FIRING") || !strings.Contains(string(out), "1/1     1 ") {
		t.Errorf("kubectl prints\n%s", out)
	}

	// This is intended, so nothing is down.
	update(t, e.Spoke(spokeA), d, func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32) })
	e.notified(t, linkLimit, pipeline.Resolved, of)
	e.firing(t, key, spokeA, 0, 0)
	update(t, e.Spoke(spokeA), d, func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(1)) })
	e.firing(t, key, spokeA, 1, 1)
	e.first.Mend(web)
	e.firing(t, key, spokeA, 0, 0)
}

// kinds breaks a workload of each other kind for real, all at once, and repairs them.
func (e *evaluating) kinds(t *testing.T) {
	long(t)
	m := e.Spoke(spokeB)
	// DaemonSets run pods on nodes. There is no kubelet that would remove the taint of a new node.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	create(t, m, node)
	update(t, m, node, func(n *corev1.Node) { n.Spec.Taints = nil })
	named := map[v1alpha1.WorkloadKind]string{v1alpha1.StatefulSetKind: "db", v1alpha1.DaemonSetKind: "agent", v1alpha1.CronJobKind: "backup"}
	alerts := map[v1alpha1.WorkloadKind]string{v1alpha1.StatefulSetKind: "StatefulSetDown", v1alpha1.DaemonSetKind: "DaemonSetDown", v1alpha1.CronJobKind: "CronJobFailing"}
	objects, keys := map[v1alpha1.WorkloadKind]client.Object{}, map[v1alpha1.WorkloadKind]client.ObjectKey{}
	for _, name := range []string{"statefulset-down", "daemonset-down", "cronjob-failing"} {
		update(t, e.Hub, &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}, func(tpl *v1alpha1.AlertRuleTemplate) {
			tpl.Spec.State, tpl.Spec.Placement = v1alpha1.Enabled, new(onNamed(spokeB)) // the tests after this one use the other spoke
		})
	}
	for kind, name := range named {
		objects[kind] = workload(kind, e.shop, name)
		objects[kind].SetAnnotations(map[string]string{"rulefleet.io/for": "2s"})
		create(t, m, objects[kind])
	}
	for kind, name := range named {
		keys[kind] = client.ObjectKeyFromObject(expectGenerated(t, e.Fleet, spokeB, e.shop, name, 1))
		e.evaluates(t, keys[kind], spokeB)
		e.firing(t, keys[kind], spokeB, 0, 0)
	}

	begun := time.Now()
	of := func(kind v1alpha1.WorkloadKind) map[string]string {
		return map[string]string{"alertname": alerts[kind], rule.WorkloadLabel(kind): named[kind], "namespace": e.shop, "cluster": "prod-" + spokeB}
	}
	for _, name := range []string{"db", "agent", "backup-1"} {
		e.second.Break(types.NamespacedName{Namespace: e.shop, Name: name})
	}
	runOnce(t, m, objects[v1alpha1.CronJobKind], "backup-1")
	for kind := range named {
		e.notified(t, linkLimit, pipeline.Firing, of(kind))
		t.Logf("%s: after %v", alerts[kind], time.Since(begun).Round(100*time.Millisecond))
		e.firing(t, keys[kind], spokeB, 1, 1)
	}
	for _, name := range []string{"db", "agent"} {
		e.second.Mend(types.NamespacedName{Namespace: e.shop, Name: name})
	}
	runOnce(t, m, objects[v1alpha1.CronJobKind], "backup-2")
	for kind := range named {
		e.notified(t, linkLimit, pipeline.Resolved, of(kind))
		e.firing(t, keys[kind], spokeB, 0, 0)
	}
}

// runOnce creates a Job from a CronJob, as kubectl create job --from does.
func runOnce(t *testing.T, m *fleet.Member, o client.Object, name string) {
	t.Helper()
	c, ok := o.(*batchv1.CronJob)
	if !ok {
		t.Fatalf("%T is no CronJob", o)
	}
	create(t, m, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(c, batchv1.SchemeGroupVersion.WithKind("CronJob"))},
		},
		Spec: c.Spec.JobTemplate.Spec,
	})
}

// notified waits until Alertmanager has sent a notification of an alert.
func (e *evaluating) notified(t *testing.T, limit time.Duration, status string, labels map[string]string) pipeline.Notification {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	n, err := e.alertmanager.Await(ctx, status, labels)
	must(t, err)
	return n
}

// links breaks and repairs every link.
func (e *evaluating) links(t *testing.T) {
	long(t)
	const (
		expr = "test_links > 10"
		// toExpr is a script of sed that corrects the expression in an editor.
		toExpr = "s/ expr: .*/ expr: " + expr + "/"
	)
	key := create(t, e.Hub, written("links", expr, onNamed(spokeA, thirdSpoke)))
	e.first.SetMetric("test_links", nil, 1)
	e.evaluates(t, key, spokeA)
	// In the other spoke the rule goes to the namespace of the Prometheus, here to that of the flag, because no
	// Prometheus is known.
	const namespaceGone = `namespace "monitoring" not found`
	e.expect(t, key, thirdSpoke, v1alpha1.PhasePending, v1alpha1.ReasonNamespaceMissing, namespaceGone)
	namespace(t, "monitoring", e.Spoke(thirdSpoke))
	e.expect(t, key, thirdSpoke, v1alpha1.PhaseApplied, v1alpha1.ReasonNoEvaluator, "no Prometheus or ThanosRuler")

	m := e.Spoke(spokeA)
	spokeIs := func(change func(*v1alpha1.SpokeCluster)) { update(t, e.Hub, membership(spokeA), change) }
	exprIs := func(expr string) {
		update(t, e.Hub, &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}},
			func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = expr })
	}
	t.Run("label", func(t *testing.T) {
		spokeIs(func(sc *v1alpha1.SpokeCluster) {
			sc.Spec.RuleLabels = map[string]v1alpha1.RuleLabelValue{wantedLabel: "wrong"}
		})
		e.expect(t, key, spokeA, v1alpha1.PhaseApplied, v1alpha1.ReasonNotSelected, prometheusMain, "release=monitoring", "release=wrong", "spec.ruleLabels")
		mend(t, e.Hub, m, e.explained(t, key, why.NotOK, "selected", v1alpha1.ReasonNotSelected, "spec.ruleLabels"), "patch")
		e.works(t, key)
		spokeIs(func(sc *v1alpha1.SpokeCluster) { sc.Spec.RuleLabels = nil })
	})
	t.Run("selector", func(t *testing.T) {
		e.prometheus(t, func(s *monitoringv1.PrometheusSpec) { s.RuleSelector.MatchLabels[wantedLabel] = "other" })
		within(t, linkLimit, "the rule has the label that is wanted now", func(ctx context.Context) error {
			found, err := pushed(ctx, e.Spoke(spokeA), key)
			if err == nil && (len(found) != 1 || found[0].Labels[wantedLabel] != "other") {
				err = fmt.Errorf("there are %+v", found)
			}
			return err
		})
		e.works(t, key)
		e.prometheus(t, func(s *monitoringv1.PrometheusSpec) { s.RuleSelector.MatchLabels[wantedLabel] = "monitoring" })
		e.works(t, key)
	})
	t.Run("namespace selector", func(t *testing.T) {
		e.prometheus(t, func(s *monitoringv1.PrometheusSpec) {
			s.RuleNamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"rules": "yes"}}
		})
		e.expect(t, key, spokeA, v1alpha1.PhaseApplied, v1alpha1.ReasonNotSelected, prometheusMain, "rules=yes", "namespace")
		mend(t, e.Hub, m, e.explained(t, key, why.NotOK, "selected", v1alpha1.ReasonNotSelected, "rules=yes"), "label")
		e.works(t, key)
		e.prometheus(t, func(s *monitoringv1.PrometheusSpec) { s.RuleNamespaceSelector = &metav1.LabelSelector{} })
	})
	t.Run("namespace", func(t *testing.T) {
		generated := client.ObjectKeyFromObject(expectGenerated(t, e.Fleet, spokeA, e.shop, "web", 1))
		e.prometheus(t, func(s *monitoringv1.PrometheusSpec) { s.EnforcedNamespaceLabel = "namespace" })
		e.expect(t, key, spokeA, v1alpha1.PhaseSelected, v1alpha1.ReasonNamespaceEnforced, prometheusMain, `namespace="monitoring"`, "spec.ruleNamespace")
		e.explained(t, key, why.NotOK, "evaluated", v1alpha1.ReasonNamespaceEnforced, "spec.ruleNamespace", "list the PrometheusRule in spec.excludedFromEnforcement of the Prometheus")
		e.evaluates(t, generated, spokeA) // it concerns the namespace of the object
		o := expectPushed(t, m, key, 1)
		e.prometheus(t, func(s *monitoringv1.PrometheusSpec) {
			s.ExcludedFromEnforcement = []monitoringv1.ObjectReference{{Group: "monitoring.coreos.com", Resource: "prometheusrules", Namespace: o.Namespace, Name: o.Name}}
		})
		e.works(t, key)
		e.prometheus(t, func(s *monitoringv1.PrometheusSpec) { s.EnforcedNamespaceLabel, s.ExcludedFromEnforcement = "", nil })
	})
	t.Run("prometheus-operator's flags", func(t *testing.T) {
		operator := deployment("monitoring", "prometheus-operator")
		operator.Labels["app.kubernetes.io/name"] = "prometheus-operator"
		operator.Spec.Replicas = new(int32) // only its flags matter here; the operator runs as a process
		operator.Spec.Template.Spec.Containers[0].Args = []string{"--deny-namespaces=kube-system,monitoring"}
		must(t, e.Spoke(spokeA).Client.Create(t.Context(), operator))
		e.expect(t, key, spokeA, v1alpha1.PhaseApplied, v1alpha1.ReasonNotSelected, prometheusMain, "--deny-namespaces=kube-system,monitoring")
		e.explained(t, key, why.NotOK, "selected", v1alpha1.ReasonNotSelected, "--deny-namespaces=kube-system,monitoring; remove the namespace from that flag")
		update(t, m, operator, func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Args = []string{"--deny-namespaces=kube-system"}
		})
		e.works(t, key)
		must(t, m.Client.Delete(t.Context(), operator))
	})
	t.Run("rejected", func(t *testing.T) {
		exprIs("mad_over_time(test_links[5m]) > 10")
		e.expect(t, key, spokeA, v1alpha1.PhaseApplied, v1alpha1.ReasonRejected, "prometheus-operator", prometheusMain)
		mendBy(t, e.Hub, m, e.explained(t, key, why.NotOK, "selected", v1alpha1.ReasonRejected, "correct the expression"), "edit", toExpr)
		e.works(t, key)
	})
	t.Run("evaluation", func(t *testing.T) {
		for _, side := range []string{"a", "b"} {
			e.first.SetMetric("test_twice", map[string]string{"side": side}, 1)
		}
		exprIs("test_twice * on() test_twice > 10")
		e.expect(t, key, spokeA, v1alpha1.PhaseSelected, v1alpha1.ReasonEvaluationFailed, prometheusMain, "many-to-many")
		mendBy(t, e.Hub, m, e.explained(t, key, why.NotOK, "evaluated", v1alpha1.ReasonEvaluationFailed, "many-to-many", "Correct the expression"), "edit", toExpr)
		e.works(t, key)
	})
	t.Run("metric", func(t *testing.T) {
		e.first.RemoveMetric("test_links", nil)
		e.metrics(t, key, spokeA+": test_links")
		e.evaluates(t, key, spokeA)
		e.explained(t, key, why.NotOK, "metrics", "test_links", "are scraped")
		e.first.SetMetric("test_links", nil, 1)
		e.metrics(t, key)
		e.works(t, key)
	})
	t.Run("kube-state-metrics", func(t *testing.T) {
		ar := expectGenerated(t, e.Fleet, spokeA, e.shop, "web", 1)
		e.shown(t, v1alpha1.ConditionMetricsPresent, metav1.ConditionTrue, v1alpha1.ReasonMetricsPresent)
		must(t, e.first.StopKubeStateMetrics())
		e.shown(t, v1alpha1.ConditionMetricsPresent, metav1.ConditionFalse, v1alpha1.ReasonKubeStateMetricsMissing, "kube_deployment_", "kube-state-metrics")
		e.metrics(t, client.ObjectKeyFromObject(ar))
		e.explained(t, client.ObjectKeyFromObject(ar), why.NotOK, "metrics", "kube_deployment_", "Install kube-state-metrics")
		must(t, e.first.StartKubeStateMetrics(t.Context()))
		e.shown(t, v1alpha1.ConditionMetricsPresent, metav1.ConditionTrue, v1alpha1.ReasonMetricsPresent)
		e.works(t, client.ObjectKeyFromObject(ar))
	})
	t.Run("Prometheus", func(t *testing.T) {
		must(t, e.first.StopPrometheus())
		e.expect(t, key, spokeA, v1alpha1.PhaseSelected, v1alpha1.ReasonEvaluatorUnreachable, prometheusMain)
		e.shown(t, v1alpha1.ConditionEvaluating, metav1.ConditionFalse, v1alpha1.ReasonEvaluatorUnreachable, prometheusMain)
		e.shown(t, v1alpha1.ConditionConnected, metav1.ConditionTrue, v1alpha1.ReasonConnected) // the spoke itself is fine
		e.explained(t, key, why.NotOK, "evaluated", v1alpha1.ReasonEvaluatorUnreachable, "check the pods of the Prometheus")
		must(t, e.first.StartPrometheus(t.Context()))
		e.works(t, key)
		e.shown(t, v1alpha1.ConditionEvaluating, metav1.ConditionTrue, v1alpha1.ReasonEvaluating)
	})
	t.Run("grant", func(t *testing.T) {
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: fleet.EvaluateGrant}}
		must(t, e.Spoke(spokeA).Client.Get(t.Context(), client.ObjectKeyFromObject(binding), binding))
		must(t, e.Spoke(spokeA).Client.Delete(t.Context(), binding))
		e.expect(t, key, spokeA, v1alpha1.PhaseSelected, v1alpha1.ReasonConfirmed, prometheusMain)
		e.shown(t, v1alpha1.ConditionEvaluating, metav1.ConditionUnknown, v1alpha1.ReasonNotGranted, "services/proxy")
		expectCondition(t, e.Fleet, &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}},
			v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
		e.explained(t, key, why.Unknown, "evaluated", v1alpha1.ReasonConfirmed, "services/proxy", "kubectl rulefleet join "+spokeA) // which TestWhyMends runs
		binding.ResourceVersion, binding.UID = "", ""
		must(t, e.Spoke(spokeA).Client.Create(t.Context(), binding))
		e.works(t, key)
	})
	t.Run("CRD", func(t *testing.T) {
		deleteKind(t, e.Spoke(spokeA), "prometheusrules.monitoring.coreos.com")
		e.expect(t, key, spokeA, v1alpha1.PhasePending, v1alpha1.ReasonCRDMissing, "prometheusrules.monitoring.coreos.com")
		mend(t, e.Hub, m, e.explained(t, key, why.NotOK, "kinds and permissions", v1alpha1.ReasonCRDMissing, "Install the CustomResourceDefinitions"), "apply")
		e.shown(t, v1alpha1.ConditionPrometheusRuleServed, metav1.ConditionTrue, v1alpha1.ReasonServed)
		// prometheus-operator's own watch may take a minute to recover.
		must(t, e.first.StopOperator())
		must(t, e.first.StartOperator(t.Context()))
		e.works(t, key)
	})
}

// metrics waits until a rule has the condition MetricsPresent with all parts in its message or, without parts, until
// it does not have the condition.
func (e *evaluating) metrics(t *testing.T, key client.ObjectKey, parts ...string) {
	t.Helper()
	within(t, linkLimit, fmt.Sprintf("%s: MetricsPresent names %q", key.Name, parts), func(ctx context.Context) error {
		ar := &v1alpha1.AlertRule{}
		if err := read(ctx, e.Hub, key, ar); err != nil {
			return err
		}
		c := meta.FindStatusCondition(ar.Status.Conditions, v1alpha1.ConditionMetricsPresent)
		if (c != nil) != (len(parts) > 0) || c != nil && (c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonMetricsMissing) {
			return fmt.Errorf("the conditions are %+v", ar.Status.Conditions)
		}
		for _, part := range parts {
			if !strings.Contains(c.Message, part) {
				return fmt.Errorf("the message is %q", c.Message)
			}
		}
		return nil
	})
}

// storm makes a thousand alerts fire, and changes continuously how many of them do.
func (e *evaluating) storm(t *testing.T) {
	const alerts = 1000
	set := func(firing int) {
		for i := range alerts {
			value := float64(0)
			if i < firing {
				value = 1
			}
			e.second.SetMetric("test_storm", map[string]string{"i": strconv.Itoa(i)}, value)
		}
	}
	set(0)
	ar := written("storm", "test_storm > 0", onNamed(spokeB))
	ar.Spec.For = ""
	key := create(t, e.Hub, ar)
	e.evaluates(t, key, spokeB)
	path := "/apis/rulefleet.io/v1alpha1/namespaces/" + key.Namespace + "/alertrules/" + key.Name + "/status"
	writes := func() (at []time.Time) {
		events, err := e.Hub.Audit().Events(func(a controlplane.AuditEvent) bool {
			return a.IsWrite() && strings.HasPrefix(a.RequestURI, path)
		})
		must(t, err)
		for _, a := range events {
			at = append(at, a.RequestReceivedTimestamp)
		}
		return at
	}
	e.metrics(t, key)
	must(t, e.Hub.Audit().Reset())
	set(alerts)
	e.firing(t, key, spokeB, alerts, alerts)
	begun, step := time.Now(), 0
	const every = 30 * time.Second // the manager's firingInterval
	within(t, time.Minute, "a storm passes", func(context.Context) error {
		step++
		set(alerts/2 + 37*step%(alerts/2)) // two scrapes hardly ever see the same number
		if left := quickly(every*7/3) - time.Since(begun); left > 0 {
			return fmt.Errorf("%v are left", left)
		}
		return nil
	})
	at := writes()
	for i := 1; i < len(at); i++ {
		if gap := at[i].Sub(at[i-1]); gap < quickly(every-time.Second) {
			t.Errorf("two writes of its status are %v apart", gap)
		}
	}
	if len(at) < 2 {
		t.Errorf("the status was written %d times", len(at))
	}
	t.Logf("%d writes of the status in a storm of %v", len(at), time.Since(begun).Round(time.Second))
	must(t, e.Hub.Client.Delete(t.Context(), ar))
	for i := range alerts {
		e.second.RemoveMetric("test_storm", map[string]string{"i": strconv.Itoa(i)})
	}
}

// restart restarts the manager: it writes nothing, neither before nor after it polled the evaluators.
func (e *evaluating) restart(t *testing.T) {
	polls := func(spoke string) int {
		events, err := e.Spoke(spoke).Audit().Events(func(e controlplane.AuditEvent) bool {
			return e.User.Username == fleet.SpokeUser && e.ObjectRef.Resource == "services" && e.ObjectRef.Subresource == "proxy"
		})
		must(t, err)
		return len(events)
	}
	writes := func(m *fleet.Member, user string) []string {
		events, err := m.Audit().Events(func(e controlplane.AuditEvent) bool { return e.IsWrite() && e.User.Username == user })
		must(t, err)
		out := make([]string, 0, len(events))
		for _, e := range events {
			out = append(out, e.Verb+" "+e.RequestURI)
		}
		return out
	}
	members := map[*fleet.Member]string{e.Hub: fleet.HubUser}
	for _, name := range []string{spokeA, spokeB, thirdSpoke} {
		members[e.Spoke(name)] = fleet.SpokeUser
	}
	reset := func() {
		for m := range members {
			must(t, m.Audit().Reset())
		}
	}
	const enough = 6
	polled := func(context.Context) error {
		if a, b := polls(spokeA), polls(spokeB); a < enough || b < enough {
			return fmt.Errorf("they were asked %d and %d times", a, b)
		}
		return nil
	}
	silent := func(when string) {
		t.Helper()
		within(t, 2*time.Minute, "the evaluators are asked "+when, polled)
		for m, user := range members {
			for _, w := range writes(m, user) {
				t.Errorf("written to %s %s: %s", m.Name(), when, w)
			}
		}
	}
	// The counts of SpokeClusters follow within a minute.
	within(t, 3*time.Minute, "nothing is written between a number of polls", func(ctx context.Context) error {
		reset()
		for ctx.Err() == nil && polled(ctx) != nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
		for m, user := range members {
			if w := writes(m, user); len(w) > 0 {
				return fmt.Errorf("written to %s: %v", m.Name(), w)
			}
		}
		return ctx.Err()
	})
	must(t, e.manager.Stop())
	reset()
	e.run()
	silent("after a restart")
}

// latency measures the alert that was pending first, in two of three spokes. since is when each Prometheus
// began to show it as pending.
func (e *evaluating) latency(t *testing.T, key client.ObjectKey, since map[string]time.Time) {
	t.Helper()
	for _, spoke := range []string{spokeA, spokeB} {
		of := map[string]string{"alertname": "HighRequestLatency", "severity": "warning", "job": "myjob", "cluster": "prod-" + spoke}
		n := e.notified(t, 3*time.Minute, pipeline.Firing, of)
		if after := n.StartsAt.Sub(since[spoke].Truncate(time.Millisecond)); after < time.Minute { // StartsAt has milliseconds
			t.Errorf("it fires %v after it became pending", after)
		}
		if got := n.Annotations; got["summary"] != "High request latency in "+spoke || got["description"] != "myjob takes 750ms" {
			t.Errorf("the annotations are %v", got)
		}
	}
	e.firing(t, key, spokeA, 2, 1)
	if ar := expectReady(t, e.Fleet, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied); row(ar, thirdSpoke) != nil || ar.Status.Summary.Evaluating != 2 {
		t.Errorf("the status is %+v", ar.Status)
	}
	for _, p := range []*pipeline.Pipeline{e.first, e.second} {
		p.SetMetric(latency, map[string]string{"job": "myjob"}, 0.1)
	}
	for _, spoke := range []string{spokeA, spokeB} {
		e.notified(t, linkLimit, pipeline.Resolved, map[string]string{"alertname": "HighRequestLatency", "cluster": "prod-" + spoke})
	}
	e.firing(t, key, spokeA, 0, 0)
}
