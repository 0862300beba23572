// Package charts embeds the Helm chart. The manager must not import it.
package charts

import "embed"

// Files has the chart, in the folder Folder.
//
//go:embed all:rulefleet
var Files embed.FS

// Folder is the folder of the chart in Files.
const Folder = "rulefleet"

// SpokeAccess is the manifest with the account of Rulefleet in a spoke, and all of its permissions.
//
//go:embed rulefleet/files/spoke-access.yaml
var SpokeAccess []byte

// SpokePolicy is the manifest with the policy that limits this account to Rulefleet's own PrometheusRules.
//
//go:embed rulefleet/files/spoke-policy.yaml
var SpokePolicy []byte
