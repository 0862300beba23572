// Package rule holds every decision about rules as pure functions: it makes
// AlertRules of Deployments (Generate), PrometheusRules of AlertRules (Render),
// checks what people wrote (Validate), decides what to do in a spoke (Decide) and
// derives an AlertRule's status (Status). It has no client and no clock, and its
// answers depend on its arguments alone.
//
// # Placeholders
//
// Texts hold $(…) placeholders that are replaced in two stages: $(deployment.…) when
// a template is made into an AlertRule, $(cluster.…) when that is rendered for a
// spoke. What is inserted comes from spokes and is not trusted: it is never read as
// a placeholder, as a Go template or as PromQL (text.go, textfield.go, promql.go).
package rule
