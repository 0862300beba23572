package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// afterwards is how long the audit logs are watched in the end for unexpected requests. Numbers of a SpokeCluster are
// written at most every 5 s with the intervals of tests, so silence of less than that is no silence.
const afterwards = 6 * time.Second

// audited is a fleet of a hub and spokes with audit logs.
type audited struct {
	*fleet.Fleet
	spoke  *fleet.Member // the first
	spokes []*fleet.Member
}

func startAudited(t *testing.T, more ...string) *audited {
	t.Helper()
	names := append([]string{spokeA}, more...)
	f := &audited{Fleet: start(t, fleet.Options{Spokes: names, Audit: true})}
	for _, name := range names {
		must(t, f.Register(t.Context(), name, nil))
		f.spokes = append(f.spokes, f.Spoke(name))
	}
	f.spoke = f.spokes[0]
	return f
}

// manage starts a manager and waits until it serves the spokes.
func (f *audited) manage(t *testing.T, dir string) *fleet.Manager {
	t.Helper()
	m := startManagerWith(t, f.Fleet, fleet.ManagerOptions{Dir: dir, HubID: "audited"})
	eventually(t, "the manager serves the spokes", func(ctx context.Context) error {
		return metricIs(ctx, m, "rulefleet_engaged_spokes", float64(len(f.spokes)))
	})
	return m
}

// requests returns the manager's requests to a cluster since the last reset, except watches, lists, its lease,
// and probes with their reads of the identity and the permissions.
func requests(t *testing.T, m *fleet.Member, user string) []string {
	t.Helper()
	events, err := m.Audit().Events(func(e controlplane.AuditEvent) bool {
		probe := e.ObjectRef.Resource == "selfsubjectrulesreviews" || (e.ObjectRef.Resource == "namespaces" && e.ObjectRef.Name == metav1.NamespaceSystem)
		return e.User.Username == user && !probe && e.ObjectRef.Resource != "" && e.ObjectRef.Resource != "leases" && e.Verb != "watch" && e.Verb != "list"
	})
	must(t, err)
	out := make([]string, 0, len(events))
	for _, e := range events {
		out = append(out, strings.TrimSuffix(fmt.Sprintf("%s %s/%s", e.Verb, e.ObjectRef.Resource, e.ObjectRef.Subresource), "/"))
	}
	return out
}

func count(requests []string, what string) int {
	n := 0
	for _, r := range requests {
		if r == what {
			n++
		}
	}
	return n
}

// settle waits until both audit logs are quiet.
func (f *audited) settle(t *testing.T) {
	t.Helper()
	var last int
	var since time.Time
	eventually(t, "silence", func(context.Context) error {
		if n := len(requests(t, f.Hub, fleet.HubUser)) + len(requests(t, f.spoke, fleet.SpokeUser)); n != last || since.IsZero() {
			last, since = n, time.Now()
		}
		if time.Since(since) < afterwards {
			return fmt.Errorf("%d requests so far", last)
		}
		return nil
	})
}

func (f *audited) reset(t *testing.T) {
	t.Helper()
	for _, m := range append(f.spokes, f.Hub) {
		must(t, m.Audit().Reset())
	}
}

// TestCostOfADeployment counts the requests for a new Deployment, and for its changes that change no rule, in the audit logs.
func TestCostOfADeployment(t *testing.T) {
	parallel(t)
	f := startAudited(t)
	f.manage(t, t.TempDir())
	namespace(t, "shop", f.spoke)
	f.settle(t)

	f.reset(t)
	d := deployment("shop", "web")
	create(t, f.spoke, d)
	ar := expectGenerated(t, f.Fleet, spokeA, "shop", "web", 1)
	expectReady(t, f.Fleet, client.ObjectKeyFromObject(ar), metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	f.settle(t)

	hub, spoke := requests(t, f.Hub, fleet.HubUser), requests(t, f.spoke, fleet.SpokeUser)
	t.Logf("a new Deployment: on the hub %v, in the spoke %v", hub, spoke)
	if count(hub, "patch alertrules") != 1 || count(hub, "patch alertrules/status") > 1 || len(hub)-count(hub, "patch alertrules/status")-counts(hub) != 1 {
		t.Errorf("on the hub: %v; want one write, and one of a status at most", hub)
	}
	if len(spoke) != 1 || spoke[0] != "create prometheusrules" {
		t.Errorf("in the spoke: %v; want one create and nothing else", spoke)
	}
	t.Run("updates of replicas and status", func(t *testing.T) { f.updatesCostNothing(t, d) })
}

// updatesCostNothing updates a Deployment's replicas and status 50 times a second, as a rollout does.
func (f *audited) updatesCostNothing(t *testing.T, d *appsv1.Deployment) {
	t.Helper()
	long(t)
	f.reset(t)
	const updates = 20 * 50
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := range updates {
		<-tick.C
		patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, i%7)
		must(t, f.spoke.Client.Patch(t.Context(), d, client.RawPatch(types.MergePatchType, []byte(patch))))
		patch = fmt.Sprintf(`{"status":{"replicas":%d,"observedGeneration":%d}}`, i%5, i)
		must(t, f.spoke.Client.Status().Patch(t.Context(), d, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	f.settle(t)
	hub, spoke := requests(t, f.Hub, fleet.HubUser), requests(t, f.spoke, fleet.SpokeUser)
	t.Logf("%d updates of replicas and as many of the status in 20 s: on the hub %v, in the spoke %v", updates, hub, spoke)
	// The counts follow the new Deployment once, later.
	if len(hub) > counts(hub) || len(spoke) > 0 {
		t.Errorf("requests for updates of replicas and status: on the hub %v, in the spoke %v", hub, spoke)
	}
}

// TestRestartWritesNothing restarts the manager with 200 converged rules in a spoke, and 20 RulePacks of 50 rules in three.
// Before, it counts what they cost.
func TestRestartWritesNothing(t *testing.T) {
	long(t)
	parallel(t)
	f := startAudited(t, spokeB, thirdSpoke)
	dir := t.TempDir()
	m := f.manage(t, dir)
	namespace(t, "shop", f.spokes...)
	const each, packs, rulesOfPack = 100, 20, 50
	for i := range packs {
		must(t, f.Hub.Client.Create(t.Context(), samplePack(t, fmt.Sprintf("pack-%d", i), "shop", rulesOfPack)))
	}
	eventually(t, "the RulePacks are ready", func(ctx context.Context) error {
		var list v1alpha1.RulePackList
		if err := f.Hub.Client.List(ctx, &list); err != nil {
			return err
		}
		for i := range list.Items {
			if p := &list.Items[i]; !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady) {
				return fmt.Errorf("the status of %s is %+v", p.Name, p.Status)
			}
		}
		return nil
	})
	for i := range each {
		must(t, f.spoke.Client.Create(t.Context(), deployment("shop", fmt.Sprintf("web-%d", i))))
		must(t, f.Hub.Client.Create(t.Context(), alertRule(fmt.Sprintf("rule-%d", i), "shop", onNamed(spokeA))))
	}
	within(t, time.Minute, "200 rules ready", func(ctx context.Context) error { return ready(ctx, f.Fleet, 2*each) })
	// Two changes of its numbers are further apart than the silence that settle waits for.
	within(t, time.Minute, "the template counts all Deployments", func(ctx context.Context) error {
		template := &v1alpha1.AlertRuleTemplate{}
		if err := f.Hub.Client.Get(ctx, client.ObjectKey{Name: builtIn}, template); err != nil {
			return err
		}
		if is := template.Status.Summary; is == nil || is.Generated != each {
			return fmt.Errorf("its summary is %+v", is)
		}
		return nil
	})
	within(t, 2*time.Minute, "the SpokeCluster counts all Deployments", func(ctx context.Context) error {
		sc := membership(spokeA)
		if err := f.Hub.Client.Get(ctx, client.ObjectKeyFromObject(sc), sc); err != nil {
			return err
		}
		if n := sc.Status.Deployments; ptr.Deref(n, 0) != each {
			return fmt.Errorf("it counts %v", ptr.Deref(n, 0))
		}
		return nil
	})
	f.settle(t)
	if statuses := count(requests(t, f.Hub, fleet.HubUser), "patch rulepacks/status"); statuses < packs || statuses > 2*packs { // one each, unless the machine is busy for seconds
		t.Errorf("%d RulePacks cost %d writes of their status", packs, statuses)
	}
	for _, m := range f.spokes {
		got, want := requests(t, m, fleet.SpokeUser), packs
		if m == f.spoke {
			want += 2 * each
		}
		if creates := count(got, "create prometheusrules"); creates != want || len(got) != want {
			t.Errorf("%s got %d creates and %d requests in all, want %d", m.Name(), creates, len(got), want)
		}
	}
	must(t, m.Stop())

	f.reset(t)
	m = f.manage(t, dir)
	eventually(t, "all keys replayed", func(ctx context.Context) error {
		return metricAtLeast(ctx, m, `controller_runtime_reconcile_total{controller="distribute",result="success"}`, packs+2*each)
	})
	f.settle(t)
	for _, m := range append(f.spokes, f.Hub) {
		events, err := m.Audit().Events(func(e controlplane.AuditEvent) bool {
			return e.IsWrite() && (e.User.Username == fleet.HubUser || e.User.Username == fleet.SpokeUser)
		})
		must(t, err)
		for _, e := range events {
			t.Errorf("written to %s after the restart: %s %s", m.Name(), e.Verb, e.RequestURI)
		}
	}
	t.Logf("a restart over %d rules and %d RulePacks: 0 writes", 2*each, packs)
}

// counts is how many of the requests write the statuses that count workloads.
func counts(requests []string) int {
	return count(requests, "patch spokeclusters/status") + count(requests, "patch alertruletemplates/status")
}

// ready reports whether n AlertRules are on the hub and all of them are ready.
func ready(ctx context.Context, f *fleet.Fleet, n int) error {
	var list v1alpha1.AlertRuleList
	if err := f.Hub.Client.List(ctx, &list); err != nil {
		return err
	}
	done := 0
	for i := range list.Items {
		if meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, v1alpha1.ConditionReady) {
			done++
		}
	}
	if done != n || len(list.Items) != n {
		return fmt.Errorf("%d of %d AlertRules are ready; want %d", done, len(list.Items), n)
	}
	return nil
}

// metricIs checks a metric of the manager by its name and labels.
func metricIs(ctx context.Context, m *fleet.Manager, name string, want float64) error {
	got, err := metric(ctx, m, name)
	if err == nil && got != want {
		err = fmt.Errorf("%s is %v, not %v", name, got, want)
	}
	return err
}

func metricAtLeast(ctx context.Context, m *fleet.Manager, name string, want float64) error {
	got, err := metric(ctx, m, name)
	if err == nil && got < want {
		err = fmt.Errorf("%s is %v, not %v yet", name, got, want)
	}
	return err
}

func metric(ctx context.Context, m *fleet.Manager, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.MetricsURL, http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	return scan(resp.Body, name)
}
