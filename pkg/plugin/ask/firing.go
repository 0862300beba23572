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
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// NewFiring returns the command firing.
func NewFiring(e *env.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "firing",
		Short: "List the alerts that fire, the most severe first",
		Long: `List the alerts that fire, as reported by the Prometheus of each spoke. The most severe come first. A new
alert appears within about a minute. For spokes whose Prometheus cannot be queried, a note says so.`,
		Example: "  kubectl rulefleet firing -A\n  kubectl rulefleet firing -A --cluster eu-prod-1",
		Args:    cobra.NoArgs,
	}
	var all bool
	var spoke string
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "include the AlertRules and RulePacks of all namespaces")
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
	rows := firing(rules, spoke)
	if !q.p.Tabular() {
		return q.objects(slices.DeleteFunc(rules, func(s rule.Source) bool {
			return !slices.ContainsFunc(rows, func(p place) bool { return rule.KeyOf(p.rule) == rule.KeyOf(s) })
		}))
	}
	if len(rows) > 0 {
		err = q.p.Table(firingTable(rows, q.p.Wide(), q.Now()))
	} else {
		q.Say("No alert is known to fire.")
	}
	if err != nil {
		return err
	}
	for _, note := range firingNotes(rules, spokes, spoke) {
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
func firing(rules []rule.Source, spoke string) []place {
	var out []place
	for _, s := range rules {
		out = append(out, slices.DeleteFunc(placesOf(s), func(p place) bool {
			return p.row.Firing <= 0 || spoke != "" && spoke != string(p.row.Name)
		})...)
	}
	slices.SortStableFunc(out, func(a, b place) int {
		return cmp.Or(cmp.Compare(severityRank(severityOf(a.rule)), severityRank(severityOf(b.rule))), cmp.Compare(b.row.Firing, a.row.Firing),
			cmp.Compare(a.row.Name, b.row.Name), cmp.Compare(a.rule.GetNamespace(), b.rule.GetNamespace()), cmp.Compare(nameOf(a.rule), nameOf(b.rule)))
	})
	return out
}

// severityOf returns the severity of an AlertRule. Those of a RulePack differ by alert.
func severityOf(s rule.Source) string {
	if r, ok := s.(*v1alpha1.AlertRule); ok {
		return cmp.Or(string(r.Spec.Severity), string(r.Spec.Labels["severity"]))
	}
	return ""
}

// alertOf returns the name of the alert of an AlertRule, and "-" for a RulePack, which has several.
func alertOf(s rule.Source) string {
	if r, ok := s.(*v1alpha1.AlertRule); ok {
		return r.Spec.Alert
	}
	return "-"
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
			output.Text(string(p.row.Name)), output.Text(alertOf(p.rule)), {Text: cmp.Or(severity, "-"), Tone: tone},
			output.Textf("%d", p.row.Firing), output.Text(p.rule.GetNamespace()), output.Text(nameOf(p.rule)),
		}
		if wide {
			cells = append(cells, output.Text(string(p.row.Phase)), output.Text(age(p.row.LastTransitionTime, now)), output.Text(cmp.Or(p.row.Rule, "-")))
		}
		t.Add(cells...)
	}
	return t
}

// firingNotes says for which spokes the answer is not known.
func firingNotes(rules []rule.Source, spokes []v1alpha1.SpokeCluster, only string) []string {
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
	for _, s := range rules {
		status := s.GetStatus()
		if status.Summary == nil || status.Summary.Firing == nil || only != "" {
			continue
		}
		more := *status.Summary.Firing
		for j := range status.Clusters {
			more -= status.Clusters[j].Firing
		}
		if more > 0 {
			unlisted = append(unlisted, fmt.Sprintf("%d of %s", more, rule.KeyOf(s).Listed()))
		}
	}
	if len(unlisted) > 0 {
		out = append(out, "More alerts fire in spokes that the status does not list (it lists at most 100 spokes for each rule): "+strings.Join(unlisted, ", ")+".")
	}
	return out
}
