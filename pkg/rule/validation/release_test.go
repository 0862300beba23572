package validation

import (
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule/compat"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

func TestValidateForTheFleetsOldest(t *testing.T) {
	r := ruletest.Rule(func(r *v1alpha1.AlertRule) {
		r.Spec.KeepFiringFor = "1m"
		r.Spec.Overrides = []v1alpha1.Override{{ClusterSelection: ruletest.Clusters("a"), Expr: "sort_by_label(up)"}}
	})
	for spec, want := range map[string]string{
		"":                                     "spec.overrides[0].expr: 1:1: function \"sort_by_label\" is not enabled",
		" promql-experimental-functions":       "",
		"2.53":                                 `spec.overrides[0].expr: 1:1: Prometheus 2.53, the oldest of the fleet (chart value prometheusVersion), supports function "sort_by_label" only with`,
		"2.53 promql-experimental-functions":   "",
		"2.41":                                 "spec.keepFiringFor: Prometheus 2.41, the oldest of the fleet (chart value prometheusVersion), does not support keep_firing_for; 2.42 or later is required",
		"2.41.0 promql-experimental-functions": "spec.keepFiringFor: ",
	} {
		t.Run(spec, func(t *testing.T) {
			version, features, _ := strings.Cut(spec, " ")
			o := tenancy
			var err error
			if o.Evaluator, err = compat.Parse(version, features); err != nil {
				t.Fatal(err)
			}
			bad := Rule(r, o)
			if (bad == nil) != (want == "") || bad != nil && !strings.HasPrefix(bad.Error(), want) {
				t.Errorf("%q: got %v\nwant %s", spec, bad, want)
			}
		})
	}
}
