// Package schema holds the tests of what the API server itself makes of our API: every
// bound and every rule in the CRDs refuses what it should, at the field that it is
// about, and all that the documentation shows is taken. There is no operator at work.
package schema
