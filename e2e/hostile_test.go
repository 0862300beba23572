package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/generate"
	"github.com/rulefleet/rulefleet/pkg/testing/faultproxy"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	spokelies "github.com/rulefleet/rulefleet/pkg/testing/hostile"
)

const (
	// hostileMemory is by how much the manager may grow because of one spoke, in bytes.
	hostileMemory = 150_000_000
	// hostileTold is how often a lie that ends the session may be told in a row.
	hostileTold = 20
	// hostileShown is how soon it shows what is wrong, and hostileOver how soon the spoke is served again.
	hostileShown, hostileOver = 30 * time.Second, time.Minute
)

// hostileRow is a lie of a spoke.
type hostileRow struct {
	name  string
	about func(*http.Request) bool
	lie   spokelies.Lie
	// shown are the reasons that may be shown; nil is TooLarge alone.
	shown []string
	// late is part of the message of a spoke that is served, but whose changes are read more slowly.
	late string
	// cause has the manager send a request about which the spoke lies.
	cause func(t *testing.T, h *hostileFleet)
	// metrics tells that the answers about metrics lie, and evaluator those about rules.
	metrics   bool
	evaluator bool
	// short tells that it is run without longVariable, too.
	short bool
}

var (
	slowReasons = []string{v1alpha1.ReasonUnreachable, v1alpha1.ReasonTooLarge}
	// listed is about all that a kind is read by. Watches are too old, so that it is listed.
	listed = func(resource string) func(*http.Request) bool {
		list, watch := spokelies.List(resource), spokelies.Watch(resource)
		return func(r *http.Request) bool { return list(r) || watch(r) }
	}
	watches = func(r *http.Request) bool {
		return spokelies.Watch("deployments")(r) || spokelies.Watch("namespaces")(r) || spokelies.Watch("prometheusrules")(r)
	}
	rulesAPI = spokelies.Behind("/api/v1/rules")
)

func hostileRows() []hostileRow {
	gzipped := spokelies.Compressed
	endless := spokelies.EndlessText
	const group = `{"name":"a","file":"b","rules":[]}`
	rules := spokelies.Endless(`{"status":"success","data":{"groups":[`, group+",")
	return []hostileRow{
		{name: "version, endless, gzipped", about: spokelies.Path("/version"), lie: gzipped(endless), short: true},
		{name: "version, endless", about: spokelies.Path("/version"), lie: endless},
		{name: "version, refused without an end", about: spokelies.Path("/version"), lie: gzipped(spokelies.EndlessRefusal(http.StatusForbidden))},
		{name: "version, in drips", about: spokelies.Path("/version"), lie: spokelies.Drip, shown: slowReasons},
		{name: "identity, endless", about: spokelies.Path("/namespaces/kube-system"), lie: gzipped(endless)},
		{name: "review, endless", about: spokelies.Path("/selfsubjectrulesreviews"), lie: gzipped(endless)},
		{name: "Deployments, endless, gzipped", about: listed("deployments"), lie: spokelies.TooOld(gzipped(endless)), short: true},
		{name: "Deployments, a million", about: listed("deployments"), lie: spokelies.TooOld(gzipped(spokelies.Million)), short: true},
		{name: "Deployments, a million deep", about: listed("deployments"), lie: spokelies.TooOld(spokelies.Deep), short: true},
		{name: "Deployments, in drips", about: listed("deployments"), lie: spokelies.TooOld(spokelies.Drip), shown: slowReasons, short: true},
		{name: "Deployments, a valid prefix", about: listed("deployments"), lie: spokelies.TooOld(spokelies.Prefix(10 * time.Millisecond)), shown: slowReasons},
		{name: "namespaces, endless", about: listed("namespaces"), lie: spokelies.TooOld(endless)},
		{name: "PrometheusRules, endless, gzipped", about: listed("prometheusrules"), lie: spokelies.TooOld(gzipped(endless))},
		{name: "PrometheusRules, a million", about: listed("prometheusrules"), lie: spokelies.TooOld(spokelies.Million)},
		{name: "Prometheuses, endless", about: spokelies.List("prometheuses"), lie: gzipped(endless)},
		{name: "ThanosRulers, endless", about: spokelies.List("thanosrulers"), lie: gzipped(endless)},
		{name: "Deployments, empty objects", about: listed("deployments"), lie: spokelies.TooOld(spokelies.Dense(`{"items":[`))},
		{name: "Deployments, aliases of YAML", about: listed("deployments"), lie: spokelies.TooOld(spokelies.Aliases), shown: []string{v1alpha1.ReasonUnreachable}},
		{name: "an event of 1 GiB", about: spokelies.Watch("deployments"), lie: spokelies.GiantEvent, short: true},
		{name: "an event in drips", about: spokelies.Watch("deployments"), lie: spokelies.Drip, shown: slowReasons},
		{name: "an event a million deep", about: spokelies.Watch("prometheusrules"), lie: spokelies.Deep},
		{name: "10,000 events a second", about: spokelies.Watch("deployments"), lie: spokelies.Flood(10_000, 0), late: "changes of deployments arrive late", short: true},
		{name: "large events, 100 a second", about: spokelies.Watch("deployments"), lie: spokelies.Flood(100, 200<<10), late: "changes of deployments arrive late"},
		{name: "deletions with long versions", about: spokelies.Watch("deployments"), lie: spokelies.LongVersions, late: "changes of deployments arrive late"},
		{name: "large events in all watches", about: watches, lie: spokelies.LongVersions, late: "changes of deployments arrive late"},
		{name: "all, refused without an end", about: spokelies.All, lie: spokelies.EndlessRefusal(http.StatusInternalServerError), shown: slowReasons},
		{name: "all, in drips", about: spokelies.All, lie: spokelies.Drip, shown: slowReasons},
		{name: "a create, endless, gzipped", about: spokelies.Write(http.MethodPost, "prometheusrules"), lie: gzipped(endless), cause: createRule, short: true},
		{name: "an update, empty objects", about: spokelies.Write(http.MethodPut, "prometheusrules"), lie: spokelies.Dense(`{"spec":{"groups":[{"rules":[`), cause: updateRule},
		{name: "metrics, endless, gzipped", about: spokelies.Behind("/api/v1/query"), lie: gzipped(endless), metrics: true},
		{name: "metrics, a million deep", about: spokelies.Behind("/api/v1/query"), lie: spokelies.Deep, metrics: true},
		{name: "metrics, in drips", about: spokelies.Behind("/api/v1/query"), lie: spokelies.Drip, shown: []string{v1alpha1.ReasonEvaluatorUnreachable}, metrics: true},
		{name: "Prometheus, endless, gzipped", about: rulesAPI, lie: gzipped(rules), evaluator: true, short: true},
		{name: "Prometheus, endless text", about: rulesAPI, lie: endless, evaluator: true},
		{name: "Prometheus, a million deep", about: rulesAPI, lie: spokelies.Deep, evaluator: true},
		{name: "Prometheus, empty objects", about: rulesAPI, lie: spokelies.Dense(`{"status":"success","data":{"groups":[`), evaluator: true},
		{name: "Prometheus, in drips", about: rulesAPI, lie: spokelies.Drip, shown: []string{v1alpha1.ReasonEvaluatorUnreachable}, evaluator: true, short: true},
		{name: "Prometheus, a valid prefix", about: rulesAPI, lie: spokelies.Trickle(`{"status":"success","data":{"groups":[`+group, ","+group, 10*time.Millisecond), late: "took more than 20s", evaluator: true},
	}
}

// TestHostileSpokesAreBounded has spokes lie, in many ways: the manager takes little memory, serves
// another spoke as before, says what is wrong, and serves the spoke again when that is over. The rows mostly wait, so
// there are two fleets, and each row runs on the one that is free.
func TestHostileSpokesAreBounded(t *testing.T) {
	fleets := []*hostileFleet{startHostile(t), startHostile(t)}
	all := hostileRows()
	rows := make(chan hostileRow, len(all))
	for _, row := range all {
		if row.short || os.Getenv(longVariable) != "" {
			rows <- row
		}
	}
	close(rows)
	for _, h := range fleets {
		h.measure(t)
	}
	var lanes sync.WaitGroup
	for _, h := range fleets {
		lanes.Go(func() {
			for row := range rows {
				t.Run(row.name, func(t *testing.T) { h.run(t, row) })
			}
		})
	}
	lanes.Wait()
	h := fleets[0]
	t.Run("annotations back and forth", h.toggle)
	t.Run("a large Deployment", h.large)
	for _, h := range fleets {
		t.Run("its rules stay", func(t *testing.T) {
			if err := h.fleet.Spoke("hostile").Client.Get(t.Context(), h.rule, &monitoringv1.PrometheusRule{}); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("it lies while it leaves", h.leave)
}

// hostileFleet is a fleet of a healthy spoke and one that lies.
type hostileFleet struct {
	fleet   *fleet.Fleet
	manager *fleet.Manager
	proxy   *faultproxy.Proxy
	// rule is in the spoke that lies.
	rule client.ObjectKey
	// memory and p50 are those of a healthy fleet.
	memory int64
	p50    time.Duration
	runs   int
}

func startHostile(t *testing.T) *hostileFleet {
	t.Helper()
	f := start(t, fleet.Options{Spokes: []string{"healthy"}, Intervals: 1})
	m, err := f.StartSpoke(t.Context(), "hostile", "prometheusrules", "prometheuses", "thanosrulers")
	must(t, err)
	h := &hostileFleet{fleet: f}
	namespace(t, "load", f.Spoke("healthy"), m)
	for i := range 50 {
		must(t, m.Client.Create(t.Context(), deployment("load", fmt.Sprintf("web-%d", i))))
	}
	must(t, m.Client.Create(t.Context(), &monitoringv1.Prometheus{
		ObjectMeta: metav1.ObjectMeta{Namespace: "load", Name: "prometheus"},
		Spec: monitoringv1.PrometheusSpec{CommonPrometheusFields: monitoringv1.CommonPrometheusFields{}, RuleSelector: &metav1.LabelSelector{},
			RuleNamespaceSelector: &metav1.LabelSelector{}},
	}))
	kubeconfig, err := m.UserKubeconfig(fleet.SpokeUser)
	must(t, err)
	h.proxy, err = faultproxy.Start(kubeconfig, "token-of-hostile")
	must(t, err)
	t.Cleanup(h.proxy.Close)
	h.proxy.Set(honest)
	kubeconfig, err = h.proxy.Kubeconfig()
	must(t, err)
	h.manager, err = f.StartManager(t.Context(), fleet.ManagerOptions{Path: plainManager, Dir: t.TempDir(), Args: []string{"--evaluator-poll-interval=5s", "--deletion-hold=0"}})
	must(t, err)
	must(t, f.Register(t.Context(), "healthy", nil))
	must(t, f.RegisterKubeconfig(t.Context(), "hostile", kubeconfig, nil))
	for _, name := range []string{"healthy", "hostile"} {
		expectConnected(t, f, name, metav1.ConditionTrue, v1alpha1.ReasonConnected)
	}
	ar := alertRule("stays", "load", onNamed("hostile"))
	must(t, f.Hub.Client.Create(t.Context(), ar))
	h.rule = client.ObjectKey{Namespace: "load", Name: expectPushed(t, m, client.ObjectKeyFromObject(ar), 1).Name}
	within(t, time.Minute, "the Prometheus answers", func(ctx context.Context) error {
		_, err := h.shows(ctx, v1alpha1.ConditionEvaluating, metav1.ConditionTrue)
		return err
	})
	return h
}

// measure measures the fleet while its spokes are healthy.
func (h *hostileFleet) measure(t *testing.T) {
	t.Helper()
	propagation(t, h.fleet, h.fleet.Spoke("healthy"), "warm", 30)
	h.p50 = p(50, propagation(t, h.fleet, h.fleet.Spoke("healthy"), "before", 50))
	h.memory = memoryOf(t, h.manager.Pid(), "VmRSS")
	t.Logf("before: p50 %v, RSS %d MiB", h.p50, h.memory>>20)
}

// honest answers for a Prometheus that has no rules, behind an API server that does not lie.
func honest(w http.ResponseWriter, r *http.Request, next http.Handler) {
	switch {
	case rulesAPI(r):
		_, _ = io.WriteString(w, `{"status":"success","data":{"groups":[]}}`)
	case strings.Contains(r.URL.Path, "/proxy/"):
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	default:
		next.ServeHTTP(w, r)
	}
}

// shows tells whether a condition of the spoke that lies has a status and, if any are given, one of some reasons.
func (h *hostileFleet) shows(ctx context.Context, kind string, status metav1.ConditionStatus, reasons ...string) (*metav1.Condition, error) {
	sc := membership("hostile")
	if err := h.fleet.Hub.Client.Get(ctx, client.ObjectKeyFromObject(sc), sc); err != nil {
		return nil, err
	}
	c := meta.FindStatusCondition(sc.Status.Conditions, kind)
	if c == nil || c.Status != status || (len(reasons) > 0 && !slices.Contains(reasons, c.Reason)) {
		return nil, fmt.Errorf("the condition is %+v", c)
	}
	return c, nil
}

// run has the spoke lie for a while.
func (h *hostileFleet) run(t *testing.T, row hostileRow) {
	t.Helper()
	h.runs++
	condition, status, reasons := v1alpha1.ConditionConnected, metav1.ConditionFalse, row.shown
	if row.evaluator {
		condition = v1alpha1.ConditionEvaluating
	}
	if row.metrics {
		condition, status = v1alpha1.ConditionMetricsPresent, metav1.ConditionUnknown
	}
	switch {
	case row.late != "":
		status = metav1.ConditionTrue
	case reasons == nil:
		reasons = []string{v1alpha1.ReasonTooLarge}
	}
	must(t, resetPeak(h.manager.Pid()))
	liar := &spokelies.Liar{About: row.about, Lie: row.lie}
	began := time.Now()
	h.proxy.Set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		liar.Fault(w, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { honest(w, r, next) }))
	})
	h.proxy.EndWatches()
	if row.cause != nil {
		row.cause(t, h)
	}
	took := propagation(t, h.fleet, h.fleet.Spoke("healthy"), fmt.Sprintf("during-%d", h.runs), 40)
	var message *metav1.Condition
	within(t, hostileShown-time.Since(began), "it is shown", func(ctx context.Context) (err error) {
		message, err = h.shows(ctx, condition, status, reasons...)
		switch {
		case err == nil && !strings.Contains(message.Message, row.late):
			err = fmt.Errorf("the condition is %+v", message)
		case err == nil && liar.Told() == 0:
			err = errors.New("the lie was not told yet")
		}
		return err
	})
	shown := time.Since(began)
	if condition == v1alpha1.ConditionConnected && status == metav1.ConditionFalse {
		h.explains(t)
	}
	took = append(took, propagation(t, h.fleet, h.fleet.Spoke("healthy"), fmt.Sprintf("after-%d", h.runs), 40)...)
	peak := memoryOf(t, h.manager.Pid(), "VmHWM")
	h.proxy.Set(honest)
	h.proxy.Sever()
	over := time.Now()
	within(t, hostileOver, "the spoke is served again", func(ctx context.Context) error {
		served := metav1.ConditionTrue
		if row.metrics { // the Prometheus has none, but says so
			served = metav1.ConditionFalse
		}
		c, err := h.shows(ctx, condition, served)
		if err == nil && row.late != "" && strings.Contains(c.Message, row.late) {
			err = errors.New(c.Message)
		}
		return err
	})
	ar := alertRule(fmt.Sprintf("recovers-%d", h.runs), "load", onNamed("hostile"))
	must(t, h.fleet.Hub.Client.Create(t.Context(), ar))
	within(t, hostileOver-time.Since(over), "a rule is written to it", func(ctx context.Context) error {
		found, err := pushed(ctx, h.fleet.Spoke("hostile"), client.ObjectKeyFromObject(ar))
		if err == nil && len(found) == 0 {
			err = errors.New("it is not there")
		}
		return err
	})
	t.Logf("shown after %v as %s: %s; told %d times; RSS grew by %d MiB at most; p50 %v (before %v); served again after %v", shown.Round(time.Millisecond),
		message.Reason, message.Message, liar.Told(), (peak-h.memory)>>20, p(50, took), h.p50, time.Since(over).Round(time.Millisecond))
	if liar.Told() == 0 {
		t.Error("the lie was never told")
	}
	if row.shown == nil && condition == v1alpha1.ConditionConnected && liar.Told() > hostileTold {
		t.Errorf("the lie was told %d times: the manager does not wait before it tries again", liar.Told())
	}
	if grew := peak - h.memory; grew > hostileMemory {
		t.Errorf("the manager grew by %d MiB", grew>>20)
	}
	if is := p(50, took); float64(is) > 1.2*float64(h.p50) && is > h.p50+noise/10 {
		t.Errorf("p50 is %v, and was %v", is, h.p50)
	}
	if text := message.Message; message.Reason == v1alpha1.ReasonTooLarge && !strings.Contains(text, "the limit is") && !strings.Contains(text, "fewer than") {
		t.Errorf("the message names no bound: %s", message.Message)
	}
}

// explains checks what the plugin says about a rule in the spoke that lies.
func (h *hostileFleet) explains(t *testing.T) {
	t.Helper()
	within(t, hostileShown, "why explains it", func(context.Context) error {
		_, broken, err := askWhy(t, h.fleet.Hub, client.ObjectKey{Namespace: fleet.Namespace, Name: "stays"}, "hostile")
		if err != nil {
			return err
		}
		// The lie may be shown as the other reason by now: it may be noticed in two ways, one after the other.
		for _, reason := range slowReasons {
			if broken != nil && broken.Name == "connection" && strings.Contains(broken.Evidence, "Connected=False "+reason) && strings.Contains(broken.Fix, repairs[reason]) {
				return nil
			}
		}
		return fmt.Errorf("it says %+v", broken)
	})
}

// createRule has a rule created in the spoke that lies.
func createRule(t *testing.T, h *hostileFleet) {
	t.Helper()
	must(t, h.fleet.Hub.Client.Create(t.Context(), alertRule(fmt.Sprintf("caused-%d", h.runs), "load", onNamed("hostile"))))
}

// updateRule has a rule updated there.
func updateRule(t *testing.T, h *hostileFleet) {
	t.Helper()
	ar := alertRule("stays", "load", onNamed("hostile"))
	patch := fmt.Appendf(nil, `{"spec":{"expr":"up == %d"}}`, h.runs)
	must(t, h.fleet.Hub.Client.Patch(t.Context(), ar, client.RawPatch(types.MergePatchType, patch)))
}

// leave deletes the SpokeCluster while the lists of its rules lie. When that is over, the rules are removed.
func (h *hostileFleet) leave(t *testing.T) {
	must(t, resetPeak(h.manager.Pid()))
	liar := &spokelies.Liar{About: spokelies.List("prometheusrules"), Lie: spokelies.Compressed(spokelies.EndlessText)}
	h.proxy.Set(liar.Fault)
	began := time.Now()
	must(t, h.fleet.Hub.Client.Delete(t.Context(), membership("hostile")))
	within(t, hostileShown, "it is shown", func(ctx context.Context) error {
		c, err := h.shows(ctx, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonLeaving)
		if err == nil && !strings.Contains(c.Message, "the limit is") {
			err = fmt.Errorf("the condition is %+v", c)
		}
		return err
	})
	shown := time.Since(began)
	took := propagation(t, h.fleet, h.fleet.Spoke("healthy"), "while-it-leaves", 40)
	grew := memoryOf(t, h.manager.Pid(), "VmHWM") - h.memory
	h.proxy.Set(honest)
	within(t, hostileOver, "its rules are removed", func(ctx context.Context) error {
		err := h.fleet.Hub.Client.Get(ctx, client.ObjectKeyFromObject(membership("hostile")), membership("hostile"))
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the SpokeCluster is there: %w", err)
		}
		if err = h.fleet.Spoke("hostile").Client.Get(ctx, h.rule, &monitoringv1.PrometheusRule{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the rule is there: %w", err)
		}
		return nil
	})
	t.Logf("shown after %v; told %d times; RSS grew by %d MiB at most; p50 %v (before %v)", shown.Round(time.Millisecond), liar.Told(), grew>>20, p(50, took), h.p50)
	if liar.Told() == 0 || grew > hostileMemory {
		t.Errorf("the lie was told %d times, and the manager grew by %d MiB", liar.Told(), grew>>20)
	}
	if is := p(50, took); float64(is) > 1.2*float64(h.p50) && is > h.p50+noise/10 {
		t.Errorf("p50 is %v, and was %v", is, h.p50)
	}
}

// toggle has the spoke's Deployments want their alerts, and then not, again and again. In the end they do.
func (h *hostileFleet) toggle(t *testing.T) {
	const (
		toggled = 30
		span    = 20 * time.Second
		// Each write to a spec brings one to the status.
		most = 2 * (10*generate.DefaultWrites + generate.DefaultWrites*int(span/time.Second))
	)
	spoke, hub := h.fleet.Spoke("hostile"), h.fleet.Hub
	watching, err := client.NewWithWatch(hub.RESTConfig(), client.Options{Scheme: fleet.Scheme})
	must(t, err)
	list := &v1alpha1.AlertRuleList{}
	must(t, hub.Client.List(t.Context(), list, client.InNamespace(fleet.GeneratedNamespace)))
	w, err := watching.Watch(t.Context(), &v1alpha1.AlertRuleList{}, client.InNamespace(fleet.GeneratedNamespace),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	must(t, err)
	defer w.Stop()
	var writes atomic.Int64
	go func() {
		for e := range w.ResultChan() {
			if e.Type != watch.Bookmark {
				writes.Add(1)
			}
		}
	}()
	annotate := func(i int, value string) {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"rulefleet.io/alerts":%s}}}`, value)
		must(t, spoke.Client.Patch(t.Context(), deployment("load", fmt.Sprintf("web-%d", i)), client.RawPatch(types.MergePatchType, patch)))
	}
	changes := 0
	for began := time.Now(); time.Since(began) < span; {
		for _, value := range []string{`"disabled"`, "null"} {
			for i := range toggled {
				annotate(i, value)
				changes++
			}
		}
	}
	n := writes.Load()
	t.Logf("%d changes within %v had %d writes to AlertRules", changes, span, n)
	if n > int64(most) || n == 0 {
		t.Errorf("there were %d writes, and at most %d should be", n, most)
	}
	within(t, time.Minute, "the newest state", func(ctx context.Context) error {
		if err := hub.Client.List(ctx, list, client.InNamespace(fleet.GeneratedNamespace)); err != nil {
			return err
		}
		if len(list.Items) != 50 {
			return fmt.Errorf("there are %d AlertRules", len(list.Items))
		}
		return nil
	})
}

// large has somebody create a Deployment that is as large, and as deep, as the spoke accepts. It is handled as any other.
func (h *hostileFleet) large(t *testing.T) {
	const levels = 9_995 // the API server refuses one more
	d := deployment("load", "large")
	d.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "A", Name: strings.Repeat("<", 1_400_000), UID: "a"}}
	d.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "test", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "apps/v1",
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(strings.Repeat(`{"f:a":`, levels) + "{}" + strings.Repeat("}", levels)),
	}}
	must(t, h.fleet.Spoke("hostile").Client.Create(t.Context(), d))
	expectGenerated(t, h.fleet, "hostile", "load", "large", 1)
	_, err := h.shows(t.Context(), v1alpha1.ConditionConnected, metav1.ConditionTrue)
	must(t, err)
	t.Logf("RSS grew by %d MiB", (memoryOf(t, h.manager.Pid(), "VmHWM")-h.memory)>>20)
}

// memoryOf reads a figure of a process, in bytes.
func memoryOf(t *testing.T, pid int, name string) int64 {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name+":"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			must(t, err)
			return n << 10
		}
	}
	t.Fatalf("the process has no %s", name)
	return 0
}

// resetPeak has the peak of a process' memory counted from now on.
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}
