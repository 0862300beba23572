package generate

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// losing is a hub past its cache, on which an AlertRule of Deployment web may have lost its
// ground. All was made at the same time.
type losing struct {
	*pruning

	rule     *v1alpha1.AlertRule
	template *v1alpha1.AlertRuleTemplate
	member   *v1alpha1.SpokeCluster
	// defined is when the kinds were.
	defined   time.Time
	liveClock *clocktesting.FakeClock
	// fails has the kinds that can't be read.
	fails map[string]bool
}

var madeThen = metav1.NewTime(time.Unix(1e9, 0))

func newLosing(t *testing.T) *losing {
	t.Helper()
	l := &losing{pruning: newPruning(t, 0), rule: made(), defined: madeThen.Time, liveClock: clocktesting.NewFakeClock(madeThen.Time), fails: map[string]bool{}}
	l.rule.Name = rule.GeneratedName("down", "spoke", "shop", "web")
	l.rule.ManagedFields = []metav1.ManagedFieldsEntry{owned(v1alpha1.FieldManager, metav1.ManagedFieldsOperationApply, `{}`)}
	l.template = &v1alpha1.AlertRuleTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "down", UID: "template"},
		Spec: v1alpha1.AlertRuleTemplateSpec{
			AlertSpec: v1alpha1.AlertSpec{Alert: "Down", Expr: "up == 0"},
			Clusters:  &v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}},
		},
	}
	l.member = &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "spoke", UID: "member"}}
	for _, o := range []client.Object{l.rule, l.template, l.member} {
		o.SetCreationTimestamp(madeThen)
	}
	return l
}

// decide puts the hub together, and decides about the AlertRule by a cache that has no
// ground for it.
func (l *losing) decide() (doomed, time.Duration, error) {
	l.Helper()
	for _, o := range []client.Object{l.template, l.member} {
		if o.GetName() != "" {
			if err := l.Hub.Create(l.Context(), o); err != nil {
				l.Fatal(err)
			}
		}
	}
	past := interceptor.NewClient(l.Hub.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			switch o.(type) {
			case *v1alpha1.AlertRuleTemplate:
				if l.fails["template"] {
					return errors.New("no answer")
				}
			case *v1alpha1.SpokeCluster:
				if l.fails["member"] {
					return errors.New("no answer")
				}
			default:
				o.SetCreationTimestamp(metav1.NewTime(l.defined))
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	l.Guard = hub.Guard{Reader: past, Live: hub.NewLive(past, l.liveClock)}
	return l.unfounded(l.Context(), &rule.Workload{Cluster: rule.Cluster{Name: "spoke"}, Namespace: "shop", Name: "web"}, l.rule)
}

func (l *losing) templateGone() { l.template = &v1alpha1.AlertRuleTemplate{} }

func TestUnfounded(t *testing.T) {
	earlier, later := metav1.NewTime(madeThen.Add(-time.Second)), metav1.NewTime(madeThen.Add(time.Second))
	deleted := func(l *losing, made metav1.Time) {
		h := l.onTemplate("", nil)
		gone := l.template.DeepCopy()
		gone.CreationTimestamp = made
		l.Spokes = nobody{}
		h.Delete(l.Context(), event.TypedDeleteEvent[client.Object]{Object: gone}, nil)
		l.templateGone()
	}
	updated := func(l *losing, h spoke.EventHandler, before, after client.Object) {
		l.Spokes = nobody{}
		h.Update(l.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: before, ObjectNew: after}, nil)
	}
	for name, tc := range map[string]struct {
		with    func(l *losing)
		stays   bool
		suspect bool
		fails   bool
	}{
		"the template does not match by a label": {with: func(*losing) {}},
		"and the SpokeCluster was made anew":     {with: func(l *losing) { l.member.CreationTimestamp = later }, suspect: true},
		"and the AlertRule is from a backup":     {with: func(l *losing) { l.rule.ManagedFields = nil }, suspect: true},
		"and the label was seen to go": {with: func(l *losing) {
			l.member.CreationTimestamp = later
			labeled := l.member.DeepCopy()
			labeled.Labels = map[string]string{"tier": "gold"}
			updated(l, l.onSpokeCluster("", nil), labeled, l.member)
		}},
		"and the label of a former one was seen to go": {with: func(l *losing) {
			l.member.CreationTimestamp = later
			labeled, bare := l.member.DeepCopy(), l.member.DeepCopy()
			labeled.Labels, labeled.UID, bare.UID = map[string]string{"tier": "gold"}, "former", "former"
			updated(l, l.onSpokeCluster("", nil), labeled, bare)
		}, suspect: true},
		"and the template was seen to change": {with: func(l *losing) {
			l.member.CreationTimestamp = later
			before := l.template.DeepCopy()
			before.Spec.Clusters = nil
			updated(l, l.onTemplate("", nil), before, l.template)
		}},
		"the template is disabled": {with: func(l *losing) { l.member.CreationTimestamp, l.template.Spec.State = later, v1alpha1.Disabled }},
		"the template matches":     {with: func(l *losing) { l.template.Spec.Clusters = nil }, stays: true},
		"the label is there":       {with: func(l *losing) { l.member.Labels = map[string]string{"tier": "gold"} }, stays: true},
		"the template is invalid":  {with: func(l *losing) { l.template.Spec.Expr = "(" }, stays: true},
		"there is no SpokeCluster": {with: func(l *losing) { l.member = &v1alpha1.SpokeCluster{} }, stays: true},
		"it has a name of its own": {with: func(l *losing) { l.template.Spec.Clusters, l.rule.Name = nil, "copy" }},
		"the template is gone":     {with: (*losing).templateGone},
		"and the AlertRule is older than the kind": {with: func(l *losing) {
			l.templateGone()
			l.rule.CreationTimestamp = earlier
		}, suspect: true},
		"and is younger": {with: func(l *losing) {
			l.templateGone()
			l.rule.CreationTimestamp = later
		}},
		"and comes from a backup": {with: func(l *losing) {
			l.templateGone()
			l.rule.ManagedFields = nil
		}, suspect: true},
		"and was seen to be deleted": {with: func(l *losing) {
			deleted(l, madeThen)
			l.rule.CreationTimestamp = earlier
		}},
		"and was seen to go with its kind": {with: func(l *losing) {
			deleted(l, earlier)
			l.rule.CreationTimestamp = earlier
		}, suspect: true},
		"the template can't be read":     {with: func(l *losing) { l.fails["template"] = true }, fails: true},
		"the SpokeCluster can't be read": {with: func(l *losing) { l.fails["member"] = true }, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLosing(t)
			tc.with(l)
			d, wait, err := l.decide()
			if (err != nil) != tc.fails {
				t.Fatalf("got %v", err)
			}
			if want := map[bool]time.Duration{true: behindRetry}[tc.stays]; err == nil && (wait != want || d.suspect != tc.suspect || d.rule != l.rule) {
				t.Errorf("got suspect=%v, wait %v; want %v, %v", d.suspect, wait, tc.suspect, want)
			}
		})
	}
}

// Where the Deployment is gone, nothing of the hub is to be read.
func TestUnfoundedWithoutADeployment(t *testing.T) {
	r := &Reconciler{}
	if d, wait, err := r.unfounded(t.Context(), nil, made()); wait != 0 || err != nil || d.suspect {
		t.Errorf("got %+v, %v, %v", d, wait, err)
	}
}

// What was read before, and is remembered, may be older than the cache: that is asked again soon.
func TestUnfoundedByWhatIsRemembered(t *testing.T) {
	l := newLosing(t)
	l.template.Spec.Clusters = nil
	if _, wait, err := l.decide(); wait != behindRetry || err != nil {
		t.Errorf("got %v, %v", wait, err)
	}
	l.liveClock.Step(time.Millisecond)
	w := &rule.Workload{Cluster: rule.Cluster{Name: "spoke"}, Namespace: "shop", Name: "web"}
	if _, wait, err := l.unfounded(t.Context(), w, l.rule); wait != staleRetry || err != nil {
		t.Errorf("got %v, %v", wait, err)
	}
}

// What is held for a spoke is looked at again when that is engaged anew.
func TestReplayOfWhatIsHeld(t *testing.T) {
	p := newPruning(t, 0)
	owner := types.NamespacedName{Namespace: "shop", Name: "web"}
	q := brake.Question{Hop: brake.Generate, Spoke: "spoke", Owner: owner, Deletions: []brake.Deletion{{Key: owner, Suspect: true}}}
	if _, err := p.Brake.Ask(q); err != nil {
		t.Fatal(err)
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
	defer queue.ShutDown()
	p.replay(t.Context(), "spoke", queue)
	if queue.Len() != 1 {
		t.Fatalf("%d keys are enqueued", queue.Len())
	}
	if req, _ := queue.Get(); req.NamespacedName != owner || req.ClusterName != "spoke" {
		t.Errorf("enqueued is %v", req)
	}
}

// nobody is no spoke at all.
type nobody struct{}

func (nobody) Spoke(string) *spoke.Spoke { return nil }
func (nobody) Spokes() []*spoke.Spoke    { return nil }
func (nobody) ChangedSoon(string)        {}
