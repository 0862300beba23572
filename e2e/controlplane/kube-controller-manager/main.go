// Kube-controller-manager is Kubernetes' controller manager, which ends with the process that started it.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/rulefleet/rulefleet/e2e/controlplane/lifeline"
)

func main() {
	lifeline.Follow()
	os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
}
