package hub

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	hubcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// Tenants finds the tenant to which an AlertRule belongs. It watches the metadata of the hub's namespaces from the
// first time on that a SpokeCluster selects tenants by labels. nil knows no tenants, so that spokes take every
// AlertRule. Use NewTenants to create one.
type Tenants struct {
	ctx   context.Context //nolint:containedctx // the life of the process; the watch begins when it is needed
	cache hubcache.Cache
	own   []string

	changes queue.Feed[string]

	mu       sync.Mutex
	informer hubcache.Informer
}

// NewTenants returns Tenants with a cache of the hub, until ctx ends. own are the operator's own namespaces.
func NewTenants(ctx context.Context, c hubcache.Cache, own ...string) *Tenants {
	return &Tenants{ctx: ctx, cache: c, own: own}
}

// Changes passes on the namespaces whose labels changed, or "" when those of all namespaces become known.
func (t *Tenants) Changes() *queue.Feed[string] {
	if t == nil {
		return nil
	}
	return &t.changes
}

// Ask sets the tenant of a namespace of the hub in a spoke, as far as the spoke depends on it. past reads past
// the cache; nil means that the cache is enough. known is false if the labels of the namespace decide and are not
// known.
func (t *Tenants) Ask(ctx context.Context, past Getter, namespace string, c *rule.Cluster) (known bool, err error) {
	if t == nil || slices.Contains(t.own, namespace) {
		return true, nil
	}
	c.Tenant = &rule.Tenant{Name: namespace}
	if !c.ByTenantLabels(namespace) {
		return true, nil
	}
	if past == nil {
		synced, err := t.watch()
		if err != nil || !synced {
			return false, err
		}
		past = t.cache
	}
	ns := spoke.NamespaceMetadata()
	if err := past.Get(ctx, client.ObjectKey{Name: namespace}, ns); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return false, nil
		}
		return false, fmt.Errorf("reading namespace %s of the hub for spec.tenants.selector of SpokeCluster %s: %w", namespace, c.Name, err)
	}
	c.Tenant.Labels, c.Tenant.Created = ns.Labels, ns.CreationTimestamp.Time
	return true, nil
}

// syncPoll is how often the first list of namespaces is checked for.
const syncPoll = 100 * time.Millisecond

// watch begins to watch the namespaces of the hub, and reports whether their labels are known.
func (t *Tenants) watch() (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.informer != nil {
		return t.informer.HasSynced(), nil
	}
	informer, err := t.cache.GetInformer(t.ctx, spoke.NamespaceMetadata(), hubcache.BlockUntilSynced(false))
	if err != nil {
		return false, fmt.Errorf("watching the namespaces of the hub for spec.tenants.selector of SpokeClusters: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { t.notify(o, nil) },
		UpdateFunc: func(before, after any) { t.notify(after, before) },
	})
	if err != nil {
		return false, fmt.Errorf("watching the namespaces of the hub: %w", err)
	}
	t.informer = informer
	go func() {
		err := wait.PollUntilContextCancel(t.ctx, syncPoll, true, func(context.Context) (bool, error) { return informer.HasSynced(), nil })
		if err == nil {
			t.tell("")
		}
	}()
	return informer.HasSynced(), nil
}

// notify reports a namespace that is new or has other labels.
func (t *Tenants) notify(after, before any) {
	is, ok := after.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	if was, ok := before.(*metav1.PartialObjectMetadata); !ok || !maps.Equal(was.Labels, is.Labels) {
		t.tell(is.Name)
	}
}

func (t *Tenants) tell(namespace string) {
	t.mu.Lock()
	synced := t.informer != nil && t.informer.HasSynced()
	t.mu.Unlock()
	if synced { // otherwise all are about to be reported together
		t.changes.Send(namespace)
	}
}
