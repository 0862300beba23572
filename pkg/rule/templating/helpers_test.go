package templating

import (
	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

func newWorkload(edit ...func(*Workload)) Workload {
	w := Workload{Kind: v1alpha1.DeploymentKind, Cluster: rule.Cluster{Name: "eu-1"}, Namespace: "shop", Name: "web"}
	for _, f := range edit {
		f(&w)
	}
	return w
}
