package main

import (
	"io"
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
