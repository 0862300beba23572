package ask

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/env"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
	"github.com/rulefleet/rulefleet/pkg/plugin/output"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/rollup"
)

var statusKinds = []env.Kind{env.KindRule, env.KindPack, env.KindSpoke, env.KindTemplate}

// NewStatus returns the command status.
func NewStatus(e *env.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [KIND/NAME]",
		Short: "Show where alert rules are delivered and evaluated, the worst first",
		Long: `Show where alert rules are delivered and evaluated, the worst first.

Without an argument, the command counts the rules that are not ready in each spoke, and lists them.
KIND/NAME is one of these:

  alertrule/NAME           the rule in every spoke
  rulepack/NAME            the rules of a RulePack in every spoke
  spoke/NAME               the conditions of a spoke, and the rules that are not ready there
  alertruletemplate/NAME   the conditions of a template, and the generated rules that are not ready`,
		Example: `  kubectl rulefleet status -A
  kubectl rulefleet status alertrule/high-error-rate -n rulefleet-system
  kubectl rulefleet status spoke/eu-prod-1`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: e.CompleteRef(statusKinds...),
	}
	var all bool
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "include the AlertRules and RulePacks of all namespaces")
	w := &watching{}
	w.addFlags(cmd)
	p := e.Printer(cmd, output.Formats...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := p.Check(); err != nil {
			return err
		}
		var ref env.Ref
		if len(args) > 0 {
			var err error
			if ref, err = env.ParseRef(args, statusKinds...); err != nil {
				return err
			}
		}
		q := &question{Env: e, p: p, all: all}
		return w.run(cmd.Context(), e, p, func(ctx context.Context) error { return q.about(ctx, ref) })
	}
	return cmd
}

// question is a question about AlertRules and RulePacks.
type question struct {
	*env.Env
	p   *output.Printer
	all bool
}

// about answers about an object, or about everything.
func (q *question) about(ctx context.Context, ref env.Ref) error {
	switch ref.Kind {
	case env.KindSpoke:
		return q.spoke(ctx, ref.Name)
	case env.KindTemplate:
		return q.template(ctx, ref.Name)
	case env.KindRule:
		return q.rule(ctx, ref.Name, &v1alpha1.AlertRule{})
	case env.KindPack:
		return q.rule(ctx, ref.Name, &v1alpha1.RulePack{})
	}
	return q.overview(ctx)
}

// rules lists AlertRules and RulePacks. ofAll includes all namespaces, whatever the flags say.
func (q *question) rules(ctx context.Context, c client.Client, ofAll bool, opts ...client.ListOption) ([]rule.Source, error) {
	scope, err := q.Hub.Scope(ofAll)
	if err != nil {
		return nil, err
	}
	opts = append(opts, scope...)
	var out []rule.Source
	var alerts v1alpha1.AlertRuleList
	if err := q.sources(ctx, c, ofAll, &alerts, opts); err != nil {
		return nil, err
	}
	for i := range alerts.Items {
		out = append(out, &alerts.Items[i])
	}
	var packs v1alpha1.RulePackList
	err = q.sources(ctx, c, ofAll, &packs, opts)
	switch {
	case apimeta.IsNoMatchError(err): // an older hub has none
	case apierrors.IsForbidden(err):
		q.Say("RulePacks are not included, because you have no permission to list them.")
	case err != nil:
		return nil, err
	}
	for i := range packs.Items {
		out = append(out, &packs.Items[i])
	}
	for _, s := range out {
		s.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(s.SourceKind()))
	}
	return out, nil
}

// sources lists the sources of one kind.
func (q *question) sources(ctx context.Context, c client.Client, ofAll bool, list client.ObjectList, opts []client.ListOption) error {
	err := c.List(ctx, list, opts...)
	if ofAll && apierrors.IsForbidden(err) {
		return exit.New(exit.Denied, "List the rules of a namespace of yours, with -n NAMESPACE.", "listing the rules: %w", err)
	}
	if err != nil {
		return fmt.Errorf("listing the rules: %w", err)
	}
	return nil
}

// objects prints sources as kubectl get does: as a list of their kind or, if there are RulePacks among them, of objects.
func (q *question) objects(rules []rule.Source) error {
	kind := schema.GroupVersionKind{Version: "v1", Kind: "List"}
	if !slices.ContainsFunc(rules, func(s rule.Source) bool { return s.SourceKind() != v1alpha1.AlertRuleKind }) {
		kind = v1alpha1.GroupVersion.WithKind("AlertRuleList")
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{"metadata": map[string]any{"resourceVersion": ""}}}
	list.SetGroupVersionKind(kind)
	for _, s := range rules {
		o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
		if err != nil {
			return fmt.Errorf("writing the output: %w", err)
		}
		list.Items = append(list.Items, unstructured.Unstructured{Object: o})
	}
	return q.p.Objects(list)
}

// spokes lists the SpokeClusters, or none if the person may not list them: they are cluster-scoped, and a
// tenant may only read AlertRules.
func (q *question) spokes(ctx context.Context, c client.Client) ([]v1alpha1.SpokeCluster, error) {
	var list v1alpha1.SpokeClusterList
	err := c.List(ctx, &list)
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the SpokeClusters: %w", err)
	}
	return list.Items, nil
}

func (q *question) overview(ctx context.Context) error {
	c, err := q.Hub.Connect()
	if err != nil {
		return err
	}
	rules, err := q.rules(ctx, c, q.all)
	if err != nil {
		return err
	}
	if !q.p.Tabular() {
		return q.objects(rules)
	}
	spokes, err := q.spokes(ctx, c)
	if err != nil {
		return err
	}
	if len(rules) == 0 {
		q.Say("No AlertRules and RulePacks found. To include all namespaces, use -A.")
		return nil
	}
	rows := lagging(rules)
	if err := q.p.Table(byCluster(rules, rows, spokes)); err != nil {
		return err
	}
	return q.list(rules, rows)
}

// list prints the rows that are not ready, and the rules that have no row.
func (q *question) list(rules []rule.Source, rows []place) error {
	if t := notAccepted(rules); len(t.Rows) > 0 {
		if err := q.titled("Not placed or not accepted:", t); err != nil {
			return err
		}
	}
	if len(rows) == 0 {
		return q.paragraph("Rules that are ready in every spoke on which they are placed: %d.", len(rules)-len(notAccepted(rules).Rows))
	}
	if err := q.titled("Not ready:", placesTable(rows, q.p.Wide(), q.Now())); err != nil {
		return err
	}
	unlisted := int32(0)
	for _, s := range rules {
		unlisted += rollup.Lagging(s.GetStatus())
	}
	if unlisted > 0 {
		return q.p.Linef("Rows that are not listed, because the status of a rule lists at most 100 spokes: %d.", unlisted)
	}
	return nil
}

// paragraph prints a line after an empty one.
func (q *question) paragraph(format string, args ...any) error {
	if err := q.p.Blank(); err != nil {
		return err
	}
	return q.p.Linef(format, args...)
}

func (q *question) titled(title string, t *output.Table) error {
	if err := q.paragraph("%s", title); err != nil {
		return err
	}
	return q.p.Table(t)
}

func (q *question) rule(ctx context.Context, name string, s rule.Source) error {
	c, err := q.Hub.Connect()
	if err != nil {
		return err
	}
	namespace, err := q.Hub.Namespace()
	if err != nil {
		return err
	}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, s); err != nil {
		return fmt.Errorf("reading %s %s/%s: %w", s.SourceKind(), namespace, name, err)
	}
	s.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(s.SourceKind()))
	if !q.p.Tabular() {
		return q.p.Objects(s)
	}
	status := s.GetStatus()
	if err := q.p.Table(conditionsTable(status.Conditions)); err != nil {
		return err
	}
	places := placesOf(s)
	if len(places) == 0 {
		return nil
	}
	if err := q.titled("In the spokes:", placesTable(places, q.p.Wide(), q.Now())); err != nil {
		return err
	}
	if s := status.Summary; s != nil && int(s.Desired) > len(places) {
		return q.p.Linef("%d more spokes are not listed. The rule is not ready in %d of them.", int(s.Desired)-len(places), rollup.Lagging(status))
	}
	return nil
}

func (q *question) spoke(ctx context.Context, name string) error {
	c, err := q.Hub.Connect()
	if err != nil {
		return err
	}
	var s v1alpha1.SpokeCluster
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &s); err != nil {
		return fmt.Errorf("reading SpokeCluster %s: %w", name, err)
	}
	s.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SpokeCluster"))
	if !q.p.Tabular() {
		return q.p.Objects(&s)
	}
	rules, err := q.rules(ctx, c, true)
	if apierrors.IsForbidden(err) {
		rules, err = q.rules(ctx, c, false)
	}
	if err != nil {
		return err
	}
	if err := q.p.Table(conditionsTable(s.Status.Conditions)); err != nil {
		return err
	}
	if d := s.Status.PendingDeletions; d != nil && d.Count > 0 {
		if err := q.paragraph("%s", describePending(d)); err != nil {
			return err
		}
	}
	rows := slices.DeleteFunc(lagging(rules), func(p place) bool { return string(p.row.Name) != name })
	if len(rows) == 0 {
		return q.paragraph("All known rules are ready in this spoke.")
	}
	return q.titled("Not ready:", placesTable(rows, q.p.Wide(), q.Now()))
}

func (q *question) template(ctx context.Context, name string) error {
	c, err := q.Hub.Connect()
	if err != nil {
		return err
	}
	var t v1alpha1.AlertRuleTemplate
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &t); err != nil {
		return fmt.Errorf("reading AlertRuleTemplate %s: %w", name, err)
	}
	t.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("AlertRuleTemplate"))
	if !q.p.Tabular() {
		return q.p.Objects(&t)
	}
	rules, err := q.rules(ctx, c, true, client.MatchingLabels{v1alpha1.TemplateLabel: name})
	if err != nil {
		return err
	}
	if err := q.p.Table(conditionsTable(t.Status.Conditions)); err != nil {
		return err
	}
	if len(rules) == 0 {
		return q.paragraph("The template has generated no AlertRules.")
	}
	return q.list(rules, lagging(rules))
}

// place is an AlertRule or a RulePack in one spoke.
type place struct {
	rule rule.Source
	row  *v1alpha1.ClusterStatus
}

func (p place) ready() bool { return rollup.AtTop(p.row, p.rule.GetGeneration()) }

// placesOf returns the listed rows of a rule, the worst first.
func placesOf(s rule.Source) []place {
	rows := slices.Clone(s.GetStatus().Clusters)
	rollup.WorstFirst(rows)
	out := make([]place, len(rows))
	for i := range rows {
		out[i] = place{s, &rows[i]}
	}
	return out
}

// lagging returns the rows of all rules that are not ready, the worst first.
func lagging(rules []rule.Source) []place {
	var out []place
	for _, s := range rules {
		out = append(out, slices.DeleteFunc(placesOf(s), place.ready)...)
	}
	slices.SortStableFunc(out, func(a, b place) int {
		return cmp.Or(cmp.Compare(rollup.Rank(a.row), rollup.Rank(b.row)), cmp.Compare(a.row.Name, b.row.Name),
			cmp.Compare(a.rule.GetNamespace(), b.rule.GetNamespace()), cmp.Compare(nameOf(a.rule), nameOf(b.rule)))
	})
	return out
}

// byCluster counts the rules that are not ready, and the alerts that fire, by spoke. Without the
// SpokeClusters, it knows only those that the rows name.
func byCluster(rules []rule.Source, notReady []place, spokes []v1alpha1.SpokeCluster) *output.Table {
	type line struct {
		spoke   *v1alpha1.SpokeCluster
		lagging int
		reasons map[string]int
		firing  *int32 // nil if it is not known
	}
	lines := map[string]*line{}
	at := func(name string) *line {
		if lines[name] == nil {
			lines[name] = &line{reasons: map[string]int{}}
		}
		return lines[name]
	}
	for i := range spokes {
		at(spokes[i].Name).spoke = &spokes[i]
	}
	for _, s := range rules {
		rows := s.GetStatus().Clusters
		for j := range rows {
			l := at(string(rows[j].Name))
			if n := firingIn(&rows[j]); n != nil {
				l.firing = new(ptr.Deref(l.firing, 0) + *n)
			}
		}
	}
	for _, p := range notReady {
		l := at(string(p.row.Name))
		l.lagging++
		l.reasons[reasonOf(p)]++
	}
	rank := func(l *line) int {
		if l.spoke == nil {
			return 1
		}
		return spokeRank(l.spoke)
	}
	names := slices.SortedFunc(maps.Keys(lines), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(lines[a]), rank(lines[b])), cmp.Compare(lines[b].lagging, lines[a].lagging), cmp.Compare(a, b))
	})
	t := &output.Table{Columns: []string{"CLUSTER", "READY", "REASON", "RULES", "NOT READY", "FIRING", "WHY"}}
	for _, name := range names {
		l := lines[name]
		ready, reason, rulesThere := output.Text("-"), output.Text("-"), output.Text("-")
		if l.spoke != nil {
			c := condition(l.spoke.Status.Conditions, v1alpha1.ConditionReady)
			tone := tones[spokeRank(l.spoke)]
			ready, reason = output.Cell{Text: string(c.Status), Tone: tone}, output.Cell{Text: c.Reason, Tone: tone}
			rulesThere = count(l.spoke.Status.Rules)
			// A status does not list all rows of many spokes.
			if l.firing == nil && condition(l.spoke.Status.Conditions, v1alpha1.ConditionEvaluating).Status == metav1.ConditionTrue {
				l.firing = new(int32)
			}
		}
		t.Add(output.Text(name), ready, reason, rulesThere,
			output.Cell{Text: fmt.Sprint(l.lagging), Tone: toneIf(l.lagging > 0, output.Bad)},
			firingCell(l.firing), output.Text(cmp.Or(tally(l.reasons), "-")))
	}
	return t
}

// firingIn returns the number of firing alerts in a row, or nil if it is not known.
func firingIn(r *v1alpha1.ClusterStatus) *int32 {
	if !rollup.FiringKnown(r) {
		return nil
	}
	return &r.Firing
}

// firingCell shows a number of firing alerts, or - if it is not known.
func firingCell(n *int32) output.Cell {
	c := count(n)
	c.Tone = toneIf(ptr.Deref(n, 0) > 0, output.Warn)
	return c
}

// outdated reports whether a row is not ready because it is about an earlier version of the rule.
func outdated(p place) bool { return p.row.Reason == "" && !p.ready() }

// reasonOf returns the reason of a row, or Outdated.
func reasonOf(p place) string {
	if outdated(p) {
		return "Outdated"
	}
	return cmp.Or(p.row.Reason, "-")
}

// messageOf returns the message of a row, or that the row is outdated.
func messageOf(p place) string {
	if outdated(p) && p.row.Message == "" {
		return "this is the state of an earlier version of the rule; Rulefleet has not reported the present version in this spoke yet"
	}
	return p.row.Message
}

// notAccepted lists the rules that no row describes, because they are not valid or are placed nowhere.
func notAccepted(rules []rule.Source) *output.Table {
	t := &output.Table{Columns: []string{"NAMESPACE", "NAME", "REASON", "MESSAGE"}}
	for _, s := range rules {
		conditions := s.GetStatus().Conditions
		c := condition(conditions, v1alpha1.ConditionAccepted)
		if c.Status == metav1.ConditionTrue {
			if c = condition(conditions, v1alpha1.ConditionReady); c.Reason != v1alpha1.ReasonNoClusters {
				continue
			}
		}
		if c.Status == metav1.ConditionUnknown {
			c.Message = "the manager has not processed the " + s.SourceKind() + " yet"
		}
		t.Add(output.Text(s.GetNamespace()), output.Text(nameOf(s)), output.Cell{Text: c.Reason, Tone: output.Bad}, output.Text(c.Message))
	}
	return t
}

// nameOf returns the name of a source for a table, of a RulePack as KIND/NAME.
func nameOf(s rule.Source) string {
	if s.SourceKind() == v1alpha1.AlertRuleKind {
		return s.GetName()
	}
	return strings.ToLower(s.SourceKind()) + "/" + s.GetName()
}

func placesTable(places []place, wide bool, now time.Time) *output.Table {
	t := &output.Table{Columns: []string{"CLUSTER", "NAMESPACE", "NAME", "PHASE", "REASON", "FIRING", "SINCE"}}
	if wide {
		t.Columns = append(t.Columns, "PROMETHEUSRULE")
	}
	t.Columns = append(t.Columns, "MESSAGE")
	for _, p := range places {
		tone := output.Bad
		if p.ready() {
			tone = output.Good
		}
		cells := []output.Cell{
			output.Text(string(p.row.Name)), output.Text(p.rule.GetNamespace()), output.Text(nameOf(p.rule)),
			{Text: string(p.row.Phase), Tone: tone}, {Text: reasonOf(p), Tone: tone},
			firingCell(firingIn(p.row)), output.Text(age(p.row.LastTransitionTime, now)),
		}
		if wide {
			cells = append(cells, output.Text(cmp.Or(p.row.Rule, "-")))
		}
		t.Add(append(cells, output.Text(messageOf(p)))...)
	}
	return t
}

// conditionsTable lists conditions. All but Stalled are good if they are True.
func conditionsTable(conditions []metav1.Condition) *output.Table {
	t := &output.Table{Columns: []string{"CONDITION", "STATUS", "REASON", "MESSAGE"}}
	for _, c := range conditions {
		bad := metav1.ConditionFalse
		if c.Type == v1alpha1.ConditionStalled {
			bad = metav1.ConditionTrue
		}
		tone := output.Good
		switch c.Status {
		case bad:
			tone = output.Bad
		case metav1.ConditionUnknown:
			tone = output.Warn
		}
		t.Add(output.Text(c.Type), output.Cell{Text: string(c.Status), Tone: tone}, output.Text(c.Reason), output.Text(c.Message))
	}
	return t
}
