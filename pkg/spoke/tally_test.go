package spoke

import (
	"testing"
	"time"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

func TestTally(t *testing.T) {
	tl, start, now := &tally{}, time.Unix(0, 0), Counts{Known: true}
	beat := func(seconds int) (Counts, bool) {
		return tl.next(now, start.Add(time.Duration(seconds)*time.Second), firstInterval)
	}
	if c := tl.first(now, start); !c.First || !c.Known || c.Deployments != 0 {
		t.Fatalf("first: %+v", c)
	}
	if _, news := beat(10); news {
		t.Error("published though nothing changed")
	}
	now.Deployments = 1
	if c, news := beat(20); !news || c.Deployments != 1 || c.First {
		t.Errorf("a change: %+v, %v", c, news)
	}
	if _, news := beat(500); news {
		t.Error("published though nothing changed")
	}
}

func TestTallyCorrectsAnOldStatus(t *testing.T) {
	old := int32(7)
	status := &v1alpha1.SpokeClusterStatus{Deployments: &old, Rules: &old}
	tl, start := &tally{}, time.Unix(0, 0)
	tl.first(Counts{Known: true}, start).into(status)
	if *status.Deployments != 7 {
		t.Error("the first counts replaced the status")
	}
	c, news := tl.next(Counts{Known: true}, start.Add(firstInterval), firstInterval)
	c.into(status)
	if !news || *status.Deployments != 0 {
		t.Errorf("a minute later: %v, %+v", news, c)
	}
}
