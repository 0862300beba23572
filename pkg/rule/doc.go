// Package rule holds what all decisions about rules share: clusters and where a rule is placed on them
// (Cluster, Places, PlacedIn), the names and the ownership of the objects that a hub writes (ObjectName,
// Owned), and mistakes in a spec (Invalid). The decisions are in its subpackages, as pure functions without
// client and clock: results depend only on the arguments.
//
// From a template to a status:
//
//   - builtin makes the built-in templates.
//   - templating generates AlertRules for Deployments from templates.
//   - validation says whether an AlertRule or a template is valid, and what is suspicious in it.
//   - delivery renders the PrometheusRule of an AlertRule for a spoke, and decides on the writes there.
//   - suspect says whether a removal may be due to lost objects.
//   - evaluation chooses the evaluators of a spoke, and says which of them select and evaluate a rule.
//   - rollup derives the status of an AlertRule from its states in the spokes.
//
// The others read texts: placeholder replaces $(…), promql parses and analyses expressions, gotemplate checks
// templates of labels and annotations, and compat says which release of Prometheus parses what. Dependencies
// point one way: compat, placeholder, gotemplate and promql import none of the first list.
package rule
