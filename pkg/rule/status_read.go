package rule

import "github.com/rulefleet/rulefleet/api/v1alpha1"

// ReadyIn reports whether a row of a status counts as ready: the rule has reached the furthest phase that
// can be verified in that spoke.
func ReadyIn(row *v1alpha1.ClusterStatus, generation int64) bool { return atTop(row, generation) }

// WorstFirst orders rows by importance, and then by name.
func WorstFirst(rows []v1alpha1.ClusterStatus) { worstFirst(rows) }

// Rank is lower for a row that is more important.
func Rank(row *v1alpha1.ClusterStatus) int { return rank(row) }
