package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// builtIn is the template of this test's rules. free is how many of them are deleted without a hold.
const (
	builtIn     = "deployment-down"
	deployments = 60
	free        = 20
)

// braking is a fleet of two spokes; the first has many rules.
type braking struct {
	*fleet.Fleet
	first, second *fleet.Member
	manager       *fleet.Manager
	// restart kills the manager and starts it again.
	restart func(args ...string)
}

// TestBrake deletes rules in masses, by mistake and on purpose.
func TestBrake(t *testing.T) {
	long(t)
	parallel(t)
	f := &braking{Fleet: start(t, fleet.Options{Spokes: []string{"first", "second"}})}
	f.first, f.second = f.Spoke("first"), f.Spoke("second")
	for m, n := range map[*fleet.Member]int{f.first: deployments, f.second: 5} {
		namespace(t, "shop", m)
		for i := range n {
			must(t, m.Client.Create(t.Context(), deployment("shop", fmt.Sprintf("web-%02d", i))))
		}
	}
	dir := t.TempDir()
	f.manager = startManager(t, f.Fleet, dir)
	// Times have seconds. The order of two equal ones is not known, so deletions would be suspect after a restart.
	eventually(t, "the template is older than what is made from it", func(ctx context.Context) error {
		tmpl := &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: builtIn}}
		err := f.Hub.Client.Get(ctx, client.ObjectKeyFromObject(tmpl), tmpl)
		if err == nil && time.Since(tmpl.CreationTimestamp.Time) < time.Second {
			err = errors.New("it is from this second")
		}
		return err
	})
	for _, m := range []*fleet.Member{f.first, f.second} {
		must(t, f.Register(t.Context(), m.Name(), nil))
	}
	f.restart = func(args ...string) {
		must(t, f.manager.Kill())
		f.manager = startManagerWith(t, f.Fleet, fleet.ManagerOptions{Dir: dir, Args: args})
	}
	f.expect(t, f.first, deployments, deployments)
	f.expect(t, f.second, 5, 5)
	// Each subtest continues the one before.
	_ = t.Run("Disabled", f.disabled) && t.Run("EnabledAgain", f.enabledAgain) && t.Run("Restarted", f.restarted) &&
		t.Run("Acknowledged", f.acknowledged) && t.Run("NothingReleased", f.nothingReleased) && t.Run("TemplateDeleted", f.templateDeleted) &&
		t.Run("KindLost", f.kindLost) && t.Run("Waited", f.waited)
}

// rules returns the generated AlertRules of a spoke on the hub, by their UID.
func (f *braking) rules(ctx context.Context, m *fleet.Member) (map[types.UID]bool, error) {
	var list v1alpha1.AlertRuleList
	if err := f.Hub.Client.List(ctx, &list, client.InNamespace(fleet.GeneratedNamespace)); err != nil {
		return nil, err
	}
	uids := map[types.UID]bool{}
	for i := range list.Items {
		if string(list.Items[i].Spec.WorkloadRef.Cluster) == m.Name() {
			uids[list.Items[i].UID] = true
		}
	}
	return uids, nil
}

func (f *braking) count(ctx context.Context, m *fleet.Member) (onHub, inSpoke int, err error) {
	uids, err := f.rules(ctx, m)
	if err != nil {
		return 0, 0, err
	}
	var list monitoringv1.PrometheusRuleList
	err = m.Client.List(ctx, &list)
	return len(uids), len(list.Items), err
}

// expect waits until there are these numbers of AlertRules of a spoke and of PrometheusRules in it.
func (f *braking) expect(t *testing.T, m *fleet.Member, onHub, inSpoke int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d AlertRules of %s, and %d PrometheusRules there", onHub, m.Name(), inSpoke), func(ctx context.Context) error {
		return f.are(ctx, m, onHub, inSpoke)
	})
}

func (f *braking) are(ctx context.Context, m *fleet.Member, onHub, inSpoke int) error {
	a, b, err := f.count(ctx, m)
	if err == nil && (a != onHub || b != inSpoke) {
		err = fmt.Errorf("there are %d and %d", a, b)
	}
	return err
}

// expectHeld waits until a SpokeCluster shows this number of held deletions.
func (f *braking) expectHeld(t *testing.T, m *fleet.Member, n int) *metav1.Condition {
	t.Helper()
	status, reason := metav1.ConditionFalse, v1alpha1.ReasonDeletionsHeld
	if n == 0 {
		status, reason = metav1.ConditionTrue, v1alpha1.ReasonReady
	}
	eventually(t, fmt.Sprintf("%d deletions of %s are held", n, m.Name()), func(ctx context.Context) error {
		sc := membership(m.Name())
		if err := read(ctx, f.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
			return err
		}
		p := sc.Status.PendingDeletions
		if (n == 0) != (p == nil) || (p != nil && (int(p.Count) != n || len(p.Names) != min(n, 50) || !slices.IsSorted(p.Names))) {
			return fmt.Errorf("the status tells of %+v", p)
		}
		return nil
	})
	return expectCondition(t, f.Fleet, membership(m.Name()), v1alpha1.ConditionReady, status, reason)
}

// expectEvent waits until there is an Event on the first spoke's SpokeCluster.
func (f *braking) expectEvent(t *testing.T, reason string) {
	t.Helper()
	eventually(t, "an Event "+reason, func(ctx context.Context) error {
		var list eventsv1.EventList
		if err := f.Hub.Client.List(ctx, &list); err != nil {
			return err
		}
		if !slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Reason == reason && e.Regarding.Kind == "SpokeCluster" && e.Regarding.Name == f.first.Name()
		}) {
			return errors.New("there is none")
		}
		return nil
	})
}

func (f *braking) switchTemplate(t *testing.T, state v1alpha1.State) {
	t.Helper()
	update(t, f.Hub, &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: builtIn}}, func(tpl *v1alpha1.AlertRuleTemplate) {
		tpl.Spec.State = state
	})
}

func (f *braking) acknowledge(t *testing.T) {
	t.Helper()
	update(t, f.Hub, membership(f.first.Name()), func(sc *v1alpha1.SpokeCluster) {
		metav1.SetMetaDataAnnotation(&sc.ObjectMeta, v1alpha1.AcknowledgeDeletionsAnnotation, "true")
	})
	eventually(t, "the acknowledgement is taken", func(ctx context.Context) error {
		sc := membership(f.first.Name())
		if err := read(ctx, f.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
			return err
		}
		if value, ok := sc.Annotations[v1alpha1.AcknowledgeDeletionsAnnotation]; ok {
			return fmt.Errorf("it still is %q", value)
		}
		return nil
	})
}

// stay checks for a while that nothing else is deleted.
func (f *braking) stay(t *testing.T, onHub, inSpoke int) {
	t.Helper()
	throughout(t, 3*time.Second, "what is held stays", func(ctx context.Context) error { return f.are(ctx, f.first, onHub, inSpoke) })
}

func (f *braking) disabled(t *testing.T) {
	f.switchTemplate(t, v1alpha1.Disabled)
	f.expect(t, f.second, 0, 0)
	f.expect(t, f.first, deployments-free, deployments-free)
	f.stay(t, deployments-free, deployments-free)
	c := f.expectHeld(t, f.first, deployments-free)
	for _, words := range []string{"40 AlertRules will be deleted at ", "kubectl annotate spoke first rulefleet.io/acknowledge-deletions=true"} {
		if !strings.Contains(c.Message, words) {
			t.Errorf("the message does not say %q: %s", words, c.Message)
		}
	}
	f.expectHeld(t, f.second, 0)
	f.expectEvent(t, v1alpha1.ReasonDeletionsHeld)
	eventually(t, "the metric", func(ctx context.Context) error {
		return metricIs(ctx, f.manager, `rulefleet_held_deletions{cluster="first",hop="generate"}`, deployments-free)
	})

	// An AlertRule that a person deletes is not held.
	ar := alertRule("one", "shop", onNamed("first"))
	must(t, f.Hub.Client.Create(t.Context(), ar))
	key := client.ObjectKeyFromObject(ar)
	expectPushed(t, f.first, key, 1)
	must(t, f.Hub.Client.Delete(t.Context(), ar))
	expectPushed(t, f.first, key, 0)
}

func (f *braking) enabledAgain(t *testing.T) {
	before, err := f.rules(t.Context(), f.first)
	must(t, err)
	f.switchTemplate(t, v1alpha1.Enabled)
	f.expect(t, f.first, deployments, deployments)
	f.expectHeld(t, f.first, 0)
	f.expectEvent(t, "DeletionsReleased")
	after, err := f.rules(t.Context(), f.first)
	must(t, err)
	for uid := range before {
		if !after[uid] {
			t.Errorf("AlertRule %s, which was held, was deleted", uid)
		}
	}
}

// restarted kills the manager while it holds deletions: after the restart they are held as well, although the
// state was lost.
func (f *braking) restarted(t *testing.T) {
	f.expect(t, f.second, 5, 5)
	f.switchTemplate(t, v1alpha1.Disabled)
	f.expect(t, f.second, 0, 0)
	f.expectHeld(t, f.first, deployments-free) // those deleted before may be deleted without a hold again
	// What a manager that is killed now has not removed from the spoke would be held there as well.
	f.expect(t, f.first, deployments-free, deployments-free)
	f.restart()
	eventually(t, "the manager holds them again", func(ctx context.Context) error {
		return metricIs(ctx, f.manager, `rulefleet_held_deletions{cluster="first",hop="generate"}`, deployments-free)
	})
	f.stay(t, deployments-free, deployments-free)
	f.expectHeld(t, f.first, deployments-free)
}

// acknowledged releases all deletions, in the spoke as well.
func (f *braking) acknowledged(t *testing.T) {
	f.acknowledge(t)
	f.expect(t, f.first, 0, 0)
	f.expectHeld(t, f.first, 0)
	f.expectEvent(t, "DeletionsAcknowledged")
}

func (f *braking) nothingReleased(t *testing.T) {
	f.acknowledge(t)
	f.expectEvent(t, "NothingReleased")
}

// templateDeleted is held as well: earlier acknowledgements do not count for later deletions.
func (f *braking) templateDeleted(t *testing.T) {
	f.switchTemplate(t, v1alpha1.Enabled)
	f.expect(t, f.first, deployments, deployments)
	must(t, f.Hub.Client.Delete(t.Context(), &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: builtIn}}))
	f.expect(t, f.first, deployments-free, deployments-free)
	f.stay(t, deployments-free, deployments-free)
	f.expectHeld(t, f.first, deployments-free)
	f.acknowledge(t)
	f.expect(t, f.first, 0, 0)
	f.expectHeld(t, f.first, 0)
}

// kindLost deletes and defines the kind AlertRule without its objects while no manager runs. Even a single
// rule that was lost with it is held.
func (f *braking) kindLost(t *testing.T) {
	key := create(t, f.Hub, alertRule("orphan", "shop", onNamed("first")))
	pr := expectPushed(t, f.first, key, 1)
	must(t, f.manager.Kill())
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "alertrules." + v1alpha1.Group}}
	must(t, f.Hub.Client.Delete(t.Context(), crd))
	eventually(t, "the CRD is gone", func(ctx context.Context) error {
		if time.Since(pr.CreationTimestamp.Time) < 2*time.Second {
			return errors.New("times are of a second's precision")
		}
		err := read(ctx, f.Hub, client.ObjectKeyFromObject(crd), crd)
		if err == nil {
			return errors.New("it is there")
		}
		return client.IgnoreNotFound(err)
	})
	must(t, f.Hub.InstallCRDs(t.Context(), filepath.Join("..", "charts", "rulefleet", "files", "crds"), "*_alertrules.yaml"))
	f.restart()
	f.expectHeld(t, f.first, 1)
	must(t, untouched(t.Context(), f.first, pr))

	// Another AlertRule is deleted at once.
	ar := alertRule("two", "shop", onNamed("first"))
	must(t, f.Hub.Client.Create(t.Context(), ar))
	expectPushed(t, f.first, client.ObjectKeyFromObject(ar), 1)
	must(t, f.Hub.Client.Delete(t.Context(), ar))
	expectPushed(t, f.first, client.ObjectKeyFromObject(ar), 0)
	must(t, untouched(t.Context(), f.first, pr))

	f.acknowledge(t)
	expectPushed(t, f.first, key, 0)
}

// waited deletes AlertRules on the hub, and waits for the end of the hold.
func (f *braking) waited(t *testing.T) {
	const hold = 20 * time.Second // long enough to see what is held
	f.expectHeld(t, f.first, 0)   // otherwise the next manager holds everything
	f.restart("--deletion-hold=" + hold.String())
	var rules []*v1alpha1.AlertRule
	for i := range 30 {
		ar := alertRule(fmt.Sprintf("rule-%d", i), "shop", onNamed("first"))
		must(t, f.Hub.Client.Create(t.Context(), ar))
		rules = append(rules, ar)
	}
	f.expect(t, f.first, 0, len(rules))
	for _, ar := range rules {
		must(t, f.Hub.Client.Delete(t.Context(), ar))
	}
	f.expectHeld(t, f.first, len(rules)-free)
	f.expect(t, f.first, 0, len(rules)-free)
	f.expect(t, f.first, 0, 0)
	f.expectHeld(t, f.first, 0)
}
