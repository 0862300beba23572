package spoke

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// runs is a source that notes the contexts it is run by.
type runs struct {
	err      error
	contexts []context.Context
}

func (r *runs) ForCluster(multicluster.ClusterName, cluster.Cluster) (source.TypedSource[queue.Request], bool, error) {
	return source.TypedFunc[queue.Request](func(ctx context.Context, _ WorkQueue) error {
		r.contexts = append(r.contexts, ctx)
		return r.err
	}), true, nil
}

// TestEngagement runs in a bubble, which fails if a goroutine is left in it.
func TestEngagement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		controller, stop := context.WithCancel(t.Context())
		s := &runs{}
		e := &engager{sources: []Source{s}, engaged: map[multicluster.ClusterName]*engagement{}}
		e.watch = func(src source.TypedSource[queue.Request]) error { return src.Start(controller, nil) }
		engage := func(ctx context.Context) (run context.Context) {
			t.Helper()
			if err := e.Engage(ctx, "a", nil); err != nil {
				t.Fatal(err)
			}
			return s.contexts[len(s.contexts)-1]
		}
		first, end := context.WithCancel(t.Context())
		run := engage(first)
		end()
		synctest.Wait()
		if run.Err() == nil || len(e.engaged) != 0 {
			t.Error("a source outlives its spoke")
		}
		run = engage(t.Context())
		again := engage(t.Context())
		synctest.Wait()
		if run.Err() == nil || again.Err() != nil || len(e.engaged) != 1 {
			t.Error("a spoke that is engaged anew is watched twice, or not at all")
		}
		stop()
		synctest.Wait()
		if again.Err() == nil {
			t.Error("a source outlives its controller")
		}
		s.err = errors.New("no")
		if err := e.Engage(t.Context(), "a", nil); !errors.Is(err, s.err) {
			t.Errorf("the error is %v", err)
		}
	})
}
