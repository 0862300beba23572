package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	webhookserver "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	"github.com/rulefleet/rulefleet/pkg/webhook"
	"github.com/rulefleet/rulefleet/pkg/webhook/certs"
)

// webhookServer serves with the certificate of the keeper, or with the files in a directory. It
// listens in every replica, as soon as something is registered with it.
func webhookServer(keeper *certs.Keeper, o *options) webhookserver.Server {
	return webhookserver.NewServer(webhookserver.Options{Port: o.webhookPort, CertDir: o.webhookCertDir, TLSOpts: servedBy(keeper, o)})
}

// metricsOptions configures the serving of metrics. With https, they require a credential and the
// permission to get /metrics. They are served with the certificate of the webhook: that of the keeper, or
// the files in a directory. Without either, the server creates a self-signed one, which nothing can verify.
func metricsOptions(keeper *certs.Keeper, o *options) metricsserver.Options {
	if !o.metricsSecure {
		return metricsserver.Options{BindAddress: o.metricsAddress}
	}
	return metricsserver.Options{
		BindAddress: o.metricsAddress, SecureServing: true, FilterProvider: filters.WithAuthenticationAndAuthorization,
		CertDir: o.webhookCertDir, TLSOpts: servedBy(keeper, o),
	}
}

func servedBy(keeper *certs.Keeper, o *options) []func(*tls.Config) {
	if !o.ownCertificate() {
		return nil
	}
	return []func(*tls.Config){func(c *tls.Config) { c.GetCertificate = keeper.GetCertificate }}
}

// setupWebhook adds the admission webhook and the maintenance of its certificates, unless it is
// disabled.
func setupWebhook(ctx context.Context, mgr manager.Manager, keeper *certs.Keeper, informer newInformerFunc, o *options) error {
	if o.webhookPort == 0 {
		return nil
	}
	if err := webhook.SetupWithManager(mgr, o.validateOptions()); err != nil {
		return err
	}
	started := mgr.GetWebhookServer().StartedChecker()
	if !o.ownCertificate() {
		return addReady(mgr, started)
	}
	kept := o.certificates()
	kept.NewInformer = informer
	if err := certs.SetupWithManager(ctx, mgr, keeper, kept); err != nil {
		return err
	}
	return addReady(mgr, func(req *http.Request) error {
		if err := keeper.Ready(); err != nil {
			return err
		}
		return started(req)
	})
}

func addReady(mgr manager.Manager, check healthz.Checker) error {
	if err := mgr.AddReadyzCheck("webhook", check); err != nil {
		return fmt.Errorf("adding /readyz: %w", err)
	}
	return nil
}

// certificates returns the options for the certificates that the manager creates.
func (o *options) certificates() certs.Options {
	return certs.Options{
		Namespace: o.namespace, Config: o.webhookConfig, Webhooks: webhook.Names,
		Hosts: o.hosts(), Lifetimes: certs.LifetimesOf(o.webhookLifetime), Intervals: o.intervals,
	}
}

// hosts are the names and addresses at which the hub's API server reaches the webhook, and Prometheus
// the metrics.
func (o *options) hosts() []string {
	service := o.webhookService + "." + o.namespace + ".svc"
	hosts := append([]string{service, service + ".cluster.local"}, o.furtherHosts()...)
	if o.metricsSecure {
		hosts = append(hosts, o.metricsService+"."+o.namespace+".svc")
	}
	return hosts
}

func (o *options) validateOptions() validation.Options {
	return validation.Options{
		AdminNamespace: o.namespace, GeneratedNamespace: o.generatedNamespace, ClusterLabel: o.clusterLabel, Evaluator: o.evaluator, Tenancy: o.tenancy,
	}
}
