package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/leader"
	"github.com/rulefleet/rulefleet/pkg/testing/controlplane"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

const (
	// restoredWithin is how soon after a restore everything must have recovered.
	restoredWithin = time.Minute
	// restoredMessage is part of a manager's message about a restored cluster.
	restoredMessage = "restored from a backup"
	// leaseMessage is part of the message of a manager that could not renew the Lease.
	leaseMessage = "was not renewed within"
)

// restoreRow is one way of restoring a cluster.
type restoreRow struct {
	name string
	// lost is the number of lost writes in addition to those of the test. With few, the restored etcd passes the
	// former resourceVersion while the API server starts.
	lost int
	// away is the downtime of the API server in addition to the few seconds of the restore.
	away time.Duration
}

// knownFrom is how long after a backup the next process takes a rule in a spoke as a sign that the hub was restored: until
// then, the leader that the backup names could write it. The running leader notices it earlier, unless the restore takes
// so long that it loses its Lease.
const knownFrom = leader.RenewDeadline + 2*time.Second

// longAway is longer than client-go's maximum delay before it watches again.
const longAway = 75 * time.Second

var restoreRows = []restoreRow{{name: "few"}, {name: "many", lost: 500}, {name: "long-away", lost: 500, away: longAway}}

// restored is a restore of a cluster, with what it must not change.
type restored struct {
	*fault
	restoreRow
	// since is when the cluster went down, and back when it was restored.
	since, back time.Time
}

// observe records the rules in the spoke before the row.
func (row restoreRow) observe(t *testing.T, at *place) *restored {
	t.Helper()
	at.settle(t)
	r := &restored{fault: &fault{place: at, t: t, gone: &v1alpha1.AlertRule{}}, restoreRow: row}
	r.remember()
	return r
}

// restore loses writes of a cluster: it restores the backup.
func (r *restored) restore(m *fleet.Member) {
	r.fault.t.Helper()
	t := r.fault.t
	r.since = time.Now()
	must(t, m.Kill())
	pause(t, r.away)
	must(t, m.Restore(t.Context()))
	r.back = time.Now()
	t.Logf("%s: away for %s", r.restoreRow.name, seconds(r.back.Sub(r.since)))
}

// verify checks that everything recovers in time and stays so, and what the manager wrote in the spoke.
func (r *restored) verify(expected func(wrote map[string]int) bool) {
	r.fault.t.Helper()
	t := r.fault.t
	within(t, restoredWithin, "the spoke is as it should be", r.converged)
	t.Logf("%s: all is as it should be %s after the restore", r.restoreRow.name, seconds(time.Since(r.back)))
	r.holds(t, r.options.rewritten)
	if wrote := r.wrote(t, r.m, r.since); !expected(wrote) {
		t.Errorf("the manager wrote %v in the spoke", wrote)
	}
	if err := r.keptAsItWas(); err != nil {
		t.Error(err)
	}
	must(t, r.converged(t.Context()))
}

// TestSpokeRestored restores the etcd of spokes while the manager runs, each in its own way.
func TestSpokeRestored(t *testing.T) {
	parallel(t)
	rows := restoreRows
	if testing.Short() {
		rows = rows[:1]
	}
	names := []string{}
	for _, row := range rows {
		names = append(names, "restored-"+row.name)
	}
	f := startFaulty(t, fleet.Options{Spokes: names})
	f.start(t)
	endsWell(t, f)
	f.healthy = f.served(t, healthyName)[0]
	places := f.served(t, names...)
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			places[i].restoreSpoke(t, row)
		})
	}
}

func (at *place) restoreSpoke(t *testing.T, row restoreRow) {
	t.Helper()
	r := row.observe(t, at)
	comes, goes := deployment(at.name, "comes-"+row.name), deployment(at.name, "goes-"+row.name)
	must(t, at.m.Client.Create(t.Context(), comes))
	changed, older := at.rule(t, "changed-"+row.name), at.rule(t, "older-"+row.name)
	at.settle(t)

	must(t, at.m.Save())
	must(t, at.m.Client.Create(t.Context(), goes))
	must(t, at.m.Client.Delete(t.Context(), comes))
	must(t, at.Hub.Client.Delete(t.Context(), older))
	update(t, at.Hub, changed, func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up == 2" })
	at.rule(t, "newer-"+row.name)
	at.settle(t)
	untouched := at.versions(t, at.healthy)
	said := len(at.current().Log())
	loseWrites(t, at.m, row.name, row.lost)

	r.restore(at.m)
	// One write for each rule that was changed, created and deleted. Those of restored or lost Deployments may
	// be deleted or created before the hub knows about these.
	r.verify(func(wrote map[string]int) bool {
		n := wrote["create"]
		return wrote["update"] == 1 && n >= 1 && n <= 3 && wrote["delete"] == n
	})
	if line := lastLineWith(at.current().Log()[said:], restoredMessage, strconv.Quote(at.name)); line != "" {
		t.Logf("%s: the manager says: %s", row.name, line)
	} else if row.lost > 0 {
		t.Error("the manager does not say that the spoke was restored")
	}
	if now := at.versions(t, at.healthy); now != untouched {
		t.Errorf("the healthy spoke's rules were %s, and are %s", untouched, now)
	}
}

// replicated is a fleet with two managers, which are restarted when they end. One leads, and the other is a standby.
type replicated struct {
	*place
	replicas []*faulty
	stop     map[*faulty]func()
}

func startReplicated(t *testing.T) *replicated {
	t.Helper()
	f := startFaulty(t, fleet.Options{})
	f.options.LeaderElect = true
	r := &replicated{stop: map[*faulty]func(){f: f.keepRunning(t)}}
	endsWell(t, f)
	r.place = f.place(t, healthyName)
	f.healthy = r.place
	r.register(t)
	r.settle(t)
	second := &faulty{Fleet: f.Fleet, options: f.options, intervals: f.intervals, canaries: f.canaries, foreign: f.foreign, healthy: r.place}
	second.options.Dir = t.TempDir()
	r.stop[second] = second.keepRunning(t)
	endsWell(t, second)
	r.replicas = []*faulty{f, second}
	return r
}

// TestHubRestored restores the hub's etcd while a leader and a standby run.
func TestHubRestored(t *testing.T) {
	long(t)
	parallel(t)
	r := startReplicated(t)
	for _, row := range restoreRows[:2] {
		t.Run(row.name, func(t *testing.T) { r.restoreHub(t, row, nil, r.replicas...) })
	}
}

// TestHubOfAStandbyRestored restores the hub's etcd while the leader is gone and the standby has been without the hub
// since; and then with one replica.
func TestHubOfAStandbyRestored(t *testing.T) {
	long(t)
	parallel(t)
	r := startReplicated(t)
	var left *faulty
	t.Run("standby", func(t *testing.T) {
		leads, other := leading(t, r.replicas...)
		left = other
		before := len(left.current().Log())
		r.restoreHub(t, restoreRow{name: "standby", lost: 500, away: longAway}, func() { r.stop[leads](); must(t, leads.current().Kill()) }, left)
		log, _, _ := strings.Cut(left.current().Log()[before:], "this replica exits")
		if strings.Contains(log, "Starting workers") {
			t.Error("the standby has led by what it knew before the restore")
		}
		t.Logf("it was asked whether to lead, and did not, %d times", strings.Count(log, "this replica does not hold the lease yet"))
	})
	t.Run("one replica", func(t *testing.T) {
		r.restoreHub(t, restoreRow{name: "one", lost: 500}, nil, left)
	})
}

// restoreHub calls before and restores the hub. The replicas must report it. On a busy machine, a restore may take so long
// that the leader loses its Lease first; then the other replica must report it.
func (at *place) restoreHub(t *testing.T, row restoreRow, before func(), replicas ...*faulty) {
	t.Helper()
	r := row.observe(t, at)
	changed, comes := at.rule(t, "changed-"+row.name), at.rule(t, "comes-"+row.name)
	at.settle(t)

	must(t, at.Hub.Save())
	update(t, at.Hub, changed, func(ar *v1alpha1.AlertRule) { ar.Spec.Expr = "up == 2" })
	must(t, at.Hub.Client.Delete(t.Context(), comes))
	at.settle(t)
	loseWrites(t, at.Hub, row.name, row.lost)
	said := make([]int, len(replicas))
	for i, r := range replicas {
		said[i] = len(r.current().Log())
	}
	if before != nil {
		before()
	}

	r.restore(at.Hub)
	at.rule(t, "after-"+row.name)
	// A killed leader has not released its lease.
	within(t, restoredWithin+leader.LeaseDuration, "somebody leads, and the spoke is as it should be", at.converged)
	leads, _ := leading(t, replicas...)
	r.place = &place{faulty: leads, t: t, m: at.m, name: at.name}
	r.verify(func(wrote map[string]int) bool {
		return wrote["update"] == 1 && wrote["create"] == 2 && wrote["delete"] == 0
	})
	noticed := 0
	for i, replica := range replicas {
		log := replica.current().Log()[said[i]:]
		switch {
		case strings.Contains(log, restoredMessage):
			noticed++
			t.Logf("%s: replica %d says: %s", row.name, i, lastLineWith(log, restoredMessage))
		case r.back.Sub(r.since) >= leader.RenewDeadline && strings.Contains(log, leaseMessage):
			t.Logf("%s: replica %d ended before the hub was back: %s", row.name, i, lastLineWith(log, leaseMessage))
		default:
			t.Errorf("replica %d does not say that the hub was restored", i)
		}
	}
	if noticed == 0 && len(replicas) > 1 {
		t.Error("no replica says that the hub was restored")
	}
}

// leading returns the replica that holds the lease, and another one if any.
func leading(t *testing.T, replicas ...*faulty) (leads, other *faulty) {
	t.Helper()
	eventually(t, "one of the replicas leads", func(ctx context.Context) error {
		holder, err := holder(ctx, replicas[0].Hub)
		if err != nil {
			return err
		}
		leads, other = nil, nil
		for _, r := range replicas {
			if strings.Contains(r.current().Log(), fmt.Sprintf(`"replica":%q`, holder)) {
				leads = r
			} else {
				other = r
			}
		}
		if leads == nil {
			return fmt.Errorf("the lease is held by %q", holder)
		}
		return nil
	})
	return leads, other
}

// endsWell stops the fleet's manager at the end of the test.
func endsWell(t *testing.T, f *faulty) {
	t.Helper()
	t.Cleanup(func() {
		must(t, f.current().Kill())
		if t.Failed() {
			t.Logf("the end of the manager's log:\n%s", endOfLog(f.current().Log()))
		}
	})
}

// loseWrites makes writes that will be lost.
func loseWrites(t *testing.T, m *fleet.Member, row string, n int) {
	t.Helper()
	createMany(t, m, n, 16, func(i int) client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("lost-%s-%d", row, i)}}
	})
}

// lastLineWith returns the last line of a log with all of these words.
func lastLineWith(log string, words ...string) string {
	lines := strings.Split(log, "\n")
	for i := range slices.Backward(lines) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(lines[i], w) }) {
			return lines[i]
		}
	}
	return ""
}

// versions returns the versions of the rules in another spoke.
func (at *place) versions(t *testing.T, of *place) string {
	t.Helper()
	rules, err := of.rules(t.Context())
	must(t, err)
	var out []string
	for _, pr := range rules {
		out = append(out, pr.Name+"@"+pr.ResourceVersion)
	}
	return strings.Join(out, " ")
}

// wrote counts the writes of PrometheusRules in a spoke since then, by verb. Refused ones do not count.
func (at *place) wrote(t *testing.T, m *fleet.Member, since time.Time) map[string]int {
	t.Helper()
	events, err := m.Audit().Events(func(e controlplane.AuditEvent) bool {
		return e.User.Username == fleet.SpokeUser && e.IsWrite() && e.ObjectRef.Resource == "prometheusrules" && e.RequestReceivedTimestamp.After(since)
	})
	must(t, err)
	out := map[string]int{}
	for _, e := range events {
		t.Logf("%s %s: %d", e.Verb, e.ObjectRef.Name, e.ResponseStatus.Code)
		if e.ResponseStatus.Code < 300 {
			out[e.Verb]++
		}
	}
	return out
}

// TestRestoredHubKeepsNewerRules restores a state of the hub without the latest decisions of people: an AlertRule is
// missing, another one is disabled again, and a third one is placed elsewhere again. Nobody decided to remove their
// rules, so these stay until a person acknowledges it.
func TestRestoredHubKeepsNewerRules(t *testing.T) {
	long(t)
	parallel(t)
	f := startFaulty(t, fleet.Options{})
	f.options.LeaderElect, f.options.Pod = true, "pod" // a process that ended has no lease
	stop := f.keepRunning(t)
	endsWell(t, f)
	at := f.place(t, healthyName)
	f.healthy = at
	at.register(t)
	at.settle(t)
	l := &losing{faulty: f, spoke: at.m}
	at.restoreAlone(t, l)
	// The manager notices the restore itself.
	at.restoreNewer(t, "running", func() {})
	l.expectWaiting(t, 3)
	at.hasNewer(t, "running")
	// The next process knows it from the record.
	must(t, f.current().Kill())
	eventually(t, "the next process has found them", func(ctx context.Context) error {
		return metricIs(ctx, f.current(), `rulefleet_held_deletions{cluster="`+healthyName+`",hop="distribute"}`, 3)
	})
	at.hasNewer(t, "running")
	l.expectWaiting(t, 3)
	at.acknowledge(t, l, "running")
	// No manager runs meanwhile, so only the lease shows that its last leader has written to the spoke.
	must(t, f.Hub.Client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "rulefleet-hub"}}))
	at.restoreNewer(t, "stopped", func() {
		stop()
		must(t, f.current().Kill())
	})
	f.start(t)
	l.expectWaiting(t, 3)
	at.hasNewer(t, "stopped")
	at.acknowledge(t, l, "stopped")
}

// restoreAlone restores a state of the hub that only lacks the newest AlertRule. No object goes back, and the few writes
// that are lost are made up for while the API server starts, so only the Lease shows the restore.
func (at *place) restoreAlone(t *testing.T, l *losing) {
	t.Helper()
	must(t, at.Hub.Save())
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: fleet.Namespace, Name: "rulefleet-manager"}
	must(t, read(t.Context(), at.Hub, key, lease))
	saved := lease.ResourceVersion
	pause(t, knownFrom)
	alone := client.ObjectKeyFromObject(at.rule(t, "alone"))
	expectPushed(t, at.m, alone, 1)
	eventually(t, "the Lease is renewed", func(ctx context.Context) error {
		if err := read(ctx, at.Hub, key, lease); err != nil || lease.ResourceVersion == saved {
			return fmt.Errorf("it is as in the backup: %w", err)
		}
		return nil
	})
	must(t, at.Hub.Kill())
	must(t, at.Hub.Restore(t.Context()))
	l.expectWaiting(t, 1)
	expectPushed(t, at.m, alone, 1)
	update(t, at.Hub, membership(at.name), func(sc *v1alpha1.SpokeCluster) {
		metav1.SetMetaDataAnnotation(&sc.ObjectMeta, v1alpha1.AcknowledgeDeletionsAnnotation, "true")
	})
	l.expectWaiting(t, 0)
	expectPushed(t, at.m, alone, 0)
}

// newerRules begin the names of rules that restoreNewer creates in the spoke.
var newerRules = []string{"newer-", "disabled-", "elsewhere-"}

// restoreNewer saves the hub, decides some time later that three rules are to be in the spoke, and restores the hub.
func (at *place) restoreNewer(t *testing.T, name string, before func()) {
	t.Helper()
	disabled, elsewhere := alertRule(at.name+"-disabled-"+name, at.name, onNamed(healthyName)), alertRule(at.name+"-elsewhere-"+name, at.name, onNamed("other"))
	disabled.Spec.State = v1alpha1.Disabled
	must(t, at.Hub.Client.Create(t.Context(), disabled))
	must(t, at.Hub.Client.Create(t.Context(), elsewhere))
	must(t, at.Hub.Save())
	pause(t, knownFrom)
	at.rule(t, "newer-"+name)
	update(t, at.Hub, disabled, func(ar *v1alpha1.AlertRule) { ar.Spec.State = v1alpha1.Enabled })
	update(t, at.Hub, elsewhere, func(ar *v1alpha1.AlertRule) { ar.Spec.Placement = onNamed(healthyName) })
	at.hasNewer(t, name)
	before()
	must(t, at.Hub.Kill())
	must(t, at.Hub.Restore(t.Context()))
}

// hasNewer expects the rules of restoreNewer in the spoke.
func (at *place) hasNewer(t *testing.T, name string) {
	t.Helper()
	for _, of := range newerRules {
		expectPushed(t, at.m, client.ObjectKey{Namespace: fleet.Namespace, Name: at.name + "-" + of + name}, 1)
	}
}

// acknowledge acknowledges the deletions that wait, and expects that nothing else is removed.
func (at *place) acknowledge(t *testing.T, l *losing, name string) {
	t.Helper()
	update(t, at.Hub, membership(at.name), func(sc *v1alpha1.SpokeCluster) {
		metav1.SetMetaDataAnnotation(&sc.ObjectMeta, v1alpha1.AcknowledgeDeletionsAnnotation, "true")
	})
	l.expectWaiting(t, 0)
	for _, of := range newerRules {
		expectPushed(t, at.m, client.ObjectKey{Namespace: fleet.Namespace, Name: at.name + "-" + of + name}, 0)
	}
	must(t, at.Hub.Client.Delete(t.Context(), alertRule(at.name+"-disabled-"+name, at.name, onEvery())))
	must(t, at.Hub.Client.Delete(t.Context(), alertRule(at.name+"-elsewhere-"+name, at.name, onEvery())))
	at.settle(t)
}
