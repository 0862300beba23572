package spoke

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sort"
	"sync"
	"time"

	"github.com/go-logr/logr"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/client/versioned"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/metrics"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// Options are the options of a Provider.
type Options struct {
	// HubID is the id of this hub. Only its own PrometheusRules are cached with their contents.
	HubID string
	// Stands reports whether an object stands for an AlertRule of this hub (rule.StandsFor). Only such objects
	// are counted. Nil means every object with the hub's label.
	Stands func(o metav1.Object) bool
	// UserAgent is the operator's user agent in requests to spokes.
	UserAgent string
	// Allow lists the features of kubeconfigs that are refused by default.
	Allow kubeconfig.Allowances
	// EvaluatorNamespaces are the namespaces of the spokes whose Prometheus and ThanosRuler objects may be
	// chosen to evaluate the rules. Empty means all.
	EvaluatorNamespaces []string
	// OperatorNamespaces are the namespaces in which prometheus-operator may run, other than that of the
	// evaluator.
	OperatorNamespaces []string
	// Intervals scales the intervals at which a spoke is checked.
	Intervals interval.Scale
	// Limits bound the memory that a spoke can use in the manager.
	Limits Limits
	// Memory bounds what all spokes together keep in memory, in bytes; 0 means no bound.
	Memory int64
	// Wrap wraps every transport to a spoke; it may be nil.
	Wrap transport.WrapperFunc
	// Log is the logger.
	Log logr.Logger
}

// Spoke is an engaged spoke as the controllers see it.
type Spoke struct {
	// Name is the spoke's name.
	Name string
	// Reader reads the spoke's cache. Copy its objects before you change them.
	Reader client.Reader
	// Live reads from the spoke, bypassing the cache: metadata of workloads and Namespaces, and
	// PrometheusRules.
	Live *live.Reader
	// Clock is what is known of the spoke's clock; nil for nothing.
	Clock *Clock
	// Identity verifies that the spoke is still the cluster that was engaged.
	Identity Identity
	// Rules writes PrometheusRules.
	Rules monitoring.Interface
	// RulesServed reports whether the spoke serves PrometheusRules. If not, Reader returns an error for them,
	// and WhyNot is the reason.
	RulesServed bool
	WhyNot      Finding
	// Since is when the spoke was engaged.
	Since time.Time
	// Kinds are the kinds of workloads, beside Deployments, that Reader has.
	Kinds []v1alpha1.WorkloadKind

	// Behind is a client for servers behind the API server at Server. Their answers do not count for the spoke's
	// health.
	Behind *http.Client
	Server *url.URL

	accounts typedcorev1.ServiceAccountsGetter
	// past reads from the spoke, bypassing the cache.
	past client.Reader

	allow   kubeconfig.Allowance
	patient func(context.Context) (context.Context, context.CancelFunc)
	// memory counts what is kept of the spoke's answers; it may be nil.
	memory *account
}

// Charge returns a new Charge for what the caller keeps of the spoke's answers. Close it when the caller no longer
// keeps anything of them.
func (s *Spoke) Charge() *Charge { return s.memory.charge() }

// Provider is the multicluster.Provider of registered spokes. Each spoke has its own goroutine, rooted in the
// manager's context. No call waits for a spoke.
type Provider struct {
	opts Options
	log  logr.Logger
	// started is closed when Start has the manager's context.
	started chan struct{}
	base    context.Context
	// pages bounds the lists of all spokes together.
	pages *pageBudget
	// memory bounds what all spokes keep together.
	memory *fleetMemory
	aware  multicluster.Aware
	// ready counts the controllers that have not started yet.
	ready sync.WaitGroup

	mu       sync.RWMutex
	entries  map[string]*entry
	indexes  []index
	circuits []*queue.Queue
	// answering are the controllers whose requests to spokes control how many keys may be in flight.
	answering map[string]bool
	life      Lifecycle
	members   members
	leaving   map[string]*departure
	changes   queue.Feed[change]
}

type index struct {
	obj   client.Object
	field string
	fn    client.IndexerFunc
}

var _ multicluster.ProviderRunnable = &Provider{}

var _ multicluster.Provider = &Provider{}

// NewProvider returns a Provider without spokes.
func NewProvider(o Options) *Provider {
	return &Provider{
		pages: &pageBudget{most: fleetPages}, memory: newFleetMemory(o.Memory), opts: o, log: o.Log, started: make(chan struct{}), entries: map[string]*entry{}, members: newMembers(),
		leaving: map[string]*departure{}, answering: map[string]bool{},
	}
}

// follow makes a queue follow the circuits of the spokes.
func (p *Provider) follow(q *queue.Queue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.circuits = append(p.circuits, q)
}

// Changes is a source of the names of spokes whose status has to be updated.
func (p *Provider) Changes() source.Source {
	return queue.Source(&p.changes, func(q workqueue.TypedRateLimitingInterface[reconcile.Request], c change) {
		q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKey{Name: c.spoke}}, c.after)
	})
}

// change is a spoke whose status has to be updated, and when.
type change struct {
	spoke string
	after time.Duration
}

// Changed requests an update of a spoke's status.
func (p *Provider) Changed(name string) { p.changes.Send(change{spoke: name}) }

// ChangedSoon is Changed for frequent changes: the update may wait for more of them.
func (p *Provider) ChangedSoon(name string) { p.changes.Send(change{name, gather}) }

// gather is how long ChangedSoon may delay an update.
const gather = 2 * time.Second

// Start implements multicluster.ProviderRunnable. Spokes can be engaged until ctx ends.
func (p *Provider) Start(ctx context.Context, aware multicluster.Aware) error {
	p.ready.Wait()
	p.base, p.aware = ctx, aware
	close(p.started)
	<-ctx.Done()
	return nil
}

// Get implements multicluster.Provider.
func (p *Provider) Get(_ context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if e, ok := p.entries[name.String()]; ok && e.cluster != nil {
		return e.cluster, nil
	}
	return nil, multicluster.ErrClusterNotFound
}

// IndexField implements multicluster.Provider. Call it before the first spoke is registered. An index on
// PrometheusRules applies only in spokes that serve them.
func (p *Provider) IndexField(_ context.Context, obj client.Object, field string, fn client.IndexerFunc) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.entries) > 0 {
		return fmt.Errorf("indexing %T by %s: a spoke is already registered", obj, field)
	}
	p.indexes = append(p.indexes, index{obj: obj, field: field, fn: fn})
	return nil
}

// Spoke returns an engaged spoke by name, or nil.
func (p *Provider) Spoke(name string) *Spoke {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if e, ok := p.entries[name]; ok {
		return e.spoke
	}
	return nil
}

// Spokes returns the engaged spokes, sorted by name.
func (p *Provider) Spokes() []*Spoke {
	p.mu.RLock()
	defer p.mu.RUnlock()
	out := make([]*Spoke, 0, len(p.entries))
	for _, e := range p.entries {
		if e.spoke != nil {
			out = append(out, e.spoke)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// Away reports whether an engaged spoke does not answer at present.
func (p *Provider) Away(name string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	e, ok := p.entries[name]
	return ok && e.open
}

// AwaySince reports whether an engaged spoke has been away at any time since then.
func (p *Provider) AwaySince(name string, since time.Time) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	e, ok := p.entries[name]
	return ok && (e.open || e.back.After(since))
}

// Queues returns the depth of the queues of the controllers that work on spokes.
func (p *Provider) Queues() []metrics.Queue {
	p.mu.RLock()
	queues := p.circuits
	p.mu.RUnlock()
	out := make([]metrics.Queue, 0, len(queues))
	for _, q := range queues {
		out = append(out, q.Depth())
	}
	return out
}

// RulesServed is a filter for watches of PrometheusRules.
func (p *Provider) RulesServed(name multicluster.ClusterName, _ cluster.Cluster) bool {
	s := p.Spoke(name.String())
	return s != nil && s.RulesServed
}

// Observation returns the last observation of a registered spoke, or nil.
func (p *Provider) Observation(name string) *Observation {
	p.mu.RLock()
	defer p.mu.RUnlock()
	e, ok := p.entries[name]
	if !ok {
		return nil
	}
	seen := e.observation()
	if seen != nil {
		seen.IdentityTime = p.members.changed[name]
	}
	return seen
}

// Evaluators returns the Prometheus and ThanosRuler objects of a registered spoke as last read.
func (p *Provider) Evaluators(name string) Evaluators {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if e, ok := p.entries[name]; ok {
		return e.evaluators
	}
	return Evaluators{}
}

// applyIndexes adds the indexes of one kind to a cache. That starts the kind's informer, so call it only when
// the kind is known to be served.
func (p *Provider) applyIndexes(ctx context.Context, cl cluster.Cluster, kind schema.GroupVersionKind) error {
	p.mu.RLock()
	indexes := p.indexes
	p.mu.RUnlock()
	for _, i := range indexes {
		if gvk, err := cl.GetClient().GroupVersionKindFor(i.obj); err != nil || gvk != kind {
			continue
		}
		if err := cl.GetFieldIndexer().IndexField(ctx, i.obj, i.field, i.fn); err != nil {
			return fmt.Errorf("indexing %T by %s: %w", i.obj, i.field, err)
		}
	}
	return nil
}
