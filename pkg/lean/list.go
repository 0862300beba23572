package lean

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
)

// Unstreamed returns a ListerWatcher of which client-go uses the list. It would otherwise stream a list as events of a
// watch (KEP-3157), and decode each of them three times, one after the other.
func Unstreamed(lw *toolscache.ListWatch) toolscache.ListerWatcher {
	return toolscache.ToListWatcherWithWatchListSemantics(lw, unstreamed{})
}

type unstreamed struct{}

// IsWatchListSemanticsUnSupported is the method that client-go checks for.
func (unstreamed) IsWatchListSemanticsUnSupported() bool { return true }

// Paged lists all objects in pages. It sends no resourceVersion: for version 0, an API server sends all objects in one
// answer. If a page fails, the list fails, and client-go begins it again.
func Paged(ctx context.Context, options metav1.ListOptions, page pager.ListPageFunc) (runtime.Object, error) {
	p := pager.New(page)
	p.FullListIfExpired = false // that would be one answer with all objects
	all, _, err := p.ListWithAlloc(ctx, metav1.ListOptions{LabelSelector: options.LabelSelector, FieldSelector: options.FieldSelector})
	return all, err //nolint:wrapcheck // its caller knows client-go's
}

// Page makes the AlertRules and RulePacks of a page lean, so that no more than one page is in memory as it was read.
func Page(page runtime.Object) error {
	return meta.EachListItem(page, func(o runtime.Object) error {
		if _, err := AlertRule(o); err != nil {
			return err
		}
		_, err := RulePack(o)
		return err
	})
}
