package rollup

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

type rows = []v1alpha1.ClusterStatus

type verdicts = map[string]v1alpha1.ClusterStatus

func at(seconds int64) metav1.Time { return metav1.Unix(seconds, 0) }

// rowOf returns a row as a short description of it.
func rowOf(name string, phase v1alpha1.Phase, reason string, generation, since int64) v1alpha1.ClusterStatus {
	r := v1alpha1.ClusterStatus{Name: v1alpha1.ClusterName(name), Phase: phase, Reason: reason, ObservedGeneration: generation}
	if since > 0 {
		r.LastTransitionTime = at(since)
	}
	return r
}

// withoutText returns a row without its message and without Outage, of which it checks that they agree.
func withoutText(t *testing.T, r v1alpha1.ClusterStatus) v1alpha1.ClusterStatus {
	t.Helper()
	if r.Outage != strings.HasPrefix(r.Message, outageText) {
		t.Errorf("row %s has outage: %t, and the message %q", r.Name, r.Outage, r.Message)
	}
	r.Message, r.Outage = "", false
	return r
}

func applied(name string, generation, since int64) v1alpha1.ClusterStatus {
	return rowOf(name, v1alpha1.PhaseApplied, "", generation, since)
}

func pending(name, reason string, generation, since int64) v1alpha1.ClusterStatus {
	return rowOf(name, v1alpha1.PhasePending, reason, generation, since)
}

func spokes(names ...string) []Spoke {
	var out []Spoke
	for _, name := range names {
		out = append(out, Spoke{Cluster: rule.Cluster{Name: name}, Shown: Shown{Top: OverlayOff}})
	}
	return out
}

// disconnected returns a spoke that is down, and not for long yet.
func disconnected(name, reason string) Spoke {
	return Spoke{Cluster: rule.Cluster{Name: name}, Shown: Shown{Reason: reason, Lagging: true, Top: OverlayOff}}
}

// away returns a spoke that is down for long.
func away(name, reason string) Spoke {
	return Spoke{Cluster: rule.Cluster{Name: name}, Shown: Shown{Reason: reason, Lagging: true, Top: OverlayOn}}
}

// restarted returns a spoke of which the operator does not know what it showed.
func restarted(name string) Spoke { return Spoke{Cluster: rule.Cluster{Name: name}} }

// showing returns a row that shows an outage.
func showing(r v1alpha1.ClusterStatus) v1alpha1.ClusterStatus {
	return withOutage(r, nil, r.Reason)
}

// TestStatus has rules of generation 2, and the time is 100.
func TestStatus(t *testing.T) {
	const (
		yes, no = metav1.ConditionTrue, metav1.ConditionFalse
		ready   = v1alpha1.ConditionReady
		stalled = v1alpha1.ConditionStalled
	)
	wrong := &rule.Invalid{Reason: v1alpha1.ReasonInvalidExpr, Field: "spec.expr", Message: "1:1: no"}
	disable := func(r *v1alpha1.AlertRule) { r.Spec.State = v1alpha1.Disabled }
	named := func(names ...v1alpha1.ClusterName) func(*v1alpha1.AlertRule) {
		return func(r *v1alpha1.AlertRule) { r.Spec.Placement = v1alpha1.ClusterSelection{Names: names} }
	}
	for name, c := range map[string]struct {
		edit     func(*v1alpha1.AlertRule)
		invalid  *rule.Invalid
		undone   string
		spokes   []Spoke
		before   rows
		verdicts verdicts
		left     verdicts

		rows         rows // without messages
		summary      v1alpha1.RuleSummary
		accepted     string
		ready        string
		stalled      string
		readyTells   string
		stalledTells string
	}{
		"no spokes": {
			summary:  v1alpha1.RuleSummary{Ready: "0/0"},
			accepted: "True/Accepted", ready: "False/NoClusters",
		},
		"all applied": {
			spokes:   spokes("b", "a"),
			before:   rows{applied("a", 1, 10)},
			verdicts: verdicts{"a": applied("a", 2, 0), "b": applied("b", 2, 0)},
			rows:     rows{applied("a", 2, 10), applied("b", 2, 100)},
			summary:  v1alpha1.RuleSummary{Desired: 2, Applied: 2, Ready: "2/2"},
			accepted: "True/Accepted", ready: "True/AllApplied", readyTells: "ready in 2/2 spokes",
		},
		"contested in a spoke": {
			spokes:   spokes("a", "b"),
			verdicts: verdicts{"a": applied("a", 2, 0), "b": pending("b", "Contested", 2, 0)},
			rows:     rows{applied("a", 2, 100), pending("b", "Contested", 2, 100)},
			summary:  v1alpha1.RuleSummary{Desired: 2, Applied: 1, Failing: 1, Ready: "1/2"},
			accepted: "True/Accepted", ready: "False/Contested",
		},
		"contested on the hub": {
			spokes: spokes("a"), undone: "somebody changes it back",
			verdicts: verdicts{"a": applied("a", 2, 0)},
			rows:     rows{applied("a", 2, 100)},
			summary:  v1alpha1.RuleSummary{Desired: 1, Applied: 1, Ready: "1/1"},
			accepted: "True/Accepted", ready: "False/Contested", readyTells: "somebody changes it back",
		},
		"contested on the hub, and not valid": {
			invalid: wrong, spokes: spokes("a"), undone: "somebody changes it back",
			before:   rows{applied("a", 1, 10)},
			rows:     rows{applied("a", 1, 10)},
			summary:  v1alpha1.RuleSummary{Desired: 1, Applied: 1, Ready: "0/1"},
			accepted: "False/InvalidExpr", ready: "False/InvalidExpr", stalled: "True/InvalidExpr",
		},
		"one of an older generation": {
			spokes:   spokes("a", "b"),
			before:   rows{applied("b", 1, 10)},
			verdicts: verdicts{"a": applied("a", 2, 0)},
			rows:     rows{applied("a", 2, 100), applied("b", 1, 10)},
			summary:  v1alpha1.RuleSummary{Desired: 2, Applied: 2, Ready: "1/2"},
			accepted: "True/Accepted", ready: "False/Progressing", readyTells: "ready in 1/2 spokes; b: Progressing",
		},
		"nothing known": {
			edit:     named("a", "down", "none", "connecting"),
			spokes:   append(spokes("a", "else"), disconnected("down", "AuthFailed"), restarted("connecting")),
			rows:     rows{pending("a", "Waiting", 0, 100), pending("connecting", "Waiting", 0, 100), pending("down", "AuthFailed", 0, 100), pending("none", "NotRegistered", 0, 100)},
			summary:  v1alpha1.RuleSummary{Desired: 4, Unreachable: 1, Ready: "0/4"},
			accepted: "True/Accepted", ready: "False/Progressing",
			readyTells: "ready in 0/4 spokes; down: AuthFailed: the spoke can't be reached; see the condition Connected of SpokeCluster down; a: Waiting: the rule has not been processed for this spoke yet; connecting: Waiting: the rule has not been processed for this spoke yet; and 1 more",
		},
		"what was derived is derived again": {
			edit:     named("a", "b", "c"),
			spokes:   append(spokes("a"), disconnected("b", "Unreachable")),
			before:   rows{pending("a", "NotRegistered", 0, 10), pending("b", "Waiting", 0, 10), pending("c", "NotRegistered", 0, 10)},
			rows:     rows{pending("a", "Waiting", 0, 100), pending("b", "Unreachable", 0, 100), pending("c", "NotRegistered", 0, 10)},
			summary:  v1alpha1.RuleSummary{Desired: 3, Unreachable: 1, Ready: "0/3"},
			accepted: "True/Accepted", ready: "False/Progressing",
		},
		"a spoke that is down keeps what was seen": {
			spokes:   []Spoke{disconnected("a", "Unreachable")},
			before:   rows{applied("a", 2, 10)},
			rows:     rows{applied("a", 2, 10)},
			summary:  v1alpha1.RuleSummary{Desired: 1, Applied: 1, Ready: "1/1"},
			accepted: "True/Accepted", ready: "True/AllApplied",
		},
		"changed while the spoke is down": {
			spokes:   []Spoke{disconnected("a", "Unreachable"), disconnected("b", "AuthFailed")},
			before:   rows{applied("a", 1, 10)},
			verdicts: verdicts{"b": applied("b", 1, 0)},
			rows:     rows{rowOf("a", v1alpha1.PhaseApplied, "Unreachable", 1, 100), rowOf("b", v1alpha1.PhaseApplied, "AuthFailed", 1, 100)},
			summary:  v1alpha1.RuleSummary{Desired: 2, Applied: 2, Unreachable: 2, Ready: "0/2"},
			accepted: "True/Accepted", ready: "False/Progressing",
			readyTells: "ready in 0/2 spokes; a: Unreachable: the spoke can't be reached; see the condition Connected of SpokeCluster a; b: AuthFailed: the spoke can't be reached; see the condition Connected of SpokeCluster b",
		},
		"down for long": {
			spokes:   []Spoke{away("a", "Unreachable"), away("b", "AuthFailed"), away("c", "Unreachable"), away("d", "Unreachable")},
			before:   rows{applied("a", 2, 10), pending("c", "Conflict", 2, 10), showing(rowOf("d", v1alpha1.PhaseApplied, "AuthFailed", 2, 10))},
			verdicts: verdicts{"b": applied("b", 2, 0), "d": applied("d", 2, 0)},
			rows: rows{
				rowOf("a", v1alpha1.PhaseApplied, "Unreachable", 2, 100), rowOf("b", v1alpha1.PhaseApplied, "AuthFailed", 2, 100),
				pending("c", "Conflict", 2, 10), rowOf("d", v1alpha1.PhaseApplied, "AuthFailed", 2, 10),
			},
			summary:  v1alpha1.RuleSummary{Desired: 4, Applied: 3, Failing: 1, Unreachable: 3, Ready: "0/4"},
			accepted: "True/Accepted", ready: "False/Progressing", stalled: "True/Conflict",
			readyTells: "ready in 0/4 spokes; c: Conflict; a: Unreachable: the spoke can't be reached; see the condition Connected of SpokeCluster a; b: AuthFailed: the spoke can't be reached; see the condition Connected of SpokeCluster b; and 1 more",
		},
		"up again": {
			spokes:   spokes("a", "b"),
			before:   rows{showing(rowOf("a", v1alpha1.PhaseApplied, "Unreachable", 2, 10)), showing(rowOf("b", v1alpha1.PhaseApplied, "Unreachable", 2, 10))},
			verdicts: verdicts{"b": applied("b", 2, 0)},
			rows:     rows{applied("a", 2, 100), applied("b", 2, 100)},
			summary:  v1alpha1.RuleSummary{Desired: 2, Applied: 2, Ready: "2/2"},
			accepted: "True/Accepted", ready: "True/AllApplied",
		},
		"a restart in an outage": {
			spokes:   []Spoke{restarted("a"), restarted("b"), restarted("c")},
			before:   rows{showing(rowOf("a", v1alpha1.PhaseApplied, "Unreachable", 2, 10)), applied("b", 2, 10), showing(rowOf("c", v1alpha1.PhaseApplied, "Unreachable", 2, 10))},
			verdicts: verdicts{"c": applied("c", 2, 0)},
			rows:     rows{rowOf("a", v1alpha1.PhaseApplied, "Unreachable", 2, 10), applied("b", 2, 10), rowOf("c", v1alpha1.PhaseApplied, "Unreachable", 2, 10)},
			summary:  v1alpha1.RuleSummary{Desired: 3, Applied: 3, Unreachable: 2, Ready: "1/3"},
			accepted: "True/Accepted", ready: "False/Unreachable",
		},
		"a flap while rows lag": {
			edit:     named("a", "b", "c", "d", "e"),
			spokes:   spokes("a", "b", "c", "d"),
			before:   rows{showing(rowOf("a", v1alpha1.PhaseApplied, "Unreachable", 1, 10)), showing(pending("b", "AuthFailed", 0, 10)), showing(pending("c", "Unreachable", 0, 10)), showing(applied("d", 1, 10)), showing(pending("e", "Unreachable", 0, 10))},
			verdicts: verdicts{"a": applied("a", 1, 0), "c": applied("c", 2, 0), "d": pending("d", "Conflict", 2, 0)},
			rows:     rows{rowOf("a", v1alpha1.PhaseApplied, "Unreachable", 1, 10), pending("b", "AuthFailed", 0, 10), applied("c", 2, 100), pending("d", "Conflict", 2, 100), pending("e", "NotRegistered", 0, 100)},
			summary:  v1alpha1.RuleSummary{Desired: 5, Applied: 2, Failing: 1, Unreachable: 2, Ready: "1/5"},
			accepted: "True/Accepted", ready: "False/Progressing", stalled: "True/Conflict",
		},
		"suspended": {
			spokes:   spokes("a", "b"),
			verdicts: verdicts{"a": applied("a", 2, 0), "b": rowOf("b", v1alpha1.PhaseApplied, "Suspended", 2, 0)},
			rows:     rows{applied("a", 2, 100), rowOf("b", v1alpha1.PhaseApplied, "Suspended", 2, 100)},
			summary:  v1alpha1.RuleSummary{Desired: 2, Applied: 2, Ready: "1/2"},
			accepted: "True/Accepted", ready: "False/Suspended", readyTells: "ready in 1/2 spokes; b: Suspended",
		},
		"disabled in some spokes": {
			edit: func(r *v1alpha1.AlertRule) {
				r.Spec.Overrides = []v1alpha1.Override{{ClusterSelection: v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"b"}}, State: v1alpha1.Disabled}}
			},
			spokes:   spokes("a", "b"),
			before:   rows{applied("b", 1, 10)},
			verdicts: verdicts{"a": applied("a", 2, 0), "b": applied("b", 1, 0)},
			rows:     rows{applied("a", 2, 100)},
			summary:  v1alpha1.RuleSummary{Desired: 1, Applied: 1, Ready: "1/1"},
			accepted: "True/Accepted", ready: "True/AllApplied",
		},
		"enabled in one spoke": {
			edit: func(r *v1alpha1.AlertRule) {
				disable(r)
				r.Spec.Overrides = []v1alpha1.Override{
					{ClusterSelection: v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"b"}}, State: v1alpha1.Enabled},
					{ClusterSelection: v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{}}, State: v1alpha1.Disabled},
				}
			},
			spokes:   spokes("a", "b"),
			verdicts: verdicts{"b": applied("b", 2, 0)},
			rows:     rows{applied("b", 2, 100)},
			summary:  v1alpha1.RuleSummary{Desired: 1, Applied: 1, Ready: "1/1"},
			accepted: "True/Accepted", ready: "True/AllApplied",
		},
		"disabled in every spoke": {
			edit: func(r *v1alpha1.AlertRule) {
				r.Spec.Overrides = []v1alpha1.Override{{ClusterSelection: v1alpha1.ClusterSelection{Selector: &metav1.LabelSelector{}}, State: v1alpha1.Disabled}}
			},
			spokes:   spokes("a", "b"),
			before:   rows{applied("a", 1, 10)},
			summary:  v1alpha1.RuleSummary{Ready: "0/0"},
			accepted: "True/Accepted", ready: "True/Disabled",
		},
		"reported as unreachable": {
			spokes:   spokes("a"),
			before:   rows{applied("a", 2, 10)},
			verdicts: verdicts{"a": rowOf("a", v1alpha1.PhaseApplied, "Unreachable", 2, 0)},
			rows:     rows{rowOf("a", v1alpha1.PhaseApplied, "Unreachable", 2, 100)},
			summary:  v1alpha1.RuleSummary{Desired: 1, Applied: 1, Unreachable: 1, Ready: "0/1"},
			accepted: "True/Accepted", ready: "False/Unreachable",
		},
		"a spoke that was removed": {
			edit:     named("a"),
			before:   rows{applied("a", 2, 10)},
			verdicts: verdicts{"a": applied("a", 2, 0)},
			rows:     rows{pending("a", "NotRegistered", 0, 100)},
			summary:  v1alpha1.RuleSummary{Desired: 1, Ready: "0/1"},
			accepted: "True/Accepted", ready: "False/NotRegistered",
		},
		"not placed any more": {
			edit:     named("b"),
			spokes:   spokes("a", "b"),
			before:   rows{applied("a", 2, 10), applied("b", 2, 10)},
			verdicts: verdicts{"a": applied("a", 2, 0)},
			rows:     rows{applied("b", 2, 10)},
			summary:  v1alpha1.RuleSummary{Desired: 1, Applied: 1, Ready: "1/1"},
			accepted: "True/Accepted", ready: "True/AllApplied",
		},
		"all lag for the same reason": {
			spokes:   spokes("a", "b", "c"),
			before:   rows{pending("b", "NamespaceMissing", 1, 10)},
			verdicts: verdicts{"a": applied("a", 2, 0), "b": pending("b", "NamespaceMissing", 2, 0), "c": pending("c", "NamespaceMissing", 2, 0)},
			rows:     rows{applied("a", 2, 100), pending("b", "NamespaceMissing", 2, 10), pending("c", "NamespaceMissing", 2, 100)},
			summary:  v1alpha1.RuleSummary{Desired: 3, Applied: 1, Ready: "1/3"},
			accepted: "True/Accepted", ready: "False/NamespaceMissing", readyTells: "ready in 1/3 spokes; b: NamespaceMissing; c: NamespaceMissing",
		},
		"everything that fails": {
			spokes: spokes("a", "b", "c", "d", "e", "f", "g", "h"),
			verdicts: verdicts{
				"a": pending("a", "Error", 2, 0), "b": pending("b", "Mutated", 2, 0), "c": pending("c", "Rejected", 2, 0), "d": pending("d", "Conflict", 2, 0),
				"e": pending("e", "Forbidden", 2, 0), "f": pending("f", "InvalidSpec", 2, 0), "g": pending("g", "CRDMissing", 2, 0),
				"h": pending("h", "Unsupported", 2, 0),
			},
			rows: rows{
				pending("a", "Error", 2, 100), pending("b", "Mutated", 2, 100), pending("c", "Rejected", 2, 100), pending("d", "Conflict", 2, 100),
				pending("e", "Forbidden", 2, 100), pending("f", "InvalidSpec", 2, 100), pending("g", "CRDMissing", 2, 100),
				pending("h", "Unsupported", 2, 100),
			},
			summary:  v1alpha1.RuleSummary{Desired: 8, Failing: 7, Ready: "0/8"},
			accepted: "True/Accepted", ready: "False/Progressing", stalled: "True/Rejected", stalledTells: "c: Rejected; d: Conflict; e: Forbidden; and 2 more",
		},
		"failing, but nobody has to act": {
			spokes:   spokes("a"),
			verdicts: verdicts{"a": pending("a", "Mutated", 2, 0)},
			rows:     rows{pending("a", "Mutated", 2, 100)},
			summary:  v1alpha1.RuleSummary{Desired: 1, Failing: 1, Ready: "0/1"},
			accepted: "True/Accepted", ready: "False/Mutated",
		},
		"disabled": {
			edit:     disable,
			spokes:   spokes("a"),
			before:   rows{applied("a", 1, 10)},
			verdicts: verdicts{"a": applied("a", 1, 0)},
			summary:  v1alpha1.RuleSummary{Ready: "0/0"},
			accepted: "True/Accepted", ready: "True/Disabled",
		},
		"disabled, and still somewhere": {
			edit:     disable,
			spokes:   spokes("a", "b"),
			before:   rows{applied("a", 1, 10)},
			left:     verdicts{"a": pending("a", "Rejected", 2, 0)},
			summary:  v1alpha1.RuleSummary{Ready: "0/0"},
			accepted: "True/Accepted", ready: "False/Rejected", stalled: "True/Rejected",
			readyTells: "the rule could not be removed from spokes that should not have it: a: Rejected", stalledTells: "a: Rejected",
		},
		"placed elsewhere, and still somewhere": {
			edit:     named("c"),
			spokes:   spokes("a", "b", "c"),
			verdicts: verdicts{"c": applied("c", 2, 0)},
			left:     verdicts{"a": pending("a", "Rejected", 2, 0), "b": pending("b", "Error", 2, 0)},
			rows:     rows{applied("c", 2, 100)},
			summary:  v1alpha1.RuleSummary{Desired: 1, Applied: 1, Ready: "1/1"},
			accepted: "True/Accepted", ready: "False/Progressing", stalled: "True/Rejected",
			readyTells: "the rule could not be removed from spokes that should not have it: a: Rejected; b: Error", stalledTells: "a: Rejected",
		},
		"placed nowhere, and still somewhere": {
			edit:     named(),
			spokes:   spokes("a"),
			left:     verdicts{"a": pending("a", "Error", 2, 0)},
			summary:  v1alpha1.RuleSummary{Ready: "0/0"},
			accepted: "True/Accepted", ready: "False/Error",
			readyTells: "the rule could not be removed from spokes that should not have it: a: Error",
		},
		"lagging, and still somewhere": {
			edit:     named("c"),
			spokes:   spokes("a", "c"),
			verdicts: verdicts{"c": pending("c", "Conflict", 2, 0)},
			left:     verdicts{"a": pending("a", "Rejected", 2, 0)},
			rows:     rows{pending("c", "Conflict", 2, 100)},
			summary:  v1alpha1.RuleSummary{Desired: 1, Failing: 1, Ready: "0/1"},
			accepted: "True/Accepted", ready: "False/Conflict", stalled: "True/Rejected",
			readyTells: "ready in 0/1 spokes; c: Conflict; the rule could not be removed from spokes that should not have it: a: Rejected", stalledTells: "a: Rejected; c: Conflict",
		},
		"disabled and suspended": {
			edit:     func(r *v1alpha1.AlertRule) { disable(r); r.Spec.Suspend = new(true) },
			spokes:   spokes("a"),
			before:   rows{applied("a", 1, 10)},
			summary:  v1alpha1.RuleSummary{Ready: "0/0"},
			accepted: "True/Accepted", ready: "False/Suspended",
		},
		"disabled and invalid": {
			edit: disable, invalid: wrong,
			spokes:   spokes("a"),
			before:   rows{applied("a", 1, 10)},
			summary:  v1alpha1.RuleSummary{Ready: "0/0"},
			accepted: "False/InvalidExpr", ready: "False/InvalidExpr", stalled: "True/InvalidExpr", readyTells: "the spec is not valid; see condition Accepted",
		},
		"invalid from the start": {
			invalid:  wrong,
			spokes:   spokes("a"),
			summary:  v1alpha1.RuleSummary{Ready: "0/0"},
			accepted: "False/InvalidExpr", ready: "False/InvalidExpr", stalled: "True/InvalidExpr",
		},
		"invalid: the last good stays": {
			edit: named("b", "c", "d"), invalid: wrong,
			spokes:   append(spokes("a", "b", "c", "d"), disconnected("down", "Unreachable")),
			before:   rows{applied("a", 1, 10), pending("b", "Conflict", 1, 10), applied("down", 1, 10)},
			verdicts: verdicts{"b": applied("b", 1, 0), "c": applied("c", 1, 0), "else": applied("else", 1, 0)},
			rows:     rows{applied("a", 1, 10), applied("b", 1, 100), applied("c", 1, 100), applied("down", 1, 10)},
			summary:  v1alpha1.RuleSummary{Desired: 4, Applied: 4, Ready: "0/4"},
			accepted: "False/InvalidExpr", ready: "False/InvalidExpr", stalled: "True/InvalidExpr",
			readyTells: "the spec is not valid; the spokes keep the last valid version; see condition Accepted",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := ruletest.Rule(func(r *v1alpha1.AlertRule) { r.Generation, r.Status.Clusters = 2, c.before })
			if c.edit != nil {
				c.edit(r)
			}
			in := Input{Rule: r, Invalid: c.invalid, Contested: c.undone, Clusters: c.spokes, Verdicts: c.verdicts, Leftovers: c.left, Now: at(100)}
			got, _ := Status(in)
			if !reflect.DeepEqual(*got.Summary, c.summary) {
				t.Errorf("%s: the summary is %+v, want %+v", name, *got.Summary, c.summary)
			}
			var listed rows
			for _, row := range got.Clusters {
				row = withoutText(t, row)
				listed = append(listed, row)
			}
			if !equality.Semantic.DeepEqual(listed, c.rows) {
				t.Errorf("%s: got rows\n%+v, want\n%+v", name, listed, c.rows)
			}
			for kind, want := range map[string]string{v1alpha1.ConditionAccepted: c.accepted, ready: c.ready, stalled: c.stalled} {
				condition := meta.FindStatusCondition(got.Conditions, kind)
				if want == "" && condition == nil {
					continue
				}
				if condition == nil || string(condition.Status)+"/"+condition.Reason != want {
					t.Errorf("%s: %s is %+v, want %s", name, kind, condition, want)
					continue
				}
				if condition.ObservedGeneration != 2 || condition.Message == "" || !condition.LastTransitionTime.Equal(&in.Now) {
					t.Errorf("%s: %s is %+v", name, kind, condition)
				}
				for kindTold, tells := range map[string]string{ready: c.readyTells, stalled: c.stalledTells} {
					if kind == kindTold && tells != "" && condition.Message != tells {
						t.Errorf("%s: %s says\n%q, want\n%q", name, kind, condition.Message, tells)
					}
				}
			}
			if got.ObservedGeneration != 2 {
				t.Errorf("%s: of generation %d", name, got.ObservedGeneration)
			}
			again(t, name, in, got)
		})
	}
}

// again checks that a status derived from itself is the same, at any time.
func again(t *testing.T, name string, in Input, got v1alpha1.RuleStatus) {
	t.Helper()
	in.Rule = ruleOf(in.Rule).DeepCopy()
	if in.Last != nil {
		_, in.Last = Status(in)
	}
	ruleOf(in.Rule).Status = *got.DeepCopy()
	in.Now = metav1.NewTime(in.Now.Add(time.Hour))
	if second, _ := Status(in); !equality.Semantic.DeepEqual(second, got) {
		first, _ := json.Marshal(got)
		differs, _ := json.Marshal(second)
		t.Fatalf("%s: the second status differs from the first:\n%s\n%s", name, first, differs)
	}
}

func TestTransitionTimes(t *testing.T) {
	r := ruletest.Rule()
	in := Input{Rule: r, Clusters: spokes("a"), Now: at(1)}
	step := func(now int64, reason string) *metav1.Condition {
		in.Now = at(now)
		in.Verdicts = verdicts{"a": pending("a", reason, 1, 0)}
		if reason == "" {
			in.Verdicts = verdicts{"a": applied("a", 1, 0)}
		}
		r.Status, _ = Status(in)
		return meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionReady)
	}
	for _, s := range []struct {
		now     int64
		reason  string
		row, of int64 // when the row and when Ready last changed
	}{
		{10, "Conflict", 10, 10}, {20, "Conflict", 10, 10}, {30, "Rejected", 30, 10}, {40, "", 40, 40}, {50, "", 40, 40}, {60, "Error", 60, 60},
	} {
		condition := step(s.now, s.reason)
		row := r.Status.Clusters[0]
		if !row.LastTransitionTime.Time.Equal(time.Unix(s.row, 0)) || !condition.LastTransitionTime.Time.Equal(time.Unix(s.of, 0)) {
			t.Errorf("at %d, %s: the row is of %v, Ready of %v", s.now, s.reason, row.LastTransitionTime, condition.LastTransitionTime)
		}
	}
	// What others put there stays.
	r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{Type: "Other", Status: metav1.ConditionTrue})
	before := r.DeepCopy()
	in.Verdicts = verdicts{"a": pending("a", "Conflict", 1, 0)}
	if got, _ := Status(in); len(got.Conditions) != 4 {
		t.Errorf("got %+v", got.Conditions)
	}
	if !reflect.DeepEqual(before, r) {
		t.Error("the present status was changed")
	}
}

func TestStatusIsBounded(t *testing.T) {
	in := Input{Rule: ruletest.Rule(), Clusters: spokes("a"), Now: at(1)}
	in.Verdicts = verdicts{"a": {
		Phase: "Nonsense", Reason: "Rejected", Message: ruletest.Long("ü", 9999) + "\xff", Rule: ruletest.Long("r", 999), AnswerDigest: ruletest.Long("d", 999), ObservedGeneration: -1,
	}}
	got, _ := Status(in)
	row := got.Clusters[0]
	if row.Name != "a" || row.Phase != v1alpha1.PhasePending || len(row.Message) > 1024 || len(row.Rule) > 317 || len(row.AnswerDigest) > 64 || row.ObservedGeneration != 0 {
		t.Errorf("got %+v", row)
	}
	for _, c := range got.Conditions {
		if len(c.Message) > 1024 {
			t.Errorf("%s has a message of %d bytes", c.Type, len(c.Message))
		}
	}
}

func many(n int) []Spoke {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("s%04d", i))
	}
	return spokes(names...)
}

// A status derived from itself does not change, whatever led to it. Between two steps
// everything may change: spokes, verdicts, restarts, the spec.
func TestStatusIsStable(t *testing.T) {
	t.Parallel()
	rnd := ruletest.Random()
	reasons := []string{"", "", "", "", "Conflict", "NamespaceMissing", "Mutated", "Unreachable", "Error", "Waiting", "NotRegistered"}
	for _, of := range []struct{ size, runs int }{{3, 40}, {130, 4}, {700, 1}} {
		for range of.runs {
			in := Input{Rule: ruletest.Rule(), Now: at(1)}
			ruleOf(in.Rule).Generation = 2 // so that an older verdict has one too
			ruleOf(in.Rule).Spec.Placement.Names = []v1alpha1.ClusterName{"s0001", "unknown"}
			for step := range 5 {
				in.Now = at(int64(step + 2))
				in.Clusters = many(max(0, of.size+rnd.IntN(7)-3))
				ruleOf(in.Rule).Generation += int64(rnd.IntN(2))
				ruleOf(in.Rule).Spec.State = []v1alpha1.State{v1alpha1.Enabled, v1alpha1.Enabled, v1alpha1.Enabled, v1alpha1.Disabled}[rnd.IntN(4)]
				in.Invalid = nil
				if rnd.IntN(4) == 0 {
					in.Invalid = &rule.Invalid{Reason: v1alpha1.ReasonInvalidSpec, Field: "spec", Message: "no"}
				}
				in.Verdicts = randomVerdicts(rnd, &in, reasons)
				got, last := Status(in)
				checkStatus(t, got)
				again(t, fmt.Sprintf("%d spokes, step %d", of.size, step), in, got)
				restart := in
				restart.Verdicts, restart.Last, restart.Starting = verdicts{}, nil, true
				for _, share := range []int{0, 3, 2} { // they are reported again, some by some
					again(t, fmt.Sprintf("%d spokes, step %d, after a restart with 1/%d reported", of.size, step, share), restart, got)
					for name, v := range in.Verdicts {
						if share > 0 && rnd.IntN(share) == 0 {
							restart.Verdicts[name] = v
						}
					}
				}
				ruleOf(in.Rule).Status, in.Last = got, last
				if rnd.IntN(3) == 0 {
					in.Last = nil
				}
			}
		}
	}
}

func randomVerdicts(rnd *rand.Rand, in *Input, reasons []string) verdicts {
	out, before := verdicts{}, in.listedBefore()
	share := rnd.IntN(4) // none after a restart, or a part, or all
	for i := range in.Clusters {
		s := &in.Clusters[i]
		if rnd.IntN(20) == 0 {
			s.Shown = []Shown{disconnected("", "Unreachable").Shown, away("", "AuthFailed").Shown, {}}[rnd.IntN(3)]
		}
		if rnd.IntN(3) >= share {
			continue
		}
		reason := reasons[rnd.IntN(len(reasons))]
		phase := v1alpha1.PhaseApplied
		if reason != "" && reason != "Unreachable" {
			phase = v1alpha1.PhasePending
		}
		generation := max(0, ruleOf(in.Rule).Generation-int64(rnd.IntN(2)))
		if generation < ruleOf(in.Rule).Generation && showsOutage(before[s.Name]) {
			// That a row showed an outage is known from the row alone. Where it loses its
			// place to a worse one and the operator restarts, the older verdict is told again.
			continue
		}
		out[s.Name] = rowOf(s.Name, phase, reason, generation, 0)
	}
	return out
}

// checkStatus holds a status to the API's bounds.
func checkStatus(t *testing.T, s v1alpha1.RuleStatus) {
	t.Helper()
	conditions := 2 // Accepted and Ready
	for _, kind := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionMetricsPresent} {
		if meta.FindStatusCondition(s.Conditions, kind) != nil {
			conditions++
		}
	}
	if len(s.Clusters) > 100 || len(s.Conditions) != conditions {
		t.Fatalf("%d rows, %d conditions", len(s.Clusters), len(s.Conditions))
	}
	last := v1alpha1.ClusterName("")
	for _, r := range s.Clusters {
		if r.Name <= last {
			t.Fatalf("row %s after %s", r.Name, last)
		}
		if r.LastTransitionTime.IsZero() {
			t.Fatalf("row %+v has no time", r)
		}
		last = r.Name
	}
	var top, desired int32
	if _, err := fmt.Sscanf(s.Summary.Ready, "%d/%d", &top, &desired); err != nil || desired != s.Summary.Desired || top > s.Summary.Applied {
		t.Fatalf("the summary is %+v, %v", s.Summary, err)
	}
	ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
	if (ready.Status == metav1.ConditionTrue) != (top == desired && desired > 0 || ready.Reason == v1alpha1.ReasonDisabled) {
		t.Fatalf("%s are ready, and Ready is %+v", s.Summary.Ready, ready)
	}
	if len(ready.Message) > 1024 || strings.TrimSpace(ready.Message) == "" {
		t.Fatalf("Ready says %q", ready.Message)
	}
}

// ruleOf returns a source that is an AlertRule.
func ruleOf(s rule.Source) *v1alpha1.AlertRule { return s.(*v1alpha1.AlertRule) }
