package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/why"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// fault is a row of the table: something breaks, is shown, and recovers.
type fault struct {
	*place
	t *testing.T
	outcome
	options rowOptions

	number           int
	gone             *v1alpha1.AlertRule // deleted during the fault
	kept             map[string]version  // objects that must not change
	injected, healed time.Time
	heal             func()
	broken           why.Link // what why has said last
}

// rowOptions are exceptions for a row.
type rowOptions struct {
	// unregistered rows register their spoke themselves.
	unregistered bool
	// rewritten rows lose the spoke's PrometheusRules with their CRD.
	rewritten bool
	// exemplary rows represent their class in short mode.
	exemplary bool
	// hubDown rows stop the manager for the healthy spoke as well: it is measured after the fault.
	hubDown bool
}

type version struct {
	uid             types.UID
	resourceVersion string
}

// row runs a row, and checks the common requirements.
func (at *place) row(name string, o rowOptions, run func(r *fault)) {
	at.t.Helper()
	at.t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
		if testing.Short() && !o.exemplary {
			t.Skip("make test-all runs it")
		}
		at.rows++
		r := &fault{place: at, t: t, options: o, number: at.rows, heal: func() {}}
		r.outcome = outcome{title: name, shown: "-", before: at.before}
		r.gone = at.rule(t, fmt.Sprintf("gone-%d", r.number))
		if !o.unregistered {
			at.settle(t)
			r.remember()
		}
		defer func() {
			table.Lock()
			defer table.Unlock()
			if t.Failed() {
				r.title += " (FAILED)"
			}
			table.rows = append(table.rows, r.outcome)
		}()
		run(r)
		r.verify()
	})
}

// remember records the objects in the spoke that the row must not change.
func (r *fault) remember() {
	r.t.Helper()
	rules, err := r.rules(r.t.Context())
	must(r.t, err)
	r.kept = map[string]version{}
	for _, pr := range rules {
		switch pr.Annotations[v1alpha1.AlertRuleAnnotation] {
		case client.ObjectKeyFromObject(r.gone).String(), fleet.Namespace + "/" + r.name + "-rule-0":
		default:
			r.kept[pr.Name] = version{pr.UID, pr.ResourceVersion}
		}
	}
}

// inject starts the fault. over, or a failure of the test, calls heal.
func (r *fault) inject(inject, heal func()) {
	r.t.Helper()
	r.heal = sync.OnceFunc(heal)
	r.t.Cleanup(r.heal)
	r.injected = time.Now()
	inject()
}

// expectShown waits until the SpokeCluster is Ready=status for a reason, with words in its message.
func (r *fault) expectShown(status metav1.ConditionStatus, reason string, words ...string) {
	r.t.Helper()
	r.expectCondition(v1alpha1.ConditionReady, status, reason, words...)
}

func (r *fault) expectCondition(kind string, status metav1.ConditionStatus, reason string, words ...string) {
	r.t.Helper()
	r.expectOf(r.name, kind, status, reason, words...)
}

// expectOf is expectCondition of any SpokeCluster.
func (r *fault) expectOf(name, kind string, status metav1.ConditionStatus, reason string, words ...string) {
	r.t.Helper()
	// Where others were awaited before, there still is time to look.
	within(r.t, max(time.Until(r.injected.Add(shownWithin)), 2*time.Second), fmt.Sprintf("%s: %s=%s, reason %s, %q", name, kind, status, reason, words), func(ctx context.Context) error {
		sc := membership(name)
		if err := read(ctx, r.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
			return err
		}
		c := meta.FindStatusCondition(sc.Status.Conditions, kind)
		if c == nil || c.Status != status || c.Reason != reason {
			return fmt.Errorf("the conditions are %s", conditions(sc))
		}
		for _, word := range words {
			if !strings.Contains(c.Message, word) {
				return fmt.Errorf("the message does not say %q: %s", word, c.Message)
			}
		}
		if r.after == 0 {
			r.shown, r.after = fmt.Sprintf("%s=%s/%s", kind, status, reason), time.Since(r.injected)
		}
		r.t.Logf("%s: after %s it says: %s", r.title, seconds(r.after), c.Message)
		return nil
	})
	if name == r.name && kind == v1alpha1.ConditionReady {
		r.explained(status, reason)
	}
}

// stays checks that a person sees nothing else than Ready for as long as the fault lasts. The time
// is for a manager whose intervals are as they are.
func (r *fault) stays(d time.Duration) {
	r.t.Helper()
	throughout(r.t, time.Until(r.injected.Add(r.intervals.Of(d))), r.name+" stays ready", func(ctx context.Context) error {
		sc := membership(r.name)
		if err := read(ctx, r.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(sc.Status.Conditions, v1alpha1.ConditionReady) {
			return fmt.Errorf("the conditions are %s", conditions(sc))
		}
		return nil
	})
	r.step(r.untouched(), "written", why.OK)
	r.shown = "stays Ready"
}

// change does on the hub what the spoke has to follow when it can.
func (r *fault) change() {
	r.t.Helper()
	r.rule(r.t, fmt.Sprintf("new-%d", r.number))
	must(r.t, r.Hub.Client.Delete(r.t.Context(), r.gone))
	edited := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: r.name + "-rule-0"}}
	update(r.t, r.Hub, edited, func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = fmt.Sprintf("up == %d", r.number) })
}

// changeSpoke does the same in the spoke.
func (r *fault) changeSpoke() {
	r.t.Helper()
	must(r.t, r.m.Client.Create(r.t.Context(), deployment(r.name, fmt.Sprintf("new-%d", r.number))))
}

// hold lets the fault last for so long in all, where the manager's intervals are as they are.
func (r *fault) hold(d time.Duration) {
	r.t.Helper()
	if left := time.Until(r.injected.Add(r.intervals.Of(d))); left > 0 {
		pause(r.t, left)
	}
}

// over ends the fault.
func (r *fault) over() {
	r.heal()
	r.healed = time.Now()
}

// verify checks what has to hold after every fault.
func (r *fault) verify() {
	r.t.Helper()
	within(r.t, time.Until(r.healed.Add(convergedWithin)), r.name+" is as it should be again", r.converged)
	r.took = time.Since(r.healed)
	r.holds(r.t, r.options.rewritten)
	if r.sampler != nil {
		r.harmlessToHealthy()
	}
	if err := r.keptAsItWas(); err != nil {
		r.t.Error(err)
	}
}

// holds checks what has to hold of a place that is as it should be, whatever happened before: nobody
// writes, what is not ours was not touched, and no credential is to be seen.
func (at *place) holds(t *testing.T, withoutRules bool) {
	t.Helper()
	at.staysQuiet(t)
	for _, m := range []*fleet.Member{at.m, at.healthy.m} {
		if err := at.foreignUntouched(t.Context(), m, withoutRules); err != nil {
			t.Errorf("what is not ours was touched: %v", err)
		}
	}
	if err := at.noCanary(t.Context()); err != nil {
		t.Error(err)
	}
}

// harmlessToHealthy checks that the healthy spoke was as fast as ever.
func (r *fault) harmlessToHealthy() {
	r.t.Helper()
	from, to := r.injected, r.healed
	if r.options.hubDown {
		from, to = r.healed.Add(r.took), time.Now().Add(-time.Second)
	}
	samples := r.sampler.between(from, to)
	r.during = p99(samples)
	r.t.Logf("%s: converged %s after its end; p99 of the healthy spoke %v before and %v with the fault, %v beyond twice that of copied ConfigMaps",
		r.title, seconds(r.took), r.before, r.during, excess(samples))
	if err := slower(r.before, samples); err != nil {
		r.t.Error(err)
	}
}

// alone makes the spokes of a fleet of any test places that are checked as those of the fault suite
// are. The fleet has audit logs, and its manager has hubID.
func alone(f *fleet.Fleet, m *fleet.Manager, tokens ...string) *faulty {
	x := &faulty{Fleet: f, canaries: &canaries{}, intervals: 1, manager: m}
	x.canaries.add(tokens...)
	return x
}

// only is the one spoke that is registered, with all that is on the hub.
func (f *faulty) only(t *testing.T, name string, m *fleet.Member) *place {
	t.Helper()
	at := &place{faulty: f, t: t, m: m, name: name, only: true}
	f.healthy = at
	return at
}

// keptAsItWas returns an error if an object that nobody changed was written or created again.
func (r *fault) keptAsItWas() error {
	if r.options.unregistered || r.options.rewritten {
		return nil
	}
	rules, err := r.rules(r.t.Context())
	if err != nil {
		return err
	}
	now := map[string]version{}
	for _, pr := range rules {
		now[pr.Name] = version{pr.UID, pr.ResourceVersion}
	}
	var errs []error
	for name, was := range r.kept {
		if now[name] != was {
			errs = append(errs, fmt.Errorf("PrometheusRule %s was %v and is %v, and nobody had changed it", name, was, now[name]))
		}
	}
	return errors.Join(errs...)
}

// staysQuiet checks that when all is done, and told in the statuses, nobody writes.
func (at *place) staysQuiet(t *testing.T) {
	t.Helper()
	pause(t, statusWithin)
	spoke, err := controlplane.NewAuditCursor(at.m.AuditLog())
	must(t, err)
	hub, err := controlplane.NewAuditCursor(at.Hub.AuditLog())
	must(t, err)
	pause(t, at.intervals.Of(quiet))
	inSpoke, err := spoke.Events(wroteHere)
	must(t, err)
	onHub, err := hub.Events(func(e controlplane.AuditEvent) bool {
		return wroteHere(e) && (at.only || strings.Contains(e.RequestURI, at.name))
	})
	must(t, err)
	counts := map[string][]string{}
	for _, e := range append(inSpoke, onHub...) {
		if kind := e.ObjectRef.Resource; e.ObjectRef.Subresource == "status" && (kind == "spokeclusters" || kind == "alertruletemplates") {
			// for the numbers of workloads and rules, which are not written at once: those of a template for 45 s after a start
			counts[e.RequestURI] = append(counts[e.RequestURI], fmt.Sprintf("%s: %d", e.RequestReceivedTimestamp.Format(time.StampMilli), e.ResponseStatus.Code))
			continue
		}
		t.Errorf("written though all is done: %s %s", e.Verb, e.RequestURI)
	}
	for status, times := range counts {
		if len(times) > 1 {
			t.Errorf("%s was written %d times though all is done: %v", status, len(times), times)
		}
	}
}

// wroteHere tells of a write of the manager's that changes something: its reviews of
// what it may do, its Lease and its Events don't.
func wroteHere(e controlplane.AuditEvent) bool {
	switch e.ObjectRef.Resource {
	case "leases", "events", "selfsubjectrulesreviews", "selfsubjectaccessreviews":
		return false
	}
	return e.IsWrite() && strings.HasPrefix(e.UserAgent, "rulefleet-manager/") && e.ObjectRef.Namespace != sampleNamespace && !strings.HasPrefix(e.ObjectRef.Name, samplePrefix)
}

// writes returns what the manager writes to a cluster from now on.
func writes(t *testing.T, m *fleet.Member) func() []string {
	t.Helper()
	cursor, err := controlplane.NewAuditCursor(m.AuditLog())
	must(t, err)
	return func() []string {
		t.Helper()
		events, err := cursor.Events(wroteHere)
		must(t, err)
		out := make([]string, 0, len(events))
		for _, e := range events {
			out = append(out, e.Verb+" "+e.RequestURI)
		}
		return out
	}
}
