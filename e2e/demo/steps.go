package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

const (
	// shop is the namespace of the Deployments.
	shop = "shop"
	// monitoring is the default namespace in the spokes for AlertRules of the operator's own namespace.
	monitoring = "monitoring"
)

var deployments = []string{"cart", "catalog", "checkout"}

//go:embed manifests/alertrule.yaml
var alertRuleYAML string

//go:embed manifests/alertruletemplate.yaml
var templateYAML string

//go:embed manifests/rulepack.yaml
var rulePackYAML string

// register registers the spokes with kubectl, as a user would.
func (d *demo) register(ctx context.Context) error {
	d.out.note("A Secret with a kubeconfig and a label registers a spoke. The other labels of the Secret become labels of the spoke.")
	for _, m := range d.spokes() {
		kubeconfig, err := m.UserKubeconfig(fleet.SpokeUser)
		if err != nil {
			return fmt.Errorf("creating a kubeconfig for %s: %w", m.Name(), err)
		}
		file := m.Name() + ".kubeconfig"
		if err := os.WriteFile(filepath.Join(d.dir, file), kubeconfig, 0o600); err != nil {
			return fmt.Errorf("writing the kubeconfig for %s: %w", m.Name(), err)
		}
		err = d.onHub(ctx, "-n", fleet.Namespace, "create", "secret", "generic", m.Name(), "--from-file="+v1alpha1.KubeconfigKey+"="+file)
		if err != nil {
			return err
		}
		labels := append([]string{v1alpha1.RegistrationLabel + "=true"}, spokeLabels[m.Name()]...)
		if err := d.onHub(ctx, append([]string{"-n", fleet.Namespace, "label", "secret", m.Name()}, labels...)...); err != nil {
			return err
		}
	}
	if err := d.await(ctx, "the spokes are Ready and have the labels", d.spokesReady); err != nil {
		return err
	}
	return d.onHub(ctx, "get", "spokes", "-L", "env,region")
}

// createDeployments creates the Deployments one by one, and measures the latency of each.
func (d *demo) createDeployments(ctx context.Context) error {
	d.out.note("Each spoke gets three Deployments. The built-in AlertRuleTemplate deployment-down matches all of them.")
	for _, m := range d.spokes() {
		for _, name := range []string{shop, monitoring} {
			err := m.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
			if err != nil && !apierrors.IsAlreadyExists(err) { // Prometheus' namespace already exists
				return fmt.Errorf("creating namespace %s in %s: %w", name, m.Name(), err)
			}
		}
	}
	for _, name := range deployments {
		for _, m := range d.spokes() {
			took, err := d.measure(ctx, m, name)
			if err != nil {
				return err
			}
			d.latencies = append(d.latencies, took)
			d.out.done(fmt.Sprintf("%s: Deployment %s/%s has its PrometheusRule", m.Name(), shop, name), took)
		}
	}
	if err := d.await(ctx, "the spokes have created their ReplicaSets", d.replicaSets); err != nil {
		return err
	}
	if d.pipeline == nil {
		d.out.note("The spokes have no nodes, so no pods start and READY stays at 0.")
	} else {
		d.out.note("The spokes have no real nodes. " + prod + " has a simulated node; " + dev + " has none, so no pods start there.")
	}
	return d.onSpoke(ctx, d.fleet.Spoke(prod), "-n", shop, "get", "deployments,replicasets")
}

// median returns the median of the latencies.
func (d *demo) median() time.Duration {
	sorted := slices.Sorted(slices.Values(d.latencies))
	if len(sorted) == 0 {
		return 0
	}
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// writeAlertRule creates an AlertRule.
func (d *demo) writeAlertRule(ctx context.Context) error {
	d.out.note("The AlertRule does not name a cluster. It is placed in every cluster with env=prod, including those that are added later.")
	if err := d.file("high-error-rate.yaml", alertRuleYAML); err != nil {
		return err
	}
	if err := d.onHub(ctx, "apply", "-f", "high-error-rate.yaml"); err != nil {
		return err
	}
	return d.awaitOn(ctx, prod)
}

// writePack creates a RulePack.
func (d *demo) writePack(ctx context.Context) error {
	d.out.note("The groups are those of a PrometheusRule. The alert reads the series that the recording rule makes.")
	if err := d.file("availability.yaml", rulePackYAML); err != nil {
		return err
	}
	if err := d.onHub(ctx, "apply", "-f", "availability.yaml"); err != nil {
		return err
	}
	what := prod + " has the RulePack"
	if d.pipeline != nil {
		what = "Prometheus in " + prod + " evaluates each rule of the RulePack"
	}
	if err := d.await(ctx, what, d.packReady); err != nil {
		return err
	}
	return d.onHub(ctx, "get", "rulepacks", "-A")
}

// show shows the result.
func (d *demo) show(ctx context.Context) error {
	if err := d.await(ctx, "the status of every AlertRule is 1/1", d.allReady); err != nil {
		return err
	}
	if err := d.onHub(ctx, "get", "alertrules", "-A"); err != nil {
		return err
	}
	for _, m := range d.spokes() {
		if err := d.onSpoke(ctx, m, "get", "prometheusrules", "-A"); err != nil {
			return err
		}
	}
	rules, err := rulesOf(ctx, d.fleet.Spoke(prod), alertRuleKey)
	if err != nil {
		return err
	}
	if len(rules) != 1 {
		return fmt.Errorf("there are %d PrometheusRules of AlertRule %s in %s", len(rules), alertRuleKey, prod)
	}
	return d.onSpoke(ctx, d.fleet.Spoke(prod), "-n", monitoring, "get", "prometheusrule", rules[0].Name, "-o", "yaml")
}

// writeTemplate applies an AlertRuleTemplate, and changes a Deployment so that it
// matches.
func (d *demo) writeTemplate(ctx context.Context) error {
	d.out.note("The template matches Deployments that have a label team, with any value.")
	if err := d.file("team-rollout-stuck.yaml", templateYAML); err != nil {
		return err
	}
	if err := d.onHub(ctx, "apply", "-f", "team-rollout-stuck.yaml"); err != nil {
		return err
	}
	if err := d.await(ctx, "the templates are accepted", d.templatesAccepted); err != nil {
		return err
	}
	if err := d.onHub(ctx, "get", "alertruletemplates"); err != nil {
		return err
	}
	if err := d.onSpoke(ctx, d.fleet.Spoke(dev), "-n", shop, "label", "deployment", "checkout", "team=payments"); err != nil {
		return err
	}
	if err := d.await(ctx, dev+" has alert RolloutStuck with team=payments", d.hasAlert(dev, "checkout", "RolloutStuck", "payments")); err != nil {
		return err
	}
	if err := d.onSpoke(ctx, d.fleet.Spoke(dev), "-n", shop, "label", "deployment", "checkout", "team=orders", "--overwrite"); err != nil {
		return err
	}
	return d.await(ctx, dev+" has alert RolloutStuck with team=orders", d.hasAlert(dev, "checkout", "RolloutStuck", "orders"))
}

// count counts the objects on the API servers, and shows the numbers.
func (d *demo) count(ctx context.Context) error {
	if err := d.await(ctx, "every AlertRule is in all the spokes where it is placed", d.allReady); err != nil {
		return err
	}
	if err := d.onHub(ctx, "get", "alertrules,rulepacks", "-A"); err != nil {
		return err
	}
	n, err := d.tally(ctx)
	if err != nil {
		return err
	}
	d.result = fmt.Sprintf("demo: ok: %d spokes, %d deployments, %d alertrules, %d rulepacks, %d prometheusrules, p50 %d ms",
		n.spokes, n.deployments, n.alertRules, n.rulePacks, n.prometheusRules, d.median().Milliseconds())
	return nil
}
