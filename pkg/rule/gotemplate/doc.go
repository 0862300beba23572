// Package gotemplate checks the Go templates in labels and annotations of alerts: it limits what they can cost
// before it renders them, with sample data, as Prometheus does.
package gotemplate
