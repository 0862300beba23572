package templating

import (
	"github.com/rulefleet/rulefleet/pkg/rule"
)

func newWorkload(edit ...func(*Workload)) Workload {
	w := Workload{Cluster: rule.Cluster{Name: "eu-1"}, Namespace: "shop", Name: "web"}
	for _, f := range edit {
		f(&w)
	}
	return w
}
