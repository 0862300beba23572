// Package validation says whether an AlertRule or an AlertRuleTemplate is valid (Rule, Template), and warns
// of valid but suspicious input (Warnings). The webhook, the controllers and the CLI use it.
package validation
