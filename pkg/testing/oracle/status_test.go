package oracle

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// What a spoke that is down has never said is not in its row, unless the row may be about a former cluster of the name.
func TestFaultOfASilentSpoke(t *testing.T) {
	ar := &v1alpha1.AlertRule{ObjectMeta: metav1.ObjectMeta{Name: "a", Generation: 1}}
	d := Delivery{Registered: true, Down: true, Silent: true, Row: v1alpha1.ClusterStatus{Rule: "of/new"}, Stale: func(object string) bool { return object == "of/former" }}
	for object, want := range map[string]string{
		"of/new":    "has said nothing",
		"":          "has said nothing",
		"of/other":  "the object in the spoke is of/new",
		"of/former": "",
	} {
		row := v1alpha1.ClusterStatus{Name: "s", Phase: v1alpha1.PhaseApplied, Reason: v1alpha1.ReasonUnreachable, Outage: true, Rule: object, ObservedGeneration: 1}
		if got := d.fault(ar, &row); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("a row of %q: got %q, want %q", object, got, want)
		}
	}
}

func TestCountFaults(t *testing.T) {
	sc := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "eu-1"}}
	workloads := map[v1alpha1.WorkloadKind]int{v1alpha1.DeploymentKind: 2, v1alpha1.CronJobKind: 0}
	if got := CountFaults(sc, workloads, 3); len(got) != 4 || !strings.Contains(got[0], "the number of rules is not set, want 3") {
		t.Errorf("without numbers: %q", got)
	}
	sc.Status.Rules, sc.Status.Deployments = new(int32(3)), new(int32(2))
	sc.Status.Workloads = []v1alpha1.WorkloadCount{{Kind: v1alpha1.DeploymentKind, Total: 2}, {Kind: v1alpha1.CronJobKind}}
	if got := CountFaults(sc, workloads, 3); len(got) > 0 {
		t.Errorf("right numbers: %q", got)
	}
	sc.Status.Workloads[1].Total = 1
	if got := CountFaults(sc, workloads, 3); len(got) != 1 || !strings.Contains(got[0], "the number of CronJobs is 1, want 0") {
		t.Errorf("a wrong number: %q", got)
	}
}
