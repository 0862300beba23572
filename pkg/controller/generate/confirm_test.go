package generate

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// server is a spoke's API server with an answer to everything.
type server struct {
	client.Reader
	get func(key client.ObjectKey, o client.Object) error
}

func (l server) Get(ctx context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if _, bounded := ctx.Deadline(); !bounded {
		return errors.New("the read has no bound")
	}
	return l.get(key, o)
}

// answering returns a spoke's API server.
func answering(get func(key client.ObjectKey, o client.Object) error) *live.Reader {
	return live.New(server{get: get}, clocktesting.NewFakeClock(time.Unix(1e9, 0)))
}

// identity is the known identity of a spoke.
type identity struct {
	settled, confirmed error
	// asked counts the reads.
	asked int
}

func (i *identity) Settle(context.Context) error { return i.settled }

func (i *identity) Confirm(ctx context.Context) error {
	if _, bounded := ctx.Deadline(); !bounded {
		return errors.New("the read has no bound")
	}
	i.asked++
	return i.confirmed
}

var errElsewhere = &spoke.IdentityError{Spoke: "spoke", Was: "here", Is: "there"}

var deployments = appsv1.Resource("deployments")

func TestConfirmed(t *testing.T) {
	answer := func(err error) func(client.ObjectKey, client.Object) error {
		return func(client.ObjectKey, client.Object) error { return err }
	}
	proxy := apierrors.NewGenericServerResponse(404, "GET", deployments, "web", "404 page not found", 0, true)
	bare := &apierrors.StatusError{ErrStatus: metav1.Status{Code: 404, Reason: metav1.StatusReasonNotFound}}
	for name, tc := range map[string]struct {
		get   func(key client.ObjectKey, o client.Object) error
		there bool // in the cache
		goes  bool
		retry time.Duration
		fails bool
		// elsewhere is the error of Confirm.
		elsewhere error
	}{
		"it is gone from another cluster":   {get: answer(apierrors.NewNotFound(deployments, "web")), elsewhere: errElsewhere, fails: true},
		"it ends in another cluster":        {get: func(_ client.ObjectKey, o client.Object) error { o.SetDeletionTimestamp(new(metav1.Now())); return nil }, elsewhere: errElsewhere, fails: true},
		"which cluster it is can't be read": {get: answer(apierrors.NewNotFound(deployments, "web")), elsewhere: apierrors.NewNotFound(deployments, "web"), fails: true},
		"it is gone":                        {get: answer(apierrors.NewNotFound(deployments, "web")), goes: true},
		"the cache lags, or lies":           {get: answer(nil), retry: live.BehindRetry},
		"it is being deleted":               {get: func(_ client.ObjectKey, o client.Object) error { o.SetDeletionTimestamp(new(metav1.Now())); return nil }, goes: true},
		"a proxy's 404":                     {get: answer(proxy), fails: true},
		"a 404 without details":             {get: answer(bare), fails: true},
		"a 404 for another object":          {get: answer(apierrors.NewNotFound(deployments, "other")), fails: true},
		"a 404 for another resource":        {get: answer(apierrors.NewNotFound(appsv1.Resource("replicasets"), "web")), fails: true},
		"forbidden":                         {get: answer(apierrors.NewForbidden(deployments, "web", errors.New("RBAC"))), fails: true},
		"an error":                          {get: answer(apierrors.NewInternalError(errors.New("etcd"))), fails: true},
		"no answer":                         {get: answer(context.DeadlineExceeded), fails: true},
		"it is there, and something other":  {there: true, get: answer(errors.New("nobody has to ask")), goes: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPruning(t, 1)
			id := &identity{confirmed: tc.elsewhere}
			s := &spoke.Spoke{Name: "spoke", Identity: id, Live: answering(func(key client.ObjectKey, o client.Object) error {
				if key.String() != "shop/web" && (key.String() != "/shop" || tc.goes) {
					t.Errorf("asked for %s", key)
				}
				return tc.get(key, o)
			})}
			var w *templating.Workload
			if tc.there {
				w = &templating.Workload{Kind: v1alpha1.DeploymentKind}
			}
			got, retry, err := p.confirmed(t.Context(), s, rule.Key{Kind: "Deployment", Namespace: "shop", Name: "web"}, w, []doomed{{rule: made()}})
			if (len(got) == 1) != tc.goes || retry != tc.retry || (err != nil) != tc.fails {
				t.Errorf("got %v, %v, %v", got, retry, err)
			}
			if tc.elsewhere != nil && !errors.Is(err, tc.elsewhere) {
				t.Errorf("got %v", err)
			}
			if (id.asked > 0) != (tc.goes && !tc.there || tc.elsewhere != nil) {
				t.Errorf("which cluster it is was read %d times", id.asked)
			}
		})
	}
	t.Run("nothing to delete", func(t *testing.T) {
		if got, retry, err := newPruning(t, 0).confirmed(t.Context(), &spoke.Spoke{}, rule.Key{}, nil, nil); len(got) > 0 || retry != 0 || err != nil {
			t.Errorf("got %v, %v, %v", got, retry, err)
		}
	})
}

// emptied is one engaged spoke whose cache lists nothing.
type emptied struct{ one spoke.Spoke }

func (e *emptied) Spoke(name string) *spoke.Spoke {
	if name != e.one.Name {
		return nil
	}
	return &e.one
}
func (e *emptied) Spokes() []*spoke.Spoke { return []*spoke.Spoke{&e.one} }
func (e *emptied) ChangedSoon(string)     {}
func (e *emptied) KindsChanged()          {}

// An empty list with status 200 deletes nothing: each Deployment must be gone according to the spoke's API
// server, and the brake applies as well.
func TestEmptyList(t *testing.T) {
	for name, tc := range map[string]struct {
		answer      func(name string) error
		left        int
		fails, held int
		doubt       error // about which cluster the spoke is
	}{
		"of another cluster":        {answer: func(name string) error { return apierrors.NewNotFound(deployments, name) }, left: 60, fails: 60, doubt: errElsewhere},
		"the Deployments are there": {answer: func(string) error { return nil }, left: 60},
		"a proxy answers": {
			answer: func(name string) error {
				return apierrors.NewGenericServerResponse(404, "GET", deployments, name, "", 0, true)
			},
			left: 60, fails: 60,
		},
		"they are gone": {answer: func(name string) error { return apierrors.NewNotFound(deployments, name) }, left: 40, held: 40},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPruning(t, 60)
			if err := p.Hub.Create(t.Context(), &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "spoke"}}); err != nil {
				t.Fatal(err)
			}
			p.Spokes = &emptied{one: spoke.Spoke{
				Name: "spoke", Identity: &identity{settled: tc.doubt}, Reader: fake.NewClientBuilder().WithScheme(spoke.Scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).Build(),
				Live: answering(func(key client.ObjectKey, _ client.Object) error { return tc.answer(key.Name) }),
			}}
			fails, held := 0, 0
			for n := range 60 {
				req := queue.Request{Kind: string(v1alpha1.DeploymentKind), ClusterName: "spoke"}
				req.Namespace, req.Name = "shop", fmt.Sprintf("web-%d", n)
				result, err := p.Reconcile(t.Context(), req)
				switch {
				case err != nil:
					fails++
				case result.RequeueAfter > live.BehindRetry:
					held++
				}
			}
			if p.left() != tc.left || fails != tc.fails || held != tc.held {
				t.Errorf("%d are left, %d failed, %d are held", p.left(), fails, held)
			}
		})
	}
}
