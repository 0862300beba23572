package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/controller/hub"
	"github.com/rulefleet/rulefleet/pkg/interval"
	"github.com/rulefleet/rulefleet/pkg/leader"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/templating"
	"github.com/rulefleet/rulefleet/pkg/spoke"
	"github.com/rulefleet/rulefleet/pkg/testing/explore"
	"github.com/rulefleet/rulefleet/pkg/testing/faultproxy"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	"github.com/rulefleet/rulefleet/pkg/testing/oracle"
)

const (
	// exploredHold is the --deletion-hold.
	exploredHold = 5 * time.Second
	// exploredNamespace is where the AlertRules' objects are, in each spoke.
	exploredNamespace = "explored"
	// driftedRounds is how many rounds an object is left alone after somebody changed it in a spoke, so that it does
	// not become contested.
	driftedRounds = 20
	// strangerName is a cluster that answers now and then in place of a spoke.
	strangerName = "stranger"
	// alertsAnnotation turns the alerts of a workload off.
	alertsAnnotation = v1alpha1.AdjustmentPrefix + "alerts"
)

var exploredRender = delivery.Options{HubID: hubID, AdminNamespace: fleet.Namespace, RuleNamespace: "monitoring", ClusterLabel: "cluster"}

// exploration is a fleet in which random things happen. The choices depend on the seed alone; how they coincide with
// what the manager does, does not.
type exploration struct {
	*faulty

	t        *testing.T
	rnd      *rand.Rand
	replicas []*replica
	spokes   []*explored
	rounds   int
	broken   map[string]string // what is wrong with the hub and the spokes that do not answer, or not as they should; "" is the manager
	closed   map[string]bool   // those of them that refuse writes of people as well
	touched  map[string]bool   // the AlertRules that were changed in this round
	drifted  map[string]int    // when an object was changed in a spoke
	covered  explore.Coverage
	// stranger returns what the manager wrote to a cluster that is no spoke.
	stranger func() []string
	// losing means that objects of the hub are lost in this round, and lost is when the last such round ended. Removals of
	// what is older may wait for an acknowledgement.
	losing bool
	lost   time.Time
}

// explored is a spoke.
type explored struct {
	*place
	proxy *faultproxy.Proxy
	kept  map[types.NamespacedName]keptRule
	// replaced means that its objects are not those of the beginning of the round.
	replaced bool
	// ahead means that its clock was ahead, so that its objects seem to be older than they are.
	ahead bool
}

// replica is one of the managers, and its way to the hub.
type replica struct {
	*faulty
	link *faultproxy.Proxy
}

// keptRule is a PrometheusRule that must not change if its AlertRule doesn't.
type keptRule struct {
	version
	of string
}

// breakage is a fault.
type breakage struct {
	what string
	// at names the cluster that is broken; "" for the manager.
	at string
	// dead means that the spoke has to be shown as not ready, and closed that people can't write to the cluster either.
	dead, closed bool
	inject, heal func() error
}

// TestExplore lets random things happen to a fleet for TIME, and compares it with the oracle after each round. SEED
// repeats the choices of an earlier run.
func TestExplore(t *testing.T) {
	span := os.Getenv("TIME")
	if span == "" {
		t.Skip("make explore runs it, for TIME")
	}
	limit, err := time.ParseDuration(span)
	must(t, err)
	end := time.Now().Add(limit)
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("SEED"), "0"), 10, 64)
	must(t, err)
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat it by SEED=%d", seed)
	x, began := startExploration(t, seed), time.Now()
	for x.rounds == 0 || time.Now().Before(end) {
		x.round()
	}
	t.Logf("%d rounds, %.0f per hour", x.rounds, float64(x.rounds)/time.Since(began).Hours())
	t.Log(&x.covered)
}

func startExploration(t *testing.T, seed uint64) *exploration {
	t.Helper()
	f := startFaulty(t, fleet.Options{Spokes: []string{"one", "two", strangerName}, Intervals: quick})
	f.intervals = interval.Scale(quick)
	f.options.LeaderElect = true
	f.options.Args = append(f.options.Args, fmt.Sprintf("--deletion-hold=%v", exploredHold))
	x := &exploration{
		faulty: f, t: t, rnd: rand.New(rand.NewPCG(seed, seed)), broken: map[string]string{}, closed: map[string]bool{}, touched: map[string]bool{},
		drifted: map[string]int{}, stranger: writes(t, f.Spoke(strangerName)),
	}
	standby := &faulty{Fleet: f.Fleet, options: f.options, intervals: f.intervals, canaries: f.canaries}
	standby.options.Dir = t.TempDir()
	for _, m := range []*faulty{f, standby} {
		r := &replica{faulty: m, link: m.frontHub(t)}
		m.keepRunning(t)
		endsWell(t, m)
		x.replicas = append(x.replicas, r)
	}
	for _, name := range []string{healthyName, "one", "two"} {
		at := f.place(t, name)
		s := &explored{place: at}
		namespace(t, exploredNamespace, at.m)
		if name == healthyName {
			f.healthy = at
		} else {
			s.proxy = at.behind(t)
		}
		must(t, f.RegisterKubeconfig(t.Context(), name, at.kubeconfig, map[string]string{"env": "prod"}))
		x.spokes = append(x.spokes, s)
	}
	must(t, f.Hub.Client.Create(t.Context(), template("explored", "explored")))
	within(t, convergedWithin, "the fleet is as it should be", x.check)
	return x
}

// say prints a step.
func (x *exploration) say(format string, args ...any) {
	x.t.Helper()
	x.t.Logf("%s %s", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

func (x *exploration) one(of ...string) string { return of[x.rnd.IntN(len(of))] }

func (x *exploration) spoke(name string) *explored {
	return x.spokes[slices.IndexFunc(x.spokes, func(s *explored) bool { return s.name == name })]
}

// round breaks something, lets people and others do something meanwhile, mends it, and checks everything.
func (x *exploration) round() {
	x.rounds++
	x.say("round %d", x.rounds)
	x.remember()
	var broken []breakage
	for range x.rnd.IntN(3) {
		b := x.breakage()
		if _, is := x.broken[b.at]; is {
			continue
		}
		broken = append(broken, b)
		x.covered.Ran("(the fault begins)", []string{b.what})
		x.broken[b.at], x.closed[b.at] = b.what, b.closed
		x.say("fault of %q: %s", b.at, b.what)
		must(x.t, b.inject())
		x.operate(x.rnd.IntN(4))
	}
	x.operate(1 + x.rnd.IntN(4))
	for _, b := range broken {
		if b.dead && x.managed() {
			x.shown(b.at)
		}
	}
	x.others()
	pause(x.t, time.Duration(x.rnd.Int64N(int64(8*time.Second))))
	for _, b := range broken {
		x.say("mended: %s", b.what)
		must(x.t, b.heal())
		delete(x.broken, b.at)
		delete(x.closed, b.at)
		x.operate(x.rnd.IntN(2))
	}
	mended := time.Now()
	within(x.t, convergedWithin+leader.LeaseDuration, "the fleet is as it should be", x.check)
	x.say("as it should be after %s", seconds(time.Since(mended)))
	if x.losing {
		x.losing, x.lost = false, time.Now()
	}
	within(x.t, convergedWithin, "the numbers in the statuses are right", x.counted)
	must(x.t, x.kept())
	if wrote := x.stranger(); len(wrote) > 0 {
		x.t.Errorf("written to a cluster that is no spoke: %q", wrote)
	}
	for _, s := range x.spokes {
		must(x.t, x.foreignUntouched(x.t.Context(), s.m, false))
	}
	within(x.t, convergedWithin, "no credential appears", x.noCredential) // a replica may still be starting
	x.quiet()
}

// remember notes the PrometheusRules in the spokes.
func (x *exploration) remember() {
	clear(x.touched)
	for _, s := range x.spokes {
		s.replaced, s.kept = false, map[types.NamespacedName]keptRule{}
		held, err := x.held(x.t.Context(), s)
		must(x.t, err)
		for key, o := range held {
			s.kept[key] = keptRule{version{o.UID, o.ResourceVersion}, o.Annotations[v1alpha1.AlertRuleAnnotation]}
		}
	}
}

// kept returns an error if a PrometheusRule was written whose AlertRule nobody changed.
func (x *exploration) kept() error {
	var errs []error
	for _, s := range x.spokes {
		held, err := x.held(x.t.Context(), s)
		if err != nil {
			return err
		}
		for key, was := range s.kept {
			if s.replaced || x.touched[was.of] || x.touched["all"] {
				continue
			}
			if o := held[key]; o == nil || o.UID != was.uid || o.ResourceVersion != was.resourceVersion {
				errs = append(errs, fmt.Errorf("PrometheusRule %s in %s was written, and nobody had changed %s", key, s.name, was.of))
			}
		}
	}
	return errors.Join(errs...)
}

// held returns this hub's PrometheusRules in a spoke.
func (x *exploration) held(ctx context.Context, s *explored) (map[types.NamespacedName]*monitoringv1.PrometheusRule, error) {
	rules, err := s.rules(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the PrometheusRules of %s: %w", s.name, err)
	}
	out := map[types.NamespacedName]*monitoringv1.PrometheusRule{}
	for i := range rules {
		out[client.ObjectKeyFromObject(&rules[i])] = &rules[i]
	}
	return out, nil
}

// workloads returns the workloads of a spoke by kind.
func (s *explored) workloads(ctx context.Context) (map[v1alpha1.WorkloadKind][]metav1.PartialObjectMetadata, error) {
	out := map[v1alpha1.WorkloadKind][]metav1.PartialObjectMetadata{}
	for _, kind := range rule.WorkloadKinds() {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(spoke.WorkloadMetadata(kind).GroupVersionKind())
		if err := s.m.Client.List(ctx, &list); err != nil {
			return nil, fmt.Errorf("listing the %ss of %s: %w", kind, s.name, err)
		}
		out[kind] = list.Items
	}
	return out, nil
}

// managed reports whether nothing is wrong with the hub and with the managers.
func (x *exploration) managed() bool { return x.broken["hub"] == "" && x.broken[""] == "" }

// ran counts an operation.
func (x *exploration) ran(what string) {
	x.covered.Ran(what, slices.Sorted(maps.Values(x.broken)))
}

// others checks that a change reaches the healthy spoke while others are broken.
func (x *exploration) others() {
	if !x.managed() {
		return
	}
	const soon = 10 * time.Second // on two busy cores
	name := healthyName + "-rule-1"
	ar := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: name}}
	expr := fmt.Sprintf("up == %d", x.rounds)
	update(x.t, x.Hub, ar, func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = expr })
	x.touched[client.ObjectKeyFromObject(ar).String()] = true
	x.ran("change a rule of the healthy spoke")
	within(x.t, soon, "a change reaches the healthy spoke", func(ctx context.Context) error {
		found, err := pushed(ctx, x.healthy.m, client.ObjectKeyFromObject(ar))
		if err == nil && (len(found) != 1 || found[0].Spec.Groups[0].Rules[0].Expr.String() != expr) {
			err = fmt.Errorf("it has %+v", found)
		}
		return err
	})
}

// shown waits until a spoke that can't be served is shown as such.
func (x *exploration) shown(name string) {
	within(x.t, shownWithin, name+" is not ready", func(ctx context.Context) error {
		sc := membership(name)
		if err := read(ctx, x.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
			return err
		}
		if meta.IsStatusConditionTrue(sc.Status.Conditions, v1alpha1.ConditionReady) {
			return fmt.Errorf("the conditions are %s", conditions(sc))
		}
		return nil
	})
}

// noCredential returns an error if a credential appears anywhere.
func (x *exploration) noCredential(ctx context.Context) error {
	var errs []error
	for _, r := range x.replicas {
		errs = append(errs, x.canaries.found("a manager's log", r.current().Log()))
	}
	texts, err := x.seen(ctx)
	for where, text := range texts {
		errs = append(errs, x.canaries.found(where, text))
	}
	return errors.Join(append(errs, err)...)
}

// check compares the hub and the spokes with the oracle.
func (x *exploration) check(ctx context.Context) error {
	var rules v1alpha1.AlertRuleList
	var templates v1alpha1.AlertRuleTemplateList
	if err := errors.Join(x.Hub.Client.List(ctx, &rules), x.Hub.Client.List(ctx, &templates)); err != nil {
		return err
	}
	byKey, faults := map[types.NamespacedName]*v1alpha1.AlertRule{}, []string{}
	for i := range rules.Items {
		ar := &rules.Items[i]
		byKey[client.ObjectKeyFromObject(ar)] = ar
		if c := meta.FindStatusCondition(ar.Status.Conditions, v1alpha1.ConditionReady); c == nil || c.ObservedGeneration != ar.Generation || (c.Status != metav1.ConditionTrue && c.Reason != v1alpha1.ReasonNoClusters) {
			faults = append(faults, fmt.Sprintf("AlertRule %s, generation %d: %+v", ar.Name, ar.Generation, c))
		}
	}
	for _, s := range x.spokes {
		more, err := x.checkSpoke(ctx, s, byKey, templates.Items)
		if err != nil {
			return err
		}
		faults = append(faults, more...)
	}
	if len(faults) > 0 {
		return errors.New(strings.Join(faults, "; "))
	}
	return nil
}

// acknowledges has a person acknowledge the removals in a spoke that wait for that. It returns an error if one waits of an
// object that is younger than all losses.
func (x *exploration) acknowledges(ctx context.Context, s *explored) error {
	sc := membership(s.name)
	if err := read(ctx, x.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
		return err
	}
	p := sc.Status.PendingDeletions
	if p == nil || p.Suspect == 0 || sc.Annotations[v1alpha1.AcknowledgeDeletionsAnnotation] != "" {
		return nil
	}
	held, err := x.held(ctx, s)
	if err != nil {
		return err
	}
	for key, o := range held {
		if !x.losing && !s.ahead && o.CreationTimestamp.After(x.lost) && slices.Contains(p.Names, o.Annotations[v1alpha1.AlertRuleAnnotation]) {
			return fmt.Errorf("the removal of PrometheusRule %s in %s waits for an acknowledgement, though nothing was lost since it was created", key, s.name)
		}
	}
	x.say("a person acknowledges %d removals in %s: %q", p.Suspect, s.name, p.Names)
	x.ran("acknowledge removals")
	metav1.SetMetaDataAnnotation(&sc.ObjectMeta, v1alpha1.AcknowledgeDeletionsAnnotation, "true")
	return x.Hub.Client.Update(ctx, sc)
}

func (x *exploration) checkSpoke(ctx context.Context, s *explored, rules map[types.NamespacedName]*v1alpha1.AlertRule, templates []v1alpha1.AlertRuleTemplate) ([]string, error) {
	sc := membership(s.name)
	if err := read(ctx, x.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
		return nil, err
	}
	held, err := x.held(ctx, s)
	if err != nil {
		return nil, err
	}
	sources := make(map[types.NamespacedName]rule.Source, len(rules))
	for key, ar := range rules {
		sources[key] = ar
	}
	state := &oracle.Spoke{
		Cluster: *hub.ClusterOf(sc), Options: exploredRender, Rules: sources, Holds: held,
		Row: func(key types.NamespacedName) *v1alpha1.ClusterStatus { return row(rules[key], s.name) },
	}
	faults := state.Faults()
	if c := meta.FindStatusCondition(sc.Status.Conditions, v1alpha1.ConditionReady); c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonReady {
		faults = append(faults, fmt.Sprintf("SpokeCluster %s: %+v", s.name, c))
	}
	var namespaces corev1.NamespaceList
	if err := s.m.Client.List(ctx, &namespaces); err != nil {
		return nil, err
	}
	all := make([]*v1alpha1.AlertRuleTemplate, 0, len(templates))
	for i := range templates {
		all = append(all, &templates[i])
	}
	workloads, err := s.workloads(ctx)
	if err != nil {
		return nil, err
	}
	want := map[string]*v1alpha1.AlertRule{}
	for kind, list := range workloads {
		for i := range list {
			o := &list[i]
			w := templating.Workload{Kind: kind, Cluster: state.Cluster, Namespace: o.Namespace, Name: o.Name, Labels: o.Labels, Annotations: o.Annotations}
			for j := range namespaces.Items {
				if namespaces.Items[j].Name == o.Namespace {
					w.NamespaceLabels = namespaces.Items[j].Labels
				}
			}
			maps.Copy(want, oracle.Generated(w, all, fleet.GeneratedNamespace))
		}
	}
	for _, ar := range rules {
		if w := ar.Spec.WorkloadRef; w == nil || string(w.Cluster) != s.name {
			continue
		}
		if want[ar.Name] == nil {
			faults = append(faults, fmt.Sprintf("AlertRule %s stays", ar.Name))
		} else if ar.Spec.Expr != want[ar.Name].Spec.Expr {
			faults = append(faults, fmt.Sprintf("AlertRule %s has the expression %q, and its template %q", ar.Name, ar.Spec.Expr, want[ar.Name].Spec.Expr))
		}
		delete(want, ar.Name)
	}
	for name := range want {
		faults = append(faults, fmt.Sprintf("AlertRule %s is missing", name))
	}
	if len(want) == 0 { // a person waits until the AlertRules that templates create exist again
		if err := x.acknowledges(ctx, s); err != nil {
			return nil, err
		}
	}
	slices.Sort(faults)
	return faults, nil
}

// counted compares the numbers in the statuses of the spokes and of the templates with what is there.
func (x *exploration) counted(ctx context.Context) error {
	var templates v1alpha1.AlertRuleTemplateList
	var rules v1alpha1.AlertRuleList
	if err := errors.Join(x.Hub.Client.List(ctx, &templates), x.Hub.Client.List(ctx, &rules, client.HasLabels{v1alpha1.TemplateLabel})); err != nil {
		return err
	}
	wanted := make(map[string]v1alpha1.TemplateSummary, len(templates.Items))
	for i := range rules.Items {
		t := wanted[rules.Items[i].Labels[v1alpha1.TemplateLabel]]
		t.Matched++
		t.Generated++
		wanted[rules.Items[i].Labels[v1alpha1.TemplateLabel]] = t
	}
	var faults []string
	for _, s := range x.spokes {
		sc := membership(s.name)
		if err := read(ctx, x.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
			return err
		}
		held, err := x.held(ctx, s)
		if err != nil {
			return err
		}
		workloads, err := s.workloads(ctx)
		if err != nil {
			return err
		}
		counts := map[v1alpha1.WorkloadKind]int{}
		for kind, list := range workloads {
			counts[kind] = len(list)
			for i := range list {
				if list[i].Annotations[alertsAnnotation] == "disabled" {
					disable(wanted, templates.Items, kind, list[i].Namespace)
				}
			}
		}
		faults = append(faults, oracle.CountFaults(sc, counts, len(held))...)
	}
	for i := range templates.Items {
		t := &templates.Items[i]
		if is := ptr.Deref(t.Status.Summary, v1alpha1.TemplateSummary{}); is != wanted[t.Name] {
			faults = append(faults, fmt.Sprintf("the summary of template %s is %+v, want %+v", t.Name, is, wanted[t.Name]))
		}
	}
	if len(faults) > 0 {
		return errors.New(strings.Join(faults, "; "))
	}
	return nil
}

// disable counts a workload for the templates that it disables.
func disable(wanted map[string]v1alpha1.TemplateSummary, templates []v1alpha1.AlertRuleTemplate, kind v1alpha1.WorkloadKind, namespace string) {
	for i := range templates {
		t := &templates[i]
		if t.Spec.State == v1alpha1.Disabled || !slices.Contains(rule.KindsOf(t), kind) {
			continue
		}
		if in := t.Spec.Namespaces; in != nil && len(in.Names) > 0 && !slices.Contains(in.Names, v1alpha1.NamespaceName(namespace)) {
			continue
		}
		is := wanted[t.Name]
		is.Matched++
		is.Disabled++
		wanted[t.Name] = is
	}
}

// quiet checks that when all is as it should be, nobody writes.
func (x *exploration) quiet() {
	pause(x.t, statusWithin)
	before := x.statuses()
	counts := map[string]func() []string{"hub": writes(x.t, x.Hub)}
	for _, s := range x.spokes {
		counts[s.name] = writes(x.t, s.m)
	}
	pause(x.t, x.intervals.Of(quiet))
	for name, count := range counts {
		if wrote := slices.DeleteFunc(count(), func(w string) bool { return strings.Contains(w, "/spokeclusters/") && strings.Contains(w, "/status") }); len(wrote) > 0 {
			for key, after := range x.statuses() {
				if before[key] != after {
					x.say("the status of %s was %s, and is %s", key, before[key], after)
				}
			}
			x.t.Fatalf("written to %s though all is done: %v", name, wrote)
		}
	}
}

// statuses returns the statuses of AlertRules.
func (x *exploration) statuses() map[types.NamespacedName]string {
	var rules v1alpha1.AlertRuleList
	must(x.t, x.Hub.Client.List(x.t.Context(), &rules))
	out := map[types.NamespacedName]string{}
	for i := range rules.Items {
		text, err := json.Marshal(rules.Items[i].Status)
		must(x.t, err)
		out[client.ObjectKeyFromObject(&rules.Items[i])] = string(text)
	}
	return out
}
