package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/why"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	"github.com/rulefleet/rulefleet/pkg/testing/pipeline"
)

// writesOf returns the manager's writes to a cluster since the last reset of its audit log.
func writesOf(m *fleet.Member, user string) ([]string, error) {
	events, err := m.Audit().Events(func(e controlplane.AuditEvent) bool {
		return e.User.Username == user && e.IsWrite() && e.ObjectRef.Resource != "leases"
	})
	out := make([]string, 0, len(events))
	for _, e := range events {
		out = append(out, fmt.Sprintf("%s %s/%s %s/%s", e.Verb, e.ObjectRef.Resource, e.ObjectRef.Subresource, e.ObjectRef.Namespace, e.ObjectRef.Name))
	}
	return out, err
}

// looked waits until the manager has read the Prometheus objects of a spoke twice, so that it has handled
// earlier changes.
func looked(t *testing.T, m *fleet.Member) {
	t.Helper()
	looks := func() int {
		events, err := m.Audit().Events(func(e controlplane.AuditEvent) bool {
			return e.User.Username == fleet.SpokeUser && e.Verb == "list" && e.ObjectRef.Resource == "prometheuses"
		})
		must(t, err)
		return len(events)
	}
	begun := looks()
	eventually(t, "the manager has looked twice", func(context.Context) error {
		if n := looks() - begun; n < 2 {
			return fmt.Errorf("it has looked %d times", n)
		}
		return nil
	})
}

// aTenants returns a Prometheus in a tenant's namespace that selects all PrometheusRules.
func aTenants(namespace string) *monitoringv1.Prometheus {
	p := &monitoringv1.Prometheus{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own"}}
	p.Spec.RuleSelector, p.Spec.RuleNamespaceSelector = &metav1.LabelSelector{}, &metav1.LabelSelector{}
	p.Spec.ExternalLabels = map[string]string{"cluster": "stolen"}
	return p
}

// activeSince returns since when an alert has been active in a Prometheus, if it is in one of these states now.
func activeSince(ctx context.Context, prometheus, alert string, states ...string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, prometheus+"/api/v1/alerts", http.NoBody)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	var answer struct {
		Data struct {
			Alerts []struct {
				Labels   map[string]string `json:"labels"`
				State    string            `json:"state"`
				ActiveAt string            `json:"activeAt"`
			} `json:"alerts"`
		} `json:"data"`
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return "", err
	}
	for _, a := range answer.Data.Alerts {
		if a.Labels["alertname"] == alert && slices.Contains(states, a.State) {
			return a.ActiveAt, nil
		}
	}
	return "", fmt.Errorf("%s is not %s: %+v", alert, strings.Join(states, " or "), answer.Data.Alerts)
}

// tenants creates more Prometheus objects in the first spoke, whose own Prometheus requires a label. They must
// have no effect.
func (e *evaluating) tenants(t *testing.T) {
	long(t)
	m := e.Spoke(spokeA)
	ar := written("tenants", "deg(last_over_time(test_tenants[5m])) > 0", onNamed(spokeA)) // Prometheus 2.30 would not know deg; a scrape may be late
	ar.Spec.For = "1h"
	key := create(t, e.Hub, ar)
	e.first.SetMetric("test_tenants", nil, 1)
	e.evaluates(t, key, spokeA)
	var since string
	within(t, linkLimit, "the alert is pending", func(ctx context.Context) (err error) {
		since, err = activeSince(ctx, e.first.PrometheusURL(), ar.Spec.Alert, "pending")
		return err
	})
	e.metrics(t, key)
	f := &audited{Fleet: e.Fleet, spoke: m, spokes: []*fleet.Member{m, e.Spoke(spokeB)}}
	quiet := func() (out []string) {
		for member, user := range map[*fleet.Member]string{e.Hub: fleet.HubUser, m: fleet.SpokeUser, e.Spoke(spokeB): fleet.SpokeUser} {
			list, err := writesOf(member, user)
			must(t, err)
			// The status of a SpokeCluster also counts the workloads of other tests. row compares the rest of it.
			out = append(out, slices.DeleteFunc(list, func(write string) bool { return strings.HasPrefix(write, "patch spokeclusters/status ") })...)
		}
		return out
	}
	looked(t, m)
	looked(t, m)
	f.reset(t)
	row := func() string {
		must(t, e.Hub.Client.Get(t.Context(), key, ar))
		sc := &v1alpha1.SpokeCluster{}
		must(t, e.Hub.Client.Get(t.Context(), client.ObjectKey{Name: spokeA}, sc))
		for _, r := range ar.Status.Clusters {
			if r.Name == spokeA {
				chosen, err := json.Marshal(sc.Status.Evaluators)
				must(t, err)
				return fmt.Sprintf("%s %s, chosen are %s", r.Phase, r.Reason, chosen)
			}
		}
		return "none"
	}
	was := row()

	// A Service with the name of a Prometheus' Service, and a server behind it that answers everything.
	host, err := pipeline.Address()
	must(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
	must(t, err)
	var asked atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(`{"status":"success","data":{"groups":[]}}`))
	}))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	defer server.Close()
	service, endpoints, pod := serviceTo(t, "tenant-c", server.URL)
	first, second, third := aTenants("tenant-a"), aTenants("tenant-b"), aTenants("tenant-c")
	second.Spec.RuleSelector.MatchLabels = map[string]string{wantedLabel: "monitoring"}
	third.Spec.Paused = true // otherwise prometheus-operator would change the Service's target
	steps := []struct {
		what string
		do   func()
	}{
		{"created", func() {
			for _, ns := range []string{"tenant-a", "tenant-b", "tenant-c"} {
				namespace(t, ns, m)
			}
			eventually(t, "the pod is created", func(ctx context.Context) error { return m.Client.Create(ctx, pod) }) // needs the namespace's ServiceAccount
			for _, o := range []client.Object{service, endpoints, first, second, third} {
				must(t, m.Client.Create(t.Context(), o))
			}
			direct, err := kubernetes.NewForConfig(m.RESTConfig())
			must(t, err)
			eventually(t, "the Service answers", func(ctx context.Context) error {
				return direct.CoreV1().RESTClient().Get().Namespace("tenant-c").Resource("services").Name(pipeline.ServiceName + ":" + pipeline.PortName).
					SubResource("proxy").Suffix("/").Do(ctx).Error()
			})
			asked.Store(0)
		}},
		{"externalLabels", func() {
			update(t, m, first, func(p *monitoringv1.Prometheus) {
				p.Spec.ExternalLabels = map[string]string{"cluster": "prod-" + spokeA}
			})
		}},
		{"ruleSelector", func() {
			update(t, m, first, func(p *monitoringv1.Prometheus) {
				p.Spec.RuleSelector.MatchLabels = map[string]string{wantedLabel: "mine"}
			})
			update(t, m, second, func(p *monitoringv1.Prometheus) { p.Spec.RuleSelector = nil })
		}},
		{"version", func() { update(t, m, first, func(p *monitoringv1.Prometheus) { p.Spec.Version = "v2.30.0" }) }},
		{"namespace selectors", func() {
			update(t, m, first, func(p *monitoringv1.Prometheus) { p.Spec.RuleNamespaceSelector = nil })
			update(t, m, second, func(p *monitoringv1.Prometheus) {
				p.Spec.RuleNamespaceSelector, p.Spec.RuleSelector = nil, &metav1.LabelSelector{}
			})
		}},
		{"deleted", func() {
			for _, o := range []client.Object{first, second, third, service} {
				must(t, m.Client.Delete(t.Context(), o))
			}
		}},
	}
	for _, step := range steps {
		step.do()
		looked(t, m)
		if wrote := quiet(); len(wrote) > 0 {
			t.Errorf("%s: the manager wrote %q", step.what, wrote)
		}
		if is := row(); is != was {
			t.Errorf("%s: the rule is %s, and was %s", step.what, is, was)
		}
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("a tenant's Service was asked %d times", n)
	}
	now, err := activeSince(t.Context(), e.first.PrometheusURL(), ar.Spec.Alert, "pending")
	if err != nil || now != since {
		t.Errorf("the alert is pending since %s, and was since %s: %v", now, since, err)
	}
	e.evaluates(t, key, spokeA)
	remove(t, e.Hub, ar)
}

// serviceTo returns a Service that leads to a server at pipeline.Address, and what it takes for that: the API server's
// proxy only sends requests to the addresses of pods. That is the address that the pipeline assigns to each pod.
//
//nolint:staticcheck // Endpoints are deprecated, and what the API server's proxy reads
func serviceTo(t *testing.T, namespace, address string) (*corev1.Service, *corev1.Endpoints, *corev1.Pod) {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	port, err := strconv.ParseInt(u.Port(), 10, 32)
	must(t, err)
	key := metav1.ObjectMeta{Namespace: namespace, Name: pipeline.ServiceName}
	service := &corev1.Service{ObjectMeta: key, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: pipeline.PortName, Port: int32(port)}}}}
	endpoints := &corev1.Endpoints{ObjectMeta: key, Subsets: []corev1.EndpointSubset{{
		Addresses: []corev1.EndpointAddress{{IP: u.Hostname(), TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: key.Name}}}, Ports: []corev1.EndpointPort{{Name: pipeline.PortName, Port: int32(port)}},
	}}}
	pod := &corev1.Pod{ObjectMeta: key, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "prometheus", Image: "prometheus"}}}}
	return service, endpoints, pod
}

// TestTwoPrometheusFromTheStart has a Prometheus of the platform and one of the users. None is chosen until a person runs
// the command that the spoke shows.
func TestTwoPrometheusFromTheStart(t *testing.T) {
	long(t)
	parallel(t)
	e := &evaluating{t: t, Fleet: start(t, fleet.Options{Spokes: []string{spokeA}, ControllerManager: true, Audit: true}), shop: "shop", dir: t.TempDir()}
	m := e.Spoke(spokeA)
	var err error
	e.first, err = pipeline.Start(t.Context(), m, pipeline.Options{Prometheus: monitoringv1.PrometheusSpec{
		CommonPrometheusFields: monitoringv1.CommonPrometheusFields{ExternalLabels: map[string]string{"cluster": "prod"}},
		RuleSelector:           &metav1.LabelSelector{},
		RuleNamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "openshift.io/cluster-monitoring", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"true"}},
		}},
	}})
	must(t, err)
	t.Cleanup(func() { must(t, e.first.Stop()) })
	platform := aTenants("openshift-monitoring")
	platform.Name, platform.Spec.ExternalLabels = "k8s", nil
	platform.Spec.RuleNamespaceSelector.MatchLabels = map[string]string{"openshift.io/cluster-monitoring": "true"}
	namespace(t, platform.Namespace, m)
	must(t, m.Client.Create(t.Context(), platform))
	namespace(t, e.shop, m)
	e.run()
	must(t, e.Register(t.Context(), spokeA, nil))

	key := create(t, e.Hub, written("two", "test_two > 0", onNamed(spokeA)))
	e.first.SetMetric("test_two", nil, 1)
	e.expect(t, key, spokeA, v1alpha1.PhaseApplied, v1alpha1.ReasonAmbiguous, "EvaluatorsFound", spokeA)
	wrote := writes(t, m)
	o := expectPushed(t, m, key, 1)
	if cluster := o.Spec.Groups[0].Rules[0].Labels["cluster"]; cluster != spokeA || o.Annotations[v1alpha1.RuleLabelsAnnotation] != "" {
		t.Errorf("it has labels of nobody's: %q, %v", cluster, o.Labels)
	}
	e.shown(t, v1alpha1.ConditionEvaluatorsFound, metav1.ConditionFalse, v1alpha1.ReasonAmbiguous, prometheusMain, "Prometheus openshift-monitoring/k8s", "kubectl patch")
	looked(t, m)
	if w := wrote(); len(w) > 0 {
		t.Errorf("nobody is chosen, and it was written: %v", w)
	}

	mend(t, e.Hub, m, e.explained(t, key, why.NotOK, "selected", v1alpha1.ReasonAmbiguous, "kubectl patch"), "")
	e.shown(t, v1alpha1.ConditionEvaluatorsFound, metav1.ConditionTrue, v1alpha1.ReasonEvaluatorsFound, prometheusMain)
	e.evaluates(t, key, spokeA)
	wrote = writes(t, m)
	o = expectPushed(t, m, key, 1)
	if cluster := o.Spec.Groups[0].Rules[0].Labels["cluster"]; cluster != "prod" {
		t.Errorf("the alert says %q", cluster)
	}

	// The chosen one stays chosen without being named, also after a restart.
	looked(t, m)
	update(t, e.Hub, membership(spokeA), func(sc *v1alpha1.SpokeCluster) { sc.Spec.EvaluatorRefs = nil })
	looked(t, m)
	must(t, e.manager.Stop())
	e.run()
	looked(t, m)
	e.evaluates(t, key, spokeA)
	if w := wrote(); len(w) > 0 {
		t.Errorf("the choice is the same, and it was written: %v", w)
	}
}
