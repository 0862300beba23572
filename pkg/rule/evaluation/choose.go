package evaluation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/gotemplate"
)

// ApplyRefs applies spec.evaluatorRefs to a list of evaluators: the named ones are chosen, and no others.
// If none is named, the recorded choice stays. It returns the named evaluators that don't exist.
func ApplyRefs(all []rule.Evaluator, refs []v1alpha1.EvaluatorReference) []v1alpha1.EvaluatorReference {
	for i := range all {
		if e := &all[i]; len(refs) > 0 {
			e.Chosen = there(e) && slices.ContainsFunc(refs, func(r v1alpha1.EvaluatorReference) bool { return isNamed(e, r) })
		}
	}
	return missing(all, refs)
}

// there reports whether the spoke has an evaluator, or had it until recently.
func there(e *rule.Evaluator) bool { return !e.Missing || e.Chosen }

// missing returns the named evaluators that don't exist.
func missing(all []rule.Evaluator, refs []v1alpha1.EvaluatorReference) []v1alpha1.EvaluatorReference {
	var out []v1alpha1.EvaluatorReference
	for _, r := range refs {
		if !slices.ContainsFunc(all, func(e rule.Evaluator) bool { return there(&e) && isNamed(&e, r) }) {
			out = append(out, r)
		}
	}
	return out
}

func isNamed(e *rule.Evaluator, r v1alpha1.EvaluatorReference) bool {
	return sameObject(r, v1alpha1.EvaluatorReference{Kind: e.Kind, Namespace: v1alpha1.NamespaceName(e.Namespace), Name: e.Name})
}

// sameObject compares references without their URLs.
func sameObject(a, b v1alpha1.EvaluatorReference) bool {
	a.URL, b.URL = "", ""
	return a == b
}

// DemandedLabels returns the labels that a PrometheusRule needs for the ruleSelectors of all chosen
// evaluators, in addition to the labels that it has. open is true if no single set of labels satisfies them.
// It then returns none.
func DemandedLabels(c *rule.Cluster, has map[string]string) (needed map[string]string, open bool) {
	needed, why := demandedLabels(c, has)
	return needed, len(why) > 0
}

// demandedLabels returns the labels that a PrometheusRule needs for the ruleSelectors of all chosen
// evaluators, in addition to the labels that it has. It returns none unless exactly one set of labels
// satisfies them. Otherwise why contains the cause for each label.
func demandedLabels(c *rule.Cluster, has map[string]string) (needed map[string]string, why map[string]undetermined) {
	demands := map[string][]labels.Requirement{}
	why = map[string]undetermined{}
	for _, e := range c.Chosen() {
		selector, err := metav1.LabelSelectorAsSelector(e.RuleSelector)
		if err != nil {
			continue // it selects nothing, whatever the labels are
		}
		requirements, _ := selector.Requirements()
		for _, r := range requirements {
			demands[r.Key()] = append(demands[r.Key()], r)
		}
	}
	needed = map[string]string{}
	for key, requirements := range demands {
		if _, ok := has[key]; ok {
			continue // Select checks whether its value satisfies them
		}
		value, needs, problem := solve(key, requirements)
		switch {
		case problem.why != "":
			why[key] = problem
		case needs:
			needed[key] = value
		}
	}
	if len(why) > 0 {
		return nil, why
	}
	return needed, nil
}

// WithOwn returns labels together with those that a hub sets itself, of all kinds of sources, so that demandedLabels
// demands none of these.
func WithOwn(labels map[string]string) map[string]string {
	out := make(map[string]string, len(labels)+len(rule.OwnLabels))
	for _, key := range rule.OwnLabels {
		out[key] = ""
	}
	maps.Copy(out, labels)
	return out
}

// LabelProblem explains why no single set of labels makes the chosen evaluators of a spoke select a
// PrometheusRule, and what to do. It returns "" if there is one.
func LabelProblem(c rule.Cluster) string {
	_, why := demandedLabels(&c, WithOwn(c.RuleLabels))
	if len(why) == 0 {
		return ""
	}
	whys := make([]string, 0, len(why))
	contradiction := false
	for _, u := range why {
		whys = append(whys, u.why)
		contradiction = contradiction || u.contradiction
	}
	slices.Sort(whys)
	return fmt.Sprintf("%s; %s: kubectl edit spoke %s",
		strings.Join(whys, "; "), undetermined{contradiction: contradiction}.remedy(), c.Name)
}

// undetermined says why the selectors of the chosen evaluators do not determine the value of a label.
type undetermined struct {
	why string
	// contradiction means that no value satisfies the selectors.
	contradiction bool
}

// remedy says what to do. It ends with a field of the SpokeCluster.
func (u undetermined) remedy() string {
	if u.contradiction {
		return "change one of the selectors, or name only one of these Prometheus in spec.evaluatorRefs"
	}
	return "set the label in spec.ruleLabels, or name the Prometheus to use in spec.evaluatorRefs"
}

// solve finds the one value of a label that satisfies all requirements. A label that is not needed is
// left out.
func solve(key string, requirements []labels.Requirement) (value string, needed bool, problem undetermined) {
	var allowed sets.Set[string] // nil allows any value
	denied := sets.New[string]()
	absent := false
	for i := range requirements {
		r := &requirements[i]
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			needed = true
			values := sets.New(r.ValuesUnsorted()...)
			if allowed != nil {
				values = values.Intersection(allowed)
			}
			allowed = values
		case selection.Exists:
			needed = true
		case selection.NotIn, selection.NotEquals:
			denied.Insert(r.ValuesUnsorted()...)
		case selection.DoesNotExist:
			absent = true
		default:
			return "", false, undetermined{why: fmt.Sprintf("Rulefleet cannot compute a label for the requirement %s of a ruleSelector", r)}
		}
	}
	candidates := allowed.Difference(denied)
	switch {
	case !needed:
		return "", false, undetermined{}
	case absent, allowed != nil && len(candidates) == 0:
		return "", false, undetermined{why: "the ruleSelectors of the chosen Prometheus contradict each other for label " + key + " (" + toldLabels(requirements) + ")", contradiction: true}
	case len(candidates) == 1:
		value, _ = candidates.PopAny()
		return value, true, undetermined{}
	case allowed == nil:
		return "", false, undetermined{why: "the ruleSelectors of the chosen Prometheus allow any value of label " + key}
	}
	return "", false, undetermined{why: fmt.Sprintf("the ruleSelectors of the chosen Prometheus allow several values of label %s (%s)", key, strings.Join(sets.List(candidates), ", "))}
}

// toldLabels returns requirements in the notation of Kubernetes.
func toldLabels(requirements []labels.Requirement) string {
	words := make([]string, 0, len(requirements))
	for i := range requirements {
		words = append(words, requirements[i].String())
	}
	slices.Sort(words)
	return strings.Join(slices.Compact(words), " and ")
}

// OnlyNamespace returns the namespace of the chosen evaluators, if they have the same one.
func OnlyNamespace(c *rule.Cluster) string {
	namespace := ""
	for _, e := range c.Chosen() {
		if namespace != "" && namespace != e.Namespace {
			return ""
		}
		namespace = e.Namespace
	}
	return namespace
}

// Marked returns the selector of the alerting rules that have the cluster label of a spoke. The rules
// of this hub are among them. It returns "" if rules get no such label.
func Marked(c rule.Cluster, label string) string {
	if label == "" {
		return ""
	}
	return "{" + label + "=" + strconv.Quote(gotemplate.Literal(LabelValue(&c))) + "}"
}

// LabelValue returns the value of the cluster label in a spoke: the external label of the chosen
// evaluators if they have the same value, or else the name of the spoke.
func LabelValue(c *rule.Cluster) string {
	value := ""
	for _, e := range c.Chosen() {
		switch {
		case e.ClusterLabel == "": // it has none
		case value != "" && value != e.ClusterLabel:
			return c.Name
		default:
			value = e.ClusterLabel
		}
	}
	return cmp.Or(value, c.Name)
}

// candidates are the evaluators that could be chosen.
func candidates(c *rule.Cluster) []*rule.Evaluator {
	var out []*rule.Evaluator
	for i := range c.Evaluators {
		if e := &c.Evaluators[i]; e.RuleSelector != nil && !e.Missing {
			out = append(out, e)
		}
	}
	return out
}

// Undecided reports whether the choice of an evaluator is open: there are several and none is chosen,
// a named one does not exist, or the chosen one has disappeared. In the meantime, existing rules in
// the spoke stay unchanged.
func Undecided(c *rule.Cluster) bool {
	if len(c.EvaluatorRefs) > 0 {
		return len(missing(c.Evaluators, c.EvaluatorRefs)) > 0
	}
	gone := slices.ContainsFunc(c.Evaluators, func(e rule.Evaluator) bool { return e.Missing })
	return len(c.Chosen()) == 0 && (gone || len(candidates(c)) > 0)
}

// Wants reports whether the ruleSelector of a chosen evaluator requires a label and accepts this
// value.
func Wants(c *rule.Cluster, key, value string) bool {
	return slices.ContainsFunc(c.Chosen(), func(e *rule.Evaluator) bool {
		selector, err := metav1.LabelSelectorAsSelector(e.RuleSelector)
		if err != nil {
			return false
		}
		requirements, _ := selector.Requirements()
		asks := false
		for i := range requirements {
			r := &requirements[i]
			if r.Key() != key {
				continue
			}
			if !r.Matches(labels.Set{key: value}) {
				return false
			}
			asks = asks || !r.Matches(labels.Set{})
		}
		return asks
	})
}
