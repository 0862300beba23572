package main

import (
	"context"
	"fmt"

	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// patchAlertRule changes the demo's AlertRule.
func (d *demo) patchAlertRule(ctx context.Context, patch string) error {
	return d.onHub(ctx, "-n", alertRuleKey.Namespace, "patch", "alertrule", alertRuleKey.Name, "--type=merge", "-p", patch)
}

// changeAlertRule changes the AlertRule's content.
func (d *demo) changeAlertRule(ctx context.Context) error {
	if err := d.patchAlertRule(ctx, `{"spec":{"for":"2m"}}`); err != nil {
		return err
	}
	return d.await(ctx, prod+" has for: 2m", d.hasFor(prod, "2m"))
}

// moveAlertRule changes the AlertRule's placement, and reverts it.
func (d *demo) moveAlertRule(ctx context.Context) error {
	if err := d.patchAlertRule(ctx, `{"spec":{"placement":{"selector":{"matchLabels":{"env":"dev"}}}}}`); err != nil {
		return err
	}
	if err := d.awaitOn(ctx, dev); err != nil {
		return err
	}
	for _, m := range d.spokes() {
		if err := d.onSpoke(ctx, m, "-n", monitoring, "get", "prometheusrules"); err != nil {
			return err
		}
	}
	if err := d.onHub(ctx, "apply", "-f", "high-error-rate.yaml"); err != nil {
		return err
	}
	return d.awaitOn(ctx, prod)
}

// relabelSpoke gives a spoke the label of production, and reverts it.
func (d *demo) relabelSpoke(ctx context.Context) error {
	relabel := func(value string) error {
		return d.onHub(ctx, "-n", fleet.Namespace, "label", "secret", dev, "env="+value, "--overwrite")
	}
	if err := relabel("prod"); err != nil {
		return err
	}
	if err := d.awaitOn(ctx, prod, dev); err != nil {
		return err
	}
	if err := d.await(ctx, "the status of the AlertRule is 2/2", d.says("2/2")); err != nil {
		return err
	}
	if err := d.onHub(ctx, "-n", alertRuleKey.Namespace, "get", "alertrules"); err != nil {
		return err
	}
	if err := relabel("dev"); err != nil {
		return err
	}
	return d.awaitOn(ctx, prod)
}

// meddle changes and deletes a PrometheusRule in a spoke, as drift.
func (d *demo) meddle(ctx context.Context) error {
	m := d.fleet.Spoke(prod)
	rules, err := rulesOf(ctx, m, alertRuleKey)
	if err != nil {
		return err
	}
	if len(rules) != 1 {
		return fmt.Errorf("there are %d PrometheusRules of AlertRule %s in %s", len(rules), alertRuleKey, prod)
	}
	const wrong = `[{"op":"replace","path":"/spec/groups/0/rules/0/for","value":"99h"}]`
	if err := d.onSpoke(ctx, m, "-n", monitoring, "patch", "prometheusrule", rules[0].Name, "--type=json", "-p", wrong); err != nil {
		return err
	}
	if err := d.await(ctx, prod+" has for: 10m again", d.hasFor(prod, "10m")); err != nil {
		return err
	}
	if err := d.onSpoke(ctx, m, "-n", monitoring, "delete", "prometheusrule", rules[0].Name); err != nil {
		return err
	}
	return d.await(ctx, prod+" has a new PrometheusRule of the same name", d.isNew(prod, &rules[0]))
}

// deleteAndRestore deletes a Deployment and an AlertRule, and creates both again.
func (d *demo) deleteAndRestore(ctx context.Context) error {
	m := d.fleet.Spoke(dev)
	if err := d.onSpoke(ctx, m, "-n", shop, "delete", "deployment", "cart"); err != nil {
		return err
	}
	if err := d.await(ctx, "the alert of cart is gone from the hub and from "+dev, d.alertsOf(dev, "cart", 0)); err != nil {
		return err
	}
	if err := d.onHub(ctx, "-n", alertRuleKey.Namespace, "delete", "alertrule", alertRuleKey.Name); err != nil {
		return err
	}
	if err := d.awaitOn(ctx); err != nil {
		return err
	}
	if err := d.onSpoke(ctx, m, "-n", shop, "create", "deployment", "cart", "--image=nginx"); err != nil {
		return err
	}
	if err := d.await(ctx, "the alert of cart is back on the hub and in "+dev, d.alertsOf(dev, "cart", 1)); err != nil {
		return err
	}
	if err := d.onHub(ctx, "apply", "-f", "high-error-rate.yaml"); err != nil {
		return err
	}
	return d.awaitOn(ctx, prod)
}
