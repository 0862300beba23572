package distribute

import (
	"slices"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// placed returns the AlertRule with another placement.
func placed(p v1alpha1.ClusterSelection) *v1alpha1.AlertRule {
	ar := alertRule()
	ar.Spec.Placement = p
	return ar
}

func TestOnAlertRule(t *testing.T) {
	names := func(names ...v1alpha1.ClusterName) v1alpha1.ClusterSelection {
		return v1alpha1.ClusterSelection{Names: names}
	}
	env := func(value string) v1alpha1.ClusterSelection {
		return v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": value}}}
	}
	for name, tc := range map[string]struct {
		held              bool // the spoke has the rule's PrometheusRule
		old, new          *v1alpha1.AlertRule
		deleted, unserved bool
		want              []string
	}{
		"a new rule, by name":             {new: placed(names("s")), want: []string{"down in s"}},
		"a new rule, by label":            {new: placed(env("prod")), want: []string{"down in s"}},
		"a new rule for others, by label": {new: placed(env("test"))},
		"a changed rule":                  {held: true, old: placed(names("s")), new: placed(names("s")), want: []string{"down in s"}},
		"placed now":                      {old: placed(env("test")), new: placed(env("prod")), want: []string{"down in s"}},
		"placed before":                   {old: placed(names("s")), new: placed(names("t")), want: []string{"down in s"}},
		"placed before, by label":         {old: placed(env("prod")), new: placed(env("test")), want: []string{"down in s"}},
		"never placed":                    {old: placed(env("test")), new: placed(env("dev"))},
		"never placed, and there":         {held: true, old: placed(env("test")), new: placed(env("dev")), want: []string{"down in s"}},
		"never placed, and not served":    {held: true, unserved: true, old: placed(env("test")), new: placed(env("dev"))},
		"a selector that is not valid":    {held: true, old: placed(env("-")), new: placed(env("-")), want: []string{"down in s"}},
		"a deleted rule":                  {held: true, new: placed(names("s")), deleted: true, want: []string{"down in s"}},
		"a deleted rule, by label":        {held: true, new: placed(env("test")), deleted: true, want: []string{"down in s"}},
		"a deleted rule of others":        {new: placed(env("test")), deleted: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if tc.held {
				w = applied(t)
			}
			if tc.unserved {
				w.spoke.RulesServed, w.spoke.Reader = false, nil
			}
			handler := w.onSource("", nil)
			switch {
			case tc.deleted:
				handler.Delete(t.Context(), event.TypedDeleteEvent[client.Object]{Object: tc.new}, w.queue)
			case tc.old == nil:
				handler.Create(t.Context(), event.TypedCreateEvent[client.Object]{Object: tc.new}, w.queue)
			default:
				handler.Update(t.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: tc.old, ObjectNew: tc.new}, w.queue)
			}
			if got := w.enqueued(); !slices.Equal(got, tc.want) {
				t.Errorf("enqueued %v, want %v", got, tc.want)
			}
		})
	}
}

// Rules placed on a spoke by its former name are its successor's to remove.
func TestOnAlertRuleOfAPredecessor(t *testing.T) {
	w := applied(t)
	w.successors = map[string]string{"former": "s"}
	ar := placed(v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"former", "other"}})
	w.onSource("", nil).Delete(t.Context(), event.TypedDeleteEvent[client.Object]{Object: ar}, w.queue)
	if got := w.enqueued(); !slices.Contains(got, "down in s") {
		t.Errorf("enqueued %q", got)
	}
}

// Every rule that may be placed on a spoke is enqueued once when the spoke is engaged, or its labels change.
func TestReplay(t *testing.T) {
	w := newWorld(t)
	for name, p := range map[string]v1alpha1.ClusterSelection{
		"named":    {Names: []v1alpha1.ClusterName{"r", "s"}},
		"selected": {Selector: &metav1.LabelSelector{}},
		"both":     {Names: []v1alpha1.ClusterName{"s"}, Selector: &metav1.LabelSelector{}},
		"other":    {Names: []v1alpha1.ClusterName{"r"}},
	} {
		ar := placed(p)
		ar.Name, ar.UID = name, types.UID(name)
		w.put(w.hub, ar)
	}
	want := []string{"both in s", "named in s", "selected in s"}
	w.replay(t.Context(), "s", w.queue)
	if got := w.enqueued(); !slices.Equal(got, want) {
		t.Errorf("engaged: %v, want %v", got, want)
	}
	sc := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	w.onSpokeCluster("", nil).Update(t.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: sc, ObjectNew: sc}, w.queue)
	if got := w.enqueued(); !slices.Equal(got, want) {
		t.Errorf("its labels changed: %v, want %v", got, want)
	}
	// The rule of this object was deleted while there was no SpokeCluster.
	left := &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "left", Labels: map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.HubLabel: hubID},
		Annotations: map[string]string{v1alpha1.AlertRuleAnnotation: "shop/left"},
	}}
	w.put(w.server, left)
	w.sync()
	w.enqueued()
	all := []string{"both in s", "left in s", "named in s", "selected in s"}
	w.onSpokeCluster("", nil).Create(t.Context(), event.TypedCreateEvent[client.Object]{Object: sc}, w.queue)
	if got := w.enqueued(); !slices.Equal(got, all) {
		t.Errorf("it is created again: %v, want %v", got, all)
	}
	again := sc.DeepCopy()
	again.UID = "again"
	w.onSpokeCluster("", nil).Update(t.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: sc, ObjectNew: again}, w.queue)
	if got := w.enqueued(); !slices.Equal(got, all) {
		t.Errorf("it is replaced: %v, want %v", got, all)
	}
	sc.Name = "r"
	w.onSpokeCluster("", nil).Create(t.Context(), event.TypedCreateEvent[client.Object]{Object: sc}, w.queue)
	if got := w.enqueued(); len(got) > 0 {
		t.Errorf("enqueued for a spoke that is not engaged: %v", got)
	}
}

// Objects in a spoke are untrusted.
func TestRuleKeys(t *testing.T) {
	for name, tc := range map[string]struct {
		labels      map[string]string
		annotations map[string]string
		want        []string
	}{
		"this hub's": {
			labels:      map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.HubLabel: hubID},
			annotations: map[string]string{v1alpha1.AlertRuleAnnotation: "shop/down"}, want: []string{"shop/down"},
		},
		"another hub's": {
			labels:      map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.HubLabel: "hub-2"},
			annotations: map[string]string{v1alpha1.AlertRuleAnnotation: "shop/down"},
		},
		"somebody's": {annotations: map[string]string{v1alpha1.AlertRuleAnnotation: "shop/down"}},
		"this hub's, with nonsense in it": {
			labels:      map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.HubLabel: hubID},
			annotations: map[string]string{v1alpha1.AlertRuleAnnotation: "../../etc"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels, Annotations: tc.annotations}}
			if got := ruleKeys(hubID)(o); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// A namespace whose labels changed has the rules in it enqueued, unless the spoke's namespaces change all the time: then it
// waits for its turn.
func TestOnNamespaceWithOtherLabels(t *testing.T) {
	w := applied(t)
	w.enqueued()
	change := func() []string {
		before, after := spoke.NamespaceMetadata(), spoke.NamespaceMetadata()
		before.Name, after.Name, after.Labels = "shop", "shop", map[string]string{"rules": "yes"}
		w.onNamespace("s", nil).Update(t.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: before, ObjectNew: after}, w.queue)
		return w.enqueued()
	}
	if got := change(); !slices.Equal(got, []string{"down in s"}) {
		t.Errorf("enqueued %v", got)
	}
	w.replays.Do("s", "large", func() int {
		w.replays.Do("s", "another", func() int { return spoke.DefaultMaxObjects })
		return spoke.DefaultMaxObjects
	})
	if got := change(); len(got) > 0 {
		t.Errorf("enqueued at once: %v", got)
	}
	w.Reconciler.Forget("s")
	if got := change(); !slices.Equal(got, []string{"down in s"}) {
		t.Errorf("enqueued later: %v", got)
	}
}
