package distribute

import (
	"context"
	"slices"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/client/versioned"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/controller/expect"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/metrics"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// scene is a hub and a spoke with their own API servers. The rule is in its own administrators' namespace.
type scene struct {
	*testing.T
	*fleet.Fleet

	name   string
	former []string // the spoke's predecessors
}

const eu = "eu"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// startFleet starts a hub, and a spoke whose SpokeCluster is older than every rule.
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

// set creates the namespaces of a scene.
func set(t *testing.T, f *fleet.Fleet, name string) *scene {
	t.Helper()
	s := &scene{T: t, Fleet: f, name: name}
	for _, m := range []*fleet.Member{f.Hub, f.Spoke(eu)} {
		for _, ns := range []string{name, name + "-moved"} {
			must(t, m.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}))
		}
	}
	return s
}

func (s *scene) rule() *v1alpha1.AlertRule {
	ar := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "down"}}
	ar.Spec.AlertSpec = v1alpha1.AlertSpec{Alert: "Down", Expr: "up == 0", For: "1m"}
	ar.Spec.Placement.Names = []v1alpha1.ClusterName{eu}
	return ar
}

// reconciler returns a Reconciler whose caches have the present state and never change.
func (s *scene) reconciler() *Reconciler {
	s.Helper()
	const id = "hub"
	onHub, err := s.Hub.Snapshot(s.Context(), func(ctx context.Context, i client.FieldIndexer) error {
		return hub.SetupIndexes(ctx, i, id, fleet.GeneratedNamespace)
	}, &v1alpha1.AlertRule{}, &v1alpha1.SpokeCluster{})
	must(s.T, err)
	inSpoke, err := s.Spoke(eu).Snapshot(s.Context(), func(ctx context.Context, i client.FieldIndexer) error {
		return i.IndexField(ctx, &monitoringv1.PrometheusRule{}, ruleIndex, ruleKeys(id))
	}, &monitoringv1.PrometheusRule{}, spoke.NamespaceMetadata())
	must(s.T, err)
	rules, err := monitoring.NewForConfig(s.Spoke(eu).RESTConfig())
	must(s.T, err)
	validate := validation.Options{AdminNamespace: s.name, GeneratedNamespace: fleet.GeneratedNamespace}
	return NewReconciler(Options{
		Hub: onHub.GetClient(), Guard: hub.Guard{Live: live.New(onHub.GetAPIReader(), clock.RealClock{}), Kinds: hub.NewKinds(onHub.GetAPIReader(), nil, hub.RecordKeys{}, clock.RealClock{}, nil)},
		Witness: hub.NewWitness(), Brake: brake.New(clock.RealClock{}, time.Hour), Reporter: nobody{},
		Spokes: &alone{scene: s, one: spoke.Spoke{
			Name: eu, Reader: inSpoke.GetClient(), Live: live.New(inSpoke.GetAPIReader(), clock.RealClock{}), Rules: rules, RulesServed: true,
		}},
		Generated: fleet.GeneratedNamespace, Validator: validation.New(validate),
		Contests: contest.New(clock.RealClock{}, 0), Evaluations: unasked{}, Propagation: metrics.NewPropagation(clock.RealClock{}),
		Render: delivery.Options{HubID: id, AdminNamespace: s.name, RuleNamespace: s.name, ClusterLabel: "cluster"},
	})
}

// nobody ignores verdicts.
type nobody struct{}

func (nobody) Report(rule.Key, types.UID, v1alpha1.ClusterStatus) {}
func (nobody) Leftover(rule.Key, v1alpha1.ClusterStatus)          {}
func (nobody) Forget(rule.Key, string)                            {}

// alone has one engaged spoke.
type alone struct {
	*scene

	one spoke.Spoke
}

func (a *alone) Spoke(name string) *spoke.Spoke {
	if name != a.one.Name {
		return nil
	}
	return &a.one
}
func (a *alone) Spokes() []*spoke.Spoke             { return []*spoke.Spoke{&a.one} }
func (a *alone) Predecessors(string) []string       { return a.former }
func (a *alone) Successor(string) string            { return "" }
func (a *alone) Away(string) bool                   { return false }
func (a *alone) AwaySince(string, time.Time) bool   { return false }
func (a *alone) ChangedSoon(string)                 {}
func (a *alone) Evaluators(string) spoke.Evaluators { return spoke.Evaluators{} }

func (s *scene) reconcile(r *Reconciler, ar *v1alpha1.AlertRule) reconcile.Result {
	s.Helper()
	result, err := r.Reconcile(s.Context(), hub.Request(eu, rule.KeyOf(ar)))
	must(s.T, err)
	return result
}

// stored returns the spoke's PrometheusRules that stand for some AlertRules, with their place and version.
func (s *scene) stored(rules ...*v1alpha1.AlertRule) []string {
	s.Helper()
	var list monitoringv1.PrometheusRuleList
	must(s.T, s.Spoke(eu).Client.List(s.Context(), &list))
	var out []string
	for i := range list.Items {
		o := &list.Items[i]
		key, _ := rule.ParseRuleKey(o)
		if slices.ContainsFunc(rules, func(ar *v1alpha1.AlertRule) bool { return rule.KeyOf(ar) == key }) {
			out = append(out, o.Namespace+"/"+string(o.UID)+"/"+o.ResourceVersion)
		}
	}
	slices.Sort(out)
	return out
}

// edit changes an object of the hub.
func edit[T client.Object](s *scene, o T, change func(o T)) {
	s.Helper()
	must(s.T, s.Hub.Client.Get(s.Context(), client.ObjectKeyFromObject(o), o))
	change(o)
	must(s.T, s.Hub.Client.Update(s.Context(), o))
}

func (s *scene) onRule(change func(spec *v1alpha1.AlertRuleSpec)) {
	s.Helper()
	edit(s, s.rule(), func(o *v1alpha1.AlertRule) { change(&o.Spec) })
}

func (s *scene) member(change func(o *v1alpha1.SpokeCluster)) {
	s.Helper()
	edit(s, &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: eu}}, change)
}

// TestOldCaches removes a rule's placement and restores it, by each deciding object. Caches from the time in
// between remove nothing.
func TestOldCaches(t *testing.T) {
	f := startFleet(t)
	again := func(s *scene) { s.onRule(func(spec *v1alpha1.AlertRuleSpec) { *spec = s.rule().Spec }) }
	disable := func(s *scene) {
		s.onRule(func(spec *v1alpha1.AlertRuleSpec) { spec.State, spec.Suspend = v1alpha1.Disabled, nil })
	}
	byLabel := func(s *scene) {
		s.onRule(func(spec *v1alpha1.AlertRuleSpec) {
			spec.Placement = v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}}
		})
	}
	tier := func(tier string) func(s *scene) {
		return func(s *scene) { s.member(func(o *v1alpha1.SpokeCluster) { o.Labels["tier"] = tier }) }
	}
	for name, tc := range map[string]struct {
		before, lose, get func(s *scene)
	}{
		"placement": {
			lose: func(s *scene) {
				s.onRule(func(spec *v1alpha1.AlertRuleSpec) { spec.Placement.Names[0] = "us" })
			},
			get: again,
		},
		"state": {lose: disable, get: again},
		"override": {
			lose: func(s *scene) {
				s.onRule(func(spec *v1alpha1.AlertRuleSpec) {
					spec.Overrides = []v1alpha1.Override{{ClusterSelection: spec.Placement, State: v1alpha1.Disabled}}
				})
			},
			get: again,
		},
		"override-labels": {
			before: func(s *scene) {
				s.onRule(func(spec *v1alpha1.AlertRuleSpec) {
					bronze := v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "bronze"}}}
					spec.Overrides = []v1alpha1.Override{{ClusterSelection: bronze, State: v1alpha1.Disabled}}
				})
			},
			lose: tier("bronze"), get: tier("gold"),
		},
		"labels":  {before: byLabel, lose: tier("bronze"), get: tier("gold")},
		"suspend": {lose: disable, get: func(s *scene) { s.onRule(func(spec *v1alpha1.AlertRuleSpec) { spec.Suspend = new(true) }) }},
		"suspended-spoke": {
			lose: func(s *scene) { disable(s); s.member(func(o *v1alpha1.SpokeCluster) { o.Spec.Suspend = nil }) },
			get:  func(s *scene) { s.member(func(o *v1alpha1.SpokeCluster) { o.Spec.Suspend = new(true) }) },
		},
		"namespace": {
			lose: func(s *scene) {
				s.onRule(func(spec *v1alpha1.AlertRuleSpec) { spec.RuleNamespace = v1alpha1.NamespaceName(s.name + "-moved") })
			},
			get: again,
		},
		"rule-itself": {
			lose: func(s *scene) { must(s.T, s.Hub.Client.Delete(s.Context(), s.rule())) },
			get:  func(s *scene) { must(s.T, s.Hub.Client.Create(s.Context(), s.rule())) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := set(t, f, name)
			must(t, s.Hub.Client.Create(t.Context(), s.rule()))
			if tc.before != nil {
				tc.before(s)
			}
			s.reconcile(s.reconciler(), s.rule())
			pushed := s.stored(s.rule())
			if len(pushed) != 1 {
				t.Fatalf("the spoke has %q", pushed)
			}
			tc.lose(s)
			old := s.reconciler()
			tc.get(s)
			for range 2 {
				if result := s.reconcile(old, s.rule()); result.RequeueAfter <= 0 || result.RequeueAfter > guardRetry {
					t.Errorf("it looks again after %v", result.RequeueAfter)
				}
				if got := s.stored(s.rule()); !slices.Equal(got, pushed) {
					t.Fatalf("the spoke has %q, and had %q", got, pushed)
				}
			}
			tc.lose(s)
			s.reconcile(s.reconciler(), s.rule())
			if got := s.stored(s.rule()); slices.Contains(got, pushed[0]) {
				t.Errorf("%q stays", got)
			}
			tier("gold")(s)
		})
	}
	t.Run("successor", func(t *testing.T) { testSuccessor(t, f) })
	t.Run("behind", func(t *testing.T) { testBehind(t, f) })
}

// testBehind has a cache that never shows what was created: it is not created again while it is in the spoke.
func testBehind(t *testing.T, f *fleet.Fleet) {
	t.Helper()
	s := set(t, f, "behind")
	must(t, s.Hub.Client.Create(t.Context(), s.rule()))
	r, now := s.reconciler(), testclock.NewFakeClock(time.Now())
	one := r.Spokes.Spoke(eu)
	one.Live = live.New(s.Spoke(eu).Client, now)
	r.writes = expect.New[objectKey](now)
	s.reconcile(r, s.rule())
	made := s.stored(s.rule())
	if len(made) != 1 {
		t.Fatalf("the spoke has %q", made)
	}
	for range hiddenTries {
		now.Step(time.Minute)
		if result := s.reconcile(r, s.rule()); result.RequeueAfter != staleRetry {
			t.Errorf("it looks again after %v", result.RequeueAfter)
		}
	}
	if len(r.notes.of) > 0 {
		t.Errorf("created again: %v", r.notes.of)
	}
	now.Step(time.Minute)
	must(t, s.Spoke(eu).Client.DeleteAllOf(t.Context(), &monitoringv1.PrometheusRule{}, client.InNamespace(s.name)))
	s.reconcile(r, s.rule())
	if got := s.stored(s.rule()); len(got) != 1 || got[0] == made[0] {
		t.Errorf("the spoke has %q, and had %q before it was deleted", got, made)
	}
}

// testSuccessor has a spoke whose Secret was renamed. The rules generated under the former name stay until
// their successors exist, in the spoke and on the hub.
func testSuccessor(t *testing.T, f *fleet.Fleet) {
	t.Helper()
	const former = "eu-former"
	must(t, f.Hub.Client.Create(t.Context(), &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: former}}))
	for name, tc := range map[string]struct {
		lose, get func(s *scene, next *v1alpha1.AlertRule, made *monitoringv1.PrometheusRule)
	}{
		"on-the-hub": {
			lose: func(s *scene, next *v1alpha1.AlertRule, _ *monitoringv1.PrometheusRule) {
				must(s.T, s.Hub.Client.Delete(s.Context(), next))
			},
			get: func(s *scene, next *v1alpha1.AlertRule, _ *monitoringv1.PrometheusRule) {
				must(s.T, s.Hub.Client.Create(s.Context(), next))
			},
		},
		"in-the-spoke": {
			lose: func(s *scene, _ *v1alpha1.AlertRule, made *monitoringv1.PrometheusRule) {
				must(s.T, s.Spoke(eu).Client.Delete(s.Context(), made))
			},
			get: func(s *scene, _ *v1alpha1.AlertRule, made *monitoringv1.PrometheusRule) {
				must(s.T, s.Spoke(eu).Client.Create(s.Context(), made))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := set(t, f, name)
			s.former = []string{former}
			r := s.reconciler()
			made := func(cluster v1alpha1.ClusterName) (*v1alpha1.AlertRule, *monitoringv1.PrometheusRule) {
				ar := s.rule()
				ar.Namespace, ar.Name = fleet.GeneratedNamespace, name+"-"+string(cluster)
				ar.Labels = map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.TemplateLabel: "down"}
				ar.Spec.Placement.Names[0] = cluster
				ar.Spec.WorkloadRef = &v1alpha1.WorkloadReference{Cluster: cluster, Kind: "Deployment", Namespace: v1alpha1.NamespaceName(name), Name: "web"}
				pr, err := delivery.Render(ar, rule.Cluster{Name: string(cluster)}, r.Render)
				must(t, err)
				must(t, s.Hub.Client.Create(t.Context(), ar.DeepCopy()))
				must(t, s.Spoke(eu).Client.Create(t.Context(), pr.DeepCopy()))
				return ar, pr
			}
			was, _ := made(former)
			next, there := made(eu)
			stands := s.stored(was)
			if len(stands) != 1 || len(s.stored(next)) != 1 {
				t.Fatalf("the spoke has %q", s.stored(was, next))
			}
			old := s.reconciler()
			tc.lose(s, next.DeepCopy(), there.DeepCopy())
			if result := s.reconcile(old, was); result.RequeueAfter <= 0 || result.RequeueAfter > live.BehindRetry {
				t.Errorf("it looks again after %v", result.RequeueAfter)
			}
			if got := s.stored(was); !slices.Equal(got, stands) {
				t.Fatalf("the spoke has %q, and had %q", got, stands)
			}
			tc.get(s, next, there)
			s.reconcile(s.reconciler(), was)
			if got := s.stored(was); len(got) > 0 {
				t.Errorf("%q stays", got)
			}
		})
	}
}
