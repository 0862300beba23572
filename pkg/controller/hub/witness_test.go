package hub

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

var defined = time.Unix(1e9, 0)

// kindOfTime is a kind that was defined at a time.
func kindOfTime(t time.Time) Defined { return Defined{Since: t, created: t} }

func ruleMade(uid types.UID, made time.Time) *v1alpha1.AlertRule {
	return &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "down", UID: uid, CreationTimestamp: metav1.NewTime(made)}}
}

func TestWitnessDeleted(t *testing.T) {
	deleted := func(o client.Object) func(w *Witness) { return func(w *Witness) { w.sawDeleted(o) } }
	for name, tc := range map[string]struct {
		saw  []func(w *Witness)
		want bool
	}{
		"nothing":                            {},
		"one that is as old as the kind":     {saw: []func(w *Witness){deleted(ruleMade("1", defined))}, want: true},
		"one of the former kind":             {saw: []func(w *Witness){deleted(ruleMade("1", defined.Add(-time.Second)))}},
		"another kind":                       {saw: []func(w *Witness){deleted(&v1alpha1.AlertRuleTemplate{ObjectMeta: ruleMade("1", defined).ObjectMeta})}},
		"it is there again":                  {saw: []func(w *Witness){deleted(ruleMade("1", defined)), func(w *Witness) { w.sawCreated(ruleMade("2", defined)) }}},
		"it is there again, by a later list": {saw: []func(w *Witness){deleted(ruleMade("1", defined)), func(w *Witness) { w.sawUpdated(ruleMade("1", defined), ruleMade("2", defined)) }}},
		"an update after it":                 {saw: []func(w *Witness){deleted(ruleMade("1", defined)), func(w *Witness) { w.sawUpdated(ruleMade("1", defined), ruleMade("1", defined)) }}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWitness()
			for _, saw := range tc.saw {
				saw(w)
			}
			if got := w.Deleted(AlertRules, types.NamespacedName{Namespace: "shop", Name: "down"}, kindOfTime(defined)); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// member is a SpokeCluster with a label.
func member(name string, uid types.UID, tier string) *v1alpha1.SpokeCluster {
	return &v1alpha1.SpokeCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, Labels: map[string]string{"tier": tier}, CreationTimestamp: metav1.NewTime(defined)},
		Status:     v1alpha1.SpokeClusterStatus{Identity: "identity"},
	}
}

func TestWitnessLabels(t *testing.T) {
	w := NewWitness()
	c := *ClusterOf(member("s", "1", "silver"))
	w.sawUpdated(member("s", "1", "gold"), member("s", "1", "silver"))
	w.sawUpdated(member("s", "1", "gold"), member("s", "1", "silver")) // by another controller
	if seen := w.Seen("", c); len(seen.Spokes) != 1 || seen.Spokes[0].Labels["tier"] != "gold" {
		t.Errorf("seen were %v", seen.Spokes)
	}
	status := member("s", "1", "silver")
	status.Status.Identity = "another"
	w.sawUpdated(member("s", "1", "silver"), status)
	if seen := w.Seen("", c); len(seen.Spokes) != 1 {
		t.Errorf("a change of the status is remembered: %v", seen.Spokes)
	}
	narrowed := member("s", "1", "silver")
	narrowed.Spec.Tenants = &v1alpha1.TenantSelection{Names: []v1alpha1.NamespaceName{"shop"}}
	w.sawUpdated(member("s", "1", "silver"), narrowed)
	w.sawUpdated(narrowed, member("s", "1", "silver"))
	if seen := w.Seen("", c); len(seen.Spokes) != 3 || seen.Spokes[2].Tenants == nil || seen.Spokes[2].Tenants.Names[0] != "shop" {
		t.Errorf("of changes of spec.tenants were seen %v", seen.Spokes)
	}
	// It was deleted and created again between two events.
	w.sawUpdated(member("s", "1", "silver"), member("s", "2", "bronze"))
	for _, uid := range []types.UID{"1", "2"} {
		c.UID = uid
		if seen := w.Seen("", c); len(seen.Spokes) != 0 {
			t.Errorf("of %s were seen %v", uid, seen.Spokes)
		}
	}
	for n := range 3 * maxFormer {
		w.sawUpdated(member("s", "2", fmt.Sprint(n)), member("s", "2", "other"))
	}
	if seen := w.Seen("", c); len(seen.Spokes) != maxFormer || seen.Spokes[maxFormer-1].Labels["tier"] != fmt.Sprint(3*maxFormer-1) {
		t.Errorf("seen were %v", seen.Spokes)
	}
	w.sawDeleted(member("s", "2", "other"))
	if seen := w.Seen("", c); len(seen.Spokes) != 0 {
		t.Errorf("it is gone, and seen were %v", seen.Spokes)
	}
}

// witnessOf returns a Witness that has seen a SpokeCluster.
func witnessOf(t *testing.T) (*Witness, rule.Cluster) {
	t.Helper()
	w, sc := NewWitness(), member("s", "seen", "gold")
	w.sawCreated(sc)
	return w, *ClusterOf(sc)
}

func TestWitnessRules(t *testing.T) {
	w, c := witnessOf(t)
	was, is := ruleMade("1", defined), ruleMade("1", defined)
	is.Spec.Expr = "up == 1"
	w.sawUpdated(was, is)
	if seen := w.Seen("1", c); len(seen.Sources) != 0 {
		t.Errorf("what no decision reads is remembered: %+v", seen.Sources)
	}
	is.Spec.Overrides = []v1alpha1.Override{{State: v1alpha1.Disabled}}
	w.sawUpdated(was, is)
	is2 := is.DeepCopy()
	is2.Spec.State, is2.Spec.Placement.Names = v1alpha1.Disabled, []v1alpha1.ClusterName{"s"}
	w.sawUpdated(is, is2)
	if seen := w.Seen("1", c); len(seen.Sources) != 2 || len(seen.Sources[1].GetOverrides()) != 1 || len(seen.Templates) != 0 {
		t.Errorf("seen were %+v", seen.Sources)
	}
	tpl, changed := &v1alpha1.AlertRuleTemplate{}, &v1alpha1.AlertRuleTemplate{}
	tpl.UID, changed.UID, changed.Spec.State = "2", "2", v1alpha1.Disabled
	w.sawUpdated(tpl, changed)
	if seen := w.Seen("2", c); len(seen.Templates) != 1 || len(seen.Sources) != 0 {
		t.Errorf("seen were %+v", seen)
	}
}

// A change of a rule before the SpokeCluster was created again does not explain a removal: the labels of the
// former one may have placed the rule.
func TestWitnessRulesOfAFormerSpoke(t *testing.T) {
	w, c := witnessOf(t)
	versioned := func(version string, state v1alpha1.State) *v1alpha1.AlertRule {
		ar := ruleMade("1", defined)
		ar.ResourceVersion, ar.Spec.State = version, state
		return ar
	}
	w.sawUpdated(versioned("5", v1alpha1.Enabled), versioned("10", v1alpha1.Disabled))
	if seen := w.Seen("1", c); len(seen.Sources) != 1 {
		t.Errorf("seen were %+v", seen.Sources)
	}
	sc := member("s", "again", "")
	if seen := w.Seen("1", *ClusterOf(sc)); len(seen.Sources) != 0 {
		t.Errorf("with a SpokeCluster that was not seen: %+v", seen.Sources)
	}
	for _, version := range []string{"20", "40"} { // another controller may see a later one
		sc.ResourceVersion = version
		w.sawCreated(sc)
	}
	w.sawUpdated(versioned("10", v1alpha1.Disabled), versioned("30", v1alpha1.Enabled))
	if seen := w.Seen("1", *ClusterOf(sc)); len(seen.Sources) != 1 || seen.Sources[0].GetState() != v1alpha1.Disabled {
		t.Errorf("seen were %+v", seen.Sources)
	}
}

func TestWitnessLeft(t *testing.T) {
	w := NewWitness()
	w.sawDeleted(member("former", "1", "gold"))
	w.sawDeleted(member("former", "2", "silver"))
	stranger := member("stranger", "3", "gold")
	stranger.Status.Identity = ""
	w.sawDeleted(stranger)
	c := *ClusterOf(member("s", "4", "bronze"))
	if left := w.Left(c, kindOfTime(defined)); len(left) != 1 || left[0].Labels["tier"] != "silver" {
		t.Errorf("got %+v", left)
	}
	if left := w.Left(c, kindOfTime(defined.Add(time.Second))); len(left) != 0 {
		t.Errorf("of the former kind: %+v", left)
	}
	if left := w.Left(*ClusterOf(member("former", "5", "bronze")), kindOfTime(defined)); len(left) != 0 {
		t.Errorf("of its own name: %+v", left)
	}
	c.Identity = ""
	if left := w.Left(c, kindOfTime(defined)); len(left) != 0 {
		t.Errorf("of a cluster that nobody knows: %+v", left)
	}
}

// An AlertRule that is deleted and created again inherits the versions. A SpokeCluster and a template do not,
// because the manager itself creates these again.
func TestWitnessReplaced(t *testing.T) {
	w, c := witnessOf(t)
	was, is := ruleMade("1", defined), ruleMade("1", defined)
	was.Spec.State = v1alpha1.Disabled
	w.sawUpdated(was, is)
	w.sawDeleted(is)
	w.sawCreated(ruleMade("2", defined))
	if seen := w.Seen("2", c); len(seen.Sources) != 2 || seen.Sources[0].GetState() != v1alpha1.Disabled || seen.Sources[1].GetState() != "" {
		t.Errorf("seen were %+v", seen.Sources)
	}
	if seen := w.Seen("1", c); len(seen.Sources) != 0 {
		t.Errorf("of the former one: %+v", seen.Sources)
	}
	w.sawDeleted(member("s", "5", "gold"))
	w.sawCreated(member("s", "6", "silver"))
	if seen := w.Seen("", *ClusterOf(member("s", "6", "silver"))); len(seen.Spokes) != 0 {
		t.Errorf("seen were %+v", seen.Spokes)
	}
	tpl := &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t", UID: "3"}}
	w.sawDeleted(tpl)
	again := tpl.DeepCopy()
	again.UID = "4"
	w.sawCreated(again)
	if seen := w.Seen("4", c); len(seen.Templates) != 0 {
		t.Errorf("seen were %+v", seen.Templates)
	}
}

// The oldest go first.
func TestWitnessIsBounded(t *testing.T) {
	w, c := witnessOf(t)
	for n := range maxWitnessed + 1 {
		o := ruleMade(types.UID(fmt.Sprint(n)), defined)
		o.Name = fmt.Sprint(n)
		w.sawDeleted(o)
		is := o.DeepCopy()
		is.Spec.State = v1alpha1.Disabled
		w.sawUpdated(o, is)
	}
	for n, want := range map[int]bool{0: false, 1: true, maxWitnessed: true} {
		key := types.NamespacedName{Namespace: "shop", Name: fmt.Sprint(n)}
		if got := w.Deleted(AlertRules, key, kindOfTime(defined)); got != want {
			t.Errorf("deletion %d: %v", n, got)
		}
		if got := len(w.Seen(types.UID(fmt.Sprint(n)), c).Sources) > 0; got != want {
			t.Errorf("version %d: %v", n, got)
		}
	}
}

// An event is remembered before it is handled.
func TestWitnessBefore(t *testing.T) {
	w, c := witnessOf(t)
	var order []string
	note := func(_ context.Context, _ spoke.WorkQueue, versions ...client.Object) {
		deleted := w.Deleted(AlertRules, Key(versions[0]), kindOfTime(defined))
		order = append(order, fmt.Sprint(len(versions), deleted, len(w.Seen("1", c).Sources)))
	}
	h := w.Before(spoke.OnEvent(note))
	was, is := ruleMade("1", defined), ruleMade("1", defined)
	is.Spec.State = v1alpha1.Disabled
	h.Delete(t.Context(), event.TypedDeleteEvent[client.Object]{Object: was}, nil)
	h.Create(t.Context(), event.TypedCreateEvent[client.Object]{Object: was}, nil)
	h.Update(t.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: was, ObjectNew: is}, nil)
	if want := []string{"1 true 0", "1 false 1", "2 false 1"}; !slices.Equal(order, want) {
		t.Errorf("got %q, want %q", order, want)
	}
}
