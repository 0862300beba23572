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

// list selects the rows that the status lists, and counts the rows that lag behind and for which there
// is no room. known are all known rows, by name.
func (in *Input) list(known []v1alpha1.ClusterStatus, others crowd) (listed []v1alpha1.ClusterStatus, unlisted int32) {
	listed = slices.Clone(known)
	if len(known)+int(others.spokes) > listMax {
		listed = slices.DeleteFunc(listed, func(r v1alpha1.ClusterStatus) bool { return !notable(&r, in.Rule.Generation) })
	}
	if over := len(listed) - listMax; over > 0 {
		WorstFirst(listed)
		unlisted = int32(len(in.lagging(listed[listMax:]))) //nolint:gosec // the API server holds fewer objects
		listed = listed[:listMax]
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
	return listed, unlisted + others.lagging
}

// lagging returns the rows that are not at the top phase, in a new slice.
func (in *Input) lagging(rows []v1alpha1.ClusterStatus) []v1alpha1.ClusterStatus {
	return slices.DeleteFunc(slices.Clone(rows), func(r v1alpha1.ClusterStatus) bool { return AtTop(&r, in.Rule.Generation) })
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
