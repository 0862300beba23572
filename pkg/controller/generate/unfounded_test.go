package generate

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// losing is a hub's API server, on which an AlertRule of Deployment web may no longer be required. The
// AlertRule was created a second after everything else.
type losing struct {
	*pruning

	rule     *v1alpha1.AlertRule
	template *v1alpha1.AlertRuleTemplate
	member   *v1alpha1.SpokeCluster
	// defined is when the kinds were defined.
	defined   time.Time
	kinds     map[string]types.UID
	liveClock *clocktesting.FakeClock
	// fails has the kinds that can't be read.
	fails map[string]bool
}

var madeThen = metav1.NewTime(time.Unix(1e9, 0))

func newLosing(t *testing.T) *losing {
	t.Helper()
	l := &losing{pruning: newPruning(t, 0), rule: made(), defined: madeThen.Time, liveClock: clocktesting.NewFakeClock(madeThen.Time), fails: map[string]bool{}, kinds: map[string]types.UID{}}
	l.rule.Name = rule.GeneratedName("down", "spoke", v1alpha1.DeploymentKind, "shop", "web")
	l.rule.ManagedFields = []metav1.ManagedFieldsEntry{owned(v1alpha1.FieldManager, metav1.ManagedFieldsOperationApply, `{}`)}
	l.template = &v1alpha1.AlertRuleTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "down", UID: "template"},
		Spec: v1alpha1.AlertRuleTemplateSpec{
			AlertSpec: v1alpha1.AlertSpec{Alert: "Down", Expr: "up == 0"},
			Placement: &v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}},
		},
	}
	l.member = &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "spoke", UID: "member"}}
	past := l.pastCache()
	l.Guard = hub.Guard{Live: live.New(past, l.liveClock), Kinds: hub.NewKinds(past, nil, hub.RecordKeys{}, l.liveClock, nil)}
	l.rule.CreationTimestamp = metav1.NewTime(madeThen.Add(time.Second))
	l.template.CreationTimestamp, l.member.CreationTimestamp = madeThen, madeThen
	return l
}

// pastCache reads past the cache.
func (l *losing) pastCache() client.Reader {
	return interceptor.NewClient(l.Hub.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			what := "kinds"
			switch o.(type) {
			case *v1alpha1.AlertRuleTemplate:
				what = "template"
			case *v1alpha1.SpokeCluster:
				what = "member"
			case *v1alpha1.AlertRule:
				what = "rule"
			}
			if l.fails[what] {
				return errors.New("no answer")
			}
			if what == "kinds" {
				o.SetCreationTimestamp(metav1.NewTime(l.defined))
				o.SetUID(l.kinds[key.Name])
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
}

// remake defines a kind again, with misleading times: the hub's clock was set back.
func (l *losing) remake(kind hub.Kind, plural string) {
	l.Helper()
	if _, _, err := l.Guard.Kinds.Defined(l.Context(), kind); err != nil {
		l.Fatal(err)
	}
	l.kinds[plural+"."+v1alpha1.Group] = "anew"
	l.liveClock.Step(2 * time.Second)
}

// deploymentWeb is Deployment web in the spoke's cache.
func deploymentWeb() *templating.Workload {
	return &templating.Workload{Kind: v1alpha1.DeploymentKind, Cluster: rule.Cluster{Name: "spoke"}, Namespace: "shop", Name: "web"}
}

// put puts the hub together.
func (l *losing) put() {
	l.Helper()
	for _, o := range []client.Object{l.template, l.member} {
		if o.GetName() != "" {
			if err := l.Hub.Create(l.Context(), o); err != nil {
				l.Fatal(err)
			}
		}
	}
}

// decide decides about the AlertRule with a cache in which it is not required.
func (l *losing) decide() (doomed, time.Duration, error) {
	l.Helper()
	l.put()
	return l.unfounded(l.Context(), deploymentWeb(), l.rule)
}

// disableByLabel makes the template one that is disabled in spokes with that label, or in those without a label.
func (l *losing) disableByLabel(tier string) {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{"tier": tier}}
	if tier == "" {
		s = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	} else {
		l.member.Labels = s.MatchLabels
	}
	l.template.Spec.Placement = nil
	l.template.Spec.Overrides = []v1alpha1.TemplateOverride{{ClusterSelection: v1alpha1.ClusterSelection{Selector: s}, State: v1alpha1.Disabled}}
}

func (l *losing) templateGone() { l.template = &v1alpha1.AlertRuleTemplate{} }

func TestUnfounded(t *testing.T) {
	earlier, later := metav1.NewTime(madeThen.Add(-time.Second)), metav1.NewTime(madeThen.Add(2*time.Second))
	deleted := func(l *losing, made metav1.Time) {
		h := l.onTemplate("", nil)
		gone := l.template.DeepCopy()
		gone.CreationTimestamp = made
		l.Spokes = nobody{}
		h.Delete(l.Context(), event.TypedDeleteEvent[client.Object]{Object: gone}, nil)
		l.templateGone()
	}
	created := func(l *losing, sc *v1alpha1.SpokeCluster) {
		l.Spokes = nobody{}
		l.onSpokeCluster("", nil).Create(l.Context(), event.TypedCreateEvent[client.Object]{Object: sc.DeepCopy()}, nil)
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
		"and is as old as the AlertRule":         {with: func(l *losing) { l.member.CreationTimestamp = l.rule.CreationTimestamp }, suspect: true},
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
			before.Spec.Placement = nil
			created(l, l.member)
			updated(l, l.onTemplate("", nil), before, l.template)
		}},
		"and the template was seen to change for a former one": {with: func(l *losing) {
			l.member.CreationTimestamp = later
			before := l.template.DeepCopy()
			before.Spec.Placement = nil
			after, again := l.template.DeepCopy(), l.member.DeepCopy()
			after.ResourceVersion, again.ResourceVersion = "1", "2"
			updated(l, l.onTemplate("", nil), before, after)
			created(l, again)
		}, suspect: true},
		"the template is disabled": {with: func(l *losing) { l.member.CreationTimestamp, l.template.Spec.State = later, v1alpha1.Disabled }},
		"the template is suspended": {with: func(l *losing) {
			l.template.Spec.State, l.template.Spec.Suspend = v1alpha1.Disabled, new(true)
		}, stays: true},
		"an override by the label disables the template": {with: func(l *losing) { l.disableByLabel("silver") }},
		"and the SpokeCluster without it was made anew": {with: func(l *losing) {
			l.disableByLabel("")
			l.member.CreationTimestamp = later
		}, suspect: true},
		"the template matches":     {with: func(l *losing) { l.template.Spec.Placement = nil }, stays: true},
		"the label is there":       {with: func(l *losing) { l.member.Labels = map[string]string{"tier": "gold"} }, stays: true},
		"the template is invalid":  {with: func(l *losing) { l.template.Spec.Expr = "(" }, stays: true},
		"there is no SpokeCluster": {with: func(l *losing) { l.member = &v1alpha1.SpokeCluster{} }, stays: true},
		"it has a name of its own": {with: func(l *losing) { l.template.Spec.Placement, l.rule.Name = nil, "copy" }},
		"the template is gone":     {with: (*losing).templateGone},
		"and the AlertRule is older than the kind": {with: func(l *losing) {
			l.templateGone()
			l.rule.CreationTimestamp = earlier
		}, suspect: true},
		"and the AlertRule is as old as the kind": {with: func(l *losing) {
			l.templateGone()
			l.rule.CreationTimestamp = madeThen
		}, suspect: true},
		"and the kind SpokeCluster can't be read":                               {with: func(l *losing) { l.fails["kinds"] = true }, fails: true},
		"and the kind SpokeCluster was made anew, though the times say another": {with: func(l *losing) { l.remake(hub.SpokeClusters, "spokeclusters") }, suspect: true},
		"a built-in template is disabled, whose kind was made anew, though the times say another": {with: func(l *losing) {
			l.template.Annotations = map[string]string{v1alpha1.BuiltInAnnotation: "digest"}
			l.template.Spec.Placement, l.template.Spec.State = nil, v1alpha1.Disabled
			l.remake(hub.AlertRuleTemplates, "alertruletemplates")
		}, suspect: true},
		"the template is gone with its kind, though the times say another": {with: func(l *losing) {
			l.templateGone()
			l.remake(hub.AlertRuleTemplates, "alertruletemplates")
		}, suspect: true},
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
			if want := map[bool]time.Duration{true: live.BehindRetry}[tc.stays]; err == nil && (wait != want || d.suspect != tc.suspect || d.rule != l.rule) {
				t.Errorf("got suspect=%v, wait %v; want %v, %v", d.suspect, wait, tc.suspect, want)
			}
		})
	}
}

// An object in the place of a generated AlertRule is deleted only if the API server confirms that.
func TestMisplaced(t *testing.T) {
	theirs := func(l *losing) *v1alpha1.AlertRule {
		existing := l.rule.DeepCopy()
		existing.UID, existing.Spec.WorkloadRef.Name = "theirs", "another"
		return existing
	}
	for name, tc := range map[string]struct {
		with  func(l *losing, now *v1alpha1.AlertRule)
		gone  bool // there is no AlertRule any more
		spoke func(client.ObjectKey, client.Object) error
		// elsewhere is the error of Confirm.
		elsewhere error
		behind    bool
		fails     bool
	}{
		"so it is":                         {with: func(*losing, *v1alpha1.AlertRule) {}},
		"it is as it should be by now":     {with: func(l *losing, now *v1alpha1.AlertRule) { now.Spec = l.rule.Spec }, behind: true},
		"it is another by now":             {with: func(_ *losing, now *v1alpha1.AlertRule) { now.UID = "another" }, behind: true},
		"it is gone":                       {with: func(*losing, *v1alpha1.AlertRule) {}, gone: true, behind: true},
		"the template is gone":             {with: func(l *losing, _ *v1alpha1.AlertRule) { l.templateGone() }, behind: true},
		"the template does not match":      {with: func(l *losing, _ *v1alpha1.AlertRule) { l.template.Spec.State = v1alpha1.Disabled }, behind: true},
		"the SpokeCluster lacks the label": {with: func(l *losing, _ *v1alpha1.AlertRule) { l.member.Labels = nil }, behind: true},
		"there is no SpokeCluster":         {with: func(l *losing, _ *v1alpha1.AlertRule) { l.member = &v1alpha1.SpokeCluster{} }, behind: true},
		"the namespace lacks the label": {
			with: func(l *losing, _ *v1alpha1.AlertRule) {
				l.template.Spec.Namespaces = &v1alpha1.NamespaceSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}}
			},
			behind: true,
		},
		"it is another cluster": {with: func(*losing, *v1alpha1.AlertRule) {}, elsewhere: errElsewhere, fails: true},
		"the Deployment is gone": {
			with:   func(*losing, *v1alpha1.AlertRule) {},
			spoke:  func(client.ObjectKey, client.Object) error { return apierrors.NewNotFound(deployments, "web") },
			behind: true,
		},
		"the spoke can't be read": {
			with:  func(*losing, *v1alpha1.AlertRule) {},
			spoke: func(client.ObjectKey, client.Object) error { return context.DeadlineExceeded },
			fails: true,
		},
		"it can't be read":               {with: func(l *losing, _ *v1alpha1.AlertRule) { l.fails["rule"] = true }, fails: true},
		"the template can't be read":     {with: func(l *losing, _ *v1alpha1.AlertRule) { l.fails["template"] = true }, fails: true},
		"the SpokeCluster can't be read": {with: func(l *losing, _ *v1alpha1.AlertRule) { l.fails["member"] = true }, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLosing(t)
			l.member.Labels = map[string]string{"tier": "gold"}
			if tc.spoke == nil {
				tc.spoke = exists
			}
			l.Spokes = &emptied{one: spoke.Spoke{Name: "spoke", Live: answering(tc.spoke), Identity: &identity{confirmed: tc.elsewhere}}}
			existing, now := theirs(l), theirs(l)
			tc.with(l, now)
			l.put()
			if !tc.gone {
				if err := l.Hub.Create(t.Context(), now); err != nil {
					t.Fatal(err)
				}
				existing.ResourceVersion = now.ResourceVersion
			}
			w := deploymentWeb()
			w.NamespaceLabels = map[string]string{"team": "a"} // by the cache
			wait, err := l.displace(t.Context(), w, l.rule, existing)
			want := staleRetry
			if tc.behind {
				want = live.BehindRetry
			}
			if (err != nil) != tc.fails || (!tc.fails && wait != want) {
				t.Fatalf("got %v, %v; want %v", wait, err, want)
			}
			var list v1alpha1.AlertRuleList
			if err := l.Hub.List(t.Context(), &list); err != nil {
				t.Fatal(err)
			}
			if there, want := len(list.Items) == 1, !tc.gone && (tc.behind || tc.fails); there != want {
				t.Errorf("it is there: %v, want %v", there, want)
			}
		})
	}
}

// If the Deployment is gone, nothing is read on the hub.
func TestUnfoundedWithoutADeployment(t *testing.T) {
	r := &Reconciler{}
	if d, wait, err := r.unfounded(t.Context(), nil, made()); wait != 0 || err != nil || d.suspect {
		t.Errorf("got %+v, %v, %v", d, wait, err)
	}
}

// A remembered read may be older than the cache, so the object is read again soon.
func TestUnfoundedByWhatIsRemembered(t *testing.T) {
	l := newLosing(t)
	l.template.Spec.Placement = nil
	if _, wait, err := l.decide(); wait != live.BehindRetry || err != nil {
		t.Errorf("got %v, %v", wait, err)
	}
	l.liveClock.Step(time.Millisecond)
	if _, wait, err := l.unfounded(t.Context(), deploymentWeb(), l.rule); wait != staleRetry || err != nil {
		t.Errorf("got %v, %v", wait, err)
	}
}

// Rules that are held for a spoke are reconciled when it is engaged again.
func TestReplayOfWhatIsHeld(t *testing.T) {
	p := newPruning(t, 0)
	owner := rule.Key{Kind: string(v1alpha1.DeploymentKind), Namespace: "shop", Name: "web"}
	q := brake.Question{Hop: brake.Generate, Spoke: "spoke", Owner: owner, Deletions: []brake.Deletion{{Key: owner, Suspect: true}}}
	if _, err := p.Brake.Ask(q); err != nil {
		t.Fatal(err)
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[queue.Request]())
	defer queue.ShutDown()
	p.replay(t.Context(), "spoke", queue)
	if queue.Len() != 1 {
		t.Fatalf("%d keys are enqueued", queue.Len())
	}
	if req, _ := queue.Get(); req != hub.Request("spoke", owner) {
		t.Errorf("enqueued is %v", req)
	}
}

// nobody is no spoke at all.
type nobody struct{}

func (nobody) Spoke(string) *spoke.Spoke { return nil }
func (nobody) Spokes() []*spoke.Spoke    { return nil }
func (nobody) ChangedSoon(string)        {}
func (nobody) KindsChanged()             {}

// A suspended template generates nothing, and its AlertRules stay.
func TestSuspendedTemplate(t *testing.T) {
	for _, suspended := range []bool{false, true} {
		t.Run(strconv.FormatBool(suspended), func(t *testing.T) {
			l := newLosing(t)
			l.template.Spec.Placement, l.template.Spec.Suspend = nil, &suspended
			l.put()
			desired, keep, err := l.desired(l.Context(), deploymentWeb())
			if err != nil || (len(desired) == 0) != suspended || keep["down"] != suspended {
				t.Errorf("got %d AlertRules, keep %v, %v", len(desired), keep, err)
			}
		})
	}
}
