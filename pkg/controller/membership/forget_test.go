package membership

import (
	"slices"
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/testing/memory"
)

// A Reconciler forgets a spoke whose SpokeCluster is gone, and so do its Provider and its Contests.
func TestForgets(t *testing.T) {
	r, _ := registrar(t, memberOf("s", "A"), memberOf("other", "B"))
	if err := r.learn(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"s", "other"} {
		sc := memberOf(name, "A")
		r.replaced(sc)
		r.setOutdated(sc)
		r.Contests.Wrote(contest.Removal(sc, v1alpha1.AcceptIdentityAnnotation), nil)
	}
	if n := len(memory.Of(r.Contests, "s")); n != 1 {
		t.Errorf("of what was written of its SpokeCluster, %d are remembered", n)
	}
	before := len(memory.Of(r, "other"))
	for _, where := range []string{".uids[s]", ".outdated[s]", ".Provider.members.identities[s]"} {
		if got := memory.Of(r, "s"); !slices.Contains(got, where) {
			t.Errorf("%s is not among what is remembered: %q", where, got)
		}
	}
	r.gone("s")
	if got := memory.Of(r, "s"); len(got) > 0 {
		t.Errorf("remembered: %q", got)
	}
	if got := memory.Of(r, "other"); len(got) != before {
		t.Errorf("of the other is left: %q", got)
	}
}
