package delivery

import (
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

// options are those of the tests' hub.
var options = Options{HubID: ruletest.HubID, AdminNamespace: "rulefleet-system", RuleNamespace: "monitoring", ClusterLabel: "cluster"}

// eu is a spoke with names that mean something to PromQL.
var eu = rule.Cluster{Name: "eu.1", Labels: map[string]string{
	"region": "eu", "quotes": `"'` + "`", "dollar": "$1", "empty": "", "bad": "a\ufffdb", "line": "a\nb", "slash": `\d`,
}}
