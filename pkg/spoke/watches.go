package spoke

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
)

// Limits on opening watches of a kind again: fast enough after an outage, and at most once in 2 s in the long
// run. client-go would retry endlessly and at once if a spoke answers every watch with 410 (Gone).
const (
	watchesPerSecond = 0.5
	watchesAtOnce    = 5
)

// newInformer returns client-go's informer with that limit. The limit wraps the guard, so that the guard
// decides where a watch begins after the wait.
func newInformer(lw toolscache.ListerWatcher, o runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	inner, limit := toolscache.ToListerWatcherWithContext(lw), flowcontrol.NewTokenBucketRateLimiter(watchesPerSecond, watchesAtOnce)
	return toolscache.NewSharedIndexInformer(toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{
		ListWithContextFunc: inner.ListWithContext,
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if err := limit.Wait(ctx); err != nil {
				return nil, err //nolint:wrapcheck // it is the context's
			}
			return inner.WatchWithContext(ctx, options)
		},
	}, lw), o, resync, indexers)
}
