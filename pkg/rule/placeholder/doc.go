// Package placeholder replaces $(…) placeholders in expressions, labels and annotations, in two stages:
// $(workload.…) and $(params.…) when a template generates an AlertRule (ForWorkload), and $(cluster.…) when the
// AlertRule is rendered for a spoke (ForCluster). The inserted values come from spokes and are not trusted: they are
// never interpreted as placeholders, Go templates or PromQL. Values of parameters are typed, and are the only ones
// that can stand outside of string literals of an expression.
package placeholder
