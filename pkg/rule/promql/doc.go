// Package promql parses and analyses PromQL from any source, within bounds of time and memory.
package promql
