// Package ask has the commands that answer questions from the statuses on the hub, and the acknowledgement
// of held deletions. The tables are pure functions of the objects.
package ask

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/env"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
	"github.com/rulefleet/rulefleet/pkg/plugin/output"
)

// NewSpokes returns the command spokes.
func NewSpokes(e *env.Env) *cobra.Command {
	var selector string
	cmd := &cobra.Command{
		Use:     "spokes",
		Short:   "List the spokes, those with a problem first",
		Args:    cobra.NoArgs,
		Example: "  kubectl rulefleet spokes\n  kubectl rulefleet spokes -l env=prod -o wide",
	}
	cmd.Flags().StringVarP(&selector, "selector", "l", "", "list only spokes whose labels match, such as env=prod")
	p := e.Printer(cmd, output.Formats...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := p.Check(); err != nil {
			return err
		}
		matching, err := labels.Parse(selector)
		if err != nil {
			return exit.New(exit.Usage, "", "--selector: %w", err)
		}
		c, err := e.Hub.Connect()
		if err != nil {
			return err
		}
		var list v1alpha1.SpokeClusterList
		if err := c.List(cmd.Context(), &list, client.MatchingLabelsSelector{Selector: matching}); err != nil {
			return fmt.Errorf("listing the SpokeClusters: %w", err)
		}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SpokeClusterList"))
		worstSpokesFirst(list.Items)
		if !p.Tabular() {
			return p.Objects(named(&list))
		}
		if len(list.Items) == 0 {
			e.Say("No spokes found. Register one: kubectl rulefleet join NAME --spoke-context CONTEXT")
			return nil
		}
		return p.Table(spokesTable(list.Items, p.Wide(), e.Now()))
	}
	return cmd
}

// named sets the kinds of the items, which lists do not have.
func named[L client.ObjectList](list L) L {
	kind := list.GetObjectKind().GroupVersionKind()
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	_ = meta.EachListItem(list, func(o runtime.Object) error { // the function returns no error
		o.GetObjectKind().SetGroupVersionKind(kind)
		return nil
	})
	return list
}

const notReported = "NotReported"

// condition returns a condition, Unknown if there is none.
func condition(conditions []metav1.Condition, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: notReported}
}

// spokeRank is lower for a spoke that needs more attention.
func spokeRank(s *v1alpha1.SpokeCluster) int {
	ready := condition(s.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready.Status == metav1.ConditionFalse:
		return 0
	case ready.Status == metav1.ConditionUnknown:
		return 1
	case ready.Reason != v1alpha1.ReasonReady:
		return 2
	}
	return 3
}

func worstSpokesFirst(list []v1alpha1.SpokeCluster) {
	slices.SortFunc(list, func(a, b v1alpha1.SpokeCluster) int {
		return cmp.Or(cmp.Compare(spokeRank(&a), spokeRank(&b)), cmp.Compare(a.Name, b.Name))
	})
}

var tones = [...]output.Tone{output.Bad, output.Warn, output.Warn, output.Good}

func spokesTable(list []v1alpha1.SpokeCluster, wide bool, now time.Time) *output.Table {
	t := &output.Table{Columns: []string{"NAME", "READY", "REASON", "VERSION", "DEPLOYMENTS", "RULES", "HELD", "AGE"}}
	if wide {
		t.Columns = append(t.Columns, "CREDENTIAL", "PROMETHEUS", "LABELS", "MESSAGE")
	}
	for i := range list {
		s := &list[i]
		ready := condition(s.Status.Conditions, v1alpha1.ConditionReady)
		tone := tones[spokeRank(s)]
		held := int32(0)
		if p := s.Status.PendingDeletions; p != nil {
			held = p.Held
		}
		row := []output.Cell{
			output.Text(s.Name), {Text: string(ready.Status), Tone: tone}, {Text: ready.Reason, Tone: tone},
			output.Text(cmp.Or(s.Status.KubernetesVersion, "-")), count(s.Status.Deployments), count(s.Status.Rules),
			{Text: fmt.Sprint(held), Tone: toneIf(held > 0, output.Warn)}, output.Text(age(s.CreationTimestamp, now)),
		}
		if wide {
			row = append(row, credential(s, now), output.Text(chosen(s)), output.Text(cmp.Or(labels.FormatLabels(s.Labels), "-")), output.Text(ready.Message))
		}
		t.Add(row...)
	}
	return t
}

func toneIf(yes bool, tone output.Tone) output.Tone {
	if yes {
		return tone
	}
	return output.Plain
}

func count(n *int32) output.Cell {
	if n == nil {
		return output.Text("-")
	}
	return output.Textf("%d", *n)
}

func age(since metav1.Time, now time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return duration.HumanDuration(now.Sub(since.Time))
}

// credential says when the credential of a spoke expires.
func credential(s *v1alpha1.SpokeCluster, now time.Time) output.Cell {
	valid := condition(s.Status.Conditions, v1alpha1.ConditionCredentialValid)
	c := s.Status.Credential
	switch {
	case c != nil && now.Before(c.ExpirationTime.Time):
		return output.Cell{Text: "expires in " + duration.HumanDuration(c.ExpirationTime.Sub(now)), Tone: toneIf(valid.Reason == v1alpha1.ReasonExpiring || valid.Reason == v1alpha1.ReasonUnmanaged, output.Warn)}
	case c != nil:
		return output.Cell{Text: "expired", Tone: output.Bad}
	case valid.Status == metav1.ConditionTrue:
		return output.Text("does not expire")
	}
	return output.Text("-")
}

// chosen names the Prometheus and ThanosRulers that evaluate the rules of a spoke.
func chosen(s *v1alpha1.SpokeCluster) string {
	var out []string
	for i := range s.Status.Evaluators {
		if v := &s.Status.Evaluators[i]; v.Chosen {
			out = append(out, fmt.Sprintf("%s %s/%s", v.Kind, v.Namespace, v.Name))
		}
	}
	return cmp.Or(strings.Join(out, ", "), "-")
}

// tally formats counts by name, the largest first.
func tally(counts map[string]int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%d %s", counts[name], name)
	}
	return strings.Join(names, ", ")
}
