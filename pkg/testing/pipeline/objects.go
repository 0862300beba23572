package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// The Service of a Prometheus, which prometheus-operator creates, and its port.
const (
	ServiceName = "prometheus-operated"
	PortName    = "web"
)

const (
	// additional is the Secret with the scrape and notification targets of Prometheus.
	additional       = "pipeline"
	scrapeKey        = "scrape.yaml"
	alertmanagersKey = "alertmanagers.yaml"
)

// crds are the CRDs that prometheus-operator needs for a Prometheus.
var crds = []string{"prometheuses", "prometheusrules", "servicemonitors", "podmonitors", "probes"}

// install creates the objects that prometheus-operator needs at its start.
func (p *Pipeline) install(ctx context.Context) error {
	bin, err := controlplane.DefaultBinDir()
	if err != nil {
		return err
	}
	for _, plural := range crds {
		err := p.member.Client.Get(ctx, client.ObjectKey{Name: plural + ".monitoring.coreos.com"}, &apiextensionsv1.CustomResourceDefinition{})
		if apierrors.IsNotFound(err) {
			err = p.member.InstallCRDs(ctx, filepath.Join(bin, "crds"), "monitoring.coreos.com_"+plural+".yaml")
		}
		if err != nil {
			return fmt.Errorf("installing the CRD of %s: %w", plural, err)
		}
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}
	if err := p.member.Client.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %s: %w", Namespace, err)
	}
	return nil
}

// createPrometheus creates the Prometheus object and the objects that it refers to.
func (p *Pipeline) createPrometheus(ctx context.Context) error {
	secret, err := p.additional()
	if err != nil {
		return err
	}
	spec := p.opts.Prometheus.DeepCopy()
	// Without a selector of monitors, prometheus-operator writes no configuration.
	spec.ServiceMonitorSelector = &metav1.LabelSelector{}
	spec.ScrapeInterval = cmp.Or(spec.ScrapeInterval, "1s")
	spec.EvaluationInterval = cmp.Or(spec.EvaluationInterval, "1s")
	spec.AdditionalScrapeConfigs = secretKey(scrapeKey)
	spec.AdditionalAlertManagerConfigs = secretKey(alertmanagersKey)
	prometheus := &monitoringv1.Prometheus{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Name}, Spec: *spec}
	for _, o := range []client.Object{secret, prometheus, p.endpoints()} {
		if err := p.member.Client.Create(ctx, o); err != nil {
			return fmt.Errorf("creating %T %s/%s: %w", o, o.GetNamespace(), o.GetName(), err)
		}
	}
	return nil
}

func secretKey(key string) *corev1.SecretKeySelector {
	return &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: additional}, Key: key}
}

// staticConfig is a part of Prometheus' configuration that names addresses.
type staticConfig struct {
	JobName       string    `json:"job_name,omitempty"`
	HonorLabels   bool      `json:"honor_labels,omitempty"`
	StaticConfigs []targets `json:"static_configs"`
}

type targets struct {
	Targets []string `json:"targets"`
}

func static(job, address string, honorLabels bool) staticConfig {
	return staticConfig{JobName: job, HonorLabels: honorLabels, StaticConfigs: []targets{{[]string{address}}}}
}

// additional returns the Secret with the scrape and notification targets.
func (p *Pipeline) additional() (*corev1.Secret, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: additional}, Data: map[string][]byte{}}
	for key, configs := range map[string][]staticConfig{
		scrapeKey: {
			// The labels in the metrics count, including job and instance.
			static("kube-state-metrics", p.address("kube-state-metrics"), true),
			static("test", p.exporter.address, true),
			static("prometheus", p.address("prometheus"), false),
			static("alertmanager", p.alertmanager.address, false),
		},
		alertmanagersKey: {static("", p.alertmanager.address, false)},
	} {
		var err error
		if secret.Data[key], err = yaml.Marshal(configs); err != nil {
			return nil, fmt.Errorf("writing %s: %w", key, err)
		}
	}
	return secret, nil
}

// endpoints are the endpoints of the Service of Prometheus: its pod, with the address at which Prometheus
// listens, and the port that was free.
//
//nolint:staticcheck // they are deprecated, and what the API server's proxy reads
func (p *Pipeline) endpoints() *corev1.Endpoints {
	return &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: ServiceName},
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{
				IP: p.host, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: Namespace, Name: podName},
			}},
			Ports: []corev1.EndpointPort{{Name: PortName, Port: int32(p.ports["prometheus"])}},
		}},
	}
}

// proxyClient accesses Services through the API server's proxy.
func proxyClient(member *fleet.Member) (typedcorev1.ServiceInterface, error) {
	c, err := kubernetes.NewForConfig(member.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("creating a client for %s: %w", member.Name(), err)
	}
	return c.CoreV1().Services(Namespace), nil
}
