// Package v1 stands in for the real one.
package v1

type Condition struct{ Type string }

type Duration struct{ Nanoseconds int64 }
