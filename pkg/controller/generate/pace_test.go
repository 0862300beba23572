package generate

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
	"github.com/rulefleet/rulefleet/pkg/testing/memory"
)

// paced changes a spoke's Deployments for a while: every is the time between two changes of each, and writes
// the number of AlertRules that each change writes. It returns the number of rewritten AlertRules.
func paced(p *pace, deployments, writes int, every, span time.Duration) (written int) {
	last := map[rule.Key]uint64{}
	for began, n := time.Now(), uint64(0); time.Since(began) < span; n++ {
		for i := range deployments {
			key := rule.Key{Namespace: "shop", Name: fmt.Sprint(i)}
			if last[key] == n+1 || p.wait("s", key, n+1) > 0 {
				continue
			}
			p.wrote("s", key, n+1, writes)
			if last[key] != 0 {
				written += writes
			}
			last[key] = n + 1
		}
		time.Sleep(every) //nolint:forbidigo // of the bubble's clock
	}
	return written
}

// A spoke that changes its Deployments back and forth causes a bounded number of writes, and the newest state
// is written.
func TestPace(t *testing.T) {
	for name, tc := range map[string]struct {
		deployments, writes int
		every               time.Duration
		most                int // within a minute
	}{
		"one Deployment":        {1, 1, 100 * time.Millisecond, keyBurst + 6},
		"many Deployments":      {1000, 1, 100 * time.Millisecond, 100 + 60*10},
		"many AlertRules each":  {200, 7, 100 * time.Millisecond, 100 + 60*10 + 200*6},
		"slower than the limit": {5, 1, 12 * time.Second, 5 * 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				written := paced(&pace{}, tc.deployments, tc.writes, tc.every, time.Minute)
				if written > tc.most || written < tc.most/4 {
					t.Errorf("%d were written, want at most %d", written, tc.most)
				}
			})
		})
	}
}

// In the long run, the rate is as configured, however many AlertRules a change writes.
func TestPaceInTheLongRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pace{writes: 5}
		paced(p, 500, 7, time.Second, time.Minute)
		if written := paced(p, 500, 7, time.Second, 10*time.Minute); written > 600*5*5/4 {
			t.Errorf("%d were written within 10 minutes", written)
		}
	})
}

// First writes, changes on the hub, and Deployments without a recent write do not wait.
func TestPaceCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pace{}
		free := func(what string, digest uint64) {
			t.Helper()
			for i := range 20_000 {
				key := rule.Key{Name: fmt.Sprint(i)}
				if wait := p.wait("s", key, digest); wait > 0 {
					t.Fatalf("%s: Deployment %d waits for %v", what, i, wait)
				}
				p.wrote("s", key, digest, 3)
			}
		}
		free("a first write", 1)
		free("a change on the hub", 1)
		time.Sleep(paceMemory + time.Second) //nolint:forbidigo // of the bubble's clock
		free("an hour later", 2)
		p.wrote("s", rule.Key{Name: "x"}, 1, 0)
		if p.spokes["s"].written[rule.Key{Name: "x"}] != nil {
			t.Error("what was not written is remembered")
		}
		p.forget("s")
		if left := memory.Of(p, "s"); len(left) > 0 {
			t.Errorf("it remembers %v", left)
		}
	})
}

// The digest covers exactly what a spoke contributes.
func TestDigestOfAWorkload(t *testing.T) {
	base := func() *templating.Workload {
		return &templating.Workload{Kind: v1alpha1.DeploymentKind, Labels: map[string]string{"a": "b c:d", "e": "f"}, Annotations: map[string]string{"x": "y"}, NamespaceLabels: map[string]string{"n": "m"}}
	}
	was := digest(base())
	for name, tc := range map[string]struct {
		change func(w *templating.Workload)
		same   bool
	}{
		"nothing":             {func(*templating.Workload) {}, true},
		"the cluster":         {func(w *templating.Workload) { w.Cluster.Name = "other" }, true},
		"the templates":       {func(w *templating.Workload) { w.Templates = []string{"t"} }, true},
		"a label":             {func(w *templating.Workload) { w.Labels["a"] = "x" }, false},
		"a label more":        {func(w *templating.Workload) { w.Labels["g"] = "" }, false},
		"the same words":      {func(w *templating.Workload) { w.Labels = map[string]string{"a": "b", "c": "d", "e": "f"} }, false},
		"an annotation":       {func(w *templating.Workload) { w.Annotations["x"] = "z" }, false},
		"a namespace's label": {func(w *templating.Workload) { w.NamespaceLabels = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := base()
			tc.change(w)
			if got := digest(w) == was; got != tc.same {
				t.Errorf("the same: %v", got)
			}
		})
	}
	if digest(nil) == was {
		t.Error("one that is gone is as one that is there")
	}
}
