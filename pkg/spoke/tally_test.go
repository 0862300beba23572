package spoke

import (
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

func TestTally(t *testing.T) {
	tl, start := &tally{}, time.Unix(0, 0)
	deployments := tl.deployments()
	beat := func(seconds int) (Counts, bool) {
		return tl.next(start.Add(time.Duration(seconds)*time.Second), firstInterval)
	}
	if c := tl.first(start); !c.First || !c.Known || c.Deployments != 0 {
		t.Fatalf("first: %+v", c)
	}
	if _, news := beat(10); news {
		t.Error("published though nothing changed")
	}
	deployments.OnAdd("a", false)
	if c, news := beat(20); !news || c.Deployments != 1 || c.First {
		t.Errorf("a change: %+v, %v", c, news)
	}
	if _, news := beat(500); news {
		t.Error("published though nothing changed")
	}
}

// TestTallyOfRules counts only those objects with the hub's label that stand for AlertRules.
func TestTallyOfRules(t *testing.T) {
	var counts tally
	handler := counts.rules(Options{HubID: "hub", Stands: func(o metav1.Object) bool { return o.GetName() != "stray" }})
	object := func(name, hub string) *monitoringv1.PrometheusRule {
		return &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.HubLabel: hub}}}
	}
	for _, o := range []*monitoringv1.PrometheusRule{object("a", "hub"), object("stray", "hub"), object("b", "another")} {
		handler.OnAdd(o, true)
	}
	if n := counts.ruleCount.Load(); n != 1 {
		t.Errorf("%d are counted", n)
	}
	handler.OnUpdate(object("stray", "hub"), object("c", "hub"))
	handler.OnDelete(object("stray", "hub"))
	if n := counts.ruleCount.Load(); n != 2 {
		t.Errorf("in the end, %d are counted", n)
	}
}

func TestTallyCorrectsAnOldStatus(t *testing.T) {
	old := int32(7)
	status := &v1alpha1.SpokeClusterStatus{Deployments: &old, Rules: &old}
	tl, start := &tally{}, time.Unix(0, 0)
	tl.first(start).into(status)
	if *status.Deployments != 7 {
		t.Error("the first counts replaced the status")
	}
	c, news := tl.next(start.Add(firstInterval), firstInterval)
	c.into(status)
	if !news || *status.Deployments != 0 {
		t.Errorf("a minute later: %v, %+v", news, c)
	}
}
