package oracle

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Delivery is what is true of a rule in a spoke in which it belongs.
type Delivery struct {
	// Registered reports whether there is a SpokeCluster. Down means that it has not answered for long.
	Registered, Down bool
	// Silent means that it has never said anything about this AlertRule, which may have had a predecessor of its name.
	Silent bool
	// Row is what the spoke would say of the rule.
	Row v1alpha1.ClusterStatus
	// Stale reports whether a row of a spoke that is down may have the object of a former cluster.
	Stale func(object string) bool
}

// StatusFaults returns what is wrong in the status of an AlertRule when everything is processed. want are the spokes in
// which it belongs, by name.
func StatusFaults(ar *v1alpha1.AlertRule, valid bool, want map[string]Delivery) []string {
	var faults []string
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Sprintf("%s: "+format, append([]any{ar.Name}, args...)...))
	}
	status := &ar.Status
	if status.ObservedGeneration != ar.Generation {
		fault("its generation is %d, and observedGeneration %d", ar.Generation, status.ObservedGeneration)
	}
	if is := meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionAccepted); is != valid {
		fault("Accepted is %v", is)
	}
	if !valid { // the spokes keep the last valid version, of which nothing is known here
		return append(faults, readyFaults(ar, false)...)
	}
	rows := map[string]v1alpha1.ClusterStatus{}
	for i := range status.Clusters {
		rows[string(status.Clusters[i].Name)] = status.Clusters[i]
	}
	ready, unreachable := 0, int32(0)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		row, listed := rows[name]
		delete(rows, name)
		if !listed {
			fault("there is no row of %s", name)
		} else if text := want[name].fault(ar, &row); text != "" {
			fault("%s, and the row of %s is %+v", text, name, row)
		}
		if row.Reason == "" && row.Phase != v1alpha1.PhasePending && row.ObservedGeneration == ar.Generation {
			ready++
		}
		if row.Reason == v1alpha1.ReasonUnreachable {
			unreachable++
		}
	}
	for name := range rows {
		fault("it does not belong in %s, and there is a row", name)
	}
	return append(faults, countFaults(ar, len(want), ready, unreachable)...)
}

// fault returns what is not true of a row, or "".
func (d Delivery) fault(ar *v1alpha1.AlertRule, row *v1alpha1.ClusterStatus) string {
	is := []any{row.Phase, row.Reason, row.Message, row.Firing, row.ObservedGeneration}
	says := []any{d.Row.Phase, d.Row.Reason, d.Row.Message, d.Row.Firing, ar.Generation}
	switch {
	case !d.Registered && row.Reason != v1alpha1.ReasonNotRegistered:
		return "the spoke is not registered"
	case !d.Registered:
	case row.Rule != "" && row.Rule != d.Row.Rule && (!d.Down || !d.Stale(row.Rule)):
		return "the object in the spoke is " + d.Row.Rule
	case d.Down && d.Silent && d.invented(row):
		return "the spoke has said nothing about this AlertRule"
	case d.Down && row.Reason == "":
		return "the spoke does not answer"
	case !d.Down && !slices.Equal(is, says):
		return fmt.Sprintf("the spoke says %+v", d.Row)
	}
	return ""
}

// invented reports whether a row of a spoke that has said nothing tells more than that, and not of a former object.
func (d Delivery) invented(row *v1alpha1.ClusterStatus) bool {
	return row.Phase != v1alpha1.PhasePending && (row.Rule == "" || row.Rule == d.Row.Rule)
}

// countFaults returns what is wrong in the summary and in Ready.
func countFaults(ar *v1alpha1.AlertRule, spokes, ready int, unreachable int32) []string {
	var faults []string
	s := ar.Status.Summary
	if s == nil {
		return []string{ar.Name + ": there is no summary"}
	}
	if text := fmt.Sprintf("%d/%d", ready, spokes); s.Desired != int32(spokes) || s.Ready != text || s.Unreachable != unreachable {
		faults = append(faults, fmt.Sprintf("%s: the summary is %+v, and %s are ready, %d unreachable", ar.Name, s, text, unreachable))
	}
	disabled := ar.Spec.State == v1alpha1.Disabled
	return append(faults, readyFaults(ar, disabled || spokes > 0 && ready == spokes)...)
}

func readyFaults(ar *v1alpha1.AlertRule, want bool) []string {
	if c := meta.FindStatusCondition(ar.Status.Conditions, v1alpha1.ConditionReady); c == nil || (c.Status == metav1.ConditionTrue) != want {
		return []string{fmt.Sprintf("%s: Ready is %+v, and should be %v", ar.Name, c, want)}
	}
	return nil
}

// CountFaults returns the wrong counts in the status of a SpokeCluster. workloads are the numbers of workloads in the spoke
// by kind, and rules is the number of PrometheusRules of this hub. The numbers of covered workloads are not compared.
func CountFaults(sc *v1alpha1.SpokeCluster, workloads map[v1alpha1.WorkloadKind]int, rules int) []string {
	var faults []string
	compare := func(what string, is *int32, want int) {
		switch {
		case is == nil:
			faults = append(faults, fmt.Sprintf("SpokeCluster %s: the number of %s is not set, want %d", sc.Name, what, want))
		case int(*is) != want:
			faults = append(faults, fmt.Sprintf("SpokeCluster %s: the number of %s is %d, want %d", sc.Name, what, *is, want))
		}
	}
	compare("rules", sc.Status.Rules, rules)
	compare("deployments", sc.Status.Deployments, workloads[v1alpha1.DeploymentKind])
	totals := map[v1alpha1.WorkloadKind]*int32{}
	for i := range sc.Status.Workloads {
		totals[sc.Status.Workloads[i].Kind] = &sc.Status.Workloads[i].Total
	}
	for _, kind := range slices.Sorted(maps.Keys(workloads)) {
		compare(string(kind)+"s", totals[kind], workloads[kind])
	}
	return faults
}
