package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/rulefleet/rulefleet/pkg/rule"
)

// course is a course of events, a second apart.
type course struct {
	*Propagation

	clock *clocktesting.FakePassiveClock
	away  time.Time // when the spoke did not answer
}

func (c *course) applied(spoke string) {
	c.Applied(spoke, changed, func(since time.Time) bool { return c.away.After(since) })
}

var changed = rule.AlertRuleKey("ns", "r")

var web = rule.Key{Kind: "Deployment", Namespace: "ns", Name: "d"}

func TestPropagation(t *testing.T) {
	s := []string{"s"}
	for title, tc := range map[string]struct {
		do func(c *course, later func())
		// want are what is measured, as in "AlertRule 1" for a second.
		want string
	}{
		"an AlertRule": {
			do:   func(c *course, later func()) { c.RuleChanged(changed, s); later(); c.applied("s") },
			want: "AlertRule false 1",
		},
		"another kind with the same name": {
			do: func(c *course, later func()) {
				c.RuleChanged(changed, s)
				c.RuleDone("s", rule.Key{Kind: "RulePack", Namespace: "ns", Name: "r"})
				later()
				c.applied("s")
			},
			want: "AlertRule false 1",
		},
		"the first change counts": {
			do: func(c *course, later func()) {
				c.RuleChanged(changed, s)
				later()
				c.RuleChanged(changed, s)
				later()
				c.applied("s")
				c.applied("s")
			},
			want: "AlertRule false 2",
		},
		"each spoke by itself": {
			do: func(c *course, later func()) {
				c.RuleChanged(changed, []string{"s", "t"})
				later()
				c.applied("s")
				c.RuleDone("t", changed)
				c.applied("t")
			},
			want: "AlertRule false 1",
		},
		"nothing to write": {
			do: func(c *course, later func()) {
				c.RuleChanged(changed, s)
				c.RuleDone("s", changed)
				later()
				c.applied("s")
			},
		},
		"no event": {do: func(c *course, _ func()) { c.applied("s") }},
		"a Deployment": {
			do: func(c *course, later func()) {
				c.WorkloadChanged("s", web)
				later()
				c.RuleMade("s", web, changed)
				c.WorkloadDone("s", web)
				later()
				c.RuleChanged(changed, s)
				later()
				c.applied("s")
				c.RuleChanged(changed, s) // somebody edits it
				later()
				c.applied("s")
			},
			want: "AlertRule false 1, Deployment false 3",
		},
		"a Deployment whose AlertRule the hub refuses": {
			do: func(c *course, later func()) {
				c.WorkloadChanged("s", web)
				c.RuleMade("s", web, changed)
				c.RuleNotMade(changed)
				later()
				c.RuleChanged(changed, s)
				later()
				c.applied("s")
			},
			want: "AlertRule false 1",
		},
		"an AlertRule that is made for no event": {
			do: func(c *course, later func()) {
				c.RuleMade("s", web, changed)
				c.RuleChanged(changed, s)
				later()
				c.applied("s")
			},
			want: "AlertRule false 1",
		},
		"an outage": {
			do: func(c *course, later func()) {
				c.RuleChanged(changed, s)
				later()
				c.away = c.clock.Now()
				later()
				c.applied("s")
			},
			want: "AlertRule true 2",
		},
		"a spoke that has left": {
			do: func(c *course, later func()) {
				c.RuleChanged(changed, s)
				c.WorkloadChanged("s", web)
				c.Forget("s")
				later()
				c.applied("s")
			},
		},
	} {
		t.Run(title, func(t *testing.T) {
			propagated.Reset()
			clock := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
			c := &course{Propagation: NewPropagation(clock), clock: clock}
			tc.do(c, func() { clock.SetTime(clock.Now().Add(time.Second)) })
			if got := measured(t); got != tc.want {
				t.Errorf("measured are %q, want %q", got, tc.want)
			}
			if len(c.rules) > 0 || len(c.made) > 0 {
				t.Errorf("it remembers %v %v", c.rules, c.made)
			}
		})
	}
}

// measured returns the histograms: the labels and the sum of each.
func measured(t *testing.T) string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(propagated)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := ""
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if out != "" {
				out += ", "
			}
			out += fmt.Sprint(label(m, "from"), " ", label(m, "interrupted"), " ", m.GetHistogram().GetSampleSum())
		}
	}
	return out
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
