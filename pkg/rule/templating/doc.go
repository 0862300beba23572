// Package templating decides about the AlertRules that templates generate: for which Deployments (Matches),
// with what content (Rule), and which of their fields people have edited on the hub (Overridden, Reset).
package templating
