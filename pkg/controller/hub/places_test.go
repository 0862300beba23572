package hub

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// places is a hub with Places for two AlertRules in each namespace.
type places struct {
	*testing.T
	*Places

	hub client.Client
}

func newPlaces(t *testing.T, limit int) *places {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	p := &places{T: t, hub: fake.NewClientBuilder().WithScheme(scheme).Build()}
	p.restart(limit)
	return p
}

func (p *places) restart(limit int) { p.Places = NewPlaces(p.hub, limit, "admin", "generated") }

// exists creates an AlertRule of an age in seconds, whose condition Accepted has a reason if that is not "".
func (p *places) exists(namespace, name string, age int, accepted string) *v1alpha1.AlertRule {
	p.Helper()
	ar := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(1_000_000-age), 0))}}
	if accepted != "" {
		ar.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Reason: accepted}}
	}
	if err := p.hub.Create(p.Context(), ar); err != nil {
		p.Fatal(err)
	}
	return ar
}

// comes creates an AlertRule and handles its event.
func (p *places) comes(namespace, name string) {
	p.Helper()
	if _, err := p.Saw(p.Context(), p.exists(namespace, name, 0, "")); err != nil {
		p.Fatal(err)
	}
}

// goes deletes an AlertRule and handles its event, after which the next one has a place.
func (p *places) goes(namespace, name, next string) {
	p.Helper()
	if err := p.hub.Delete(p.Context(), &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}); err != nil {
		p.Fatal(err)
	}
	var want []rule.Key
	if next != "" {
		want = []rule.Key{rule.AlertRuleKey(namespace, next)}
	}
	if got := p.Gone(rule.AlertRuleKey(namespace, name)); !slices.Equal(got, want) {
		p.Errorf("after %s, %v is next, want %s", name, got, next)
	}
}

// wait checks which AlertRules of a namespace wait.
func (p *places) wait(namespace string, want ...string) {
	p.Helper()
	var list v1alpha1.AlertRuleList
	if err := p.hub.List(p.Context(), &list, client.InNamespace(namespace)); err != nil {
		p.Fatal(err)
	}
	var got []string
	for i := range list.Items {
		bad, err := p.Waits(p.Context(), &list.Items[i])
		if err != nil {
			p.Fatal(err)
		}
		if bad == nil {
			continue
		}
		got = append(got, list.Items[i].Name)
		if bad.Reason != v1alpha1.ReasonLimitExceeded {
			p.Errorf("it waits because of %v", bad)
		}
	}
	if !slices.Equal(got, want) {
		p.Errorf("%q wait, want %q", got, want)
	}
}

func TestPlaces(t *testing.T) {
	p := newPlaces(t, 2)
	for _, name := range []string{"z", "m", "a", "b"} {
		p.comes("shop", name)
	}
	p.comes("other", "a")
	p.wait("shop", "a", "b") // the first ones keep their place, whatever their names are
	p.wait("other")
	p.goes("shop", "b", "")
	p.comes("shop", "c")
	p.goes("shop", "z", "a")
	p.wait("shop", "c")
	p.goes("shop", "a", "c")
	p.goes("shop", "c", "")
	p.goes("shop", "m", "")
	p.goes("other", "a", "")
	if len(p.spaces) > 0 {
		t.Errorf("it remembers %v", p.spaces)
	}
}

// A tenant with many objects that wait delays no other: all namespaces share a lock.
func TestPlacesOfMany(t *testing.T) {
	p := newPlaces(t, 1000)
	began := time.Now()
	for i := range 20_000 {
		if _, err := p.Saw(t.Context(), &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("r-%05d", i)}}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 10*time.Second { // it takes some milliseconds
			t.Fatalf("%d events took %v", i+1, took)
		}
	}
}

// After a restart, those that were accepted keep their place, and then the oldest get one.
func TestPlacesAfterARestart(t *testing.T) {
	p := newPlaces(t, 2)
	p.exists("shop", "old", 9, v1alpha1.ReasonLimitExceeded)
	p.exists("shop", "older", 10, "")
	p.exists("shop", "young", 1, v1alpha1.ReasonAccepted)
	p.wait("shop", "old")
	p.goes("shop", "young", "old")
	p.exists("other", "b", 5, "")
	p.exists("other", "c", 5, "")
	p.exists("other", "a", 5, "")
	p.wait("other", "c")

	// A lower limit takes no place away, and one that was accepted and is not valid now keeps its own.
	for _, name := range []string{"a", "b", "c"} {
		p.exists("third", name, 1, v1alpha1.ReasonInvalidExpr)
	}
	p.restart(1)
	p.wait("third")
	p.comes("third", "d")
	p.wait("third", "d")
	p.goes("third", "a", "")
	p.goes("third", "b", "")
	p.wait("third", "d")
	p.goes("third", "c", "d")
}

// A worker may ask for an AlertRule that is gone by then.
func TestPlacesAreNotForThoseThatAreGone(t *testing.T) {
	p := newPlaces(t, 1)
	p.comes("shop", "other")
	gone := p.exists("shop", "gone", 0, "")
	p.goes("shop", "gone", "")
	if bad, err := p.Waits(t.Context(), gone); bad == nil || err != nil {
		t.Errorf("it waits: %v, %v", bad, err)
	}
	p.goes("shop", "other", "")
	if bad, err := p.Waits(t.Context(), gone); bad != nil || err != nil {
		t.Errorf("it waits: %v, %v", bad, err)
	}
	p.comes("shop", "new")
	p.wait("shop")
}

func TestPlacesWithoutLimit(t *testing.T) {
	p := newPlaces(t, 1)
	for _, name := range []string{"a", "b"} {
		p.comes("admin", name)
		p.comes("generated", name)
	}
	p.wait("admin")
	p.wait("generated")
	p.goes("admin", "a", "")
	p.restart(0)
	p.exists("shop", "a", 1, "")
	p.exists("shop", "b", 1, "")
	p.wait("shop")
	p.Places = nil
	p.wait("shop")
}

// packOf returns a RulePack with a number of rules.
func packOf(name string, rules int) *v1alpha1.RulePack {
	group := monitoringv1.RuleGroup{Name: "g", Rules: make([]monitoringv1.Rule, rules)}
	return &v1alpha1.RulePack{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       v1alpha1.RulePackSpec{Groups: []monitoringv1.RuleGroup{group}},
	}
}

// Sources of two kinds with one name do not share a place.
func TestPlacesOfKinds(t *testing.T) {
	p := newPlaces(t, 1)
	p.comes("shop", "a")
	other := packOf("a", 1)
	if next, err := p.Saw(t.Context(), other); err != nil || next != nil {
		t.Fatal(next, err)
	}
	if waits, err := p.Waits(t.Context(), other); waits == nil || err != nil {
		t.Errorf("it has a place: %v, %v", waits, err)
	}
	if next := p.Gone(rule.AlertRuleKey("shop", "a")); !slices.Equal(next, []rule.Key{rule.KeyOf(other)}) {
		t.Errorf("next are %v", next)
	}
}

// A RulePack takes as many places as it has rules. It may not grow beyond the limit. If it shrinks, others get the rest.
func TestPlacesOfPacks(t *testing.T) {
	p := newPlaces(t, 5)
	saw := func(name string, rules int, next ...rule.Key) {
		t.Helper()
		if got, err := p.Saw(t.Context(), packOf(name, rules)); err != nil || !slices.Equal(got, next) {
			t.Errorf("after %s with %d: next are %v, %v; want %v", name, rules, got, err, next)
		}
	}
	waits := func(name string, rules int, want bool) {
		t.Helper()
		if got, err := p.Waits(t.Context(), packOf(name, rules)); err != nil || (got != nil) != want {
			t.Errorf("%s with %d waits: %v, %v", name, rules, got, err)
		}
	}
	key := func(name string) rule.Key { return rule.KeyOf(packOf(name, 0)) }
	saw("a", 4)
	waits("a", 4, false)
	p.comes("shop", "rule")
	saw("b", 2)
	waits("b", 2, true)
	saw("a", 5) // the limit is 5, and one is taken
	waits("a", 5, true)
	waits("a", 4, false)
	saw("c", 1)
	waits("c", 1, true)
	saw("a", 3, key("c")) // b does not fit
	waits("c", 1, false)
	waits("a", 3, false)
	saw("a", 1, key("b"))
	waits("b", 2, false)
	saw("a", 3) // it has two rules too many
	waits("a", 3, true)
	waits("a", 1, false)
	saw("d", 7)
	waits("d", 7, true)
	if bad, err := p.Waits(t.Context(), packOf("d", 7)); err != nil || !strings.Contains(bad.Message, "this RulePack alone has more than that; remove rules") {
		t.Errorf("%v, %v", bad, err)
	}
	if next := p.Gone(key("b")); !slices.Equal(next, []rule.Key{key("a")}) {
		t.Errorf("next are %v", next)
	}
	waits("a", 3, false)
	if next := p.Gone(rule.AlertRuleKey("shop", "rule")); next != nil {
		t.Errorf("next are %v", next)
	}
	saw("d", 1) // now it fits
	waits("d", 1, false)
}
