package validation

import (
	"time"

	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

// options are those of the tests' hub.
var options = delivery.Options{HubID: ruletest.HubID, AdminNamespace: "rulefleet-system", RuleNamespace: "monitoring", ClusterLabel: "cluster"}

// strictTenancy has all limits of tenants. The other two are the options of a hub with them.
var strictTenancy = rule.Tenancy{ProtectedLabels: []string{"team", "tier"}, MinInterval: 5 * time.Second, EnforceNamespace: true}

var strict = Options{AdminNamespace: tenancy.AdminNamespace, GeneratedNamespace: tenancy.GeneratedNamespace, ClusterLabel: "cluster", Tenancy: strictTenancy}

// maxAcceptedMessage limits the message of Accepted, in bytes.
const maxAcceptedMessage = 900
