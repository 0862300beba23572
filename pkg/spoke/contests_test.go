package spoke

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// noRules are on the hub.
type noRules struct{ Rules }

func (noRules) Refused(string) int                                       { return 0 }
func (noRules) Doomed(context.Context, string) ([]string, bool)          { return nil, true }
func (noRules) Placed(context.Context, string) (rules []string, _ error) { return nil, nil }

// contestedFor is a contest that is to be asked for again after a while.
type contestedFor time.Duration

func (c contestedFor) InSpoke(string) (message string, again time.Duration) {
	return "somebody changes it back", time.Duration(c)
}

// No event tells of the end of a contest.
func TestContestsAreAskedForAgain(t *testing.T) {
	for _, c := range []struct {
		contests Contests
		again    time.Duration
	}{{nil, 0}, {contestedFor(7 * time.Second), 7 * time.Second}} {
		r, _ := registrar(t, memberOf("s", "c"))
		r.Rules, r.Contests = noRules{}, c.contests
		result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "s"}})
		if err != nil || result.RequeueAfter != c.again {
			t.Errorf("it is reconciled again after %v, %v; want %v", result.RequeueAfter, err, c.again)
		}
	}
}
