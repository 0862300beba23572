package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/rulefleet/rulefleet/e2e/demo/dashboard"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	"github.com/rulefleet/rulefleet/pkg/testing/prometheus"
)

// observer is a Prometheus of the hub, which scrapes the manager, for a picture of the chart's dashboard.
type observer struct {
	*prometheus.Prometheus
	begin time.Time
	path  string
}

// dashboardPath is the environment variable with the path of the picture to draw.
const dashboardPath = "DASHBOARD"

// observe starts the observer if a picture is to be drawn.
func (d *demo) observe(ctx context.Context) error {
	path := os.Getenv(dashboardPath)
	if path == "" {
		return nil
	}
	target, err := url.Parse(d.manager.MetricsURL)
	if err != nil {
		return fmt.Errorf("finding the manager's metrics: %w", err)
	}
	dir := filepath.Join(d.dir, "observer")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("creating a folder for Prometheus: %w", err)
	}
	p, err := prometheus.Start(ctx, prometheus.Options{
		Dir: dir, Targets: []string{target.Host},
		Labels: map[string]string{"namespace": fleet.Namespace, "pod": "rulefleet-0"},
	})
	if err != nil {
		return fmt.Errorf("starting a Prometheus for the hub: %w", err)
	}
	d.observer = &observer{Prometheus: p, begin: time.Now(), path: path}
	return nil
}

// draw draws the first rows of the dashboard.
func (d *demo) draw(ctx context.Context) error {
	if d.observer == nil {
		return nil
	}
	source, err := os.ReadFile(filepath.FromSlash("charts/rulefleet/files/dashboard.json"))
	if err != nil {
		return fmt.Errorf("reading the dashboard: %w", err)
	}
	picture, err := dashboard.Draw(ctx, dashboard.Options{
		Dashboard: source, Rows: []string{"Overview", "Spokes", "Rules", "Evaluation"},
		Prometheus: d.observer.URL(), From: d.observer.begin, To: time.Now(),
	})
	if err != nil {
		return fmt.Errorf("drawing the dashboard: %w", err)
	}
	if err := os.WriteFile(d.observer.path, picture, 0o644); err != nil { //nolint:gosec // a picture for everybody
		return fmt.Errorf("writing the picture of the dashboard: %w", err)
	}
	return nil
}
