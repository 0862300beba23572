package main

import (
	"io"
	"slices"
	"strings"
	"testing"
)

func TestKubeStateMetricsSelector(t *testing.T) {
	for _, good := range []string{"", `job="kube-state-metrics"`, `job=~"ksm-.*",namespace="monitoring"`} {
		o, err := parse([]string{"--kube-state-metrics-selector=" + good}, io.Discard)
		if err != nil || o.kubeStateMetrics != good {
			t.Errorf("%s: %v, %v", good, o, err)
		}
	}
	const bad = `{job="kube-state-metrics"}`
	if _, err := parse([]string{"--kube-state-metrics-selector=" + bad}, io.Discard); err == nil || !strings.Contains(err.Error(), "--kube-state-metrics-selector") {
		t.Errorf("%s: %v", bad, err)
	}
}

func TestPrometheusFlags(t *testing.T) {
	o, err := parse([]string{"--prometheus-version=v2.53.1", "--prometheus-features=a, b"}, io.Discard)
	if err != nil || o.evaluator == nil || o.evaluator.Version != "v2.53.1" || !slices.Equal(o.evaluator.Features, []string{"a", "b"}) {
		t.Errorf("got %+v, %v", o, err)
	}
	if o, err := parse(nil, io.Discard); err != nil || o.evaluator != nil {
		t.Errorf("with no flags: %+v, %v", o, err)
	}
	if _, err := parse([]string{"--prometheus-version=latest"}, io.Discard); err == nil || !strings.Contains(err.Error(), "--prometheus-version") {
		t.Errorf("latest: %v", err)
	}
}
