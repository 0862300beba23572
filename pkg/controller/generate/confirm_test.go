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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// live is a spoke past its cache, which has an answer to everything.
type live struct {
	client.Reader
	get func(key client.ObjectKey, o client.Object) error
}

func (l live) Get(ctx context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if _, bounded := ctx.Deadline(); !bounded {
		return errors.New("the read has no bound")
	}
	return l.get(key, o)
}

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
	}{
		"it is gone":                       {get: answer(apierrors.NewNotFound(deployments, "web")), goes: true},
		"the cache lags, or lies":          {get: answer(nil), retry: confirmRetry},
		"it is being deleted":              {get: func(_ client.ObjectKey, o client.Object) error { o.SetDeletionTimestamp(new(metav1.Now())); return nil }, goes: true},
		"a proxy's 404":                    {get: answer(proxy), fails: true},
		"a 404 without details":            {get: answer(bare), fails: true},
		"a 404 for another object":         {get: answer(apierrors.NewNotFound(deployments, "other")), fails: true},
		"a 404 for another resource":       {get: answer(apierrors.NewNotFound(appsv1.Resource("replicasets"), "web")), fails: true},
		"forbidden":                        {get: answer(apierrors.NewForbidden(deployments, "web", errors.New("RBAC"))), fails: true},
		"an error":                         {get: answer(apierrors.NewInternalError(errors.New("etcd"))), fails: true},
		"no answer":                        {get: answer(context.DeadlineExceeded), fails: true},
		"it is there, and something other": {there: true, get: answer(errors.New("nobody has to ask")), goes: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPruning(t, 1)
			s := &spoke.Spoke{Name: "spoke", Live: live{get: func(key client.ObjectKey, o client.Object) error {
				if key.String() != "shop/web" {
					t.Errorf("asked for %s", key)
				}
				return tc.get(key, o)
			}}}
			var w *rule.Workload
			if tc.there {
				w = &rule.Workload{}
			}
			got, retry, err := p.confirmed(t.Context(), s, client.ObjectKey{Namespace: "shop", Name: "web"}, w, []doomed{{rule: made()}})
			if (len(got) == 1) != tc.goes || retry != tc.retry || (err != nil) != tc.fails {
				t.Errorf("got %v, %v, %v", got, retry, err)
			}
		})
	}
	t.Run("nothing to delete", func(t *testing.T) {
		if got, retry, err := newPruning(t, 0).confirmed(t.Context(), &spoke.Spoke{}, client.ObjectKey{}, nil, nil); len(got) > 0 || retry != 0 || err != nil {
			t.Errorf("got %v, %v, %v", got, retry, err)
		}
	})
}

// emptied are the engaged spokes: one, whose cache lists nothing.
type emptied struct{ one spoke.Spoke }

func (e *emptied) Spoke(string) *spoke.Spoke { return &e.one }
func (e *emptied) Spokes() []*spoke.Spoke    { return []*spoke.Spoke{&e.one} }
func (e *emptied) ChangedSoon(string)        {}

// A list that is answered with 200, and is empty, deletes nothing: what goes is gone by
// the spoke's own word, and the brake has its say, too.
func TestEmptyList(t *testing.T) {
	for name, tc := range map[string]struct {
		answer      func(name string) error
		left        int
		fails, held int
	}{
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
				Name: "spoke", Reader: fake.NewClientBuilder().WithScheme(spoke.Scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).Build(),
				Live: live{get: func(key client.ObjectKey, _ client.Object) error { return tc.answer(key.Name) }},
			}}
			fails, held := 0, 0
			for n := range 60 {
				req := mcreconcile.Request{ClusterName: "spoke"}
				req.Namespace, req.Name = "shop", fmt.Sprintf("web-%d", n)
				result, err := p.Reconcile(t.Context(), req)
				switch {
				case err != nil:
					fails++
				case result.RequeueAfter > confirmRetry:
					held++
				}
			}
			if p.left() != tc.left || fails != tc.fails || held != tc.held {
				t.Errorf("%d are left, %d failed, %d are held", p.left(), fails, held)
			}
		})
	}
}
