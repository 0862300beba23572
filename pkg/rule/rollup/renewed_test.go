package rollup

import (
	"slices"
	"testing"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/evaluation"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

// A row of a former spoke says nothing of the one that has its name now. The rule is of generation 2.
func TestRenewed(t *testing.T) {
	t.Parallel()
	former := evaluated("a", 3, 2, 10, "x")
	former.Rule, former.AnswerDigest = "shop/web-down", "digest"
	wrong := &rule.Invalid{Reason: v1alpha1.ReasonInvalidExpr, Field: "spec.expr", Message: "no"}
	renewed := func(s Spoke) []Spoke {
		s.Renewed = true
		return append(spokes("b"), s)
	}
	b := evaluated("b", 1, 2, 10)
	for name, c := range map[string]struct {
		edit     func(*Input)
		clusters []Spoke
		want     rows // without messages
	}{
		"the same":           {nil, spokes("a", "b"), rows{former, b}},
		"another":            {nil, renewed(spokes("a")[0]), rows{pending("a", "Waiting", 0, 100), b}},
		"another, not there": {nil, renewed(disconnected("a", "Unreachable")), rows{pending("a", "Unreachable", 0, 100), b}},
		"another, verdict":   {func(in *Input) { in.Verdicts = verdicts{"a": applied("a", 2, 0)} }, renewed(spokes("a")[0]), rows{applied("a", 2, 100), b}},
		"another, unproven": {func(in *Input) {
			in.Verdicts = verdicts{"a": rowOf("a", v1alpha1.PhaseSelected, evaluation.ReasonUnproven, 2, 0)}
		}, renewed(spokes("a")[0]), rows{rowOf("a", v1alpha1.PhaseSelected, "Loading", 2, 100), b}},
		"gone":                {nil, spokes("b"), rows{pending("a", "NotRegistered", 0, 100), b}},
		"invalid, the same":   {func(in *Input) { in.Invalid = wrong }, spokes("a", "b"), rows{former, b}},
		"invalid, another":    {func(in *Input) { in.Invalid = wrong }, renewed(spokes("a")[0]), rows{pending("a", "Waiting", 0, 100), b}},
		"invalid, gone":       {func(in *Input) { in.Invalid = wrong }, spokes("b"), rows{pending("a", "NotRegistered", 0, 100), b}},
		"invalid, of so many": {func(in *Input) { in.Invalid = wrong; ruleOf(in.Rule).Status.Summary.Desired = 300 }, renewed(spokes("a")[0]), rows{pending("a", "Waiting", 0, 100), b}},
		"invalid, registered since": {
			func(in *Input) {
				in.Invalid = wrong
				ruleOf(in.Rule).Status.Clusters[0] = pending("a", "NotRegistered", 0, 10)
			}, spokes("a", "b"), rows{pending("a", "Waiting", 0, 100), b},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ar := ruletest.Rule(func(r *v1alpha1.AlertRule) {
				r.Generation = 2
				r.Spec.Placement = v1alpha1.ClusterSelection{Names: []v1alpha1.ClusterName{"a", "b"}}
				r.Status.ObservedGeneration = 2
				r.Status.Clusters = rows{*former.DeepCopy(), *b.DeepCopy()}
				r.Status.Summary = &v1alpha1.RuleSummary{Desired: 2}
			})
			in := Input{Rule: ar, Clusters: c.clusters, Now: at(100)}
			if c.edit != nil {
				c.edit(&in)
			}
			got, _ := Status(in)
			is := got.DeepCopy()
			for i := range is.Clusters {
				is.Clusters[i] = withoutText(t, is.Clusters[i])
			}
			if !equality.Semantic.DeepEqual(is.Clusters, c.want) {
				t.Errorf("got %+v", is.Clusters)
			}
			// Once it is written, it is of the spoke that there is.
			for i := range in.Clusters {
				in.Clusters[i].Renewed = false
			}
			again(t, name, in, got)
		})
	}
}

// Of many, a former spoke's place at the top is not the next one's either.
func TestRenewedOfMany(t *testing.T) {
	t.Parallel()
	s := sequence(t, 300)
	s.report(0, 300, applied("", 1, 0))
	s.is("all are at the top", 0, 0, "300/300 and 300 applied 0 failing 0 unreachable")
	s.in.Verdicts = verdicts{}
	s.is("nothing is reported", 0, 0, "300/300 and 300 applied 0 failing 0 unreachable")
	s.in.Clusters[7].Renewed = true
	got, _ := Status(s.in)
	if len(got.Clusters) != 1 || got.Clusters[0].Reason != v1alpha1.ReasonWaiting || got.Summary.Ready != "299/300" {
		t.Errorf("%d rows, %s: %+v", len(got.Clusters), got.Summary.Ready, got.Clusters)
	}
}

// Nor is a row that there was no room for, whether it is remembered or not.
func TestRenewedWithoutRoom(t *testing.T) {
	t.Parallel()
	for name, restarted := range map[string]bool{"remembered": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sequence(t, 300)
			s.report(0, 300, rowOf("", v1alpha1.PhaseSelected, v1alpha1.ReasonLoading, 1, 0))
			status, last := Status(s.in)
			if n := Lagging(&status); n != 200 {
				t.Fatalf("%d are not listed", n)
			}
			ruleOf(s.in.Rule).Status, s.in.Last = status, last
			s.in.Verdicts = verdicts{}
			if restarted {
				s.in.Last = nil
			}
			s.in.Clusters[250].Renewed = true
			got, next := Status(s.in)
			if got.Summary.Applied != 299 || got.Summary.Selected != 299 {
				t.Errorf("%+v", got.Summary)
			}
			if !slices.ContainsFunc(next, func(r unique.Handle[Row]) bool {
				return r.Value().Cluster == "s0250" && r.Value().State.Reason == v1alpha1.ReasonWaiting
			}) {
				t.Error("it is remembered as the former one")
			}
		})
	}
}

func TestStatusPredates(t *testing.T) {
	at := func(seconds int) *metav1.Time {
		return &metav1.Time{Time: time.Date(2026, 1, 1, 0, 0, seconds, 0, time.UTC)}
	}
	created := at(30)
	for name, tc := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		want   bool
	}{
		"written before":             {[]metav1.ManagedFieldsEntry{{Subresource: "status", Time: at(29)}}, true},
		"written in the same second": {[]metav1.ManagedFieldsEntry{{Subresource: "status", Time: at(30)}}, false},
		"written after":              {[]metav1.ManagedFieldsEntry{{Subresource: "status", Time: at(31)}}, false},
		"before and after":           {[]metav1.ManagedFieldsEntry{{Subresource: "status", Time: at(1)}, {Subresource: "status", Time: at(31)}, {Subresource: "status", Time: at(2)}}, false},
		"only the spec was written":  {[]metav1.ManagedFieldsEntry{{Time: at(1)}}, false},
		"without a time":             {[]metav1.ManagedFieldsEntry{{Subresource: "status"}}, false},
		"unknown":                    {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.fields}}
			if got := Predates(r, *created); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
