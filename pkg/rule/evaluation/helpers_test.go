package evaluation_test

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

// options are those of the tests' hub.
var options = delivery.Options{HubID: ruletest.HubID, AdminNamespace: "rulefleet-system", RuleNamespace: "monitoring", ClusterLabel: "cluster"}

func key(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}
