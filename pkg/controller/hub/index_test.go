package hub

import (
	"context"
	"errors"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// indexer lets a fake client have the indexes of a cache.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, fn client.IndexerFunc) error {
	i.WithIndex(o, field, fn)
	return nil
}

func cache(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...)
	if err := SetupIndexes(t.Context(), indexer{builder}, "hub", "ns"); err != nil {
		t.Fatal(err)
	}
	return builder.Build()
}

func alertRule(name string, change func(*v1alpha1.AlertRule)) *v1alpha1.AlertRule {
	ar := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	change(ar)
	return ar
}

func named(names ...v1alpha1.ClusterName) func(*v1alpha1.AlertRule) {
	return func(ar *v1alpha1.AlertRule) { ar.Spec.Placement.Names = names }
}

func selected(env string, names ...v1alpha1.ClusterName) func(*v1alpha1.AlertRule) {
	return func(ar *v1alpha1.AlertRule) {
		ar.Spec.Placement = v1alpha1.ClusterSelection{Names: names, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": env}}}
	}
}

// generatedFrom makes an AlertRule look like one of a template's.
func generatedFrom(template string, cluster v1alpha1.ClusterName, workload string) func(*v1alpha1.AlertRule) {
	return func(ar *v1alpha1.AlertRule) {
		ar.Labels = map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.TemplateLabel: template}
		ar.Spec.WorkloadRef = &v1alpha1.WorkloadReference{Cluster: cluster, Kind: "Deployment", Namespace: "shop", Name: workload}
	}
}

func TestGeneratedElsewhereIsNobodys(t *testing.T) {
	tenants := alertRule("a", generatedFrom("down", "s", "web"))
	tenants.Namespace = "team-a"
	c := cache(t, alertRule("b", generatedFrom("down", "s", "web")), tenants)
	for _, list := range []func() ([]v1alpha1.AlertRule, error){
		func() ([]v1alpha1.AlertRule, error) { return GeneratedOn(t.Context(), c, "s") },
		func() ([]v1alpha1.AlertRule, error) {
			return GeneratedFor(t.Context(), c, "s", rule.Key{Kind: "Deployment", Namespace: "shop", Name: "web"})
		},
		func() ([]v1alpha1.AlertRule, error) { return GeneratedBy(t.Context(), c, "down") },
	} {
		if rules, err := list(); err != nil || len(rules) != 1 || rules[0].Namespace != "ns" {
			t.Errorf("got %d, %v", len(rules), err)
		}
	}
}

func TestIndexes(t *testing.T) {
	reader := cache(t,
		alertRule("by-name", named("s", "t")),
		alertRule("by-label", selected("prod")),
		alertRule("by-both", selected("prod", "s")),
		alertRule("by-both-name-alone", selected("test", "s")),
		alertRule("elsewhere", named("t")),
		alertRule("elsewhere-by-label", selected("test")),
		alertRule("not-valid", selected("-")),
		alertRule("made", generatedFrom("down", "s", "web")),
		alertRule("made-too", generatedFrom("stuck", "s", "web")),
		alertRule("made-for-another", generatedFrom("down", "s", "api")),
		alertRule("made-for-another-namespace", func(ar *v1alpha1.AlertRule) {
			generatedFrom("stuck", "s", "web")(ar)
			ar.Spec.WorkloadRef.Namespace = "dev"
		}),
		alertRule("made-elsewhere", generatedFrom("down", "t", "web")),
		alertRule("by-hand", func(ar *v1alpha1.AlertRule) {
			generatedFrom("down", "s", "web")(ar)
			delete(ar.Labels, v1alpha1.ManagedByLabel)
		}),
		alertRule("by-hand-too", func(ar *v1alpha1.AlertRule) {
			generatedFrom("", "s", "web")(ar)
		}),
		alertRule("without-workload", func(ar *v1alpha1.AlertRule) {
			generatedFrom("down", "s", "web")(ar)
			ar.Spec.WorkloadRef = nil
		}),
	)
	for name, tc := range map[string]struct {
		read func(context.Context) ([]v1alpha1.AlertRule, error)
		want []string
	}{
		"maybe on a spoke": {
			read: func(ctx context.Context) ([]v1alpha1.AlertRule, error) {
				return alertRules(RulesMaybeOn(ctx, reader, "s"))
			},
			want: []string{"by-both", "by-both-name-alone", "by-label", "by-name", "elsewhere-by-label", "not-valid"},
		},
		"on a spoke": {
			read: func(ctx context.Context) ([]v1alpha1.AlertRule, error) {
				return alertRules(RulesOn(ctx, reader, rule.Cluster{Name: "s", Labels: map[string]string{"env": "prod"}}))
			},
			want: []string{"by-both", "by-both-name-alone", "by-label", "by-name"},
		},
		"generated for a workload": {
			read: func(ctx context.Context) ([]v1alpha1.AlertRule, error) {
				return GeneratedFor(ctx, reader, "s", rule.Key{Kind: "Deployment", Namespace: "shop", Name: "web"})
			},
			want: []string{"made", "made-too"},
		},
		"generated for a workload that is not there": {
			read: func(ctx context.Context) ([]v1alpha1.AlertRule, error) {
				return GeneratedFor(ctx, reader, "s", rule.Key{Kind: "StatefulSet", Namespace: "shop", Name: "web"})
			},
		},
		"generated on a spoke": {
			read: func(ctx context.Context) ([]v1alpha1.AlertRule, error) { return GeneratedOn(ctx, reader, "s") },
			want: []string{"made", "made-for-another", "made-for-another-namespace", "made-too"},
		},
		"generated by a template": {
			read: func(ctx context.Context) ([]v1alpha1.AlertRule, error) { return GeneratedBy(ctx, reader, "down") },
			want: []string{"made", "made-elsewhere", "made-for-another"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			rules, err := tc.read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i := range rules {
				got = append(got, rules[i].Name)
			}
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestRuleOfObject(t *testing.T) {
	reader := cache(t, alertRule("a", named("s")), alertRule("b", named("s")))
	for name, tc := range map[string]struct {
		object string
		want   rule.Key
		found  bool
	}{
		"a rule's":                {object: rule.ObjectName("hub", rule.AlertRuleKey("ns", "a")), want: rule.AlertRuleKey("ns", "a"), found: true},
		"another rule's":          {object: rule.ObjectName("hub", rule.AlertRuleKey("ns", "b")), want: rule.AlertRuleKey("ns", "b"), found: true},
		"a rule's of another hub": {object: rule.ObjectName("other", rule.AlertRuleKey("ns", "a"))},
		"somebody's":              {object: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			got, found, err := RuleOfObject(t.Context(), reader, tc.object)
			if err != nil || got != tc.want || found != tc.found {
				t.Errorf("got %v, %v, %v", got, found, err)
			}
		})
	}
}

func TestCluster(t *testing.T) {
	reader := cache(t, &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "s", Labels: map[string]string{"env": "prod"}}})
	if got, err := Cluster(t.Context(), reader, "s"); err != nil || got == nil || got.Name != "s" || got.Labels["env"] != "prod" {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := Cluster(t.Context(), reader, "t"); err != nil || got != nil {
		t.Errorf("of a spoke that is not there: %+v, %v", got, err)
	}
	failing := interceptor.NewClient(reader, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("ended")
		},
	})
	if got, err := Cluster(t.Context(), failing, "s"); err == nil || got != nil {
		t.Errorf("of a cache that ended: %+v, %v", got, err)
	}
}

// alertRules returns sources that are all AlertRules.
func alertRules(sources []rule.Source, err error) ([]v1alpha1.AlertRule, error) {
	var out []v1alpha1.AlertRule
	for _, s := range sources {
		out = append(out, *s.(*v1alpha1.AlertRule))
	}
	return out, err
}

// A kind of workloads is read in the spokes in which a template that names it is placed and enabled, and where AlertRules of
// such workloads exist.
func TestWorkloadKinds(t *testing.T) {
	template := func(name string, change func(*v1alpha1.AlertRuleTemplateSpec)) *v1alpha1.AlertRuleTemplate {
		tpl := &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
		change(&tpl.Spec)
		return tpl
	}
	reader := cache(t,
		&v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "eu", Labels: map[string]string{"env": "prod"}}},
		&v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "us", Labels: map[string]string{"env": "dev"}}},
		template("placed", func(s *v1alpha1.AlertRuleTemplateSpec) {
			s.Workloads = &v1alpha1.WorkloadSelection{Kinds: []v1alpha1.WorkloadKind{v1alpha1.StatefulSetKind}}
			s.Placement = &v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}}
		}),
		template("enabled", func(s *v1alpha1.AlertRuleTemplateSpec) {
			s.State = v1alpha1.Disabled
			s.Workloads = &v1alpha1.WorkloadSelection{Kinds: []v1alpha1.WorkloadKind{v1alpha1.DaemonSetKind}}
			s.Overrides = []v1alpha1.TemplateOverride{{ClusterSelection: v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"us"}}, State: v1alpha1.Enabled}}
		}),
		alertRule("left", func(ar *v1alpha1.AlertRule) {
			generatedFrom("gone", "us", "backup")(ar)
			ar.Spec.WorkloadRef.Kind = v1alpha1.CronJobKind
		}),
	)
	for cluster, want := range map[string][]v1alpha1.WorkloadKind{
		"eu": {v1alpha1.StatefulSetKind}, "us": {v1alpha1.DaemonSetKind, v1alpha1.CronJobKind}, "lost": {v1alpha1.StatefulSetKind, v1alpha1.DaemonSetKind},
	} {
		if got, err := WorkloadKinds(t.Context(), reader, cluster); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", cluster, got, err)
		}
	}
}
