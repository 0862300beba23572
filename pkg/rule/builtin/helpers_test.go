package builtin

import (
	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
)

// options are those of the tests' hub.
var options = delivery.Options{HubID: ruletest.HubID, AdminNamespace: "rulefleet-system", RuleNamespace: "monitoring", ClusterLabel: "cluster"}

func newWorkload(edit ...func(*templating.Workload)) templating.Workload {
	w := templating.Workload{Kind: v1alpha1.DeploymentKind, Cluster: rule.Cluster{Name: "eu-1"}, Namespace: "shop", Name: "web"}
	for _, f := range edit {
		f(&w)
	}
	return w
}

// workloadOf returns a workload of a template's kind.
func workloadOf(t *v1alpha1.AlertRuleTemplate) templating.Workload {
	return newWorkload(func(w *templating.Workload) { w.Kind = rule.KindsOf(t)[0] })
}
