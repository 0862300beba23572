// Package delivery decides what a spoke gets for an AlertRule: it renders the PrometheusRule (Render), keeps
// what must not change while the choice of an evaluator is open (KeepLabels, KeepMark, KeepNamespace), and
// compares the result with what the spoke has (Decide).
package delivery
