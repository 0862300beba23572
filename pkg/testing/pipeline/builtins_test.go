package pipeline

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/builtin"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	"github.com/rulefleet/rulefleet/pkg/testing/promtool"
)

const (
	brokenName, healthyName = "web", "fine"

	// initPrefix is written before the reason for which an init container waits.
	initPrefix = "Init:"
	// running instead of a reason means that the pod runs.
	running = "Running"
)

// state creates a workload in some state.
type state func(s *states, o metav1.ObjectMeta)

// broken has, for each built-in template, the state of a workload for which its alert fires.
var broken = map[string]state{
	"deployment-down":     deploymentWith(func(s *appsv1.DeploymentStatus) { s.ReadyReplicas, s.AvailableReplicas = 0, 0 }),
	"replicas-mismatch":   deploymentWith(func(s *appsv1.DeploymentStatus) { s.ReadyReplicas, s.AvailableReplicas = 2, 2 }),
	"generation-mismatch": deploymentWith(func(s *appsv1.DeploymentStatus) { s.ObservedGeneration = 0 }),
	"rollout-stuck": deploymentWith(func(s *appsv1.DeploymentStatus) {
		s.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded"}}
	}),
	"crash-looping":     deploymentWithPod("CrashLoopBackOff"),
	"container-waiting": deploymentWithPod("ImagePullBackOff"),
	"hpa-maxed-out": func(s *states, o metav1.ObjectMeta) {
		s.healthy(v1alpha1.DeploymentKind, o)
		s.autoscaler(o, 3)
	},
	"statefulset-down":              statefulSetWith(func(s *appsv1.StatefulSetStatus) { s.ReadyReplicas, s.AvailableReplicas = 0, 0 }),
	"statefulset-replicas-mismatch": statefulSetWith(func(s *appsv1.StatefulSetStatus) { s.ReadyReplicas, s.AvailableReplicas = 2, 2 }),
	"statefulset-rollout-stuck": statefulSetWith(func(s *appsv1.StatefulSetStatus) {
		s.ReadyReplicas, s.AvailableReplicas, s.UpdatedReplicas, s.CurrentReplicas, s.UpdateRevision = 2, 2, 1, 2, "second"
	}),
	"statefulset-crash-looping":     withPod(v1alpha1.StatefulSetKind, "CrashLoopBackOff"),
	"statefulset-container-waiting": withPod(v1alpha1.StatefulSetKind, "CreateContainerConfigError"),
	"daemonset-down":                daemonSetWith(func(s *appsv1.DaemonSetStatus) { s.NumberReady, s.NumberAvailable = 0, 0 }),
	"daemonset-not-ready":           daemonSetWith(func(s *appsv1.DaemonSetStatus) { s.NumberReady, s.NumberAvailable = 2, 2 }),
	"daemonset-rollout-stuck":       daemonSetWith(func(s *appsv1.DaemonSetStatus) { s.NumberReady, s.UpdatedNumberScheduled = 2, 1 }),
	"daemonset-not-scheduled":       withPod(v1alpha1.DaemonSetKind, ""),
	"daemonset-misscheduled":        daemonSetWith(func(s *appsv1.DaemonSetStatus) { s.NumberMisscheduled = 1 }),
	"daemonset-crash-looping":       withPod(v1alpha1.DaemonSetKind, initPrefix+"CrashLoopBackOff"),
	"daemonset-container-waiting":   withPod(v1alpha1.DaemonSetKind, "ErrImagePull"),
	"cronjob-failing": func(s *states, o metav1.ObjectMeta) {
		s.job(o, s.healthy(v1alpha1.CronJobKind, o), batchv1.JobFailureTarget, batchv1.JobFailed)
	},
	// promtool's time begins in 1970.
	"cronjob-missed": cronJobWith(func(s *batchv1.CronJobStatus) { s.LastScheduleTime = new(metav1.Unix(60, 0)) }),
}

// TestBuiltInsOnRealOutput has kube-state-metrics export, for each built-in template, a workload in the state that the
// template is made for, beside a healthy one. promtool tests the rules of both on the output. Nothing else writes to the
// API server, so the states last. The test also compares the series that the test files of the templates write by hand
// with the output.
func TestBuiltInsOnRealOutput(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-all runs it")
	}
	t.Parallel()
	f, err := fleet.Start(t.Context(), fleet.Options{Bare: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := &states{t: t, client: f.Hub.Client, objects: map[string]int{}}
	templates := builtin.Templates(builtin.Options{})
	if len(templates) != len(broken) {
		t.Errorf("%d states for %d templates", len(broken), len(templates))
	}
	for _, template := range templates {
		breaks := broken[template.Name]
		if breaks == nil {
			t.Fatalf("no state breaks a workload for template %s", template.Name)
		}
		s.namespace(template.Name)
		breaks(s, metav1.ObjectMeta{Namespace: template.Name, Name: brokenName})
		healthy := metav1.ObjectMeta{Namespace: template.Name, Name: healthyName}
		kind := rule.KindsOf(template)[0]
		owner := s.healthy(kind, healthy)
		switch {
		case template.Name == "hpa-maxed-out":
			s.autoscaler(healthy, 2)
		case template.Name == "cronjob-failing":
			s.job(healthy, owner, batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)
		case kind == v1alpha1.DeploymentKind:
			s.pod(healthy, s.replicaSet(healthy, owner), "ReplicaSet", running)
		case kind != v1alpha1.CronJobKind:
			s.pod(healthy, owner, string(kind), running)
		}
	}
	output := s.exported(startKubeStateMetrics(t, f.Hub))
	t.Run("rules", func(t *testing.T) {
		if err := promtool.Test(t.Context(), rulesOf(t, templates), testOn(t, output, templates)); err != nil {
			t.Error(err)
		}
	})
	t.Run("series written by hand", func(t *testing.T) { compare(t, output) })
}

// rulesOf returns the rules of each template for both workloads in its namespace.
func rulesOf(t *testing.T, templates []*v1alpha1.AlertRuleTemplate) (out []monitoringv1.RuleGroup) {
	t.Helper()
	for _, template := range templates {
		for _, name := range []string{brokenName, healthyName} {
			w := templating.Workload{Kind: rule.KindsOf(template)[0], Cluster: rule.Cluster{Name: "eu"}, Namespace: template.Name, Name: name}
			groups, err := promtool.Groups(template, w)
			if err != nil {
				t.Fatal(err)
			}
			for _, group := range groups {
				group.Name = template.Name + "/" + name
				out = append(out, group)
			}
		}
	}
	return out
}

// testOn writes a test of promtool: with the series of an output, which stay as they are for 2 hours, the alert of each
// template fires for the broken workload, once, and none fires for a healthy one.
func testOn(t *testing.T, output map[string]*dto.MetricFamily, templates []*v1alpha1.AlertRuleTemplate) []byte {
	t.Helper()
	const minutes = 120
	var series, want []map[string]any
	for _, name := range slices.Sorted(maps.Keys(output)) {
		for _, m := range output[name].GetMetric() {
			labels := []string{`job="kube-state-metrics"`, `instance="a"`}
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+strconv.Quote(l.GetValue()))
			}
			series = append(series, map[string]any{
				"series": name + "{" + strings.Join(labels, ",") + "}",
				"values": fmt.Sprintf("%sx%d", strconv.FormatFloat(m.GetGauge().GetValue()+m.GetCounter().GetValue()+m.GetUntyped().GetValue(), 'f', -1, 64), minutes),
			})
		}
	}
	kinds := []string{}
	for _, kind := range rule.WorkloadKinds() {
		kinds = append(kinds, rule.WorkloadLabel(kind))
	}
	for _, template := range templates {
		want = append(want, map[string]any{
			"labels": fmt.Sprintf(`{alertname=%q,namespace=%q,%s=%q}`, template.Spec.Alert, template.Name, rule.WorkloadLabel(rule.KindsOf(template)[0]), brokenName),
			"value":  1,
		})
	}
	data, err := yaml.Marshal(map[string]any{
		"rule_files": []string{promtool.RulesName}, "evaluation_interval": "1m",
		"tests": []map[string]any{{
			"name": "each template on the output of kube-state-metrics", "interval": "1m", "input_series": series,
			"promql_expr_test": []map[string]any{{
				"expr":      "count by (alertname, namespace, " + strings.Join(kinds, ", ") + `) (ALERTS{alertstate="firing"})`,
				"eval_time": fmt.Sprintf("%dm", minutes), "exp_samples": want,
			}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// compare checks that kube-state-metrics exports the metrics and labels that the test files of the templates have.
func compare(t *testing.T, output map[string]*dto.MetricFamily) {
	t.Helper()
	files, err := filepath.Glob("../../rule/builtin/testdata/builtins/*.test.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test files: %v", err)
	}
	n := 0
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Tests []struct {
				Series []struct {
					Series string `json:"series"`
				} `json:"input_series"`
			} `json:"tests"`
		}
		if err := yaml.Unmarshal(data, &file); err != nil {
			t.Fatal(err)
		}
		for _, test := range file.Tests {
			for _, s := range test.Series {
				given, err := parser.NewParser(parser.Options{}).ParseMetric(s.Series)
				if err != nil {
					t.Fatalf("%s: %s: %v", path, s.Series, err)
				}
				n++
				family := output[given.Get(model.MetricNameLabel)]
				if family == nil {
					t.Errorf("%s: %s: there is no such metric", filepath.Base(path), s.Series)
					continue
				}
				has := map[string]bool{model.MetricNameLabel: true, "job": true, "instance": true} // of the target
				for _, m := range family.GetMetric() {
					for _, l := range m.GetLabel() {
						has[l.GetName()] = true
					}
				}
				for name := range given.Map() {
					if !has[name] {
						t.Errorf("%s: %s: there is no label %s", filepath.Base(path), s.Series, name)
					}
				}
			}
		}
	}
	if n < len(files) {
		t.Errorf("only %d series were compared", n)
	}
}

// startKubeStateMetrics runs kube-state-metrics beside an API server, and returns the address of its metrics.
func startKubeStateMetrics(t *testing.T, member *fleet.Member) string {
	t.Helper()
	path, err := binary("pipeline", "kube-state-metrics")
	if err != nil {
		t.Fatal(err)
	}
	p := &Pipeline{member: member, ports: map[string]int{}}
	for _, name := range []string{"kube-state-metrics", "kube-state-metrics' own"} {
		if p.ports[name], err = controlplane.TakePort(loopback); err != nil {
			t.Fatal(err)
		}
	}
	address := "http://" + p.address("kube-state-metrics")
	exporter := &program{
		name: "kube-state-metrics", path: path, logPath: filepath.Join(t.TempDir(), "kube-state-metrics.log"), usage: member.Usage(),
		args: p.kubeStateMetricsArgs(), readyURL: address + "/healthz",
	}
	if err := exporter.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(controlplane.Tail(exporter.logPath, tailLines))
		}
		if err := exporter.stop(); err != nil {
			t.Error(err)
		}
	})
	return address + "/metrics"
}

// states makes workloads in an API server without controllers.
type states struct {
	t      *testing.T
	client client.Client
	// objects are the numbers of objects by the metric that exports one series for each of them.
	objects map[string]int
}

// exported returns the output of kube-state-metrics when it has all objects.
func (s *states) exported(url string) (out map[string]*dto.MetricFamily) {
	s.t.Helper()
	eventually(s.t, "all objects are exported", func(ctx context.Context) error {
		err := read(ctx, http.MethodGet, url, func(body io.Reader) (err error) {
			p := expfmt.NewTextParser(model.LegacyValidation)
			out, err = p.TextToMetricFamilies(body)
			return err
		})
		if err != nil {
			return err
		}
		for metric, n := range s.objects {
			if has := len(out[metric].GetMetric()); has != n {
				return fmt.Errorf("%d series of %s for %d objects", has, metric, n)
			}
		}
		return nil
	})
	return out
}

// create creates an object, then writes its status, and counts it.
func (s *states) create(o client.Object, status func(), metric string) {
	s.t.Helper()
	if err := s.client.Create(s.t.Context(), o); err != nil {
		s.t.Fatal(err)
	}
	if status != nil {
		status()
		if err := s.client.Status().Update(s.t.Context(), o); err != nil {
			s.t.Fatal(err)
		}
	}
	s.objects[metric]++
}

// namespace creates a namespace in which pods can be created.
func (s *states) namespace(name string) {
	s.t.Helper()
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}},
	} {
		if err := s.client.Create(s.t.Context(), o); err != nil {
			s.t.Fatal(err)
		}
	}
}

// healthy creates a workload for which no alert fires.
func (s *states) healthy(kind v1alpha1.WorkloadKind, o metav1.ObjectMeta) client.Object {
	s.t.Helper()
	switch kind {
	case v1alpha1.StatefulSetKind:
		return s.statefulSet(o, func(*appsv1.StatefulSetStatus) {})
	case v1alpha1.DaemonSetKind:
		return s.daemonSet(o, func(*appsv1.DaemonSetStatus) {})
	case v1alpha1.CronJobKind:
		return s.cronJob(o, func(*batchv1.CronJobStatus) {})
	}
	return s.deployment(o, func(*appsv1.DeploymentStatus) {})
}

// of returns the selector and the template of the pods of a workload.
func of(o metav1.ObjectMeta) (*metav1.LabelSelector, corev1.PodTemplateSpec) {
	labels := map[string]string{"app": o.Name}
	return &metav1.LabelSelector{MatchLabels: labels}, corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "example.com/app"}}},
	}
}

func (s *states) deployment(o metav1.ObjectMeta, change func(*appsv1.DeploymentStatus)) client.Object {
	s.t.Helper()
	d := &appsv1.Deployment{ObjectMeta: o, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](3)}}
	d.Spec.Selector, d.Spec.Template = of(o)
	s.create(d, func() {
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3}
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"}}
		change(&d.Status)
	}, "kube_deployment_created")
	return d
}

func deploymentWith(change func(*appsv1.DeploymentStatus)) state {
	return func(s *states, o metav1.ObjectMeta) { s.deployment(o, change) }
}

// deploymentWithPod creates a Deployment, its ReplicaSet, and a pod that waits for a reason.
func deploymentWithPod(reason string) state {
	return func(s *states, o metav1.ObjectMeta) {
		owner := s.deployment(o, func(*appsv1.DeploymentStatus) {})
		s.pod(o, s.replicaSet(o, owner), "ReplicaSet", reason)
	}
}

func (s *states) replicaSet(o metav1.ObjectMeta, owner client.Object) client.Object {
	s.t.Helper()
	rs := &appsv1.ReplicaSet{ObjectMeta: o}
	rs.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
	rs.Spec.Selector, rs.Spec.Template = of(o)
	s.create(rs, nil, "kube_replicaset_created")
	return rs
}

// withPod creates a workload and a pod of it that waits for a reason. Without a reason, the pod is not scheduled.
func withPod(kind v1alpha1.WorkloadKind, reason string) state {
	return func(s *states, o metav1.ObjectMeta) { s.pod(o, s.healthy(kind, o), string(kind), reason) }
}

func (s *states) pod(o metav1.ObjectMeta, owner client.Object, kind, reason string) {
	s.t.Helper()
	_, template := of(o)
	pod := &corev1.Pod{ObjectMeta: o, Spec: template.Spec}
	pod.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "example.com/init"}}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind(kind))}
	s.create(pod, func() {
		pod.Status.Phase = corev1.PodPending
		scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}
		if reason == "" {
			scheduled.Status, scheduled.Reason = corev1.ConditionFalse, "Unschedulable"
		}
		pod.Status.Conditions = []corev1.PodCondition{scheduled}
		switch reason {
		case "":
			return
		case running:
			pod.Status.Phase = corev1.PodRunning
			runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Image: "app", Ready: true, State: runs}}
			return
		}
		waits := func(name, reason string) []corev1.ContainerStatus {
			return []corev1.ContainerStatus{{Name: name, Image: name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
		}
		if of, init := strings.CutPrefix(reason, initPrefix); init {
			pod.Status.InitContainerStatuses, reason = waits("init", of), "PodInitializing"
		}
		pod.Status.ContainerStatuses = waits("app", reason)
	}, "kube_pod_created")
}

func (s *states) statefulSet(o metav1.ObjectMeta, change func(*appsv1.StatefulSetStatus)) client.Object {
	s.t.Helper()
	set := &appsv1.StatefulSet{ObjectMeta: o, Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](3)}}
	set.Spec.Selector, set.Spec.Template = of(o)
	s.create(set, func() {
		set.Status = appsv1.StatefulSetStatus{
			ObservedGeneration: set.Generation, Replicas: 3, UpdatedReplicas: 3, CurrentReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3,
			CurrentRevision: "first", UpdateRevision: "first",
		}
		change(&set.Status)
	}, "kube_statefulset_created")
	return set
}

func statefulSetWith(change func(*appsv1.StatefulSetStatus)) state {
	return func(s *states, o metav1.ObjectMeta) { s.statefulSet(o, change) }
}

func (s *states) daemonSet(o metav1.ObjectMeta, change func(*appsv1.DaemonSetStatus)) client.Object {
	s.t.Helper()
	set := &appsv1.DaemonSet{ObjectMeta: o}
	set.Spec.Selector, set.Spec.Template = of(o)
	s.create(set, func() {
		set.Status = appsv1.DaemonSetStatus{
			ObservedGeneration: set.Generation, DesiredNumberScheduled: 3, CurrentNumberScheduled: 3, UpdatedNumberScheduled: 3, NumberReady: 3, NumberAvailable: 3,
		}
		change(&set.Status)
	}, "kube_daemonset_created")
	return set
}

func daemonSetWith(change func(*appsv1.DaemonSetStatus)) state {
	return func(s *states, o metav1.ObjectMeta) { s.daemonSet(o, change) }
}

func (s *states) cronJob(o metav1.ObjectMeta, change func(*batchv1.CronJobStatus)) client.Object {
	s.t.Helper()
	cron := &batchv1.CronJob{ObjectMeta: o, Spec: batchv1.CronJobSpec{Schedule: "0 * * * *", StartingDeadlineSeconds: ptr.To[int64](60)}}
	_, cron.Spec.JobTemplate.Spec.Template = of(o)
	cron.Spec.JobTemplate.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	s.create(cron, func() {
		cron.Status.LastScheduleTime, cron.Status.LastSuccessfulTime = new(metav1.Unix(2*60*60, 0)), new(metav1.Unix(60, 0))
		change(&cron.Status)
	}, "kube_cronjob_created")
	return cron
}

func cronJobWith(change func(*batchv1.CronJobStatus)) state {
	return func(s *states, o metav1.ObjectMeta) { s.cronJob(o, change) }
}

// job creates an ended Job of a CronJob.
func (s *states) job(o metav1.ObjectMeta, owner client.Object, conditions ...batchv1.JobConditionType) {
	s.t.Helper()
	job := &batchv1.Job{ObjectMeta: o}
	job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, batchv1.SchemeGroupVersion.WithKind("CronJob"))}
	_, job.Spec.Template = of(o)
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	s.create(job, func() {
		now := new(metav1.Now())
		job.Status.StartTime = now
		if slices.Contains(conditions, batchv1.JobComplete) {
			job.Status.Succeeded, job.Status.CompletionTime = 1, now
		} else {
			job.Status.Failed = 1
		}
		for _, kind := range conditions {
			job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue})
		}
	}, "kube_job_created")
}

// autoscaler creates an autoscaler of a Deployment with at most three replicas.
func (s *states) autoscaler(o metav1.ObjectMeta, replicas int32) {
	s.t.Helper()
	hpa := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: o, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		MinReplicas: ptr.To[int32](1), MaxReplicas: 3,
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: o.Name},
	}}
	s.create(hpa, func() { hpa.Status.CurrentReplicas, hpa.Status.DesiredReplicas = replicas, replicas }, "kube_horizontalpodautoscaler_info")
}
