package placeholder

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/parameter"
)

// maxRendered limits, in characters, a text that is rendered for a spoke. No API limits it any more,
// and a short text can contain a placeholder a thousand times.
const maxRendered = 65536

// Stage is one of the two stages in which placeholders are replaced.
type Stage struct {
	// resolve returns the value of a placeholder, or keep to leave it to the next stage. It is not called for
	// parameters.
	resolve func(placeholder) (value string, keep bool, err error)
	// parameters are the values of the parameters. nil means that there are none, as in an AlertRule.
	parameters parameter.Values
	// last is true if the escape $$( is also replaced. An earlier stage leaves it.
	last bool
	// MaxExpr and MaxText limit the result, in characters.
	maxExpr, maxText int
}

// Workload is a workload in a spoke, with the values of its placeholders.
type Workload struct {
	Kind                     v1alpha1.WorkloadKind
	Cluster, Namespace, Name string
	Labels, Annotations      map[string]string
}

// ForWorkload replaces workload.* with the workload's data and params.* with the values, and keeps cluster.*.
func ForWorkload(w Workload, values parameter.Values) Stage {
	owner := fmt.Sprintf("%s %s/%s in cluster %s", w.Kind, w.Namespace, w.Name, w.Cluster)
	resolve := func(p placeholder) (string, bool, error) {
		if p.former && w.Kind != v1alpha1.DeploymentKind {
			return "", false, errFormer(p)
		}
		switch p.kind {
		case workloadKind:
			return string(w.Kind), false, nil
		case workloadName:
			return w.Name, false, nil
		case workloadNamespace:
			return w.Namespace, false, nil
		case workloadLabels:
			return lookup(p, w.Labels, "label", owner)
		case workloadAnnotations:
			return lookup(p, w.Annotations, "annotation", owner)
		}
		return "", true, nil
	}
	return Stage{resolve: resolve, parameters: known(values), maxExpr: rule.MaxExpr, maxText: rule.MaxText}
}

// ForCluster replaces cluster.* with the spoke's data.
func ForCluster(name string, labels map[string]string) Stage {
	resolve := func(p placeholder) (string, bool, error) {
		switch p.kind {
		case clusterName:
			return name, false, nil
		case clusterLabels:
			return lookup(p, labels, "label", "SpokeCluster "+name)
		}
		return "", false, errOnlyInTemplate(p)
	}
	return Stage{resolve: resolve, last: true, maxExpr: maxRendered, maxText: maxRendered}
}

// Sample replaces every placeholder of an AlertRule with a plain word, to check the text around it.
func Sample() Stage {
	resolve := func(p placeholder) (string, bool, error) {
		if p.kind != clusterName && p.kind != clusterLabels {
			return "", false, errOnlyInTemplate(p)
		}
		return "x", false, nil
	}
	return Stage{resolve: resolve, last: true, maxExpr: maxRendered, maxText: maxRendered}
}

// SampleTemplate is Sample for an AlertRuleTemplate, with values of its parameters.
func SampleTemplate(kinds []v1alpha1.WorkloadKind, values parameter.Values) Stage {
	deployments := !slices.ContainsFunc(kinds, func(kind v1alpha1.WorkloadKind) bool { return kind != v1alpha1.DeploymentKind })
	resolve := func(p placeholder) (string, bool, error) {
		if p.former && !deployments {
			return "", false, errFormer(p)
		}
		return "x", false, nil
	}
	return Stage{resolve: resolve, parameters: known(values), last: true, maxExpr: maxRendered, maxText: maxRendered}
}

// known returns values that are not nil.
func known(values parameter.Values) parameter.Values {
	if values == nil {
		return parameter.Values{}
	}
	return values
}

// parameter returns the value of a parameter.
func (st Stage) parameter(p placeholder) (parameter.Value, error) {
	v, found := st.parameters[p.key]
	switch {
	case found:
		return v, nil
	case st.parameters == nil:
		return v, errOnlyInTemplate(p)
	case len(st.parameters) == 0:
		return v, fmt.Errorf("%s is not defined; add the parameter to spec.parameters", p)
	}
	return v, fmt.Errorf("%s is not defined; use one of %s, or add the parameter to spec.parameters", p, strings.Join(st.parameters.Names(), ", "))
}

// value returns the value of a placeholder, that of a parameter in a form, or keep to leave it to the next stage.
func (st Stage) value(p placeholder, form func(parameter.Value) string) (value string, keep bool, err error) {
	if p.kind != params {
		return st.resolve(p)
	}
	v, err := st.parameter(p)
	return form(v), false, err
}

func errOnlyInTemplate(p placeholder) error {
	return fmt.Errorf("%s is only available in an AlertRuleTemplate, because an AlertRule has no workload or parameters to fill in; write the value instead", p)
}

func errFormer(p placeholder) error {
	return fmt.Errorf("%s is only available in a template whose spec.workloads.kinds is [Deployment]; write %s instead", p, p.current())
}

func lookup(p placeholder, values map[string]string, what, owner string) (value string, keep bool, err error) {
	value, ok := values[p.key]
	if !ok {
		return "", false, fmt.Errorf("%s has no %s %q, which %s needs; add it, or don't select objects without it", owner, what, p.key, p)
	}
	return value, false, nil
}

// finish writes the remaining pieces of a text.
func (st Stage) finish(pieces []piece) string {
	if st.last {
		return literally(pieces)
	}
	return join(pieces)
}

// Alert expands the texts of an alert.
func (st Stage) Alert(in v1alpha1.AlertSpec) (v1alpha1.AlertSpec, *rule.Invalid) {
	out := *in.DeepCopy()
	expr, f := st.expr(in.Expr)
	if f == nil && utf8.RuneCountInString(expr) > st.maxExpr {
		f = &rule.Fault{Pos: -1, Message: fmt.Sprintf("longer than %d characters after its placeholders are replaced; shorten it", st.maxExpr)}
	}
	if f != nil {
		return out, rule.InvalidExpr(in.Expr, f)
	}
	out.Expr = expr
	for _, m := range []struct {
		field string
		texts map[string]v1alpha1.LabelText
	}{{"spec.labels", out.Labels}, {"spec.annotations", out.Annotations}} {
		for _, key := range slices.Sorted(maps.Keys(m.texts)) {
			text, f := st.text(string(m.texts[key]))
			if f == nil && utf8.RuneCountInString(text) > st.maxText {
				f = &rule.Fault{Pos: -1, Message: fmt.Sprintf("longer than %d characters after its placeholders are replaced; shorten it", st.maxText)}
			}
			if f != nil {
				return out, rule.NewInvalid(rule.Keyed(m.field, key), "%s", f.Message)
			}
			m.texts[key] = v1alpha1.LabelText(text)
		}
	}
	return out, nil
}

// In is a fast check before the exact one. It counts escapes as well.
func In(s string) bool { return strings.Contains(s, "$(") }
