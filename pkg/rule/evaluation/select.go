package evaluation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	promlabels "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
)

// TakesNone describes an evaluator without a ruleSelector, after its name.
func TakesNone(e *rule.Evaluator) string {
	return "selects no PrometheusRule, because it has no spec.ruleSelector, or one that Rulefleet can't use (see status.evaluators of the SpokeCluster);" +
		" set spec.ruleSelector of that " + e.Kind + ", for example to matchLabels app.kubernetes.io/managed-by: rulefleet"
}

// Selection lists the evaluators of a spoke that select a PrometheusRule, by their selectors.
type Selection struct {
	// By are the chosen evaluators that select it.
	By []*rule.Evaluator
	// Reason and Message explain why the selection is not sufficient, or why no evaluator selects it.
	// They are "" if there is no problem.
	Reason, Message string
	// All is true if each of the chosen evaluators counts.
	All bool
}

// Namespace is a namespace in a spoke.
type Namespace struct {
	Name   string
	Labels map[string]string
}

// Select determines the evaluators of a spoke that select a PrometheusRule as it is there, in the same
// way as prometheus-operator (pkg/operator/rules.go, selectPrometheusRules).
func Select(o *monitoringv1.PrometheusRule, ns Namespace, c rule.Cluster) Selection {
	chosen := c.Chosen()
	if len(chosen) == 0 {
		return noEvaluator(c)
	}
	s := Selection{All: len(c.EvaluatorRefs) > 0}
	var whys []string
	for _, r := range missing(c.Evaluators, c.EvaluatorRefs) {
		whys = append(whys, noSuch(r, c.Name))
	}
	_, open := demandedLabels(&c, o.Labels)
	for _, e := range chosen {
		if why := skips(e, o, ns, c, open); why != "" {
			whys = append(whys, e.String()+" "+why)
			continue
		}
		s.By = append(s.By, e)
	}
	if len(s.By) == 0 || s.All && len(whys) > 0 {
		s.Reason, s.Message = v1alpha1.ReasonNotSelected, strings.Join(whys, "; ")
	}
	return s
}

func noEvaluator(c rule.Cluster) Selection {
	switch {
	case len(c.Evaluators) == 0 && c.EvaluatorsUnknown != "":
		return Selection{Reason: v1alpha1.ReasonEvaluatorsUnknown, Message: c.EvaluatorsUnknown}
	case len(c.EvaluatorRefs) > 0:
		return Selection{Reason: v1alpha1.ReasonNotSelected, Message: noSuch(c.EvaluatorRefs[0], c.Name)}
	case len(candidates(&c)) > 0:
		return Selection{Reason: v1alpha1.ReasonAmbiguous, Message: "the spoke has several Prometheus or ThanosRuler objects, and none is chosen; see the condition EvaluatorsFound of SpokeCluster " + c.Name}
	case c.EvaluatorsUnknown != "":
		return Selection{Reason: v1alpha1.ReasonEvaluatorsUnknown, Message: c.EvaluatorsUnknown}
	}
	if i := slices.IndexFunc(c.Evaluators, func(e rule.Evaluator) bool { return !e.Missing }); i >= 0 {
		return Selection{Reason: v1alpha1.ReasonNotSelected, Message: c.Evaluators[i].String() + " " + TakesNone(&c.Evaluators[i])}
	}
	return Selection{Reason: v1alpha1.ReasonNoEvaluator, Message: "the spoke has no Prometheus or ThanosRuler object; Rulefleet can't verify whether anything evaluates the rule"}
}

// noSuch reports a named evaluator that does not exist.
func noSuch(r v1alpha1.EvaluatorReference, spoke string) string {
	return fmt.Sprintf("%s %s/%s not found in the spoke; correct spec.evaluatorRefs of SpokeCluster %s", r.Kind, r.Namespace, r.Name, spoke)
}

// skips explains why an evaluator does not select a PrometheusRule, and what to change. It returns ""
// if the evaluator selects it. open contains the causes why labels are not determined.
func skips(e *rule.Evaluator, o *monitoringv1.PrometheusRule, ns Namespace, c rule.Cluster, open map[string]undetermined) string {
	if e.RuleSelector == nil {
		return TakesNone(e)
	}
	if why := skipsNamespace(e, ns); why != "" {
		return why
	}
	selector, err := metav1.LabelSelectorAsSelector(e.RuleSelector)
	if err != nil {
		return fmt.Sprintf("has an invalid spec.ruleSelector; correct it in that %s: %v", e.Kind, err)
	}
	requirements, _ := selector.Requirements()
	unmet := unmet(requirements, o.Labels)
	if len(unmet) == 0 {
		return ""
	}
	words := make([]string, 0, len(unmet))
	for i := range unmet {
		words = append(words, unmet[i].String())
	}
	what := "has a ruleSelector that requires " + strings.Join(words, ", ")
	key := unmet[0].Key()
	switch value, has := o.Labels[key]; {
	case slices.Contains(rule.OwnLabels, key):
		return what + ", but the hub sets this label itself; change spec.ruleSelector of that " + e.Kind
	case has && c.RuleLabels[key] != value && slices.Contains(rule.ExtraLabels(o), key):
		return fmt.Sprintf("%s, but the PrometheusRule has %s=%s, which Rulefleet set for another Prometheus or an earlier selector; wait a minute. If it stays, set the label in spec.ruleLabels of SpokeCluster %s, or name the Prometheus to use in its spec.evaluatorRefs", what, key, value, c.Name)
	case has && c.RuleLabels[key] != value:
		return fmt.Sprintf("%s, but the PrometheusRule has %s=%s, which the hub did not set; remove that label from it in the spoke", what, key, value)
	case has:
		return fmt.Sprintf("%s, but the PrometheusRule has %s=%s; correct spec.ruleLabels of SpokeCluster %s%s, or name the Prometheus to use in its spec.evaluatorRefs",
			what, key, value, c.Name, setRuleLabels(unmet, c.Name))
	case open[key].why != "":
		return fmt.Sprintf("%s, and %s; %s of SpokeCluster %s", what, open[key].why, open[key].remedy(), c.Name)
	case len(open) > 0:
		return fmt.Sprintf("%s, but Rulefleet sets none of the required labels, because it cannot determine the value of another one, which condition EvaluatorsFound of SpokeCluster %[2]s names. Set that other label in spec.ruleLabels of the SpokeCluster, or name the Prometheus to use in its spec.evaluatorRefs", what, c.Name)
	}
	return fmt.Sprintf("%s; Rulefleet adds the label when it next writes the PrometheusRule. If this lasts, condition Ready of SpokeCluster %s says what prevents writes", what, c.Name)
}

// skipsNamespace explains why an evaluator selects nothing from a namespace.
func skipsNamespace(e *rule.Evaluator, ns Namespace) string {
	switch {
	case len(e.Namespaces) > 0 && !slices.Contains(e.Namespaces, ns.Name):
		return fmt.Sprintf("gets no PrometheusRules from namespace %s, because prometheus-operator runs with --namespaces=%s; add the namespace to that flag or, for an AlertRule or RulePack in Rulefleet's own namespace, set spec.ruleNamespace to a namespace in that list", ns.Name, strings.Join(e.Namespaces, ","))
	case slices.Contains(e.DeniedNamespaces, ns.Name):
		return fmt.Sprintf("gets no PrometheusRules from namespace %s, because prometheus-operator runs with --deny-namespaces=%s; remove the namespace from that flag or, for an AlertRule or RulePack in Rulefleet's own namespace, set spec.ruleNamespace to a namespace that is not in that list", ns.Name, strings.Join(e.DeniedNamespaces, ","))
	}
	if e.RuleNamespaceSelector == nil {
		if ns.Name == e.Namespace {
			return ""
		}
		return fmt.Sprintf("selects PrometheusRules only in its own namespace, and this one is in %s; set spec.ruleNamespaceSelector of that %s to select the namespaces that you need", ns.Name, e.Kind)
	}
	selector, err := metav1.LabelSelectorAsSelector(e.RuleNamespaceSelector)
	if err != nil {
		return fmt.Sprintf("has an invalid spec.ruleNamespaceSelector; correct it in that %s: %v", e.Kind, err)
	}
	requirements, _ := selector.Requirements()
	unmet := unmet(requirements, ns.Labels)
	if len(unmet) == 0 {
		return ""
	}
	return fmt.Sprintf("has a ruleNamespaceSelector that requires %s, which namespace %s does not meet; label the namespace in the spoke%s, or change the selector of that %s",
		toldLabels(unmet), ns.Name, labelNamespace(unmet, ns), e.Kind)
}

// setRuleLabels returns the command that sets the labels that requirements demand in spec.ruleLabels of a SpokeCluster, in
// parentheses, or "" if they do not demand one value each, or demand a label that is not for ruleLabels.
func setRuleLabels(requirements []labels.Requirement, spoke string) string {
	demanded, ok := demands(requirements)
	if !ok || slices.ContainsFunc(rule.OwnLabels, func(own string) bool { return demanded[own] != "" }) {
		return ""
	}
	content, err := json.Marshal(map[string]any{"spec": map[string]any{"ruleLabels": demanded}})
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (kubectl patch spoke %s --type=merge -p '%s')", spoke, content)
}

// labelNamespace returns the command that adds the labels that requirements demand to a namespace of a spoke, as
// setRuleLabels does. There is none for labels with a prefix or in use: in the spoke, the owner of a Prometheus decides what
// is demanded, and could have an administrator change what a label of Kubernetes or of a service mesh controls.
func labelNamespace(requirements []labels.Requirement, ns Namespace) string {
	demanded, ok := demands(requirements)
	for key := range demanded {
		_, inUse := ns.Labels[key]
		ok = ok && !inUse && !strings.Contains(key, "/") && !strings.HasPrefix(key, "istio")
	}
	if !ok {
		return ""
	}
	return fmt.Sprintf(" (kubectl --context CONTEXT label namespace %s %s)", ns.Name, strings.ReplaceAll(labels.FormatLabels(demanded), ",", " "))
}

// demands returns the labels that requirements demand. ok is false unless each of them demands one value.
func demands(requirements []labels.Requirement) (demanded map[string]string, ok bool) {
	demanded = map[string]string{}
	for i := range requirements {
		values := requirements[i].ValuesUnsorted()
		op := requirements[i].Operator()
		if len(values) != 1 || op != selection.In && op != selection.Equals && op != selection.DoubleEquals {
			return nil, false
		}
		if other, has := demanded[requirements[i].Key()]; has && other != values[0] {
			return nil, false
		}
		demanded[requirements[i].Key()] = values[0]
	}
	return demanded, true
}

func unmet(requirements []labels.Requirement, has map[string]string) []labels.Requirement {
	var out []labels.Requirement
	for i := range requirements {
		if !requirements[i].Matches(labels.Set(has)) {
			out = append(out, requirements[i])
		}
	}
	slices.SortFunc(out, func(a, b labels.Requirement) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// enforces reports whether an evaluator restricts a PrometheusRule to its namespace.
func enforces(e *rule.Evaluator, o *monitoringv1.PrometheusRule) bool {
	return e.EnforcedNamespaceLabel != "" &&
		!slices.Contains(e.ExcludedFromEnforcement, o.Namespace+"/*") &&
		!slices.Contains(e.ExcludedFromEnforcement, o.Namespace+"/"+o.Name)
}

// CheckEnforced reports a selected rule that an enforcedNamespaceLabel restricts to a namespace that
// it is not about, so that it would never fire. anywhere is true if the source is in the admin
// namespace and names no namespace. If one evaluator is enough and one leaves the rule unchanged, the
// others no longer count.
func (s *Selection) CheckEnforced(source rule.Source, o *monitoringv1.PrometheusRule, anywhere bool) {
	if s.Reason != "" {
		return
	}
	var free []*rule.Evaluator
	why, kind := "", ""
	for _, e := range s.By {
		about, other := "", false
		if enforces(e, o) {
			about, other = otherNamespace(source, o, e.EnforcedNamespaceLabel)
		}
		if !enforces(e, o) || !other && !anywhere {
			free = append(free, e)
			continue
		}
		if why != "" {
			continue
		}
		kind = e.Kind
		why = fmt.Sprintf("%s has an enforcedNamespaceLabel, which restricts the rule to %s=%q", e, e.EnforcedNamespaceLabel, o.Namespace)
		if other {
			why += fmt.Sprintf(", but the rule is about %q", about)
		}
	}
	switch {
	case why == "":
	case len(free) > 0 && !s.All:
		s.By = free
	default:
		s.Reason = v1alpha1.ReasonNamespaceEnforced
		remedy := "For an AlertRule or RulePack in Rulefleet's own namespace, set spec.ruleNamespace to the namespace that the rule is about."
		if source.InOperatorNamespace() {
			remedy = "Set spec.ruleNamespace of the AlertRuleTemplate to " + string(v1alpha1.InWorkloadNamespace) + "."
		}
		s.Message = why + ", so the rule does not see the series that it is about. " + remedy +
			" Or list the PrometheusRule in spec.excludedFromEnforcement of that " + kind + ": the rule can then read the metrics of all namespaces, so do this only if no tenant can write PrometheusRules in namespace " + strconv.Quote(o.Namespace)
	}
}

// otherNamespace reports whether a rule is about another namespace than that of its PrometheusRule,
// according to its workload or to the selectors of its expression.
func otherNamespace(source rule.Source, o *monitoringv1.PrometheusRule, label string) (about string, other bool) {
	if w := source.GetWorkloadRef(); w != nil && string(w.Namespace) != o.Namespace {
		return string(w.Namespace), true
	}
	for _, g := range o.Spec.Groups {
		for i := range g.Rules {
			tree, f := promql.Parse(g.Rules[i].Expr.String(), promql.Any)
			if f != nil {
				continue
			}
			parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
				v, ok := node.(*parser.VectorSelector)
				if !ok {
					return nil
				}
				for _, m := range v.LabelMatchers {
					if m.Name == label && (m.Type == promlabels.MatchEqual || m.Type == promlabels.MatchRegexp) && !m.Matches(o.Namespace) {
						about, other = m.Value, true
					}
				}
				return nil
			})
		}
	}
	return about, other
}
