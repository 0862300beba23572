package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// The numbers of rules on a hub that loses its kinds, and how long deletions are held. Those that need an
// acknowledgement are held for longer.
const (
	lostRules       = 15
	lostDeployments = 5
	shortHold       = 2 * time.Second
)

// losing is a hub that loses its kinds, with one spoke. The invariants of the fault suite apply.
type losing struct {
	*faulty
	spoke *fleet.Member
	// hold is how long deletions are held.
	hold time.Duration
	// restart kills the manager and starts it again.
	restart func(args ...string)
	// rules are the AlertRules, and template is the Deployments' template.
	rules    []*v1alpha1.AlertRule
	template *v1alpha1.AlertRuleTemplate
	// row has what must not change while a kind is lost, and afterwards.
	row *fault
}

// TestKindsLost removes the kinds from a hub with and without a running manager, and restores the objects by
// hand, long after held deletions would continue, or never.
func TestKindsLost(t *testing.T) {
	long(t)
	parallel(t)
	l := startLosing(t, shortHold)
	// Each subtest continues the one before.
	_ = t.Run("SpokeClusters", l.spokeClusters) && t.Run("Restarted", l.restarted) && t.Run("LabelsRestored", l.labelsRestored) &&
		t.Run("Wary", l.wary) && t.Run("OrdinaryLabel", l.ordinaryLabel) && t.Run("AlertRules", l.alertRules) &&
		t.Run("OrdinaryDelete", l.ordinaryDelete) && t.Run("AlertRulesRestored", l.alertRulesRestored) && t.Run("Acknowledged", l.acknowledged)
}

// startLosing starts a hub that will lose its kinds, and fills it.
func startLosing(t *testing.T, hold time.Duration) *losing {
	t.Helper()
	l := &losing{hold: hold, faulty: &faulty{
		Fleet: start(t, fleet.Options{Spokes: []string{healthyName}, Audit: true}), canaries: &canaries{}, intervals: quick,
	}}
	l.spoke = l.Spoke(healthyName)
	l.healthy = &place{faulty: l.faulty, t: t, m: l.spoke, name: healthyName}
	dir := t.TempDir()
	l.restart = func(args ...string) {
		if m := l.current(); m != nil {
			must(t, m.Kill())
		}
		l.adopt(startManagerWith(t, l.Fleet, fleet.ManagerOptions{Dir: dir, HubID: hubID, Args: append(args, "--log-level=debug")}))
	}
	l.restart("--deletion-hold=" + hold.String())
	l.fill(t)
	return l
}

// fill creates rules in the spoke that are placed by a label that a person set, and some that a template
// generates because of it.
func (l *losing) fill(t *testing.T) {
	t.Helper()
	namespace(t, "shop", l.spoke)
	l.plantForeign(t, l.spoke)
	kubeconfig, err := l.spoke.UserKubeconfig(fleet.SpokeUser)
	must(t, err)
	kubeconfig = l.canaries.into(t, kubeconfig, healthyName)
	must(t, l.RegisterKubeconfig(t.Context(), healthyName, kubeconfig, map[string]string{"env": "prod"}))
	expectCondition(t, l.Fleet, membership(healthyName), v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	l.setLabel(t, "gold")
	l.template = template("by-label", "shop")
	l.template.Spec.Placement = new(onLabeled("tier", "gold"))
	must(t, l.Hub.Client.Create(t.Context(), l.template))
	// The built-in template would generate its own rules.
	own := &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: builtIn}}
	update(t, l.Hub, own, func(tpl *v1alpha1.AlertRuleTemplate) { tpl.Spec.State = v1alpha1.Disabled })
	expectCondition(t, l.Fleet, own, v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted) // the manager knows
	for i := range lostDeployments {
		must(t, l.spoke.Client.Create(t.Context(), deployment("shop", fmt.Sprintf("web-%d", i))))
	}
	for i := range lostRules {
		ar := alertRule(fmt.Sprintf("rule-%02d", i), "shop", onLabeled("tier", "gold"))
		must(t, l.Hub.Client.Create(t.Context(), ar.DeepCopy()))
		l.rules = append(l.rules, ar)
	}
	l.expect(t, lostRules+lostDeployments)
}

// setLabel sets the label that places rules, as a person does; "" removes it.
func (l *losing) setLabel(t *testing.T, tier string) {
	t.Helper()
	update(t, l.Hub, membership(healthyName), func(sc *v1alpha1.SpokeCluster) {
		delete(sc.Labels, "tier")
		if tier != "" {
			metav1.SetMetaDataLabel(&sc.ObjectMeta, "tier", tier)
		}
	})
}

// expect waits until the spoke has this number of rules.
func (l *losing) expect(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d rules", n), func(ctx context.Context) error { return l.has(ctx, n) })
}

// has returns an error unless the spoke has this number of rules of this hub.
func (l *losing) has(ctx context.Context, n int) error {
	rules, err := l.healthy.rules(ctx)
	if err == nil && len(rules) != n {
		err = fmt.Errorf("there are %d", len(rules))
	}
	return err
}

// lose deletes a kind with all its objects, and defines it again, in a later second than all objects were
// created.
func (l *losing) lose(t *testing.T, plural string) {
	t.Helper()
	begun := time.Now()
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + v1alpha1.Group}}
	must(t, l.Hub.Client.Delete(t.Context(), crd))
	eventually(t, "the kind is gone", func(ctx context.Context) error {
		if time.Since(begun) < 2*time.Second {
			return errors.New("times are of a second's precision")
		}
		err := read(ctx, l.Hub, client.ObjectKeyFromObject(crd), crd)
		if err == nil {
			return errors.New("it is there")
		}
		return client.IgnoreNotFound(err)
	})
	must(t, l.Hub.InstallCRDs(t.Context(), filepath.Join("..", "charts", "rulefleet", "files", "crds"), "*_"+plural+".yaml"))
}

// expectWaiting waits until the SpokeCluster shows that this number of deletions need an acknowledgement, and
// checks the advice.
func (l *losing) expectWaiting(t *testing.T, n int) {
	t.Helper()
	sc := membership(healthyName)
	eventually(t, fmt.Sprintf("%d deletions wait for a person", n), func(ctx context.Context) error {
		if err := read(ctx, l.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
			return err
		}
		p, ready := sc.Status.PendingDeletions, meta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionReady)
		if n == 0 && p == nil && ready != nil && ready.Status == metav1.ConditionTrue {
			return nil
		}
		if n == 0 || p == nil || p.Count != int32(n) || p.Held != p.Count || p.Suspect != p.Count || len(p.Names) != n {
			return fmt.Errorf("the status tells of %+v, and Ready is %+v", p, ready)
		}
		for _, words := range []string{
			"waits until you decide", "may have been lost", "kubectl annotate spoke " + healthyName + " " + v1alpha1.AcknowledgeDeletionsAnnotation + "=true",
		} {
			if ready == nil || ready.Reason != v1alpha1.ReasonDeletionsHeld || !strings.Contains(ready.Message, words) {
				return fmt.Errorf("Ready does not say %q: %+v", words, ready)
			}
		}
		return nil
	})
}

// reset empties the audit logs.
func (l *losing) reset(t *testing.T) {
	t.Helper()
	must(t, l.spoke.Audit().Reset())
	must(t, l.Hub.Audit().Reset())
}

// deletions returns the manager's requests since the last reset that delete rules, in the spoke and on the
// hub.
func (l *losing) deletions(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, m := range []*fleet.Member{l.spoke, l.Hub} {
		events, err := m.Audit().Events(func(e controlplane.AuditEvent) bool {
			return strings.HasPrefix(e.Verb, "delete") && (e.User.Username == fleet.SpokeUser || e.User.Username == fleet.HubUser)
		})
		must(t, err)
		for _, e := range events {
			out = append(out, m.Name()+": "+e.Verb+" "+e.RequestURI)
		}
	}
	return out
}

// expectNone waits for longer than deletions are held, and checks that nothing was deleted.
func (l *losing) expectNone(t *testing.T) {
	t.Helper()
	throughout(t, 2*shortHold, "the rules stay", func(ctx context.Context) error { return l.has(ctx, lostRules+lostDeployments) })
	l.expectNoDeletion(t)
}

func (l *losing) expectNoDeletion(t *testing.T) {
	t.Helper()
	if got := l.deletions(t); len(got) > 0 {
		t.Errorf("%d deletions: %q", len(got), got)
	}
}

// spokeClusters loses the kind SpokeCluster. The manager creates the SpokeCluster again from its Secret,
// without the label.
func (l *losing) spokeClusters(t *testing.T) {
	l.reset(t)
	l.remember(t)
	l.lose(t, "spokeclusters")
	l.expectWaiting(t, lostRules+lostDeployments)
	l.expectNone(t)
}

// restarted detects them again, only by comparison.
func (l *losing) restarted(t *testing.T) {
	l.restart("--deletion-hold=0s")
	eventually(t, "the manager has found them", func(ctx context.Context) error {
		return errors.Join(
			metricIs(ctx, l.current(), `rulefleet_held_deletions{cluster="`+healthyName+`",hop="distribute"}`, lostRules),
			metricIs(ctx, l.current(), `rulefleet_held_deletions{cluster="`+healthyName+`",hop="generate"}`, lostDeployments),
		)
	})
	l.expectNone(t)
	l.expectWaiting(t, lostRules+lostDeployments)
}

func (l *losing) labelsRestored(t *testing.T) {
	l.setLabel(t, "gold")
	l.expectWaiting(t, 0)
	l.expectNone(t)
	l.invariants(t)
}

// wary restarts the manager when nothing is held. The identity of the spoke was lost with its SpokeCluster, so
// even a single deletion is held.
func (l *losing) wary(t *testing.T) {
	sc := membership(healthyName)
	must(t, read(t.Context(), l.Hub, client.ObjectKeyFromObject(sc), sc))
	if sc.Status.IdentityTime.IsZero() {
		t.Fatal("the status does not have since when the identity is known")
	}
	l.restart("--deletion-hold=1h")
	ar := l.rules[0]
	must(t, l.Hub.Client.Delete(t.Context(), ar.DeepCopy()))
	eventually(t, "the deletion is held", func(ctx context.Context) error {
		return metricIs(ctx, l.current(), `rulefleet_held_deletions{cluster="`+healthyName+`",hop="distribute"}`, 1)
	})
	must(t, l.Hub.Client.Create(t.Context(), ar.DeepCopy()))
	l.expectWaiting(t, 0)
	l.expectNone(t)
	// From here on, the spoke has been that cluster for long.
	must(t, read(t.Context(), l.Hub, client.ObjectKeyFromObject(sc), sc))
	patch := client.MergeFrom(sc.DeepCopy())
	sc.Status.IdentityTime = metav1.NewTime(time.Now().Add(-2 * time.Hour))
	must(t, l.Hub.Client.Status().Patch(t.Context(), sc, patch))
}

// ordinaryLabel removes the label by hand: the rules, although older than the SpokeCluster, are deleted at
// once.
func (l *losing) ordinaryLabel(t *testing.T) {
	l.restart("--deletion-hold=1h")
	l.expectWaiting(t, 0)
	eventually(t, "the manager serves the spoke", func(ctx context.Context) error {
		return metricIs(ctx, l.current(), "rulefleet_engaged_spokes", 1)
	})
	l.setLabel(t, "")
	l.expect(t, 0)
	l.expectWaiting(t, 0)
	l.setLabel(t, "gold")
	l.expect(t, lostRules+lostDeployments)
}

// alertRules loses the kind AlertRule. Generated AlertRules come back by themselves.
func (l *losing) alertRules(t *testing.T) {
	l.restart("--deletion-hold=" + shortHold.String())
	l.expectWaiting(t, 0)
	l.reset(t)
	l.remember(t)
	l.lose(t, "alertrules")
	l.expectWaiting(t, lostRules)
	l.expectNone(t)
}

// ordinaryDelete restores an AlertRule and deletes it: its PrometheusRule is deleted at once, although it is
// older than the kind.
func (l *losing) ordinaryDelete(t *testing.T) {
	ar := l.rules[0].DeepCopy()
	must(t, l.Hub.Client.Create(t.Context(), ar))
	key := client.ObjectKeyFromObject(ar)
	expectReady(t, l.Fleet, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	l.expectWaiting(t, lostRules-1)
	delete(l.row.kept, expectPushed(t, l.spoke, key, 1).Name)
	must(t, l.Hub.Client.Delete(t.Context(), ar))
	expectPushed(t, l.spoke, key, 0)
	l.expectWaiting(t, lostRules-1)
	eventually(t, "there is one deletion", func(context.Context) error { // the audit log shows it later than a list
		if got := l.deletions(t); len(got) != 1 {
			return fmt.Errorf("%d deletions: %q", len(got), got)
		}
		return nil
	})
}

func (l *losing) alertRulesRestored(t *testing.T) {
	l.reset(t)
	l.restoreRules(t)
	l.expectNone(t)
	l.invariants(t)
}

// restoreRules restores all AlertRules.
func (l *losing) restoreRules(t *testing.T) {
	t.Helper()
	for _, ar := range l.rules {
		must(t, l.Hub.Client.Create(t.Context(), ar.DeepCopy()))
	}
	for _, ar := range l.rules {
		expectReady(t, l.Fleet, client.ObjectKeyFromObject(ar), metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	}
	l.expectWaiting(t, 0)
}

// acknowledged loses them once more while no manager runs, too few for the count to hold them. The
// PrometheusRules are younger than the kind, as when the hub's clock was set back before the kind was defined
// again. A person acknowledges the deletions.
func (l *losing) acknowledged(t *testing.T) {
	must(t, l.current().Kill())
	l.lose(t, "alertrules")
	pause(t, 2*time.Second) // timestamps have a precision of one second
	rules, err := l.healthy.rules(t.Context())
	must(t, err)
	for i := range rules {
		anew := rules[i].DeepCopy()
		anew.ObjectMeta = metav1.ObjectMeta{Namespace: anew.Namespace, Name: anew.Name, Labels: anew.Labels, Annotations: anew.Annotations}
		must(t, l.spoke.Client.Delete(t.Context(), &rules[i]))
		must(t, l.spoke.Client.Create(t.Context(), anew))
	}
	l.reset(t)
	l.restart("--deletion-hold=0s")
	l.expectWaiting(t, lostRules)
	l.expectNone(t)
	update(t, l.Hub, membership(healthyName), func(sc *v1alpha1.SpokeCluster) {
		metav1.SetMetaDataAnnotation(&sc.ObjectMeta, v1alpha1.AcknowledgeDeletionsAnnotation, "true")
	})
	l.expect(t, lostDeployments)
	l.expectWaiting(t, 0)
}
