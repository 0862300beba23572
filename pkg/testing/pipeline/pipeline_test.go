package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

const shop = "shop"

var selected = map[string]string{"release": "monitoring"}

// on is a pipeline that the parts of TestPipeline share.
type on struct {
	*Pipeline
	client client.Client
}

// TestPipeline has alerts fire and resolve in a real control plane, from a Deployment to
// a notification.
func TestPipeline(t *testing.T) {
	t.Parallel()
	f, err := fleet.Start(t.Context(), fleet.Options{Spokes: []string{"spoke"}, Bare: true, ControllerManager: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	if _, err := Start(t.Context(), f.Hub, Options{}); err == nil {
		t.Error("a pipeline starts without a controller manager")
	}
	spoke := f.Spoke("spoke")
	shared, err := StartAlertmanager(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shared.Stop(); err != nil {
			t.Error(err)
		}
	})
	p, err := Start(t.Context(), spoke, Options{
		Prometheus: monitoringv1.PrometheusSpec{
			CommonPrometheusFields: monitoringv1.CommonPrometheusFields{ExternalLabels: map[string]string{"cluster": "spoke"}},
			RuleSelector:           &metav1.LabelSelector{MatchLabels: selected},
			RuleNamespaceSelector:  &metav1.LabelSelector{},
		},
		Alertmanager: shared,
		Output:       t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			p.Dump(t.Output())
			shared.Dump(t.Output())
		}
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	o := on{p, spoke.Client}
	o.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}})
	t.Run("a broken Deployment fires, and resolves", o.deployment)
	t.Run("only what is selected is evaluated", o.selection)
	t.Run("a metric of the test's own fires, and resolves when it is gone", o.metric)
	t.Run("Prometheus is stopped and started", o.restart)
	t.Run("all ends but an Alertmanager that is shared", o.stop)
}

func (o on) deployment(t *testing.T) {
	cart := types.NamespacedName{Namespace: shop, Name: "cart"}
	o.Break(cart)
	labels := map[string]string{"app": "cart"}
	o.create(t, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "cart"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "cart", Image: "example.com/cart"}}},
			},
		},
	})
	const down = "kube_deployment_status_replicas_available == 0 and on(namespace,deployment) kube_deployment_spec_replicas > 0"
	rule := o.rule(t, "cart-down", "CartDown", down, selected)
	o.awaitBinding(t, rule)

	of := map[string]string{"alertname": "CartDown", "namespace": shop, "deployment": "cart", "cluster": "spoke", "severity": "critical"}
	fired := o.awaitNotification(t, Firing, of)
	if fired.Annotations["summary"] != "cart of spoke" {
		t.Errorf("the annotations are %v", fired.Annotations)
	}
	o.awaitRule(t, "CartDown", "firing")
	o.Mend(cart)
	o.awaitNotification(t, Resolved, of)
	o.awaitRule(t, "CartDown", "inactive")
}

// selection has a rule without the label beside one that has it.
func (o on) selection(t *testing.T) {
	o.rule(t, "not-selected", "NotSelected", "vector(1)", nil)
	o.rule(t, "selected", "Selected", "vector(1)", selected)
	o.awaitNotification(t, Firing, map[string]string{"alertname": "Selected"})
	files, err := o.ruleFiles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for alert, file := range files {
		if alert == "NotSelected" || !strings.Contains(file, "/prometheus-main-rulefiles-0/"+shop+"-") {
			t.Errorf("Prometheus evaluates %s of %s", alert, file)
		}
	}
}

func (o on) metric(t *testing.T) {
	const metric = "job:request_latency_seconds:mean5m"
	labels := map[string]string{"job": "myjob", "instance": `a "b"\c`}
	o.SetMetric(metric, labels, 0.7)
	rule := o.rule(t, "latency", "HighLatency", metric+`{job="myjob"} > 0.5`, selected)
	of := map[string]string{"alertname": "HighLatency"}
	fired := o.awaitNotification(t, Firing, of)
	if fired.Labels["instance"] != labels["instance"] || fired.Labels["job"] != "myjob" {
		t.Errorf("the labels are %v", fired.Labels)
	}
	o.RemoveMetric(metric, labels)
	o.awaitNotification(t, Resolved, of)
	if err := o.client.Delete(t.Context(), rule); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the rule is gone", func(ctx context.Context) error {
		files, err := o.ruleFiles(ctx)
		if err == nil && files["HighLatency"] != "" {
			err = fmt.Errorf("it is evaluated: %v", files)
		}
		return err
	})
}

// restart has a rule come while Prometheus is down.
func (o on) restart(t *testing.T) {
	if err := o.StopPrometheus(); err != nil {
		t.Fatal(err)
	}
	if files, err := o.ruleFiles(t.Context()); err == nil {
		t.Errorf("Prometheus answers: %v", files)
	}
	o.awaitBinding(t, o.rule(t, "later", "Later", "vector(1)", selected))
	if err := o.StartPrometheus(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.awaitRule(t, "Later", "firing")
	if err := errors.Join(o.StopKubeStateMetrics(), o.StartKubeStateMetrics(t.Context())); err != nil {
		t.Error(err)
	}
	if err := errors.Join(o.StopOperator(), o.StartOperator(t.Context())); err != nil {
		t.Error(err)
	}
}

func (o on) stop(t *testing.T) {
	if err := o.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, program := range o.programs() {
		if program.isRunning() {
			t.Errorf("%s runs", program.name)
		}
	}
	if err := ask(t.Context(), http.MethodGet, o.Alertmanager().URL()+"/-/ready"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(o.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the work folder is there, or: %v", err)
	}
}

func (o on) create(t *testing.T, object client.Object) {
	t.Helper()
	if err := o.client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

func (o on) rule(t *testing.T, name, alert, expr string, labels map[string]string) *monitoringv1.PrometheusRule {
	t.Helper()
	rule := &monitoringv1.PrometheusRule{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, Labels: labels},
		Spec: monitoringv1.PrometheusRuleSpec{Groups: []monitoringv1.RuleGroup{{Name: name, Rules: []monitoringv1.Rule{{
			Alert: alert, Expr: intstr.FromString(expr),
			Labels:      map[string]string{"severity": "critical"},
			Annotations: map[string]string{"summary": "{{ $labels.deployment }} of {{ $externalLabels.cluster }}"},
		}}}}},
	}
	o.create(t, rule)
	return rule
}

// awaitBinding waits until prometheus-operator says that Prometheus has selected a rule.
func (o on) awaitBinding(t *testing.T, rule *monitoringv1.PrometheusRule) {
	t.Helper()
	eventually(t, "PrometheusRule "+rule.Name+" is bound", func(ctx context.Context) error {
		if err := o.client.Get(ctx, client.ObjectKeyFromObject(rule), rule); err != nil {
			return err
		}
		for _, b := range rule.Status.Bindings {
			if b.Resource == "prometheuses" && b.Namespace == Namespace && b.Name == Name {
				return nil
			}
		}
		return fmt.Errorf("its status is %+v", rule.Status)
	})
}

func (o on) awaitNotification(t *testing.T, status string, labels map[string]string) Notification {
	t.Helper()
	begin := time.Now()
	n, err := o.Alertmanager().Await(t.Context(), status, labels)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s is %s after %s: %v", labels["alertname"], status, time.Since(begin).Round(time.Millisecond), n.Labels)
	return n
}

// evaluated is Prometheus' answer about its rules.
type evaluated struct {
	Data struct {
		Groups []struct {
			File  string `json:"file"`
			Rules []struct {
				Name  string `json:"name"`
				State string `json:"state"`
			} `json:"rules"`
		} `json:"groups"`
	} `json:"data"`
}

// rules asks Prometheus by the API server's proxy.
func (o on) rules(ctx context.Context) (evaluated, error) {
	var out evaluated
	c, err := proxyClient(o.member)
	if err != nil {
		return out, err
	}
	answer, err := c.ProxyGet("http", ServiceName, PortName, "/api/v1/rules", nil).DoRaw(ctx)
	if err != nil {
		return out, err
	}
	err = json.Unmarshal(answer, &out)
	return out, err
}

// ruleFiles returns the file of each alert.
func (o on) ruleFiles(ctx context.Context) (map[string]string, error) {
	all, err := o.rules(ctx)
	files := map[string]string{}
	for _, g := range all.Data.Groups {
		for _, r := range g.Rules {
			files[r.Name] = g.File
		}
	}
	return files, err
}

func (o on) awaitRule(t *testing.T, alert, state string) {
	t.Helper()
	eventually(t, alert+" is "+state, func(ctx context.Context) error {
		all, err := o.rules(ctx)
		if err != nil {
			return err
		}
		for _, g := range all.Data.Groups {
			for _, r := range g.Rules {
				if r.Name == alert && r.State == state {
					return nil
				}
			}
		}
		return fmt.Errorf("Prometheus' rules are %+v", all.Data.Groups)
	})
}

func eventually(t *testing.T, what string, look func(context.Context) error) {
	t.Helper()
	if err := await(t.Context(), look); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestPodAddress(t *testing.T) {
	t.Parallel()
	parse := func(all ...string) []net.Addr {
		var out []net.Addr
		for _, a := range all {
			ip, network, err := net.ParseCIDR(a)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, &net.IPNet{IP: ip, Mask: network.Mask})
		}
		return out
	}
	got, err := podAddress(parse("127.0.0.1/8", "::1/128", "169.254.1.1/16", "fe80::1/64", "10.1.2.3/24", "10.1.2.4/24"))
	if got != "10.1.2.3" || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
	if got, err = podAddress(parse("127.0.0.1/8", "fe80::1/64")); err == nil {
		t.Errorf("got %s where there is none", got)
	}
}
