// Package builtin makes the built-in AlertRuleTemplates, and keeps those on a hub up to date until somebody
// edits them.
package builtin
