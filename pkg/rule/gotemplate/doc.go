// Package gotemplate tries the Go templates in labels and annotations as Prometheus renders them, with
// sample data and within a budget.
package gotemplate
