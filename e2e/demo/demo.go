package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	"github.com/rulefleet/rulefleet/pkg/testing/pipeline"
)

// The spokes, and the labels of the Secrets that register them.
const (
	prod = "eu-prod-1"
	dev  = "us-dev-1"
)

var spokeNames = []string{prod, dev}

var spokeLabels = map[string][]string{
	prod: {"env=prod", "region=eu"},
	dev:  {"env=dev", "region=us"},
}

// demo is one run of the demo.
type demo struct {
	out *console
	// dir is the work folder, and bin the folder of kubectl.
	dir, bin string

	fleet   *fleet.Fleet
	manager *fleet.Manager
	// pipeline produces alerts in prod; nil in a lite demo.
	pipeline *pipeline.Pipeline
	// observer scrapes the manager; nil unless a picture of the dashboard is drawn.
	observer *observer
	// latencies are from the creation of a Deployment to its PrometheusRule.
	latencies []time.Duration
	// result is the demo's last line.
	result string
}

type step struct {
	title string
	run   func(context.Context) error
}

// steps are the steps of the demo. A lite demo omits those with alerts.
func (d *demo) steps(lite bool) []step {
	all := []step{
		{"A hub and two spokes start", d.startFleet},
		{startPipeline, d.startPipeline},
		{"The manager starts", d.startManager},
		{"Two Secrets register the spokes", d.register},
		{"Every Deployment gets its alert, in its own spoke", d.createDeployments},
		{"You create an alert for all production clusters", d.writeAlertRule},
		{"Where each rule is", d.show},
		{"You create a template, and change a Deployment", d.writeTemplate},
		{"You change the AlertRule", d.changeAlertRule},
		{"The AlertRule moves to the other spoke", d.moveAlertRule},
		{"A spoke's label is changed", d.relabelSpoke},
		{"Drift in a spoke is corrected", d.meddle},
		{"You delete a Deployment and an AlertRule, and create them again", d.deleteAndRestore},
		{"You create a RulePack: a recording rule, and an alert that reads it", d.writePack},
		{fireAlert, d.fireAlert},
		{"The final state of the fleet", d.count},
	}
	if !lite {
		return all
	}
	return slices.DeleteFunc(all, func(s step) bool { return s.title == startPipeline || s.title == fireAlert })
}

// run runs the steps. Unless once is set, it then waits until ctx ends.
func (d *demo) run(ctx context.Context, once bool) error {
	begin := time.Now()
	lite, err := isLite()
	if err != nil {
		d.out.note(fmt.Sprintf("No alerts fire in this demo: %v.", err))
	}
	steps := d.steps(lite)
	for i, s := range steps {
		d.out.heading(fmt.Sprintf("%d/%d %s", i+1, len(steps), s.title))
		if err := s.run(ctx); err != nil {
			return fmt.Errorf("step %d, %q: %w", i+1, s.title, err)
		}
	}
	d.out.line("All %d steps took %.1f s.", len(steps), time.Since(begin).Seconds())
	if once {
		return nil
	}
	d.out.line("%s", d.result)
	d.hints()
	select {
	case <-ctx.Done():
		return nil
	case <-d.manager.Done():
		return fmt.Errorf("the manager has exited: %w", d.manager.ExitErr())
	}
}

func (d *demo) startFleet(ctx context.Context) error {
	d.out.note("Each cluster runs etcd, kube-apiserver and, in the spokes, kube-controller-manager as local processes.")
	var err error
	if d.bin, err = controlplane.DefaultBinDir(); err != nil {
		return err
	}
	if d.bin, err = filepath.Abs(d.bin); err != nil {
		return fmt.Errorf("finding kubectl: %w", err)
	}
	if d.dir, err = os.MkdirTemp("", "rulefleet-demo-"); err != nil {
		return fmt.Errorf("creating the work folder: %w", err)
	}
	d.fleet, err = fleet.Start(ctx, fleet.Options{Spokes: spokeNames, OpenAPI: true, ControllerManager: true, Dir: d.dir, Output: d.out})
	if err != nil {
		return err
	}
	return d.writeKubeconfig()
}

func (d *demo) startManager(ctx context.Context) error {
	begin := time.Now()
	var err error
	// On a busy machine, a manager without other replicas would lose its lease for no reason.
	if d.manager, err = d.fleet.StartManager(ctx, fleet.ManagerOptions{Dir: d.dir, LeaderElect: os.Getenv(dashboardPath) != "", Args: []string{
		"--log-format=console",
		"--evaluator-poll-interval=5s", // half a minute is too long for a demo
	}}); err != nil {
		return err
	}
	d.out.done("bin/rulefleet-manager is healthy", time.Since(begin))
	return d.observe(ctx)
}

// members are the clusters of the fleet, the hub first.
func (d *demo) members() []*fleet.Member { return append([]*fleet.Member{d.fleet.Hub}, d.spokes()...) }

func (d *demo) spokes() []*fleet.Member {
	var out []*fleet.Member
	for _, name := range spokeNames {
		out = append(out, d.fleet.Spoke(name))
	}
	return out
}

// hints says what to try by hand.
func (d *demo) hints() {
	d.out.heading("Try it by hand")
	d.out.line(`In a second terminal, watch the AlertRules on the hub:

  export PATH=%[1]s:$PATH
  export KUBECONFIG=%[2]s
  kubectl get alertrules -A -w --output-watch-events

In a third terminal, after the same two exports, change something in a spoke:

  kubectl --context %[3]s create deployment test-app --image=nginx
  kubectl --context %[3]s get prometheusrules -A
  kubectl --context %[3]s delete deployment test-app

The contexts are %[4]s, %[5]s and %[3]s. The operator's log is
%[6]s. Press Ctrl-C to stop the demo.`,
		d.bin, filepath.Join(d.dir, kubeconfigName), dev, d.fleet.Hub.Name(), prod, d.manager.LogPath)
	if d.pipeline != nil {
		d.out.line("\nThe Prometheus of %s is at %s, and its Alertmanager at %s.", prod, d.pipeline.PrometheusURL(), d.pipeline.Alertmanager().URL())
	}
}

// dump writes the end of the operator's log or, before it runs, of the clusters' logs.
func (d *demo) dump(w io.Writer) {
	if d.fleet != nil {
		d.fleet.Dump(w)
	}
	if d.pipeline != nil {
		d.pipeline.Dump(w)
	}
}

// stop ends everything that the demo started, and removes the work folder.
func (d *demo) stop() error {
	if d.dir == "" {
		return nil
	}
	d.out.heading("Stopping")
	var errs []error
	if d.observer != nil {
		errs = append(errs, d.observer.Stop())
	}
	if d.pipeline != nil {
		errs = append(errs, d.pipeline.Stop())
	}
	if d.fleet != nil {
		errs = append(errs, d.fleet.Stop())
	}
	errs = append(errs, os.RemoveAll(d.dir))
	return errors.Join(errs...)
}
