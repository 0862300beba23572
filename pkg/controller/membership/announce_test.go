package membership

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// An outage is announced once when it begins and once when it ends, not for every condition that follows from
// it.
func TestAnnounceAnOutage(t *testing.T) {
	for name, tc := range map[string]struct {
		was, is *spoke.Observation
		want    []string
	}{
		"it is away": {was: good(), is: with(good(), func(o *spoke.Observation) { o.Connected = unreachable }), want: []string{v1alpha1.ReasonUnreachable}},
		"it is back": {was: with(good(), func(o *spoke.Observation) { o.Connected = unreachable }), is: good(), want: []string{v1alpha1.ReasonConnected, v1alpha1.ReasonReady}},
		"it is back without PrometheusRules": {
			was: with(good(), func(o *spoke.Observation) { o.Connected = unreachable }), is: with(good(), func(o *spoke.Observation) { o.Served = notServed }),
			want: []string{v1alpha1.ReasonConnected, v1alpha1.ReasonCRDMissing},
		},
		"it is served for the first time": {is: good(), want: []string{v1alpha1.ReasonConnected, v1alpha1.ReasonServed, v1alpha1.ReasonReady}},
	} {
		t.Run(name, func(t *testing.T) {
			r, recorder := registrar(t)
			sc := member(tc.was)
			r.announce(sc, nil, statusOf(sc, news{seen: tc.is}, now).Conditions)
			var got []string
			for len(recorder.Events) > 0 {
				got = append(got, strings.Fields(<-recorder.Events)[1])
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("told %q, want %q", got, tc.want)
			}
		})
	}
}

// Unknown conditions are not announced.
func TestAnnounceTheUnknown(t *testing.T) {
	r, recorder := registrar(t)
	sc := member(good())
	r.announce(sc, nil, []metav1.Condition{{Type: v1alpha1.ConditionPrometheusRuleServed, Status: metav1.ConditionUnknown, Reason: "X"}})
	if n := len(recorder.Events); n > 0 {
		t.Errorf("%d Events", n)
	}
}
