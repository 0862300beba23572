package generate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/controller/expect"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// scene is a Deployment in a spoke and a template on a hub, with their own API servers. The Deployment's
// namespace has the template's name.
type scene struct {
	*testing.T
	*fleet.Fleet

	name string
	past *past // of the Reconciler that was made last
	id   *identity
}

const eu = "eu"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// startFleet brings up a hub, and a spoke whose SpokeCluster is older than every rule.
func startFleet(t *testing.T) *fleet.Fleet {
	t.Helper()
	f, err := fleet.Start(t.Context(), fleet.Options{Spokes: []string{eu}})
	must(t, err)
	t.Cleanup(func() { must(t, f.Stop()) })
	must(t, client.IgnoreAlreadyExists(f.Hub.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleet.GeneratedNamespace}})))
	sc := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: eu, Labels: map[string]string{"tier": "gold"}}}
	must(t, f.Hub.Client.Create(t.Context(), sc))
	// The removal of a rule that was created in the same second is suspect: it may be older.
	<-time.After(time.Until(sc.CreationTimestamp.Add(time.Second)))
	return f
}

// set creates a Deployment, its namespace, and a matching template, which has generated its AlertRule.
func set(t *testing.T, f *fleet.Fleet, name string, narrow func(*v1alpha1.AlertRuleTemplateSpec)) *scene {
	t.Helper()
	s := &scene{T: t, Fleet: f, name: name}
	app := map[string]string{"app": "web"}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": "a"}}},
		&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "web", Labels: app},
			Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: app}, Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
			}},
		},
	} {
		must(t, s.Spoke(eu).Client.Create(t.Context(), o))
	}
	must(t, s.Hub.Client.Create(t.Context(), s.template(narrow)))
	t.Cleanup(func() { // it may match what other tests make
		must(t, client.IgnoreNotFound(s.Hub.Client.Delete(context.WithoutCancel(t.Context()), s.template(narrow))))
	})
	if result := s.reconcile(s.reconciler()); result.RequeueAfter <= 0 {
		t.Error("it does not check whether the event of the creation came")
	}
	if n := len(s.rules()); n != 1 {
		t.Fatalf("there are %d AlertRules", n)
	}
	return s
}

func (s *scene) template(narrow func(*v1alpha1.AlertRuleTemplateSpec)) *v1alpha1.AlertRuleTemplate {
	t := &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	t.Spec.AlertSpec = v1alpha1.AlertSpec{Alert: "Down", Expr: "up == 0", For: "1m", Severity: "critical"}
	t.Spec.Namespaces = &v1alpha1.NamespaceSelection{Names: []v1alpha1.NamespaceName{v1alpha1.NamespaceName(s.name)}}
	narrow(&t.Spec)
	return t
}

func everything(*v1alpha1.AlertRuleTemplateSpec) {}

// reconciler returns a Reconciler whose caches have the present state and never change.
func (s *scene) reconciler() *Reconciler {
	s.Helper()
	onHub, err := s.Hub.Snapshot(s.Context(), func(ctx context.Context, i client.FieldIndexer) error {
		return hub.SetupIndexes(ctx, i, "hub", fleet.GeneratedNamespace)
	}, &v1alpha1.AlertRule{}, &v1alpha1.AlertRuleTemplate{}, &v1alpha1.SpokeCluster{})
	must(s.T, err)
	inSpoke, err := s.Spoke(eu).Snapshot(s.Context(), nil, spoke.WorkloadMetadata(v1alpha1.DeploymentKind), spoke.NamespaceMetadata())
	must(s.T, err)
	s.past, s.id = &past{Reader: inSpoke.GetAPIReader()}, &identity{}
	return NewReconciler(Options{
		Hub: onHub.GetClient(), Guard: hub.Guard{Live: live.New(onHub.GetAPIReader(), clock.RealClock{}), Kinds: hub.NewKinds(onHub.GetAPIReader(), nil, hub.RecordKeys{}, clock.RealClock{}, nil)},
		Witness: hub.NewWitness(), Brake: brake.New(clock.RealClock{}, time.Hour), Recorder: events.NewFakeRecorder(100),
		Spokes:    &emptied{one: spoke.Spoke{Name: eu, Reader: inSpoke.GetClient(), Live: live.New(s.past, clock.RealClock{}), Identity: s.id}},
		Namespace: fleet.GeneratedNamespace, Validator: validation.New(validation.Options{GeneratedNamespace: fleet.GeneratedNamespace}),
	})
}

// past reads a spoke, bypassing its cache, and records the reads.
type past struct {
	client.Reader

	fails error
	reads []string
}

func (p *past) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	p.reads = append(p.reads, o.GetObjectKind().GroupVersionKind().Kind+" "+key.String())
	if p.fails != nil {
		return p.fails
	}
	return p.Reader.Get(ctx, key, o, opts...)
}

func (s *scene) reconcile(r *Reconciler) reconcile.Result {
	s.Helper()
	result, err := r.Reconcile(s.Context(), s.request())
	must(s.T, err)
	return result
}

func (s *scene) request() queue.Request {
	req := queue.Request{Kind: string(v1alpha1.DeploymentKind), ClusterName: eu}
	req.NamespacedName = types.NamespacedName{Namespace: s.name, Name: "web"}
	return req
}

// rules returns the UIDs of the Deployment's AlertRules.
func (s *scene) rules() []types.UID {
	s.Helper()
	var list v1alpha1.AlertRuleList
	must(s.T, s.Hub.Client.List(s.Context(), &list, client.InNamespace(fleet.GeneratedNamespace)))
	var out []types.UID
	for i := range list.Items {
		if string(list.Items[i].Spec.WorkloadRef.Namespace) == s.name {
			out = append(out, list.Items[i].UID)
		}
	}
	return out
}

// edit changes an object of a cluster.
func edit[T client.Object](s *scene, m *fleet.Member, o T, change func(o T)) {
	s.Helper()
	must(s.T, m.Client.Get(s.Context(), client.ObjectKeyFromObject(o), o))
	change(o)
	must(s.T, m.Client.Update(s.Context(), o))
}

func (s *scene) deployment(change func(o *appsv1.Deployment)) {
	s.Helper()
	edit(s, s.Spoke(eu), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "web"}}, change)
}

func (s *scene) namespace(change func(o *corev1.Namespace)) {
	s.Helper()
	edit(s, s.Spoke(eu), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, change)
}

func (s *scene) onTemplate(change func(spec *v1alpha1.AlertRuleTemplateSpec)) {
	s.Helper()
	edit(s, s.Hub, &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, func(o *v1alpha1.AlertRuleTemplate) { change(&o.Spec) })
}

func (s *scene) member(labels map[string]string) {
	s.Helper()
	edit(s, s.Hub, &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: eu}}, func(o *v1alpha1.SpokeCluster) { o.Labels = labels })
}

func (s *scene) annotate(key, value string) {
	s.Helper()
	s.deployment(func(o *appsv1.Deployment) { metav1.SetMetaDataAnnotation(&o.ObjectMeta, key, value) })
}

func selector(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

// TestOldCaches makes an AlertRule no longer required and then required again, by each deciding object. Caches
// from the time in between remove nothing.
func TestOldCaches(t *testing.T) {
	f := startFleet(t)
	const alerts, disable = v1alpha1.AdjustmentPrefix + "alerts", v1alpha1.AdjustmentPrefix + "disable"
	enabled := func(s *scene) {
		s.onTemplate(func(spec *v1alpha1.AlertRuleTemplateSpec) {
			*spec = s.template(everything).Spec
		})
	}
	for name, tc := range map[string]struct {
		narrow func(spec *v1alpha1.AlertRuleTemplateSpec)
		lose   func(s *scene)
		get    func(s *scene)
	}{
		"deployment-labels": {
			narrow: func(spec *v1alpha1.AlertRuleTemplateSpec) {
				spec.Workloads = &v1alpha1.WorkloadSelection{Selector: selector("app", "web")}
			},
			lose: func(s *scene) { s.deployment(func(o *appsv1.Deployment) { o.Labels["app"] = "other" }) },
			get:  func(s *scene) { s.deployment(func(o *appsv1.Deployment) { o.Labels["app"] = "web" }) },
		},
		"deployment-alerts": {
			lose: func(s *scene) { s.annotate(alerts, "disabled") },
			get:  func(s *scene) { s.annotate(alerts, "enabled") },
		},
		"deployment-disable": {
			lose: func(s *scene) { s.annotate(disable, s.name) },
			get:  func(s *scene) { s.annotate(disable, "") },
		},
		"namespace-labels": {
			narrow: func(spec *v1alpha1.AlertRuleTemplateSpec) {
				spec.Namespaces = &v1alpha1.NamespaceSelection{Selector: selector("team", "a")}
			},
			lose: func(s *scene) { s.namespace(func(o *corev1.Namespace) { o.Labels["team"] = "b" }) },
			get:  func(s *scene) { s.namespace(func(o *corev1.Namespace) { o.Labels["team"] = "a" }) },
		},
		"template-state": {
			lose: func(s *scene) {
				s.onTemplate(func(spec *v1alpha1.AlertRuleTemplateSpec) { spec.State = v1alpha1.Disabled })
			},
			get: enabled,
		},
		"template-workloads": {
			lose: func(s *scene) {
				s.onTemplate(func(spec *v1alpha1.AlertRuleTemplateSpec) {
					spec.Workloads = &v1alpha1.WorkloadSelection{Selector: selector("app", "other")}
				})
			},
			get: enabled,
		},
		"template-namespaces": {
			lose: func(s *scene) {
				s.onTemplate(func(spec *v1alpha1.AlertRuleTemplateSpec) { spec.Namespaces.Names[0] = "other" })
			},
			get: enabled,
		},
		"template-clusters": {
			lose: func(s *scene) {
				s.onTemplate(func(spec *v1alpha1.AlertRuleTemplateSpec) {
					spec.Placement = &v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"us"}}
				})
			},
			get: enabled,
		},
		"spokecluster-labels": {
			narrow: func(spec *v1alpha1.AlertRuleTemplateSpec) {
				spec.Placement = &v1alpha1.ClusterSelection{Selector: selector("tier", "gold")}
			},
			lose: func(s *scene) { s.member(map[string]string{"tier": "bronze"}) },
			get:  func(s *scene) { s.member(map[string]string{"tier": "gold"}) },
		},
		"template-itself": {
			lose: func(s *scene) {
				must(s.T, client.IgnoreNotFound(s.Hub.Client.Delete(s.Context(), s.template(everything))))
			},
			get: func(s *scene) { must(s.T, s.Hub.Client.Create(s.Context(), s.template(everything))) },
		},
		"deployment-itself": {
			lose: func(s *scene) {
				must(s.T, s.Spoke(eu).Client.Delete(s.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "web"}}))
			},
			get: func(s *scene) {
				d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "web"}}
				d.Spec.Selector = selector("app", "web")
				d.Spec.Template.Labels = map[string]string{"app": "web"}
				d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: "web"}}
				must(s.T, s.Spoke(eu).Client.Create(s.Context(), d))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.narrow == nil {
				tc.narrow = everything
			}
			s := set(t, f, name, tc.narrow)
			made := s.rules()
			tc.lose(s)
			old := s.reconciler()
			tc.get(s)
			for range 2 {
				if result := s.reconcile(old); result.RequeueAfter <= 0 || result.RequeueAfter > live.BehindRetry {
					t.Errorf("it looks again after %v", result.RequeueAfter)
				}
				if got := s.rules(); !slices.Equal(got, made) {
					t.Fatalf("the AlertRules are %q, and were %q", got, made)
				}
			}
			tc.lose(s)
			s.reconcile(s.reconciler())
			if got := s.rules(); len(got) != 0 {
				t.Errorf("the AlertRules %q stay", got)
			}
			s.member(map[string]string{"tier": "gold"})
		})
	}
	t.Run("reads", func(t *testing.T) { testReads(t, f) })
	t.Run("restored", func(t *testing.T) { testRestored(t, f) })
	t.Run("behind", func(t *testing.T) { testBehind(t, f) })
	for _, reset := range []bool{false, true} {
		t.Run(fmt.Sprintf("last-label-%v", reset), func(t *testing.T) { testLastLabel(t, f, reset) })
	}
}

// testLastLabel has an AlertRule that kubectl created, with the labels of its template. If the template has no labels
// any more, the AlertRule loses them, unless they count as a person's.
func testLastLabel(t *testing.T, f *fleet.Fleet, reset bool) {
	t.Helper()
	s := set(t, f, fmt.Sprintf("last-label-%v", reset), func(spec *v1alpha1.AlertRuleTemplateSpec) {
		spec.Labels, spec.Annotations = map[string]v1alpha1.LabelText{"x": "1"}, map[string]v1alpha1.LabelText{"y": "1"}
	})
	var list v1alpha1.AlertRuleList
	must(t, s.Hub.Client.List(t.Context(), &list, client.InNamespace(fleet.GeneratedNamespace), client.MatchingLabels{v1alpha1.TemplateLabel: s.name}))
	backup := &list.Items[0]
	must(t, s.Hub.Client.Delete(t.Context(), backup))
	backup.ObjectMeta = metav1.ObjectMeta{Namespace: backup.Namespace, Name: backup.Name, Labels: backup.Labels, Annotations: backup.Annotations}
	must(t, s.Hub.Client.Create(t.Context(), backup))
	for range 2 {
		s.reconcile(s.reconciler())
	}
	edit(s, s.Hub, backup.DeepCopy(), func(o *v1alpha1.AlertRule) {
		if reset {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, v1alpha1.ResetFieldsAnnotation, "*")
		}
	})
	for range 2 {
		s.reconcile(s.reconciler())
	}
	s.onTemplate(func(spec *v1alpha1.AlertRuleTemplateSpec) {
		spec.Labels, spec.Annotations = nil, nil
	})
	for i, most := range []time.Duration{staleRetry, staleRetry, 0} { // the maps, the rest, nothing
		if result := s.reconcile(s.reconciler()); result.RequeueAfter > most {
			t.Errorf("reconcile %d: it tries again after %v", i, result.RequeueAfter)
		}
	}
	now := &v1alpha1.AlertRule{}
	must(t, s.Hub.Client.Get(t.Context(), client.ObjectKeyFromObject(backup), now))
	_, labeled := now.Spec.Labels["x"]
	if _, annotated := now.Spec.Annotations["y"]; labeled == reset || annotated == reset {
		t.Errorf("the labels are %v, and the annotations %v", now.Spec.Labels, now.Spec.Annotations)
	}
	if len(now.Spec.Labels) < 2 {
		t.Errorf("the labels are %v", now.Spec.Labels) // the template's own stay
	}
}

// applies counts what is applied.
type applies struct {
	client.Client

	count int
}

func (a *applies) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	a.count++
	return a.Client.Apply(ctx, o, opts...)
}

// testBehind has a cache that never shows what was created: it is not created again while it is on the hub.
func testBehind(t *testing.T, f *fleet.Fleet) {
	t.Helper()
	s := set(t, f, "behind", everything)
	must(t, s.Hub.Client.DeleteAllOf(t.Context(), &v1alpha1.AlertRule{}, client.InNamespace(fleet.GeneratedNamespace), client.MatchingLabels{v1alpha1.TemplateLabel: s.name}))
	r, now := s.reconciler(), testclock.NewFakeClock(time.Now())
	written := &applies{Client: r.Hub}
	r.Hub, r.Guard.Live, r.writes = written, live.New(s.Hub.Client, now), expect.New[types.NamespacedName](now)
	s.reconcile(r)
	made := s.rules()
	for range 3 {
		now.Step(time.Minute)
		if result := s.reconcile(r); result.RequeueAfter != staleRetry {
			t.Errorf("it looks again after %v", result.RequeueAfter)
		}
	}
	if len(made) != 1 || written.count != 1 {
		t.Errorf("%d AlertRules, applied %d times", len(made), written.count)
	}
	now.Step(time.Minute)
	must(t, s.Hub.Client.DeleteAllOf(t.Context(), &v1alpha1.AlertRule{}, client.InNamespace(fleet.GeneratedNamespace), client.MatchingLabels{v1alpha1.TemplateLabel: s.name}))
	s.reconcile(r)
	if got := s.rules(); len(got) != 1 || slices.Equal(got, made) {
		t.Errorf("the AlertRules are %q, and were %q before they were deleted", got, made)
	}
}

// testRestored restores an AlertRule with a person's edits. A cache from before it does not overwrite them.
func testRestored(t *testing.T, f *fleet.Fleet) {
	t.Helper()
	s := set(t, f, "restored", everything)
	var list v1alpha1.AlertRuleList
	must(t, s.Hub.Client.List(t.Context(), &list, client.InNamespace(fleet.GeneratedNamespace), client.MatchingLabels{v1alpha1.TemplateLabel: s.name}))
	backup := &list.Items[0]
	must(t, s.Hub.Client.Delete(t.Context(), backup))
	old := s.reconciler()
	backup.ObjectMeta = metav1.ObjectMeta{Namespace: backup.Namespace, Name: backup.Name, Labels: backup.Labels, Annotations: backup.Annotations}
	backup.Spec.For = "7m"
	must(t, s.Hub.Client.Create(t.Context(), backup))
	for _, r := range []*Reconciler{old, s.reconciler()} {
		if result := s.reconcile(r); r == old && result.RequeueAfter <= 0 {
			t.Errorf("it does not look again")
		}
		now := &v1alpha1.AlertRule{}
		must(t, s.Hub.Client.Get(t.Context(), client.ObjectKeyFromObject(backup), now))
		if now.Spec.For != "7m" {
			t.Errorf("for is %q", now.Spec.For)
		}
	}
}

// testReads counts the reads in the spoke that removals need.
func testReads(t *testing.T, f *fleet.Fleet) {
	t.Helper()
	disable := func(spec *v1alpha1.AlertRuleTemplateSpec) { spec.State = v1alpha1.Disabled }
	other := func(o *appsv1.Deployment) { o.Labels["app"] = "other" }
	web := func(spec *v1alpha1.AlertRuleTemplateSpec) {
		spec.Workloads = &v1alpha1.WorkloadSelection{Selector: selector("app", "web")}
	}
	t.Run("once", func(t *testing.T) {
		s := set(t, f, "once", web)
		second := s.template(web)
		second.Name += "-more"
		must(t, s.Hub.Client.Create(t.Context(), second))
		r := s.reconciler()
		s.reconcile(r)
		if n := len(s.rules()); n != 2 || len(s.past.reads) > 0 || s.id.asked > 0 {
			t.Fatalf("%d AlertRules, and read is %q", n, s.past.reads)
		}
		s.deployment(other)
		s.reconcile(s.reconciler())
		if n, want := len(s.rules()), []string{"Deployment once/web", "Namespace /once"}; n != 0 || !slices.Equal(s.past.reads, want) || s.id.asked != 1 {
			t.Errorf("%d AlertRules, read is %q, and the identity %d times; want %q", n, s.past.reads, s.id.asked, want)
		}
	})
	t.Run("not for what the hub decides", func(t *testing.T) {
		s := set(t, f, "hub", web)
		s.onTemplate(disable)
		r := s.reconciler()
		s.past.fails = errors.New("no answer")
		s.reconcile(r)
		if n := len(s.rules()); n != 0 || len(s.past.reads) > 0 || s.id.asked > 0 {
			t.Errorf("%d AlertRules, read is %q", n, s.past.reads)
		}
	})
	t.Run("again, when it has an answer", func(t *testing.T) {
		s := set(t, f, "again", web)
		s.deployment(other)
		r := s.reconciler()
		for name, fail := range map[string]func(err error){
			"reads":        func(err error) { s.past.fails = err },
			"the identity": func(err error) { s.id.confirmed = err },
		} {
			why := apierrors.NewServiceUnavailable(name)
			fail(why)
			if _, err := r.Reconcile(t.Context(), s.request()); err == nil || !strings.Contains(err.Error(), why.Error()) || len(s.rules()) != 1 {
				t.Fatalf("%s: %v, and the AlertRules are %q", name, err, s.rules())
			}
			fail(nil)
			r.Spokes.Spoke(eu).Live = live.New(s.past, clock.RealClock{}) // a second later
		}
		s.reconcile(r)
		if got := s.rules(); len(got) != 0 {
			t.Errorf("the AlertRules %q stay", got)
		}
	})
}
