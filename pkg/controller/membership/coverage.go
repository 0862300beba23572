package membership

import (
	"slices"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/coverage"
)

// Coverage reports which workloads have an alert.
type Coverage interface {
	// Coverage returns the coverage of a spoke, or nil after a start, until it is known.
	Coverage(spoke string) *coverage.Result
}

// tellCoverage writes the workloads with and without an alert into the status. Until they are known, the last ones stay.
func tellCoverage(s *v1alpha1.SpokeClusterStatus, c Coverage, spoke string) {
	if c == nil {
		return
	}
	if is := c.Coverage(spoke); is != nil {
		// A write of the status decodes the answer into it.
		s.Workloads, s.Uncovered = slices.Clone(is.Workloads), slices.Clone(is.Uncovered)
	}
}
