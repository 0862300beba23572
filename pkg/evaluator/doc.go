// Package evaluator queries a Prometheus or ThanosRuler, over its HTTP API, for its loaded alerting rules,
// their evaluation and alerts, and for the series that rules select.
//
// Answers are untrusted and can have any size: they are read as a stream, and everything is bounded. Redirects
// are not followed, because they would pass on the caller's credential.
package evaluator
