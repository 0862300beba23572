package ask

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/env"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
	"github.com/rulefleet/rulefleet/pkg/plugin/output"
)

// NewFiring returns the command firing.
func NewFiring(e *env.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "firing",
		Short: "List the alerts that fire, the most severe first",
		Long: `List the alerts that fire, the most severe first, as the Prometheus of the spokes report them. A new
alert appears within about a minute. For spokes whose Prometheus cannot be queried, a note says so.`,
		Example: "  kubectl rulefleet firing -A\n  kubectl rulefleet firing -A --cluster eu-prod-1",
		Args:    cobra.NoArgs,
	}
	var all bool
	var spoke string
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "include the AlertRules of all namespaces")
	addSpokeFlag(cmd, e, &spoke, "list only the alerts of this `spoke`")
	w := &watching{}
	w.addFlags(cmd)
	p := e.Printer(cmd, output.Formats...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := p.Check(); err != nil {
			return err
		}
		q := &question{Env: e, p: p, all: all}
		return w.run(cmd.Context(), e, p, func(ctx context.Context) error { return q.firing(ctx, spoke) })
	}
	return cmd
}

// firing answers which alerts fire, in one spoke or in all.
func (q *question) firing(ctx context.Context, spoke string) error {
	c, err := q.Hub.Connect()
	if err != nil {
		return err
	}
	rules, err := q.rules(ctx, c, q.all)
	if err != nil {
		return err
	}
	spokes, err := q.spokes(ctx, c)
	if err != nil {
		return err
	}
	if spoke != "" && len(spokes) > 0 && !slices.ContainsFunc(spokes, func(s v1alpha1.SpokeCluster) bool { return s.Name == spoke }) {
		return exit.NoSpoke(spoke)
	}
	rows := firing(rules.Items, spoke)
	if !q.p.Tabular() {
		rules.Items = slices.DeleteFunc(rules.Items, func(r v1alpha1.AlertRule) bool {
			return !slices.ContainsFunc(rows, func(p place) bool { return p.rule.Namespace == r.Namespace && p.rule.Name == r.Name })
		})
		return q.p.Objects(rules)
	}
	if len(rows) > 0 {
		err = q.p.Table(firingTable(rows, q.p.Wide(), q.Now()))
	} else {
		q.Say("No alert is known to fire.")
	}
	if err != nil {
		return err
	}
	for _, note := range firingNotes(rules.Items, spokes, spoke) {
		q.Say("%s", note)
	}
	return nil
}

// addSpokeFlag adds the flag --cluster. kubectl's own flag of this name, which selects an entry of the
// kubeconfig, is not available in that command.
func addSpokeFlag(cmd *cobra.Command, e *env.Env, value *string, usage string) {
	cmd.Flags().StringVar(value, "cluster", "", usage)
	_ = cmd.RegisterFlagCompletionFunc("cluster", e.CompleteSpokes)
}

// severities are the usual severities, the most severe first.
var severities = []string{"critical", "error", "warning", "info", "none"}

func severityRank(s string) int {
	if i := slices.Index(severities, s); i >= 0 {
		return i
	}
	return slices.Index(severities, "warning") // unknown words may be anything
}

// firing returns the rows of rules whose alerts fire, in one spoke or in all.
func firing(rules []v1alpha1.AlertRule, spoke string) []place {
	var out []place
	for i := range rules {
		for _, p := range placesOf(&rules[i]) {
			if p.row.Firing > 0 && (spoke == "" || spoke == string(p.row.Name)) {
				out = append(out, p)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b place) int {
		return cmp.Or(cmp.Compare(severityRank(severityOf(a.rule)), severityRank(severityOf(b.rule))), cmp.Compare(b.row.Firing, a.row.Firing),
			cmp.Compare(a.row.Name, b.row.Name), cmp.Compare(a.rule.Namespace, b.rule.Namespace), cmp.Compare(a.rule.Name, b.rule.Name))
	})
	return out
}

func severityOf(r *v1alpha1.AlertRule) string {
	return cmp.Or(string(r.Spec.Severity), string(r.Spec.Labels["severity"]))
}

func firingTable(rows []place, wide bool, now time.Time) *output.Table {
	t := &output.Table{Columns: []string{"CLUSTER", "ALERT", "SEVERITY", "FIRING", "NAMESPACE", "NAME"}}
	if wide {
		t.Columns = append(t.Columns, "PHASE", "SINCE", "PROMETHEUSRULE")
	}
	for _, p := range rows {
		severity := severityOf(p.rule)
		tone := output.Warn
		if severity == "critical" {
			tone = output.Bad
		}
		cells := []output.Cell{
			output.Text(string(p.row.Name)), output.Text(p.rule.Spec.Alert), {Text: cmp.Or(severity, "-"), Tone: tone},
			output.Textf("%d", p.row.Firing), output.Text(p.rule.Namespace), output.Text(p.rule.Name),
		}
		if wide {
			cells = append(cells, output.Text(string(p.row.Phase)), output.Text(age(p.row.LastTransitionTime, now)), output.Text(cmp.Or(p.row.Rule, "-")))
		}
		t.Add(cells...)
	}
	return t
}

// firingNotes says for which spokes the answer is not known.
func firingNotes(rules []v1alpha1.AlertRule, spokes []v1alpha1.SpokeCluster, only string) []string {
	var out []string
	for i := range spokes {
		s := &spokes[i]
		if only != "" && s.Name != only {
			continue
		}
		connected := condition(s.Status.Conditions, v1alpha1.ConditionConnected)
		evaluating := condition(s.Status.Conditions, v1alpha1.ConditionEvaluating)
		if found := condition(s.Status.Conditions, v1alpha1.ConditionEvaluatorsFound); evaluating.Reason == notReported && found.Status == metav1.ConditionFalse {
			evaluating = found // nobody is asked
		}
		switch {
		case connected.Status != metav1.ConditionTrue:
			out = append(out, fmt.Sprintf("Spoke %s: its alerts may be outdated (%s).", s.Name, connected.Reason))
		case evaluating.Status != metav1.ConditionTrue:
			out = append(out, fmt.Sprintf("Spoke %s: it is not known which alerts fire (%s).", s.Name, evaluating.Reason))
		}
	}
	var unlisted []string
	for i := range rules {
		r := &rules[i]
		if r.Status.Summary == nil || r.Status.Summary.Firing == nil || only != "" {
			continue
		}
		more := *r.Status.Summary.Firing
		for j := range r.Status.Clusters {
			more -= r.Status.Clusters[j].Firing
		}
		if more > 0 {
			unlisted = append(unlisted, fmt.Sprintf("%d of %s/%s", more, r.Namespace, r.Name))
		}
	}
	if len(unlisted) > 0 {
		out = append(out, "More alerts fire in spokes that are not listed (at most 100 per AlertRule): "+strings.Join(unlisted, ", ")+".")
	}
	return out
}
