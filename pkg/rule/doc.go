// Package rule contains every decision about rules as pure functions: it generates AlertRules for
// Deployments (Generate), renders PrometheusRules from AlertRules (Render), validates specs
// (Validate), decides on the writes in a spoke (Decide), and derives the status of an AlertRule
// (Status). It has no client and no clock. Results depend only on the arguments.
//
// # Placeholders
//
// Texts contain $(…) placeholders, which are replaced in two stages: $(deployment.…) when a template
// generates an AlertRule, and $(cluster.…) when the AlertRule is rendered for a spoke. The inserted
// values come from spokes and are not trusted: they are never interpreted as placeholders, Go templates
// or PromQL (text.go, textfield.go, promql.go).
package rule
