package rollup

import (
	"cmp"
	"slices"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/reasons"
)

const (
	// listMax bounds the list in the API. Up to as many spokes, all are listed.
	listMax = 100
	// listedText is what the messages of all rows may take together, in bytes of JSON.
	// With it a status stays below 100 KiB, of which most is names and managedFields.
	listedText = 16 << 10
	// maxRowMessage bounds the message of a row in the API.
	maxRowMessage = 1024
)

// list selects the rows that the status lists, and counts the others. rows are those of all spokes, by name,
// and presumed the spokes of which it is not certain that a state is theirs.
func (in *Input) list(rows []v1alpha1.ClusterStatus, presumed map[v1alpha1.ClusterName]bool) (listed []v1alpha1.ClusterStatus, groups []v1alpha1.ClusterGroup) {
	listed = slices.Clone(rows)
	if len(rows) > listMax {
		var others []v1alpha1.ClusterStatus
		listed = slices.DeleteFunc(listed, func(r v1alpha1.ClusterStatus) bool {
			other := !notable(&r, in.Rule.GetGeneration()) || presumed[r.Name] && !r.Outage
			if other {
				others = append(others, r)
			}
			return other
		})
		slices.SortFunc(listed, func(a, b v1alpha1.ClusterStatus) int {
			return cmp.Or(cmp.Compare(Rank(&a), Rank(&b)), compareBools(presumed[a.Name], presumed[b.Name]), cmp.Compare(a.Name, b.Name))
		})
		groups = group(append(others, listed[min(listMax, len(listed)):]...))
		listed = listed[:min(listMax, len(listed))]
		slices.SortFunc(listed, func(a, b v1alpha1.ClusterStatus) int { return cmp.Compare(a.Name, b.Name) })
	}
	texts := 0 // rows come and go with what fires; those have none, and change no other's
	for i := range listed {
		if listed[i].Message != "" {
			texts++
		}
	}
	for i := range listed {
		listed[i].Message = clip.JSON(listed[i].Message, min(maxRowMessage, listedText/max(texts, 1)))
	}
	return listed, groups
}

// lagging returns the rows that are not at the top phase, in a new slice.
func (in *Input) lagging(rows []v1alpha1.ClusterStatus) []v1alpha1.ClusterStatus {
	return slices.DeleteFunc(slices.Clone(rows), func(r v1alpha1.ClusterStatus) bool { return AtTop(&r, in.Rule.GetGeneration()) })
}

// WorstFirst orders rows by importance, and then by name. The order depends only on the rows, so that
// it is the same after a restart.
func WorstFirst(rows []v1alpha1.ClusterStatus) {
	slices.SortFunc(rows, func(a, b v1alpha1.ClusterStatus) int {
		return cmp.Or(cmp.Compare(Rank(&a), Rank(&b)), cmp.Compare(a.Name, b.Name))
	})
}

// Rank is lower for worse rows. Rows that wait for the user come first, because Stalled must not
// depend on rows that are not listed. Mutated is next: its answer digest is stored nowhere else, and
// the rule is sent once more if it is lost.
func Rank(r *v1alpha1.ClusterStatus) int {
	switch {
	case reasons.Is(r.Reason, reasons.Stalling):
		return 0
	case r.AnswerDigest != "":
		return 1
	case reasons.Is(r.Reason, reasons.Failing):
		return 2
	case reasons.Is(r.Reason, reasons.Unreachable), showsOutage(r):
		return 3
	case !AtTop(r, r.ObservedGeneration):
		return 4
	case r.Firing > 0:
		return 5
	}
	return 6
}
