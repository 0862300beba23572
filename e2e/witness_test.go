package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/faultproxy"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// How many rules of each kind there are on a hub that loses its kinds, and how long deletions
// are held there: what waits for a person waits for longer.
const (
	lostRules       = 15
	lostDeployments = 5
	shortHold       = 2 * time.Second
)

// losing is a hub that loses its kinds, with one spoke.
type losing struct {
	*fleet.Fleet
	spoke   *fleet.Member
	manager *fleet.Manager
	// restart kills the manager, and starts it again.
	restart func(args ...string)
	// rules are the AlertRules, and template is that of the Deployments.
	rules    []*v1alpha1.AlertRule
	template *v1alpha1.AlertRuleTemplate
}

// TestKindsLost takes the kinds away from a hub while the manager runs and while it does not,
// and restores what was on it by hand: long after deletions go on by themselves, or never.
func TestKindsLost(t *testing.T) {
	long(t)
	t.Parallel()
	l := &losing{Fleet: start(t, fleet.Options{Spokes: []string{spokeA}, Audit: true})}
	l.spoke = l.Spoke(spokeA)
	dir := t.TempDir()
	l.restart = func(args ...string) {
		if l.manager != nil {
			must(t, l.manager.Kill())
		}
		l.manager = startManagerWith(t, l.Fleet, fleet.ManagerOptions{Dir: dir, HubID: "losing", Args: args})
	}
	l.restart("--deletion-hold=" + shortHold.String())
	l.fill(t)
	// Each builds on the one before.
	_ = t.Run("SpokeClusters", l.spokeClusters) && t.Run("Restarted", l.restarted) && t.Run("LabelsRestored", l.labelsRestored) &&
		t.Run("OrdinaryLabel", l.ordinaryLabel) && t.Run("AlertRules", l.alertRules) && t.Run("OrdinaryDelete", l.ordinaryDelete) &&
		t.Run("AlertRulesRestored", l.alertRulesRestored) && t.Run("Acknowledged", l.acknowledged)
}

// fill has the spoke hold rules that are placed by a label that a person set, and some that a
// template makes by it.
func (l *losing) fill(t *testing.T) {
	t.Helper()
	namespace(t, "shop", l.spoke)
	must(t, l.Register(t.Context(), spokeA, map[string]string{"env": "prod"}))
	expectCondition(t, l.Fleet, membership(spokeA), v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	l.setLabel(t, "gold")
	l.template = template("by-label", "shop")
	l.template.Spec.Clusters = new(onLabeled("tier", "gold"))
	must(t, l.Hub.Client.Create(t.Context(), l.template))
	// That which comes with the manager would make its own.
	update(t, l.Hub, &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: builtIn}}, func(tpl *v1alpha1.AlertRuleTemplate) {
		tpl.Spec.State = v1alpha1.Disabled
	})
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

// setLabel sets the label by which rules are placed as a person does; "" takes it off.
func (l *losing) setLabel(t *testing.T, tier string) {
	t.Helper()
	update(t, l.Hub, membership(spokeA), func(sc *v1alpha1.SpokeCluster) {
		delete(sc.Labels, "tier")
		if tier != "" {
			metav1.SetMetaDataLabel(&sc.ObjectMeta, "tier", tier)
		}
	})
}

// expect polls until the spoke has so many rules.
func (l *losing) expect(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d rules", n), func(ctx context.Context) error {
		var list monitoringv1.PrometheusRuleList
		if err := l.spoke.Client.List(ctx, &list); err != nil {
			return err
		}
		if len(list.Items) != n {
			return fmt.Errorf("there are %d", len(list.Items))
		}
		return nil
	})
}

// lose deletes a kind with all that there is of it, and makes it anew, in a later second than
// all that is there was made in.
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

// expectWaiting polls until the SpokeCluster tells that so many deletions wait for a person,
// and checks what it tells a person to do.
func (l *losing) expectWaiting(t *testing.T, n int) {
	t.Helper()
	sc := membership(spokeA)
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
			"wait for an acknowledgement", "from a backup", "kubectl annotate spoke " + spokeA + " " + v1alpha1.AcknowledgeDeletionsAnnotation + "=true",
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

// deletions are the requests of the manager's since the last reset that delete rules, in the
// spoke and on the hub.
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

// expectNone lets more time pass than deletions are held for, and expects that nothing was deleted.
func (l *losing) expectNone(t *testing.T) {
	t.Helper()
	throughout(t, 2*shortHold, "the rules stay", func(ctx context.Context) error {
		var list monitoringv1.PrometheusRuleList
		if err := l.spoke.Client.List(ctx, &list); err != nil || len(list.Items) != lostRules+lostDeployments {
			return fmt.Errorf("there are %d: %w", len(list.Items), err)
		}
		return nil
	})
	if got := l.deletions(t); len(got) > 0 {
		t.Errorf("%d deletions: %q", len(got), got)
	}
}

// spokeClusters loses the kind SpokeCluster. The manager makes the SpokeCluster anew, by its
// Secret, and without the label.
func (l *losing) spokeClusters(t *testing.T) {
	l.reset(t)
	l.lose(t, "spokeclusters")
	l.expectWaiting(t, lostRules+lostDeployments)
	l.expectNone(t)
}

// restarted finds them again, by comparison alone.
func (l *losing) restarted(t *testing.T) {
	l.restart("--deletion-hold=0s")
	eventually(t, "the manager has found them", func(ctx context.Context) error {
		return errors.Join(
			metricIs(ctx, l.manager, `rulefleet_held_deletions{cluster="`+spokeA+`",hop="distribute"}`, lostRules),
			metricIs(ctx, l.manager, `rulefleet_held_deletions{cluster="`+spokeA+`",hop="generate"}`, lostDeployments),
		)
	})
	l.expectNone(t)
	l.expectWaiting(t, lostRules+lostDeployments)
}

func (l *losing) labelsRestored(t *testing.T) {
	l.setLabel(t, "gold")
	l.expectWaiting(t, 0)
	l.expectNone(t)
}

// ordinaryLabel takes the label off by hand: the rules, which are older than the SpokeCluster,
// go at once.
func (l *losing) ordinaryLabel(t *testing.T) {
	l.restart("--deletion-hold=1h")
	l.expectWaiting(t, 0)
	eventually(t, "the manager serves the spoke", func(ctx context.Context) error {
		return metricIs(ctx, l.manager, "rulefleet_engaged_spokes", 1)
	})
	l.setLabel(t, "")
	l.expect(t, 0)
	l.expectWaiting(t, 0)
	l.setLabel(t, "gold")
	l.expect(t, lostRules+lostDeployments)
}

// alertRules loses the kind AlertRule. What a template makes is back by itself.
func (l *losing) alertRules(t *testing.T) {
	l.restart("--deletion-hold=" + shortHold.String())
	l.expectWaiting(t, 0)
	l.reset(t)
	l.lose(t, "alertrules")
	l.expectWaiting(t, lostRules)
	l.expectNone(t)
}

// ordinaryDelete restores an AlertRule and deletes it: it goes at once, though what stands for
// it in the spoke is older than the kind.
func (l *losing) ordinaryDelete(t *testing.T) {
	ar := l.rules[0].DeepCopy()
	must(t, l.Hub.Client.Create(t.Context(), ar))
	key := client.ObjectKeyFromObject(ar)
	expectReady(t, l.Fleet, key, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	l.expectWaiting(t, lostRules-1)
	must(t, l.Hub.Client.Delete(t.Context(), ar))
	expectPushed(t, l.spoke, key, 0)
	l.expectWaiting(t, lostRules-1)
	if got := l.deletions(t); len(got) != 1 {
		t.Errorf("%d deletions: %q", len(got), got)
	}
}

func (l *losing) alertRulesRestored(t *testing.T) {
	l.reset(t)
	for _, ar := range l.rules {
		must(t, l.Hub.Client.Create(t.Context(), ar.DeepCopy()))
	}
	for _, ar := range l.rules {
		expectReady(t, l.Fleet, client.ObjectKeyFromObject(ar), metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	}
	l.expectWaiting(t, 0)
	l.expectNone(t)
}

// acknowledged has them lost once more, while no manager runs and none would hold them by the
// count, and lets them go.
func (l *losing) acknowledged(t *testing.T) {
	must(t, l.manager.Kill())
	l.lose(t, "alertrules")
	l.restart("--deletion-hold=0s")
	l.expectWaiting(t, lostRules)
	l.expectNone(t)
	update(t, l.Hub, membership(spokeA), func(sc *v1alpha1.SpokeCluster) {
		metav1.SetMetaDataAnnotation(&sc.ObjectMeta, v1alpha1.AcknowledgeDeletionsAnnotation, "true")
	})
	l.expect(t, lostDeployments)
	l.expectWaiting(t, 0)
}

// TestOldKnowledge has a replica lead whose cache of the hub is old: what that would remove
// stays, and is made as it should be when the cache is well.
func TestOldKnowledge(t *testing.T) {
	long(t)
	t.Parallel()
	f := start(t, fleet.Options{Spokes: []string{spokeA}, Audit: true})
	m := f.Spoke(spokeA)
	namespace(t, "shop", m)
	must(t, f.Register(t.Context(), spokeA, nil))
	r := &replicas{Fleet: f, spoke: m}
	first := r.replica(t)
	r.expectLeader(t, first)
	update(t, f.Hub, &v1alpha1.AlertRuleTemplate{ObjectMeta: metav1.ObjectMeta{Name: builtIn}}, func(tpl *v1alpha1.AlertRuleTemplate) {
		tpl.Spec.State = v1alpha1.Disabled
	})
	create(t, m, deployment("shop", "web"))
	rules := map[string]*v1alpha1.AlertRule{
		"state":     alertRule("state", "shop", onEvery()),
		"placement": alertRule("placement", "shop", onNamed("other")),
	}
	rules["state"].Spec.State = v1alpha1.Disabled
	for _, ar := range rules {
		create(t, f.Hub, ar)
	}
	expectReady(t, f, client.ObjectKeyFromObject(rules["state"]), metav1.ConditionTrue, v1alpha1.ReasonDisabled)

	// The second one reads all that, and nothing after it.
	kubeconfig, err := f.HubKubeconfig(t.Context())
	must(t, err)
	proxy, err := faultproxy.Start(kubeconfig, "old-knowledge")
	must(t, err)
	t.Cleanup(proxy.Close)
	behind, err := proxy.Kubeconfig()
	must(t, err)
	second := startManagerWith(t, f, fleet.ManagerOptions{Dir: t.TempDir(), LeaderElect: true, Kubeconfig: behind})
	eventually(t, "the standby is ready", func(ctx context.Context) error {
		ok, body, err := readyz(ctx, second)
		if err == nil && !ok {
			err = fmt.Errorf("it says %q", body)
		}
		return err
	})
	proxy.Set(deaf)
	proxy.EndWatches()

	update(t, f.Hub, rules["state"], func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Enabled })
	update(t, f.Hub, rules["placement"], func(ar *v1alpha1.AlertRule) { ar.Spec.Placement = onNamed(spokeA) })
	var pushed []*monitoringv1.PrometheusRule
	for _, ar := range rules {
		pushed = append(pushed, expectPushed(t, m, client.ObjectKeyFromObject(ar), 1))
		expectReady(t, f, client.ObjectKeyFromObject(ar), metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	}
	must(t, first.Kill())
	r.expectLeader(t, second)
	eventually(t, "it works on the spoke", func(ctx context.Context) error {
		return metricAtLeast(ctx, second, `controller_runtime_reconcile_total{controller="distribute",result="requeue_after"}`, float64(len(rules)))
	})
	throughout(t, 3*time.Second, "the rules stay", func(ctx context.Context) error {
		for _, pr := range pushed {
			if err := untouched(ctx, m, pr); err != nil {
				return err
			}
		}
		return nil
	})

	proxy.Set(faultproxy.Pass)
	proxy.EndWatches()
	update(t, f.Hub, rules["state"], func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up == 1" })
	key := client.ObjectKeyFromObject(rules["state"])
	expectRule(t, m, key, "the change", func(r *monitoringv1.Rule) bool { return r.Expr.String() == "up == 1" })
	update(t, f.Hub, rules["placement"], func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Disabled })
	expectPushed(t, m, client.ObjectKeyFromObject(rules["placement"]), 0)
}

// deaf answers every list and every watch of AlertRules, and sends none. A standby has no other
// objects in its cache.
func deaf(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if !strings.HasSuffix(r.URL.Path, "/alertrules") {
		next.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}
