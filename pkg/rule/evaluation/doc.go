// Package evaluation decides on the evaluators of a spoke, which are its Prometheus and ThanosRulers: which
// ones are chosen (Choose), whether their selectors select a PrometheusRule (Select), and, by their answers,
// whether they evaluate it (Prove).
package evaluation
