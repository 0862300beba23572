// Package rollup derives the status of a source (an AlertRule or a RulePack) from its states in the spokes: its conditions, its
// summary and the rows that it lists. It also decides when rows show the outage of a spoke (Damp).
package rollup
