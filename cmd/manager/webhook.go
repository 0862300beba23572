package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/manager"
	webhookserver "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/webhook"
	"github.com/rulefleet/rulefleet/pkg/webhook/certs"
)

// webhookServer serves with what the keeper holds. It listens in every replica, as
// soon as something is registered with it.
func webhookServer(keeper *certs.Keeper, o *options) webhookserver.Server {
	return webhookserver.NewServer(webhookserver.Options{
		Port:    o.webhookPort,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.GetCertificate = keeper.GetCertificate }},
	})
}

// setupWebhook adds the admission webhook and what keeps its certificates, unless it is off.
func setupWebhook(ctx context.Context, mgr manager.Manager, keeper *certs.Keeper, o *options) error {
	if o.webhookPort == 0 {
		return nil
	}
	if err := webhook.SetupWithManager(mgr, o.validateOptions()); err != nil {
		return err
	}
	err := certs.SetupWithManager(ctx, mgr, keeper, certs.Options{
		Namespace: o.namespace, Config: o.webhookConfig, Webhooks: webhook.Names,
		Hosts: o.hosts(), Lifetimes: certs.LifetimesOf(o.webhookLifetime),
	})
	if err != nil {
		return err
	}
	started := mgr.GetWebhookServer().StartedChecker()
	err = mgr.AddReadyzCheck("webhook", func(req *http.Request) error {
		if err := keeper.Ready(); err != nil {
			return err
		}
		return started(req)
	})
	if err != nil {
		return fmt.Errorf("adding /readyz: %w", err)
	}
	return nil
}

// hosts are the names and addresses that the hub's API server reaches the webhook by.
func (o *options) hosts() []string {
	service := o.webhookService + "." + o.namespace + ".svc"
	return append([]string{service, service + ".cluster.local"}, o.furtherHosts()...)
}

func (o *options) validateOptions() rule.ValidateOptions {
	return rule.ValidateOptions{
		AdminNamespace: o.namespace, GeneratedNamespace: o.generatedNamespace, ClusterLabel: o.clusterLabel, Evaluator: o.evaluator,
	}
}
