package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// The fault suite: every TestFault… breaks part of its own fleet. In short mode (go test -short), one row
// represents each class of faults.

const (
	// shownWithin is how soon the SpokeCluster must show a fault.
	shownWithin = 30 * time.Second
	// convergedWithin is how soon after the end of a fault everything must have recovered.
	convergedWithin = time.Minute
	// baseline is how long the healthy spoke is measured before the first fault.
	baseline = 12 * time.Second
	// statusWithin is how soon a status must follow a change.
	statusWithin = 3 * time.Second
	// quiet is how long nothing may be written after that, with default intervals.
	quiet = 8 * time.Second

	healthyName = "healthy"
	hubID       = "faulty"
)

// faulty is a fleet for faults. Its healthy spoke is measured continuously; faults are injected into the
// others.
type faulty struct {
	*fleet.Fleet
	options fleet.ManagerOptions
	sampler *sampler
	// intervals are the manager's. The duration of faults has the same scale.
	intervals interval.Scale
	canaries  *canaries
	foreign   []foreign
	healthy   *place
	before    time.Duration // p99 without a fault

	mu      sync.Mutex
	manager *fleet.Manager
}

// place is a spoke for faults, with its rules. All its objects have its name.
type place struct {
	*faulty
	t          *testing.T // the test with its rows
	m          *fleet.Member
	name       string
	kubeconfig []byte
	rows       int
	// only means that there is no other spoke.
	only bool
}

// startFaulty starts a fleet with a healthy spoke and others. None is registered yet.
func startFaulty(t *testing.T, o fleet.Options) *faulty {
	t.Helper()
	intervals := interval.Scale(cmp.Or(o.Intervals, 1)) // the limits hold for the default intervals
	if testing.Short() {
		intervals = quick
	}
	o.Spokes, o.Audit, o.Intervals = append([]string{healthyName}, o.Spokes...), true, float64(intervals)
	f := &faulty{Fleet: start(t, o), canaries: &canaries{}, intervals: intervals}
	f.options = fleet.ManagerOptions{
		Path: plainManager, Dir: t.TempDir(), HubID: hubID,
		Args: []string{"--log-level=debug"},
	}
	return f
}

// manage starts the manager and the measurement of the healthy spoke.
func (f *faulty) manage(t *testing.T) {
	t.Helper()
	f.start(t)
	endsWell(t, f)
	f.healthy = f.place(t, healthyName)
	f.healthy.register(t)
	f.healthy.settle(t)
	f.sampler = startSampler(t, f.Hub, f.healthy.m)
}

// measure measures the healthy spoke without a fault.
func (f *faulty) measure(t *testing.T) {
	t.Helper()
	f.sampler.warm(t)
	if !testing.Short() { // its tests always run beside others
		f.sampler.calm(t)
	}
	begun := time.Now()
	pause(t, baseline)
	f.before = p99(f.sampler.between(begun, time.Now()))
	t.Logf("%s: p99 with no fault is %v", t.Name(), f.before)
}

// start starts the manager, or restarts it.
func (f *faulty) start(t *testing.T) {
	t.Helper()
	m, err := f.StartManager(t.Context(), f.nextOptions())
	must(t, err)
	f.adopt(m)
}

// nextOptions returns the options of the next start.
func (f *faulty) nextOptions() fleet.ManagerOptions {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.options
}

// upgradeTo makes the next starts use another program.
func (f *faulty) upgradeTo(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.options.Path = path
}

func (f *faulty) adopt(m *fleet.Manager) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.manager = m
}

func (f *faulty) current() *fleet.Manager {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.manager
}

// place prepares a spoke for faults: with foreign objects, Deployments, and AlertRules on the hub that are
// placed on it.
func (f *faulty) place(t *testing.T, name string) *place {
	t.Helper()
	at := &place{faulty: f, t: t, m: f.Spoke(name), name: name}
	kubeconfig, err := at.m.UserKubeconfig(fleet.SpokeUser)
	must(t, err)
	at.kubeconfig = f.canaries.into(t, kubeconfig, name)
	namespace(t, name, at.m)
	f.plantForeign(t, at.m)
	for i := range 3 {
		must(t, at.m.Client.Create(t.Context(), deployment(name, fmt.Sprintf("web-%d", i))))
	}
	for i := range 4 {
		at.rule(t, fmt.Sprintf("rule-%d", i))
	}
	return at
}

// served prepares spokes for faults and registers them, and waits until they have converged.
func (f *faulty) served(t *testing.T, names ...string) []*place {
	t.Helper()
	var places []*place
	for _, name := range names {
		at := f.place(t, name)
		at.register(t)
		places = append(places, at)
	}
	for _, at := range places {
		at.settle(t)
	}
	return places
}

// rule creates an AlertRule on the hub that is placed on the spoke.
func (at *place) rule(t *testing.T, suffix string) *v1alpha1.AlertRule {
	t.Helper()
	ar := alertRule(at.name+"-"+suffix, at.name, onNamed(v1alpha1.ClusterName(at.name)))
	must(t, at.Hub.Client.Create(t.Context(), ar))
	return ar
}

// register puts the place's kubeconfig into its Secret.
func (at *place) register(t *testing.T) {
	t.Helper()
	at.put(t, at.name, at.kubeconfig)
}

// put registers a spoke with a kubeconfig, or replaces the kubeconfig.
func (f *faulty) put(t *testing.T, name string, kubeconfig []byte) {
	t.Helper()
	secret := registration(name)
	if err := read(t.Context(), f.Hub, client.ObjectKeyFromObject(secret), secret); err != nil {
		must(t, client.IgnoreNotFound(err))
		must(t, f.RegisterKubeconfig(t.Context(), name, kubeconfig, nil))
		return
	}
	update(t, f.Hub, secret, func(s *corev1.Secret) { s.Data = map[string][]byte{v1alpha1.KubeconfigKey: kubeconfig} })
}

// settle waits until the place has converged.
func (at *place) settle(t *testing.T) {
	t.Helper()
	within(t, convergedWithin, at.name+" is as it should be", at.converged)
}

// converged returns an error unless the spoke has exactly the rules that it should, and the hub's status
// agrees.
func (at *place) converged(ctx context.Context) error {
	sc := membership(at.name)
	if err := read(ctx, at.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
		return err
	}
	if c := meta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionReady); c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonReady {
		return fmt.Errorf("SpokeCluster %s: %+v", at.name, c)
	}
	want, err := at.wanted(ctx)
	if err != nil {
		return err
	}
	got, err := at.rules(ctx)
	if err != nil {
		return err
	}
	for _, pr := range got {
		key := pr.Annotations[v1alpha1.AlertRuleAnnotation]
		ar := want[key]
		if ar == nil {
			return fmt.Errorf("%s is in %s for %q, of which there is no AlertRule, or twice", pr.Name, at.name, key)
		}
		if r := pr.Spec.Groups[0].Rules[0]; ar.Spec.WorkloadRef == nil && r.Expr.String() != ar.Spec.Expr {
			return fmt.Errorf("%s in %s is %q, not %q", key, at.name, r.Expr.String(), ar.Spec.Expr)
		}
		delete(want, key)
	}
	if len(want) > 0 {
		return fmt.Errorf("%s lacks %v", at.name, slices.Sorted(maps.Keys(want)))
	}
	return nil
}

// notSamples selects the AlertRules that the sampler did not make.
var notSamples = &client.ListOptions{Raw: &metav1.ListOptions{LabelSelector: "!" + sampleLabel}}

// wanted returns the AlertRules of the place. They must all be ready and include those of all Deployments.
func (at *place) wanted(ctx context.Context) (map[string]*v1alpha1.AlertRule, error) {
	var list v1alpha1.AlertRuleList
	// There may be thousands of samples, and this is often called.
	if err := at.Hub.Client.List(ctx, &list, notSamples); err != nil {
		return nil, err
	}
	var deployments appsv1.DeploymentList
	if err := at.m.Client.List(ctx, &deployments, client.InNamespace(at.name)); err != nil {
		return nil, err
	}
	want, made := map[string]*v1alpha1.AlertRule{}, map[string]bool{}
	for i := range list.Items {
		ar := &list.Items[i]
		if !slices.Contains(ar.Spec.Placement.Names, v1alpha1.ClusterName(at.name)) {
			continue
		}
		c, r := meta.FindStatusCondition(ar.Status.Conditions, v1alpha1.ConditionReady), row(ar, at.name)
		if c == nil || c.Status != metav1.ConditionTrue || ar.Status.ObservedGeneration != ar.Generation ||
			r == nil || r.Phase != v1alpha1.PhaseApplied || r.ObservedGeneration != ar.Generation {
			return nil, fmt.Errorf("AlertRule %s at generation %d: %+v", ar.Name, ar.Generation, ar.Status)
		}
		want[client.ObjectKeyFromObject(ar).String()] = ar
		if ar.Spec.WorkloadRef != nil {
			made[ar.Spec.WorkloadRef.Name] = true
		}
	}
	for i := range deployments.Items {
		if !made[deployments.Items[i].Name] {
			return nil, fmt.Errorf("Deployment %s of %s has no AlertRule", deployments.Items[i].Name, at.name)
		}
	}
	if len(made) != len(deployments.Items) {
		return nil, fmt.Errorf("%s has %d Deployments, and AlertRules of %v", at.name, len(deployments.Items), made)
	}
	return want, nil
}

// rules returns this hub's PrometheusRules in the spoke, without the samples.
func (at *place) rules(ctx context.Context) ([]monitoringv1.PrometheusRule, error) {
	var list monitoringv1.PrometheusRuleList
	err := at.m.Client.List(ctx, &list, client.MatchingLabels{v1alpha1.HubLabel: hubID})
	return slices.DeleteFunc(list.Items, func(pr monitoringv1.PrometheusRule) bool { return pr.Namespace == sampleNamespace }), err
}

// foreign is an object in a cluster that is not Rulefleet's.
type foreign struct {
	m *fleet.Member
	o client.Object
}

// plantForeign creates objects that must not be changed: rules without a hub and of another hub, and other
// objects.
func (f *faulty) plantForeign(t *testing.T, m *fleet.Member) {
	t.Helper()
	const ns = "foreign"
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "config"}},
	}
	for name, labels := range map[string]map[string]string{
		"nobodys":   nil,
		"anothers":  {v1alpha1.HubLabel: "another", v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue},
		"lookalike": {v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue},
	} {
		objects = append(objects, &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: name, Labels: labels,
			Annotations: map[string]string{v1alpha1.AlertRuleAnnotation: fleet.Namespace + "/" + m.Name() + "-rule-0"},
		}})
	}
	for _, o := range objects {
		err := m.Client.Create(t.Context(), o)
		if meta.IsNoMatchError(err) || (err != nil && strings.Contains(err.Error(), "could not find the requested resource")) {
			continue // it has no PrometheusRules yet
		}
		must(t, err)
		f.mu.Lock()
		f.foreign = append(f.foreign, foreign{m, o})
		f.mu.Unlock()
	}
}

// foreignUntouched returns an error if a foreign object in a cluster was changed. Those that were deleted with
// a CRD do not count.
func (f *faulty) foreignUntouched(ctx context.Context, m *fleet.Member, withoutRules bool) error {
	f.mu.Lock()
	all := slices.Clone(f.foreign)
	f.mu.Unlock()
	var errs []error
	for _, x := range all {
		if _, isRule := x.o.(*monitoringv1.PrometheusRule); x.m == m && !(isRule && withoutRules) {
			errs = append(errs, untouched(ctx, m, x.o))
		}
	}
	return errors.Join(errs...)
}

// forgetForeignRules is called before the kind of PrometheusRules is deleted in a cluster.
func (f *faulty) forgetForeignRules(m *fleet.Member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.foreign = slices.DeleteFunc(f.foreign, func(x foreign) bool {
		_, isRule := x.o.(*monitoringv1.PrometheusRule)
		return x.m == m && isRule
	})
}

// canaries are texts in credentials that must never appear elsewhere.
type canaries struct {
	mu  sync.Mutex
	all []string
}

func (c *canaries) add(texts ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, texts...)
}

// into adds a token to a kubeconfig with a client certificate, which takes precedence, and records the key as
// well.
func (c *canaries) into(t *testing.T, kubeconfig []byte, name string) []byte {
	t.Helper()
	cfg, err := clientcmd.Load(kubeconfig)
	must(t, err)
	for _, u := range cfg.AuthInfos {
		u.Token = "canary-token-" + name
		c.add(u.Token, strings.Split(string(u.ClientKeyData), "\n")[1])
	}
	out, err := clientcmd.Write(*cfg)
	must(t, err)
	return out
}

// found returns an error if a text contains a canary.
func (c *canaries) found(where, text string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, canary := range c.all {
		if i := strings.Index(text, canary); i >= 0 {
			return fmt.Errorf("the credential %q is in %s: …%s…", canary, where, text[max(0, i-100):min(len(text), i+len(canary)+20)])
		}
	}
	return nil
}

// seen returns the texts in which a credential could appear, each with a word that it must contain, to detect
// an empty text.
func (f *faulty) seen(ctx context.Context) (map[string]string, error) {
	out := map[string]string{"the manager's log": f.current().Log()}
	for where, path := range map[string]string{
		"Events":          "/api/v1/events",
		"AlertRules":      "/apis/rulefleet.io/v1alpha1/alertrules",
		"SpokeClusters":   "/apis/rulefleet.io/v1alpha1/spokeclusters",
		"AlertTemplates":  "/apis/rulefleet.io/v1alpha1/alertruletemplates",
		"ConfigMaps":      "/api/v1/namespaces/" + fleet.Namespace + "/configmaps",
		"leases":          "/apis/coordination.k8s.io/v1/leases",
		"healthy's rules": "",
	} {
		from := f.Hub
		if path == "" {
			from, path = f.healthy.m, "/apis/monitoring.coreos.com/v1/prometheusrules"
		}
		body, err := raw(ctx, from, path)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", where, err)
		}
		out[where] = body
	}
	metrics, err := metricsText(ctx, f.current())
	out["metrics"] = metrics
	return out, err
}

// noCanary checks that no credential appears anywhere.
func (f *faulty) noCanary(ctx context.Context) error {
	texts, err := f.seen(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for where, text := range texts {
		errs = append(errs, f.canaries.found(where, text))
	}
	for where, word := range map[string]string{
		"the manager's log": f.healthy.name, "AlertRules": f.healthy.name, "SpokeClusters": f.healthy.name, "metrics": "rulefleet_engaged_spokes", "ConfigMaps": "rulefleet-hub",
	} {
		if !strings.Contains(texts[where], word) {
			errs = append(errs, fmt.Errorf("%s does not hold %q: was it read?", where, word))
		}
	}
	return errors.Join(errs...)
}

// outcome is a row of the table.
type outcome struct {
	title, shown   string
	after, took    time.Duration // until the fault was shown, and until recovery
	before, during time.Duration // p99 of the healthy spoke
}

var table = struct {
	sync.Mutex
	rows []outcome
}{}

// writeTable writes the outcomes of all rows, if any.
func writeTable(path string) error {
	table.Lock()
	defer table.Unlock()
	if len(table.rows) == 0 {
		return nil
	}
	w, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing the table of faults: %w", err)
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(out, "FAULT\tSHOWN\tAFTER\tCONVERGED AFTER\tP99 BEFORE\tDURING\tRATIO")
	for _, o := range table.rows {
		ratio := "-"
		if o.before > 0 && o.during > 0 {
			ratio = fmt.Sprintf("%.2f", float64(o.during)/float64(o.before))
		}
		_, _ = fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", o.title, o.shown, seconds(o.after), seconds(o.took), millis(o.before), millis(o.during), ratio)
	}
	return errors.Join(out.Flush(), w.Close())
}

func seconds(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func millis(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// pause waits while something is measured or must not happen.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal("the test ends")
	}
}

// endOfLog returns the last lines of a manager's log, without those for debugging. There are few, because the failed
// checks are printed before them, and CI shows only the end of an output.
func endOfLog(log string) string {
	const most = 15
	lines := slices.DeleteFunc(strings.Split(log, "\n"), func(line string) bool { return strings.HasPrefix(line, `{"level":"debug"`) })
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// conditions formats the conditions of a SpokeCluster in one line.
func conditions(sc *v1alpha1.SpokeCluster) string {
	out, err := json.Marshal(sc.Status.Conditions)
	if err != nil {
		return err.Error()
	}
	return string(out)
}
