// Package placeholder replaces $(…) placeholders in expressions, labels and annotations, in two stages:
// $(deployment.…) when a template generates an AlertRule (ForDeployment), and $(cluster.…) when the AlertRule
// is rendered for a spoke (ForCluster). The inserted values come from spokes and are not trusted: they are
// never interpreted as placeholders, Go templates or PromQL.
package placeholder
