package delivery

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/compat"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
)

// packGroups returns the groups of a RulePack for one spoke, with its patches. A group without a rule is left out.
func packGroups(p *v1alpha1.RulePack, c rule.Cluster, o Options) ([]monitoringv1.RuleGroup, error) {
	var patches []int
	for i := range p.Spec.Patches {
		// validation.Pack refuses an invalid selector.
		if picked, err := rule.Places(p.Spec.Patches[i].ClusterSelection, c); err == nil && picked {
			patches = append(patches, i)
		}
	}
	var out []monitoringv1.RuleGroup
	for i := range p.Spec.Groups {
		path := fmt.Sprintf("spec.groups[%d]", i)
		group := p.Spec.Groups[i].DeepCopy()
		if bad := compat.CheckGroup(group, path, c); bad != nil {
			return nil, bad
		}
		if ptr.Deref(group.Interval, "") == "" { // otherwise the file is not valid
			group.Interval = nil
		}
		if ptr.Deref(group.QueryOffset, "") == "" {
			group.QueryOffset = nil
		}
		rules := group.Rules
		group.Rules = nil
		for j := range rules {
			r, bad := packRule(p, &rules[j], group, patches, c, o)
			if bad != nil {
				return nil, InRule(bad, fmt.Sprintf("%s.rules[%d]", path, j), &rules[j], group.Name)
			}
			if r != nil {
				group.Rules = append(group.Rules, *r)
			}
		}
		if len(group.Rules) > 0 {
			out = append(out, *group)
		}
	}
	return out, nil
}

// packRule returns a rule of a RulePack for one spoke, or nil if a patch disables it there.
func packRule(p *v1alpha1.RulePack, r *monitoringv1.Rule, group *monitoringv1.RuleGroup, patches []int, c rule.Cluster, o Options) (*monitoringv1.Rule, *rule.Invalid) {
	m := rule.Unmerged(*AlertOf(r))
	for _, i := range patches {
		patch := &p.Spec.Patches[i]
		if !Patches(patch, group.Name, r) {
			continue
		}
		path := fmt.Sprintf("spec.patches[%d]", i)
		if patch.Disabled != nil && m.First("disabled", path) && *patch.Disabled {
			return nil, nil
		}
		m.Take(OverrideOf(patch), path)
	}
	if o.Tenancy.EnforceNamespace && o.tenant(p.Namespace) {
		expr, f := promql.Enforce(m.Alert.Expr, p.Namespace)
		if f != nil {
			return nil, m.Blame(rule.InvalidExpr(m.Alert.Expr, &f.Fault))
		}
		m.Alert.Expr = expr
	}
	if bad := compat.CheckChosen(m.Alert, c); bad != nil {
		return nil, m.Blame(bad)
	}
	out := r.DeepCopy()
	if m.Alert.Expr != r.Expr.String() { // otherwise a number stays a number
		out.Expr = intstr.FromString(m.Alert.Expr)
	}
	out.For, out.KeepFiringFor = duration[monitoringv1.Duration](m.Alert.For), duration[monitoringv1.NonEmptyDuration](m.Alert.KeepFiringFor)
	out.Annotations = plainMap(m.Alert.Annotations)
	if r.Alert != "" {
		out.Labels = ruleLabels(p, m.Alert, c, o)
		return out, nil
	}
	out.Labels = plainMap(m.Alert.Labels)
	if m.Alert.Severity != "" {
		out.Labels = rule.WithKeys(out.Labels, map[string]string{rule.SeverityLabel: string(m.Alert.Severity)}, []string{rule.SeverityLabel})
	}
	if p.Namespace != o.AdminNamespace {
		out.Labels = confined(out.Labels, group.Labels, TargetNamespace(p, c, o), o)
	}
	return out, nil
}

// confined returns the labels of a recording rule outside of the admin namespace, so that it can't forge a series of another
// namespace or spoke, or set a protected label.
func confined(labels, ofGroup map[string]string, namespace string, o Options) map[string]string {
	out := map[string]string{}
	maps.Copy(out, labels)
	for _, name := range append([]string{o.ClusterLabel}, o.Tenancy.ProtectedLabels...) {
		_, own := labels[name]
		if _, set := ofGroup[name]; own || set {
			out[name] = "" // no label
		}
	}
	out[rule.NamespaceLabel] = namespace
	return out
}

// Patches reports whether a patch is about a rule in a group, as they are in the RulePack.
func Patches(patch *v1alpha1.RulePatch, group string, r *monitoringv1.Rule) bool {
	if (patch.Group != "" && patch.Group != group) || patch.Rule != r.Alert+r.Record {
		return false
	}
	for key, value := range patch.MatchLabels {
		if has, ok := r.Labels[key]; !ok || has != string(value) {
			return false
		}
	}
	return true
}

// OverrideOf returns what a patch changes of its rules, as an override of an AlertRule.
func OverrideOf(patch *v1alpha1.RulePatch) *v1alpha1.Override {
	return &v1alpha1.Override{
		ClusterSelection: patch.ClusterSelection, Expr: patch.Expr, For: patch.For, KeepFiringFor: patch.KeepFiringFor,
		Severity: patch.Severity, Labels: patch.Labels, Annotations: patch.Annotations,
	}
}

// AlertOf returns a rule in the form of the alert of an AlertRule. The texts are copies.
func AlertOf(r *monitoringv1.Rule) *v1alpha1.AlertSpec {
	return &v1alpha1.AlertSpec{
		Alert: r.Alert, Expr: r.Expr.String(), For: v1alpha1.Duration(ptr.Deref(r.For, "")), KeepFiringFor: v1alpha1.Duration(ptr.Deref(r.KeepFiringFor, "")),
		Labels: texts(r.Labels), Annotations: texts(r.Annotations),
	}
}

func texts(in map[string]string) map[string]v1alpha1.LabelText {
	if in == nil {
		return nil
	}
	out := make(map[string]v1alpha1.LabelText, len(in))
	for key, text := range in {
		out[key] = v1alpha1.LabelText(text)
	}
	return out
}

// InRule returns an error in a rule of a RulePack, given as an error in an AlertRule: with the path of the rule, and its
// name and that of its group. An error in a patch keeps its path.
func InRule(bad *rule.Invalid, path string, r *monitoringv1.Rule, group string) *rule.Invalid {
	out := *bad
	switch {
	case strings.HasPrefix(bad.Field, "spec.patches["):
	case bad.Field == "spec.keepFiringFor":
		out.Field = path + ".keep_firing_for"
	default:
		out.Field = path + strings.TrimPrefix(bad.Field, "spec")
	}
	out.Message = clip.Marked(fmt.Sprintf("rule %s of group %s: %s", cmp.Or(r.Alert, r.Record, "without a name"), clip.Excerpt(group), bad.Message), rule.MaxMessage)
	return &out
}
