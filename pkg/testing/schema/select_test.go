package schema

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// TestSelectableFields selects AlertRules by their fields.
func TestSelectableFields(t *testing.T) {
	create(t, full(t, "AlertRule"))
	for name, c := range map[string]struct {
		fields client.MatchingFields
		want   int
	}{
		"all":              {client.MatchingFields{"spec.alert": "HighRequestLatency", "spec.severity": "warning", "spec.workloadRef.cluster": "eu-1"}, 1},
		"another alert":    {client.MatchingFields{"spec.alert": "Other"}, 0},
		"another severity": {client.MatchingFields{"spec.severity": "of-no-rule"}, 0},
		"another cluster":  {client.MatchingFields{"spec.workloadRef.cluster": "eu-2"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var list v1alpha1.AlertRuleList
			if err := hub.Client.List(t.Context(), &list, client.InNamespace(fleet.Namespace), c.fields); err != nil {
				t.Fatal(err)
			}
			if len(list.Items) != c.want {
				t.Errorf("%d are selected, want %d", len(list.Items), c.want)
			}
		})
	}
}
