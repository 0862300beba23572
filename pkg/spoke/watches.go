package spoke

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/rulefleet/rulefleet/pkg/lean"
)

// Limits on opening watches of a kind again: fast enough after an outage, and at most once in 2 s in the long
// run. client-go would retry endlessly and at once if a spoke answers every watch with 410 (Gone).
const (
	watchesPerSecond = 0.5
	watchesAtOnce    = 5
	// refusedRetry is the longest time between two attempts to list or to watch a kind that is refused.
	refusedRetry = 10 * time.Second
)

// newInformer returns client-go's informer with that limit, whose lists and watches wait while the API server refuses
// them. client-go would list a kind again after a refused watch, and wait for up to a minute. Both wrap the guard, so
// that the guard decides where a watch begins after the wait.
func newInformer(lw toolscache.ListerWatcher, o runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	inner, limit := toolscache.ToListerWatcherWithContext(lw), flowcontrol.NewTokenBucketRateLimiter(watchesPerSecond, watchesAtOnce)
	return lean.Indexed(toolscache.NewSharedIndexInformer(toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return untilAllowed(ctx, func() (runtime.Object, error) { return inner.ListWithContext(ctx, options) })
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return untilAllowed(ctx, func() (watch.Interface, error) {
				if err := limit.Wait(ctx); err != nil {
					return nil, err //nolint:wrapcheck // it is the context's
				}
				return inner.WatchWithContext(ctx, options)
			})
		},
	}, lw), o, resync, indexers))
}

// untilAllowed repeats a request while the API server answers that the kind is not served, or that the account may not
// read it. recheck shows that.
func untilAllowed[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 100, Cap: refusedRetry}
	for {
		out, err := ask()
		if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) && !apierrors.IsUnauthorized(err) {
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, err
		case <-time.After(backoff.Step()):
		}
	}
}
