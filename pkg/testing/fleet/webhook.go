package fleet

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// webhookConfig is the name of the ValidatingWebhookConfiguration.
const webhookConfig = "rulefleet"

// webhookFlags make a manager serve the admission webhook at an address.
func webhookFlags(address string) ([]string, error) {
	if address == "" {
		return []string{"--webhook-port=0"}, nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("the webhook's address: %w", err)
	}
	return []string{"--webhook-port=" + port, "--webhook-hosts=" + host, "--webhook-config=" + webhookConfig}, nil
}

// WebhookConfig returns the generated configuration of the webhook, with the address as URL instead of the
// Service.
func (f *Fleet) WebhookConfig(address string) (*admissionv1.ValidatingWebhookConfiguration, error) {
	path := filepath.Join(f.root, "charts", "rulefleet", "files", "webhook", "manifests.yaml")
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the webhook's configuration ('make generate' makes it): %w", err)
	}
	config := &admissionv1.ValidatingWebhookConfiguration{}
	if err := yaml.UnmarshalStrict(data, config); err != nil {
		return nil, fmt.Errorf("reading the webhook's configuration %s: %w", path, err)
	}
	for i := range config.Webhooks {
		c := &config.Webhooks[i].ClientConfig
		url := "https://" + address + *c.Service.Path
		c.URL, c.Service = &url, nil
	}
	return config, nil
}

// InstallWebhook makes the hub's API server call the webhook at an address.
func (f *Fleet) InstallWebhook(ctx context.Context, address string) error {
	config, err := f.WebhookConfig(address)
	if err != nil {
		return err
	}
	return f.Hub.create(ctx, config)
}

// UninstallWebhook removes the configuration.
func (f *Fleet) UninstallWebhook(ctx context.Context) error {
	config := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: webhookConfig}}
	if err := client.IgnoreNotFound(f.Hub.Client.Delete(ctx, config)); err != nil {
		return fmt.Errorf("deleting the webhook's configuration: %w", err)
	}
	return nil
}
