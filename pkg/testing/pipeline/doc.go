// Package pipeline produces real alerts in a control plane that runs as processes (see
// pkg/testing/controlplane): kube-state-metrics exports the state of the cluster, prometheus-operator turns
// its PrometheusRules into a configuration, Prometheus evaluates them, and Alertmanager notifies the test.
//
//	Deployment ──► kube-state-metrics ──► Prometheus ──► Alertmanager ──► Received
//	PrometheusRule ──► prometheus-operator ──(reloader)──┘
//
// All of them are the real programs, built by `make pipeline`. The node is simulated: kubelet sets pods to
// Running, and reloader copies the output of prometheus-operator into the files of Prometheus and reloads it.
//
// The API server's proxy also reaches Prometheus, through the Service prometheus-operated. The proxy refuses
// loopback addresses, so Prometheus listens at another address of this machine.
package pipeline
