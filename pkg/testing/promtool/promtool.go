// Package promtool runs Prometheus' own promtool on rules, so that tests see how Prometheus treats them. `make
// promtool` builds it.
package promtool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
)

// RulesName is the name under which Test puts the rules beside a test file, for its
// rule_files.
const RulesName = "rules.yaml"

// Path returns the path of promtool: $RULEFLEET_PROMTOOL, else bin/prometheus of the Go module of the working
// directory. The error says how to build it.
func Path() (string, error) {
	if path := os.Getenv("RULEFLEET_PROMTOOL"); path != "" {
		return existing("promtool", path)
	}
	return Program("promtool")
}

// Program returns the path of a program of Prometheus in bin/prometheus of the Go module of the working
// directory. The error says how to build it.
func Program(name string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	return existing(name, filepath.Join(root, "bin", "prometheus", name))
}

func existing(name, path string) (string, error) {
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("no %s: run make promtool first: %w", name, err)
	}
	return path, nil
}

func moduleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the module root: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod in or above %s: set $RULEFLEET_PROMTOOL", start)
		}
	}
}

// Groups returns the groups of the PrometheusRule that a template generates for a workload.
func Groups(template *v1alpha1.AlertRuleTemplate, w templating.Workload) ([]monitoringv1.RuleGroup, error) {
	r, err := templating.Rule(template, w, "rulefleet-generated")
	if err != nil {
		return nil, fmt.Errorf("generating the rule of template %s: %w", template.Name, err)
	}
	p, err := delivery.Render(r, w.Cluster, delivery.Options{HubID: "hub-1", AdminNamespace: "rulefleet-system", ClusterLabel: "cluster"})
	if err != nil {
		return nil, fmt.Errorf("rendering the rule of template %s: %w", template.Name, err)
	}
	return p.Spec.Groups, nil
}

// Check returns the reason why Prometheus would not load the groups of a PrometheusRule, or nil. Check the
// groups of several objects separately, because each is its own file in Prometheus.
func Check(ctx context.Context, groups []monitoringv1.RuleGroup) error {
	file, err := ruleFile(groups)
	if err != nil {
		return err
	}
	return run(ctx, "", file, "check", "rules", "--lint=none")
}

// Test runs a test file of promtool's format on groups, and returns its failures, or nil. The test file refers
// to the groups as RulesName.
func Test(ctx context.Context, groups []monitoringv1.RuleGroup, test []byte) (err error) {
	rules, err := ruleFile(groups)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "promtool-")
	if err != nil {
		return fmt.Errorf("creating a folder for promtool: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	const testName = "test.yaml"
	for name, data := range map[string][]byte{RulesName: rules, testName: test} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return fmt.Errorf("writing a file for promtool: %w", err)
		}
	}
	return run(ctx, dir, nil, "test", "rules", testName)
}

// ruleFile writes groups as a rule file of Prometheus.
func ruleFile(groups []monitoringv1.RuleGroup) ([]byte, error) {
	file := monitoringv1.PrometheusRuleSpec{}
	for _, g := range groups {
		g.PartialResponseStrategy = "" // specific to Thanos, and refused by Prometheus
		file.Groups = append(file.Groups, g)
	}
	data, err := yaml.Marshal(file)
	if err != nil {
		return nil, fmt.Errorf("writing a rule file: %w", err)
	}
	return data, nil
}

func run(ctx context.Context, dir string, input []byte, args ...string) error {
	path, err := Path()
	if err != nil {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return fmt.Errorf("finding promtool: %w", err)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(input)
	// It ends soon: collecting garbage rarely saves a fifth of the CPU time.
	cmd.Env = append(os.Environ(), "GOGC=400")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("promtool %s: %w\n%s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
