package membership

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// An outage is announced once when it begins and once when it ends, not for every condition that follows from
// it.
func TestAnnounceAnOutage(t *testing.T) {
	unused := with(good(), func(o *spoke.Observation) { o.Connected = spoke.Unused("no token") })
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
		"its new kubeconfig is not used": {was: good(), is: unused, want: []string{v1alpha1.ReasonKubeconfigNotUsed}},
		"it is not used for another cause": {
			was: unused, is: with(good(), func(o *spoke.Observation) { o.Connected = spoke.Unused("another fault") }),
		},
		"its new kubeconfig is corrected": {was: unused, is: good()},
		"its new kubeconfig and the last good one do not work": {
			was: unused, is: with(good(), func(o *spoke.Observation) { o.Connected = unreachable }), want: []string{v1alpha1.ReasonUnreachable},
		},
		"it is served for the first time": {is: good(), want: []string{v1alpha1.ReasonConnected, v1alpha1.ReasonServed, v1alpha1.ReasonReady}},
	} {
		t.Run(name, func(t *testing.T) {
			r, recorder := registrar(t)
			sc := member(tc.was)
			r.announce(sc, nil, statusOf(sc, news{seen: tc.is}, now).Conditions)
			var got []string
			for len(recorder.Events) > 0 {
				note := strings.Fields(<-recorder.Events)
				got = append(got, note[1])
				if note[1] == v1alpha1.ReasonKubeconfigNotUsed && note[0] != corev1.EventTypeWarning {
					t.Errorf("the Event is %s", note[0])
				}
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
