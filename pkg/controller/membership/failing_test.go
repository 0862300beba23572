package membership

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

type failsWith struct {
	message string
	known   bool
}

func (f failsWith) Failing(string) (message string, known bool) { return f.message, f.known }

func TestFailing(t *testing.T) {
	const now, before = "3 rules", "2 rules"
	told := func() *v1alpha1.SpokeCluster {
		sc := member(good())
		tellFailing(&sc.Status, before)
		return sc
	}
	well := func() *v1alpha1.SpokeCluster { return member(good()) }
	down := with(good(), func(o *spoke.Observation) { o.Connected = unreachable })
	for name, tc := range map[string]struct {
		sc     *v1alpha1.SpokeCluster
		seen   *spoke.Observation
		f      Failures
		status metav1.ConditionStatus
		reason string
		words  string
	}{
		"nobody knows":                     {sc: well(), seen: good(), status: metav1.ConditionTrue, reason: v1alpha1.ReasonReady},
		"nothing fails":                    {sc: well(), seen: good(), f: failsWith{known: true}, status: metav1.ConditionTrue, reason: v1alpha1.ReasonReady},
		"rules fail":                       {sc: well(), seen: good(), f: failsWith{now, true}, status: metav1.ConditionTrue, reason: v1alpha1.ReasonRulesFailing, words: now},
		"others fail":                      {sc: told(), seen: good(), f: failsWith{now, true}, status: metav1.ConditionTrue, reason: v1alpha1.ReasonRulesFailing, words: now},
		"none fails any more":              {sc: told(), seen: good(), f: failsWith{known: true}, status: metav1.ConditionTrue, reason: v1alpha1.ReasonReady},
		"after a restart":                  {sc: told(), seen: good(), f: failsWith{}, status: metav1.ConditionTrue, reason: v1alpha1.ReasonRulesFailing, words: before},
		"after a restart, and all is well": {sc: well(), seen: good(), f: failsWith{}, status: metav1.ConditionTrue, reason: v1alpha1.ReasonReady},
		"the spoke is down":                {sc: told(), seen: down, f: failsWith{now, true}, status: metav1.ConditionFalse, reason: v1alpha1.ReasonUnreachable},
		"it can't be written to": {
			sc: told(), seen: with(good(), func(o *spoke.Observation) { o.Writes = forbidden }), f: failsWith{now, true},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonForbidden,
		},
	} {
		t.Run(name, func(t *testing.T) {
			status := statusOf(tc.sc, news{seen: tc.seen}, contact)
			tellFailing(&status, failing(tc.f, tc.sc, tc.seen))
			c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
			if c.Status != tc.status || c.Reason != tc.reason || (tc.words != "" && c.Message != tc.words) {
				t.Errorf("got %+v", c)
			}
			if tc.status == metav1.ConditionTrue && !c.LastTransitionTime.Equal(&longAgo) {
				t.Errorf("the transition was at %v", c.LastTransitionTime)
			}
		})
	}
}
