package placeholder

import (
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// eu is a spoke with names that mean something to PromQL.
var eu = rule.Cluster{Name: "eu.1", Labels: map[string]string{
	"region": "eu", "quotes": `"'` + "`", "dollar": "$1", "empty": "", "bad": "a\ufffdb", "line": "a\nb", "slash": `\d`,
}}
