// Package evaluator asks one Prometheus or ThanosRuler, over its HTTP API, which
// alerting rules it has loaded, how their evaluation goes, what fires, and whether it
// has the series that rules look at.
//
// What it answers is untrusted, and may be as large as it likes: it is read as a
// stream, and everything is bounded. Redirects are not followed, since the caller's
// credential would go along.
package evaluator
