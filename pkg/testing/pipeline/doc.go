// Package pipeline makes real alerts in a control plane that runs as processes (see
// pkg/testing/controlplane): kube-state-metrics tells what is in the cluster,
// prometheus-operator makes a configuration of its PrometheusRules, Prometheus
// evaluates them, and Alertmanager notifies the test.
//
//	Deployment ──► kube-state-metrics ──► Prometheus ──► Alertmanager ──► Received
//	PrometheusRule ──► prometheus-operator ──(reloader)──┘
//
// Each of them is the real program, built by `make pipeline`. What a node would do is
// played, as there is none: pods are made Running (kubelet), and what
// prometheus-operator writes is put into the files of Prometheus, which is told to
// read them again (reloader).
//
// Prometheus is also what the API server's proxy finds behind the Service
// prometheus-operated. That refuses loopback addresses, so Prometheus listens at
// another address of this machine.
package pipeline
