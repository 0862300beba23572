package placeholder

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// maxRendered limits, in characters, a text that is rendered for a spoke. No API limits it any more,
// and a short text can contain a placeholder a thousand times.
const maxRendered = 65536

// Stage is one of the two stages in which placeholders are replaced.
type Stage struct {
	// resolve returns the value of a placeholder, or keep to leave it to the next stage.
	resolve func(placeholder) (value string, keep bool, err error)
	// last is true if the escape $$( is also replaced. An earlier stage leaves it.
	last bool
	// MaxExpr and MaxText limit the result, in characters.
	maxExpr, maxText int
}

// Deployment is a Deployment in a spoke, with the values of its placeholders.
type Deployment struct {
	Cluster, Kind, Namespace, Name string
	Labels, Annotations            map[string]string
}

// ForDeployment replaces deployment.* with the Deployment's data, and keeps cluster.*.
func ForDeployment(d Deployment) Stage {
	owner := fmt.Sprintf("Deployment %s/%s in cluster %s", d.Namespace, d.Name, d.Cluster)
	resolve := func(p placeholder) (string, bool, error) {
		switch p.kind {
		case workloadKind:
			return d.Kind, false, nil
		case deploymentName, workloadName:
			return d.Name, false, nil
		case deploymentNamespace, workloadNamespace:
			return d.Namespace, false, nil
		case deploymentLabels:
			value, err := lookup(p, d.Labels, "label", owner)
			return value, false, err
		case deploymentAnnotations:
			value, err := lookup(p, d.Annotations, "annotation", owner)
			return value, false, err
		}
		return "", true, nil
	}
	return Stage{resolve: resolve, maxExpr: rule.MaxExpr, maxText: rule.MaxText}
}

// ForCluster replaces cluster.* with the spoke's data.
func ForCluster(name string, labels map[string]string) Stage {
	resolve := func(p placeholder) (string, bool, error) {
		switch p.kind {
		case clusterName:
			return name, false, nil
		case clusterLabels:
			value, err := lookup(p, labels, "label", "SpokeCluster "+name)
			return value, false, err
		}
		return "", false, errOnlyInTemplate(p)
	}
	return Stage{resolve: resolve, last: true, maxExpr: maxRendered, maxText: maxRendered}
}

// Sample replaces every placeholder with a plain word, to check the text around it.
func Sample(template bool) Stage {
	resolve := func(p placeholder) (string, bool, error) {
		if !template && p.kind != clusterName && p.kind != clusterLabels {
			return "", false, errOnlyInTemplate(p)
		}
		return "x", false, nil
	}
	return Stage{resolve: resolve, last: true, maxExpr: maxRendered, maxText: maxRendered}
}

func errOnlyInTemplate(p placeholder) error {
	return fmt.Errorf("%s is only available in an AlertRuleTemplate, because an AlertRule has no Deployment; write the value instead", p)
}

func lookup(p placeholder, values map[string]string, what, owner string) (string, error) {
	value, ok := values[p.key]
	if !ok {
		return "", fmt.Errorf("%s has no %s %q, which %s needs; add it, or don't select objects without it", owner, what, p.key, p)
	}
	return value, nil
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
