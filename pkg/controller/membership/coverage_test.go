package membership

import (
	"slices"
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/coverage"
)

type covers map[string]*coverage.Result

func (c covers) Coverage(spoke string) *coverage.Result { return c[spoke] }

// TestTellCoverage keeps the numbers of a spoke until others are known.
func TestTellCoverage(t *testing.T) {
	old := []v1alpha1.WorkloadCount{{Kind: v1alpha1.DeploymentKind, Total: 2}}
	next := &coverage.Result{
		Workloads: []v1alpha1.WorkloadCount{{Kind: v1alpha1.DeploymentKind, Total: 1}},
		Uncovered: []v1alpha1.UncoveredWorkload{{Kind: v1alpha1.DeploymentKind, Namespace: "shop", Name: "web", Reason: v1alpha1.UncoveredNoTemplate}},
	}
	status := v1alpha1.SpokeClusterStatus{Workloads: old}
	tellCoverage(&status, covers{"us": next}, "eu")
	if !slices.Equal(status.Workloads, old) {
		t.Errorf("nothing is known, and it has %+v", status.Workloads)
	}
	tellCoverage(&status, covers{"eu": next}, "eu")
	if !slices.Equal(status.Workloads, next.Workloads) || !slices.Equal(status.Uncovered, next.Uncovered) {
		t.Errorf("got %+v and %+v", status.Workloads, status.Uncovered)
	}
}
