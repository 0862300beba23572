package suspect

import (
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
)

func newWorkload(edit ...func(*templating.Workload)) templating.Workload {
	w := templating.Workload{Cluster: rule.Cluster{Name: "eu-1"}, Namespace: "shop", Name: "web"}
	for _, f := range edit {
		f(&w)
	}
	return w
}
