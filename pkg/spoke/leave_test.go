package spoke

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	monitoringfake "github.com/prometheus-operator/prometheus-operator/pkg/client/versioned/fake"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// ruleOf returns a PrometheusRule of a hub.
func ruleOf(hub, name string) *monitoringv1.PrometheusRule {
	return &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, UID: "uid", ResourceVersion: "1",
		Labels:      map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.HubLabel: hub},
		Annotations: map[string]string{v1alpha1.AlertRuleAnnotation: "shop/" + name},
	}}
}

// ownOf reads the rules of hub.
func ownOf(rules *monitoringfake.Clientset) *reading {
	c := &connection{cfg: &rest.Config{}, received: &atomic.Int64{}, p: NewProvider(Options{HubID: "hub"})}
	return c.ownRules(rules, without(monitoringv1.PrometheusRuleName))
}

// pruned removes hub's rules from a spoke, and returns what is left there and what was told.
func pruned(t *testing.T, rules *monitoringfake.Clientset) (left []string, removed int, told []string, err error) {
	t.Helper()
	err = pruneAll(t.Context(), ownOf(rules), rules, func(n int, names []string) { removed += n; told = names })
	list, listErr := rules.MonitoringV1().PrometheusRules("").List(t.Context(), metav1.ListOptions{})
	if listErr != nil {
		t.Fatal(listErr)
	}
	for i := range list.Items {
		left = append(left, list.Items[i].Name)
	}
	return left, removed, told, err
}

func TestPruneAll(t *testing.T) {
	var objects []runtime.Object
	for i := range 10 {
		objects = append(objects, ruleOf("hub", fmt.Sprintf("own-%d", i)))
	}
	objects = append(objects, ruleOf("another", "foreign"))
	rules := monitoringfake.NewClientset(objects...)
	left, removed, told, err := pruned(t, rules)
	if err != nil || removed != 10 || len(told) > 0 || !slices.Equal(left, []string{"foreign"}) {
		t.Errorf("%q are left, %d were removed, told %q: %v", left, removed, told, err)
	}
	for _, a := range rules.Actions() {
		d, ok := a.(clienttesting.DeleteActionImpl)
		if ok && (d.DeleteOptions.Preconditions == nil || *d.DeleteOptions.Preconditions.UID != "uid" || *d.DeleteOptions.Preconditions.ResourceVersion != "1") {
			t.Errorf("%s was deleted whatever it is by now", d.Name)
		}
	}
}

// The rules of a spoke that leaves are bounded as those of others are.
func TestLeavingIsBounded(t *testing.T) {
	var objects []runtime.Object
	for i := range 11 {
		objects = append(objects, ruleOf("hub", fmt.Sprintf("own-%d", i)))
	}
	for most, want := range map[int]error{10: errTooLarge, 11: nil} {
		c := &connection{cfg: &rest.Config{}, received: &atomic.Int64{}, p: NewProvider(Options{HubID: "hub", Limits: Limits{Objects: most}})}
		list, err := listOwn(t.Context(), c.ownRules(monitoringfake.NewClientset(objects...), nil))
		if !errors.Is(err, want) || (want == nil && len(list) != len(objects)) {
			t.Errorf("at most %d: got %d objects, %v", most, len(list), err)
		}
	}
}

// An object that waits for its finalizers is deleted again later, not continuously.
func TestPruneAllWaitsForFinalizers(t *testing.T) {
	ending := ruleOf("hub", "ending")
	ending.DeletionTimestamp, ending.Finalizers = new(metav1.Now()), []string{"example.com/f"}
	left, removed, told, err := pruned(t, monitoringfake.NewClientset(ending, ruleOf("hub", "own")))
	if err == nil || !strings.Contains(err.Error(), "shop/ending") || removed != 1 || !slices.Equal(told, []string{"shop/ending"}) || !slices.Equal(left, []string{"ending"}) {
		t.Errorf("%q are left, %d were removed, told %q: %v", left, removed, told, err)
	}
}

func TestPruneAllIsRefused(t *testing.T) {
	rules := monitoringfake.NewClientset(ruleOf("hub", "a"), ruleOf("hub", "b"))
	rules.PrependReactor("delete", "prometheusrules", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(resource, "a", nil)
	})
	left, removed, told, err := pruned(t, rules)
	if !apierrors.IsForbidden(err) || removed != 0 || !slices.Equal(told, []string{"shop/a", "shop/b"}) || len(left) != 2 {
		t.Errorf("%q are left, %d were removed, told %q: %v", left, removed, told, err)
	}
	gone := monitoringfake.NewClientset()
	gone.PrependReactor("list", "prometheusrules", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errNotFound
	})
	if err := pruneAll(t.Context(), ownOf(gone), gone, func(int, []string) {}); err != nil {
		t.Errorf("without the kind: %v", err)
	}
}

// Another client that creates an object again and again causes few deletions.
func TestPruneAllPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules, deletions := monitoringfake.NewClientset(ruleOf("hub", "own")), 0
		rules.PrependReactor("delete", "prometheusrules", func(clienttesting.Action) (bool, runtime.Object, error) {
			deletions++
			return true, nil, nil // and there is another one
		})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		err := pruneAll(ctx, ownOf(rules), rules, func(int, []string) {})
		if !errors.Is(err, context.DeadlineExceeded) || deletions < 3 || deletions > 12 {
			t.Errorf("%d deletions: %v", deletions, err)
		}
	})
}

// A refused deletion does not stop the others, and only what is left is reported.
func TestPruneAllGoesOn(t *testing.T) {
	var objects []runtime.Object
	for i := range 2 * pruneStep {
		objects = append(objects, ruleOf("hub", fmt.Sprintf("own-%03d", i)))
	}
	rules := monitoringfake.NewClientset(objects...)
	rules.PrependReactor("delete", "prometheusrules", func(a clienttesting.Action) (bool, runtime.Object, error) {
		d, ok := a.(clienttesting.DeleteActionImpl)
		return ok && d.Name == "own-001", nil, apierrors.NewForbidden(resource, "own-001", nil)
	})
	var steps []int
	err := pruneAll(t.Context(), ownOf(rules), rules, func(_ int, left []string) { steps = append(steps, len(left)) })
	left, _, _, _ := pruned(t, rules)
	if !apierrors.IsForbidden(err) || !slices.Equal(left, []string{"own-001"}) || !slices.Equal(steps, []int{pruneStep + 1, 1}) {
		t.Errorf("%q are left, told %v: %v", left, steps, err)
	}
}

// A spoke that does not answer is not asked about every object.
func TestPruneAllGivesUp(t *testing.T) {
	var objects []runtime.Object
	for i := range 2 * pruneStep {
		objects = append(objects, ruleOf("hub", fmt.Sprintf("own-%03d", i)))
	}
	rules := monitoringfake.NewClientset(objects...)
	rules.PrependReactor("delete", "prometheusrules", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errBlocked
	})
	_, removed, told, err := pruned(t, rules)
	if !errors.Is(err, errBlocked) || removed != 0 || len(told) != 2*pruneStep {
		t.Errorf("%d were removed, told %d: %v", removed, len(told), err)
	}
	if n := len(rules.Actions()); n > pruneStep+2 {
		t.Errorf("%d requests", n)
	}
}

// A spoke that was never known to be a cluster removes nothing from a cluster of another spoke, whether that
// has a Secret at present or not.
func TestInCharge(t *testing.T) {
	p := NewProvider(Options{})
	p.Known("other", "c")
	for _, tc := range []struct {
		released, known bool
		want            string
	}{
		{released: false, known: true, want: "other"}, {released: false, known: false, want: "other"},
		{released: true, known: true, want: ""}, {released: true, known: false, want: "other"},
	} {
		if tc.released {
			p.Release("other")
		}
		if got := p.inCharge("s", "c", tc.known); got != tc.want {
			t.Errorf("%+v: %q is in charge", tc, got)
		}
	}
	if got := p.inCharge("other", "c", true) + p.inCharge("s", "d", false); got != "" {
		t.Errorf("%q is in charge", got)
	}
}

// A spoke that turns out to be another's cluster leaves at once, and nothing is removed.
func TestDepartOfADuplicate(t *testing.T) {
	s, c, _ := connectTo(t)
	p := c.p
	p.base = t.Context()
	engagedAs(p, "other", "uid")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	d := &departure{cancel: func() {}}
	p.depart(ctx, "s", c, d)
	if !d.state.Done || ctx.Err() != nil || !strings.Contains(d.state.Why, "other") || len(s.asked) != 1 {
		t.Errorf("got %+v, asked for %q", d.state, s.asked)
	}
}

// A departure continues after a restart of the operator.
func TestDepartIsInterrupted(t *testing.T) {
	_, c, _ := connectTo(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.p.base = ctx
	d := &departure{cancel: func() {}}
	c.p.depart(ctx, "s", c, d)
	if d.state.Done {
		t.Errorf("got %+v", d.state)
	}
}

// The removal is tried for the timeout, whatever the clock of the hub's API server.
func TestDepartUntil(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	const timeout = 2 * time.Minute
	for name, c := range map[string]struct {
		deleted  time.Duration // before now
		attended bool
		want     time.Duration
	}{
		"just now":                              {0, true, timeout},
		"a moment ago":                          {lastTry, true, timeout - lastTry},
		"its clock is ahead":                    {-time.Hour, true, timeout},
		"its clock is behind":                   {time.Hour, true, timeout},
		"before a restart":                      {time.Minute, false, time.Minute},
		"long before a restart":                 {time.Hour, false, timeout - time.Hour}, // one last try
		"before a restart, its clock is ahead":  {-time.Hour, false, timeout},
		"before a restart, a little in advance": {-time.Second, false, timeout},
	} {
		t.Run(name, func(t *testing.T) {
			o := DepartOptions{Deleted: now.Add(-c.deleted), Timeout: timeout}
			if got := o.until(now, c.attended).Sub(now); got != c.want {
				t.Errorf("it is tried for %v, and not for %v", got, c.want)
			}
		})
	}
}

// The shown deadline of a departure does not change.
func TestDepartShowsItsDeadline(t *testing.T) {
	t.Parallel()
	_, c, _ := connectTo(t)
	p := c.p
	p.base = t.Context()
	close(p.started)
	o := DepartOptions{Stays: "a test", Deleted: time.Now().Add(time.Hour), Timeout: time.Minute}
	first, err := p.Depart(t.Context(), "gone", o)
	if err != nil || time.Until(first.Deadline) > time.Minute {
		t.Fatalf("it is tried until %v: %v", first.Deadline, err)
	}
	if again, err := p.Depart(t.Context(), "gone", o); err != nil || !again.Deadline.Equal(first.Deadline) {
		t.Errorf("then it is tried until %v, and not %v: %v", again.Deadline, first.Deadline, err)
	}
	// For a served spoke, an earlier deletion would have been seen.
	engagedAs(p, "served", "uid")
	o.Deleted = time.Now().Add(-time.Hour)
	for name, want := range map[string]bool{"served": true, "restarted": false} {
		if d, err := p.Depart(t.Context(), name, o); err != nil || d.Deadline.After(time.Now()) != want {
			t.Errorf("%s is tried until %v: %v", name, d.Deadline, err)
		}
	}
}

// The reason for rules that are left has no advice that would have no effect any more.
func TestWhyLeft(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"the spoke rejects the credential (401)":     errUnauthorized,
		"the kubeconfig leads to another cluster":    fmt.Errorf("x: %w", &IdentityError{Spoke: "s", Was: "A", Is: "B"}),
		"no answer in time: context deadline exceed": context.DeadlineExceeded,
	} {
		if got := whyLeft(err); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got, want := managedBy("eu-2"), "SpokeCluster eu-2 is the same cluster and manages them"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The rules of a spoke that leaves stay where they are if another spoke is the same cluster and manages them.
func TestDepartKeeps(t *testing.T) {
	t.Parallel()
	p := NewProvider(Options{})
	p.base = t.Context()
	close(p.started)
	engagedAs(p, "eu-2", "uid")
	p.Known("former", "uid")
	p.Known("orphaned", "uid")
	d, err := p.Depart(t.Context(), "former", DepartOptions{Timeout: time.Minute})
	if err != nil || !d.Stays || d.Meant || !d.Kept || d.Why != managedBy("eu-2") {
		t.Errorf("got %+v, %v", d, err)
	}
	d, err = p.Depart(t.Context(), "orphaned", DepartOptions{Stays: "a person says so", Timeout: time.Minute})
	if err != nil || !d.Stays || !d.Meant || d.Kept || d.Why != "a person says so" {
		t.Errorf("got %+v, %v", d, err)
	}
}
