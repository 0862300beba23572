package ask

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/env"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
	"github.com/rulefleet/rulefleet/pkg/plugin/output"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// NewCoverage returns the command coverage.
func NewCoverage(e *env.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "coverage",
		Short: "Show which workloads of the spokes have no alert, and why",
		Long: `Show how many workloads of each spoke have an alert, and list workloads without one, with the reason.

A workload has an alert if an enabled AlertRule names it in spec.workloadRef, and is Evaluating in the spoke.
A change shows in the numbers within a minute. The hub keeps the names of up to 50 workloads for each spoke; a note
says how many are not listed. With --namespace, only workloads in that namespace of the spokes are listed, and the
numbers of the spokes are left out.`,
		Example: "  kubectl rulefleet coverage\n  kubectl rulefleet coverage --cluster eu-prod-1 -o wide\n  kubectl rulefleet coverage -n shop",
		Args:    cobra.NoArgs,
	}
	var spoke string
	addSpokeFlag(cmd, e, &spoke, "show only this `spoke`")
	p := e.Printer(cmd, output.Formats...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := p.Check(); err != nil {
			return err
		}
		q := &question{Env: e, p: p}
		return q.coverage(cmd.Context(), spoke, *e.Hub.Flags.Namespace)
	}
	return cmd
}

// coverage answers which workloads have no alert: in one spoke or in all, and in one namespace of them or in all.
func (q *question) coverage(ctx context.Context, spoke, namespace string) error {
	c, err := q.Hub.Connect()
	if err != nil {
		return err
	}
	var list v1alpha1.SpokeClusterList
	if err := c.List(ctx, &list); err != nil {
		return fmt.Errorf("listing the SpokeClusters: %w", err)
	}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SpokeClusterList"))
	if spoke != "" {
		list.Items = slices.DeleteFunc(list.Items, func(s v1alpha1.SpokeCluster) bool { return s.Name != spoke })
		if len(list.Items) == 0 {
			return exit.NoSpoke(spoke)
		}
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.SpokeCluster) int { return cmp.Compare(a.Name, b.Name) })
	if !q.p.Tabular() {
		return q.p.Objects(named(&list))
	}
	var tables []*output.Table
	if namespace == "" {
		tables = append(tables, countsTable(list.Items))
	}
	uncovered, err := q.uncovered(ctx, c, list.Items, namespace)
	if err != nil {
		return err
	}
	if err := q.tables(append(tables, uncovered)); err != nil {
		return err
	}
	if len(uncovered.Rows) == 0 {
		q.Say("The statuses list no workloads that lack an alert.")
	}
	for i := range list.Items {
		for _, note := range coverageNotes(&list.Items[i]) {
			q.Say("%s", note)
		}
	}
	return nil
}

// tables prints the tables that have rows.
func (q *question) tables(tables []*output.Table) error {
	tables = slices.DeleteFunc(tables, func(t *output.Table) bool { return len(t.Rows) == 0 })
	for i, t := range tables {
		if i > 0 {
			if err := q.p.Blank(); err != nil {
				return err
			}
		}
		if err := q.p.Table(t); err != nil {
			return err
		}
	}
	return nil
}

// countsTable counts the workloads of spokes by kind.
func countsTable(spokes []v1alpha1.SpokeCluster) *output.Table {
	t := &output.Table{Columns: []string{"CLUSTER", "KIND", "WORKLOADS", "WITH ALERT", "WITHOUT"}}
	for i := range spokes {
		for _, n := range spokes[i].Status.Workloads {
			without := n.Total - n.Covered
			t.Add(output.Text(spokes[i].Name), output.Text(string(n.Kind)), output.Textf("%d", n.Total), output.Textf("%d", n.Covered),
				output.Cell{Text: fmt.Sprint(without), Tone: toneIf(without > 0, output.Warn)})
		}
	}
	return t
}

// uncovered lists the workloads without an alert.
func (q *question) uncovered(ctx context.Context, c client.Client, spokes []v1alpha1.SpokeCluster, namespace string) (*output.Table, error) {
	t := &output.Table{Columns: []string{"CLUSTER", "NAMESPACE", "KIND", "NAME", "REASON", "MESSAGE"}}
	if q.p.Wide() {
		t.Columns = append(t.Columns, "ALERTRULE")
	}
	var rules map[v1alpha1.WorkloadReference]*v1alpha1.AlertRule
	for i := range spokes {
		for _, w := range spokes[i].Status.Uncovered {
			if namespace != "" && string(w.Namespace) != namespace {
				continue
			}
			if rules == nil && w.Reason == v1alpha1.UncoveredNotEvaluating {
				var err error
				if rules, err = q.byWorkload(ctx, c); err != nil {
					return nil, err
				}
			}
			name := v1alpha1.ClusterName(spokes[i].Name)
			ar := rules[v1alpha1.WorkloadReference{Cluster: name, Kind: w.Kind, Namespace: w.Namespace, Name: w.Name}]
			row := []output.Cell{
				output.Text(string(name)), output.Text(string(w.Namespace)), output.Text(string(w.Kind)), output.Text(w.Name),
				{Text: string(w.Reason), Tone: output.Warn}, output.Text(whyUncovered(w.Reason, ar, name)),
			}
			if q.p.Wide() {
				row = append(row, output.Text(ruleName(ar)))
			}
			t.Add(row...)
		}
	}
	return t, nil
}

// byWorkload returns an AlertRule of each workload that has some, as far as the person may list them: the first enabled
// one by its name.
func (q *question) byWorkload(ctx context.Context, c client.Client) (map[v1alpha1.WorkloadReference]*v1alpha1.AlertRule, error) {
	out := map[v1alpha1.WorkloadReference]*v1alpha1.AlertRule{}
	var list v1alpha1.AlertRuleList
	switch err := c.List(ctx, &list); {
	case apierrors.IsForbidden(err):
		q.Say("The messages of the AlertRules are not included, because you have no permission to list those of all namespaces.")
		return out, nil
	case err != nil:
		return nil, fmt.Errorf("listing the AlertRules: %w", err)
	}
	for i := range list.Items {
		ar := &list.Items[i]
		if ar.Spec.WorkloadRef == nil || ar.Spec.State == v1alpha1.Disabled {
			continue
		}
		if known := out[*ar.Spec.WorkloadRef]; known == nil || cmp.Or(cmp.Compare(ar.Namespace, known.Namespace), cmp.Compare(ar.Name, known.Name)) < 0 {
			out[*ar.Spec.WorkloadRef] = ar
		}
	}
	return out, nil
}

func ruleName(ar *v1alpha1.AlertRule) string {
	if ar == nil {
		return "-"
	}
	return ar.Namespace + "/" + ar.Name
}

// whyUncovered explains a reason. ar is an AlertRule of the workload, or nil.
func whyUncovered(reason v1alpha1.UncoveredReason, ar *v1alpha1.AlertRule, spoke v1alpha1.ClusterName) string {
	switch reason {
	case v1alpha1.UncoveredNoTemplate:
		return "no template selects the workload"
	case v1alpha1.UncoveredDisabled:
		return "annotations of the workload, or an edit of its AlertRule, disable the alert"
	case v1alpha1.UncoveredRefused:
		return "spec.maxRules of the SpokeCluster, or the namespace's share of it, is reached"
	case v1alpha1.UncoveredFailed:
		return "no AlertRule can be generated; see the Events of the templates"
	}
	if ar == nil {
		return "-"
	}
	for i := range ar.Status.Clusters {
		row := &ar.Status.Clusters[i]
		if row.Name != spoke {
			continue
		}
		if row.Reason == v1alpha1.ReasonPredicted {
			return "Rulefleet can't query the Prometheus of the spoke; the AlertRule is " + string(row.Phase)
		}
		text := strings.TrimSpace(string(row.Phase) + " " + row.Reason)
		if row.Message != "" {
			text += ": " + row.Message
		}
		return text
	}
	return "the AlertRule is not delivered yet"
}

// coverageNotes says what is not known about the workloads of a spoke.
func coverageNotes(s *v1alpha1.SpokeCluster) (out []string) {
	if len(s.Status.Workloads) == 0 {
		return []string{fmt.Sprintf("Spoke %s: its workloads are not counted yet.", s.Name)}
	}
	if connected := condition(s.Status.Conditions, v1alpha1.ConditionConnected); connected.Status != metav1.ConditionTrue {
		out = append(out, fmt.Sprintf("Spoke %s: the numbers may be outdated (%s).", s.Name, connected.Reason))
	}
	var unread []string
	for _, kind := range rule.WorkloadKinds() {
		if !slices.ContainsFunc(s.Status.Workloads, func(n v1alpha1.WorkloadCount) bool { return n.Kind == kind }) {
			unread = append(unread, string(kind)+"s")
		}
	}
	if len(unread) > 0 {
		out = append(out, fmt.Sprintf("Spoke %s: %s are not counted, because Rulefleet can't list them. If its account lacks the permission, run kubectl rulefleet join again.", s.Name, strings.Join(unread, ", ")))
	}
	more := -len(s.Status.Uncovered)
	for _, n := range s.Status.Workloads {
		more += int(n.Total - n.Covered)
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("Spoke %s: %d more workloads without an alert are not listed. The hub lists at most 50, and only those of kinds that an enabled template names.", s.Name, more))
	}
	return out
}
