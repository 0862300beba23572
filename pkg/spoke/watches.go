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

// These bound how often a kind is watched anew: as often as it takes after an outage,
// and no more than once in 2 s on the long run. client-go would try again at once, and
// without end, where a spoke answers every watch by 410 (Gone).
const (
	watchesPerSecond = 0.5
	watchesAtOnce    = 5
)

// newInformer returns client-go's informer, and bounds how often a kind is watched anew. It is put
// around the guard's watches: the guard decides where a watch begins when the wait is over.
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
