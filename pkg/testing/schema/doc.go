// Package schema tests the CRDs against a real API server: every bound and every rule rejects what it should,
// at the right field, and every example in the documentation is accepted. No operator runs.
package schema
