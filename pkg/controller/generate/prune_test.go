package generate

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/sets"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// pruning is a hub with AlertRules of a spoke's Deployments web-0 and so on.
type pruning struct {
	*testing.T
	*Reconciler

	clock  *testingclock.FakePassiveClock
	refuse error // what a deletion is answered with
}

type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, fn client.IndexerFunc) error {
	i.WithIndex(o, field, fn)
	return nil
}

func newPruning(t *testing.T, rules int) *pruning {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	// The converter saves the fake client the creation of all Kubernetes types.
	builder := fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter())
	if err := hub.SetupIndexes(t.Context(), indexer{builder}, "hub", "rulefleet-generated"); err != nil {
		t.Fatal(err)
	}
	for n := range rules {
		ar := made()
		ar.Name, ar.UID, ar.Spec.WorkloadRef.Name = fmt.Sprintf("down-%d", n), types.UID(fmt.Sprint(n)), fmt.Sprintf("web-%d", n)
		builder.WithObjects(ar)
	}
	p := &pruning{T: t, clock: testingclock.NewFakePassiveClock(time.Unix(1e9, 0))}
	builder.WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if p.refuse != nil {
				return p.refuse
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	p.Reconciler = NewReconciler(Options{
		Hub: builder.Build(), Namespace: "rulefleet-generated", Brake: brake.New(p.clock, 10*time.Minute), Witness: hub.NewWitness(),
		Validator: validation.New(validation.Options{GeneratedNamespace: "rulefleet-generated"}),
	})
	p.Guard = guarded(p.Hub)
	return p
}

// guarded returns a Guard with this client.
func guarded(reader client.Reader) hub.Guard {
	c := testingclock.NewFakeClock(time.Unix(1e9, 0))
	return hub.Guard{Live: live.New(reader, c), Kinds: hub.NewKinds(reader, nil, hub.RecordKeys{}, c, nil)}
}

// prune prunes the AlertRules of Deployment n, or withdraws their deletion.
func (p *pruning) prune(n int, lost bool) (time.Duration, error) {
	p.Helper()
	req := queue.Request{Kind: string(v1alpha1.DeploymentKind), ClusterName: "spoke"}
	req.Namespace, req.Name = "shop", fmt.Sprintf("web-%d", n)
	existing, err := hub.GeneratedFor(p.Context(), p.Hub, "spoke", hub.KeyOf(req))
	if err != nil {
		p.Fatal(err)
	}
	var rules []doomed
	for i := range existing {
		if lost {
			rules = append(rules, doomed{rule: &existing[i]})
		}
	}
	return p.Reconciler.prune(p.Context(), req, rules)
}

func (p *pruning) mass(from, to int) (held int) {
	p.Helper()
	for n := from; n < to; n++ {
		wait, err := p.prune(n, true)
		if err != nil {
			p.Fatal(err)
		}
		if wait > 0 {
			held++
		}
	}
	return held
}

// left returns the number of AlertRules.
func (p *pruning) left() int {
	p.Helper()
	all, err := hub.GeneratedOn(p.Context(), p.Hub, "spoke")
	if err != nil {
		p.Fatal(err)
	}
	return len(all)
}

func TestPrune(t *testing.T) {
	for name, tc := range map[string]struct{ rules, held int }{"a mass": {60, 40}, "a few": {20, 0}, "a mass of many": {200, 150}} {
		t.Run(name, func(t *testing.T) {
			p := newPruning(t, tc.rules)
			if held := p.mass(0, tc.rules); held != tc.held || p.left() != tc.held {
				t.Errorf("%d are held, and there are %d", held, p.left())
			}
			p.clock.SetTime(p.clock.Now().Add(10 * time.Minute))
			if held := p.mass(0, tc.rules); held != 0 || p.left() != 0 {
				t.Errorf("later %d are held, and there are %d", held, p.left())
			}
		})
	}
}

// An AlertRule that is required again is no longer held.
func TestPruneTakenBack(t *testing.T) {
	p := newPruning(t, 60)
	p.mass(0, 60)
	for n := range 60 {
		if wait, err := p.prune(n, false); wait != 0 || err != nil {
			t.Errorf("got %v, %v", wait, err)
		}
	}
	if n := p.Brake.Acknowledge("spoke", nil); n != 0 {
		t.Errorf("%d are held", n)
	}
}

// An AlertRule that was changed since it was read stays, because it may be required again.
func TestPruneOutdated(t *testing.T) {
	p := newPruning(t, 1)
	seen, err := hub.GeneratedOn(t.Context(), p.Hub, "spoke")
	if err != nil {
		t.Fatal(err)
	}
	now := seen[0].DeepCopy()
	now.Spec.Expr = "up == 1"
	if err := p.Hub.Update(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if deleted, wait, err := p.remove(t.Context(), &seen[0]); deleted || wait != staleRetry || err != nil || p.left() != 1 {
		t.Errorf("got %v, %v, %v, and %d are left", deleted, wait, err, p.left())
	}
}

// A deleted AlertRule releases its PrometheusRules; one that could not be deleted does not.
func TestPruneVouches(t *testing.T) {
	resource := v1alpha1.GroupVersion.WithResource("alertrules").GroupResource()
	for name, tc := range map[string]struct {
		refuse  error
		fails   bool
		vouched bool
	}{
		"deleted":          {vouched: true},
		"it was gone":      {refuse: apierrors.NewNotFound(resource, "down"), vouched: true},
		"it was changed":   {refuse: apierrors.NewConflict(resource, "down", errors.New("precondition"))},
		"it can't be done": {refuse: errors.New("no answer"), fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPruning(t, 40)
			p.refuse = tc.refuse
			for _, held := range []bool{true, false} {
				for n := range 40 {
					if _, err := p.prune(n, true); (err != nil) != tc.fails && !(held && n >= 20) {
						t.Fatal(err)
					}
				}
				p.Brake.Acknowledge("spoke", nil)
			}
			held := 0
			for n := range 40 {
				key := rule.AlertRuleKey("rulefleet-generated", fmt.Sprintf("down-%d", n))
				answer, err := p.Brake.Ask(brake.Question{
					Hop: brake.Distribute, Spoke: "spoke", Owner: key, Deletions: []brake.Deletion{{Key: key}},
					Holds: func() (sets.Set[rule.Key], error) { return nil, nil },
				})
				if err != nil {
					t.Fatal(err)
				}
				held += answer.Held.Len()
			}
			if (held == 0) != tc.vouched {
				t.Errorf("%d are held", held)
			}
		})
	}
}

// What is kept of a workload is dropped when its kind is not read any more.
func TestUnread(t *testing.T) {
	p := newPruning(t, 0)
	req := queue.Request{Kind: string(v1alpha1.StatefulSetKind), ClusterName: "spoke"}
	req.Namespace, req.Name = "shop", "db"
	key := hub.KeyOf(req)
	p.quota.changed = nil
	p.quota.record("spoke", key, true)
	p.Spokes = &emptied{one: spoke.Spoke{Name: "spoke"}}
	if _, err := p.Reconcile(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if n, _ := p.quota.lackingOf("spoke"); n != 0 {
		t.Errorf("%d lack AlertRules", n)
	}
}
