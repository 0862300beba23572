package validation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"
	"k8s.io/utils/ptr"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/delivery"
	"github.com/rulefleet/rulefleet/pkg/rule/gotemplate"
	"github.com/rulefleet/rulefleet/pkg/rule/promql"
)

const (
	// maxPackCost limits the cost of parsing all expressions of a RulePack: that takes two seconds at most, of the five
	// that the API server waits for the webhook.
	maxPackCost = 600_000
	maxPatches  = 256
	// maxGroupName limits the name of a group, in bytes. The names are part of the requests to Prometheus.
	maxGroupName = 253
)

// Pack returns the first error in a RulePack, or nil, as Rule does for an AlertRule.
func Pack(p *v1alpha1.RulePack, o Options) *rule.Invalid {
	if bad := checkPackSize(p); bad != nil {
		return bad
	}
	c := packChecker{
		checker: checker{budget: gotemplate.NewBudget(), cost: new(maxPackCost), evaluator: o.Evaluator, maxLabels: rule.MaxTexts, tenant: tenantOf(p, o), verbatim: true},
		pack:    p,
	}
	if bad := c.groups(); bad != nil {
		return bad
	}
	if bad := checkState(p.Spec.State); bad != nil {
		return bad
	}
	if bad := checkSelection("spec.placement", p.Spec.Placement); bad != nil {
		return bad
	}
	if bad := c.patches(); bad != nil {
		return bad
	}
	if bad := checkPlace(p); bad != nil {
		return bad
	}
	return checkTenancy(p, o)
}

// checkPackSize limits the number of rules of a RulePack, and its size.
func checkPackSize(p *v1alpha1.RulePack) *rule.Invalid {
	if rules := rule.RulesIn(p); rules > rule.MaxPackRules {
		return rule.NewInvalid("spec.groups", "the groups have %d rules in total; at most %d are allowed; split the RulePack", rules, rule.MaxPackRules)
	}
	data, err := json.Marshal(p.Spec)
	if err != nil { // impossible for strings, numbers and maps of them
		return rule.NewInvalid("spec", "%v", err)
	}
	if len(data) > rule.MaxPack {
		return rule.NewInvalid("spec", "the spec has %d bytes; at most %d are allowed; split the RulePack", len(data), rule.MaxPack)
	}
	return nil
}

// packChecker checks the groups and patches of a RulePack.
type packChecker struct {
	checker

	pack *v1alpha1.RulePack
}

// groups checks all groups and their rules.
func (c packChecker) groups() *rule.Invalid {
	if len(c.pack.Spec.Groups) == 0 {
		return rule.NewInvalid("spec.groups", "at least one group is required")
	}
	names := map[string]bool{}
	for i := range c.pack.Spec.Groups {
		g, path := &c.pack.Spec.Groups[i], fmt.Sprintf("spec.groups[%d]", i)
		if names[g.Name] {
			return rule.NewInvalid(path+".name", "duplicate value %q; use another name", clip.Excerpt(g.Name))
		}
		names[g.Name] = true
		if bad := c.group(g, path); bad != nil {
			return bad
		}
		for j := range g.Rules {
			if bad := c.rule(&g.Rules[j]); bad != nil {
				return delivery.InRule(bad, fmt.Sprintf("%s.rules[%d]", path, j), &g.Rules[j], g.Name)
			}
		}
	}
	return nil
}

// group checks the fields of a group.
func (c packChecker) group(g *monitoringv1.RuleGroup, path string) *rule.Invalid {
	switch {
	case g.Name == "":
		return rule.NewInvalid(path+".name", "a name is required")
	case len(g.Name) > maxGroupName:
		return rule.NewInvalid(path+".name", "longer than %d bytes; shorten it", maxGroupName)
	case !utf8.ValidString(g.Name):
		return rule.NewInvalid(path+".name", "not valid UTF-8")
	case g.Limit != nil && *g.Limit < 0:
		return rule.NewInvalid(path+".limit", "must not be negative")
	}
	switch strings.ToLower(g.PartialResponseStrategy) {
	case "", "abort", "warn":
	default:
		return rule.NewInvalid(path+".partial_response_strategy", "%q is not valid; use abort or warn", clip.Excerpt(g.PartialResponseStrategy))
	}
	interval := string(ptr.Deref(g.Interval, ""))
	if _, bad := checkDuration(path+".interval", interval); bad != nil {
		return bad
	}
	if _, bad := checkDuration(path+".query_offset", string(ptr.Deref(g.QueryOffset, ""))); bad != nil {
		return bad
	}
	if bad := c.tenant.checkInterval(path+".interval", interval); bad != nil {
		return bad
	}
	// Prometheus renders them as templates for alerts.
	part := v1alpha1.AlertSpec{Labels: delivery.AlertOf(&monitoringv1.Rule{Labels: g.Labels}).Labels}
	if !slices.ContainsFunc(g.Rules, func(r monitoringv1.Rule) bool { return r.Alert != "" }) {
		part = literal(part)
	}
	if bad := c.part(part); bad != nil {
		bad.Field = path + strings.TrimPrefix(bad.Field, "spec")
		return bad
	}
	return nil
}

// rule checks a rule as if its fields were those of an AlertRule.
func (c packChecker) rule(r *monitoringv1.Rule) *rule.Invalid {
	a := delivery.AlertOf(r)
	switch {
	case r.Alert != "" && r.Record != "":
		return rule.NewInvalid("spec", "alert and record are both set; set one of them")
	case r.Alert == "" && r.Record == "":
		return rule.NewInvalid("spec", "alert or record is required")
	case r.Alert != "":
		return c.alert(*a)
	case !model.LegacyValidation.IsValidMetricName(r.Record):
		return rule.NewInvalid("spec.record", "%q is not a valid name of a metric; use letters, digits, _ and :, not beginning with a digit", clip.Excerpt(r.Record))
	case r.For != nil, r.KeepFiringFor != nil, len(r.Annotations) > 0:
		return rule.NewInvalid("spec", "a recording rule cannot have for, keep_firing_for or annotations; remove them")
	}
	if bad := checkSize(a.Expr); bad != nil {
		return bad
	}
	return c.part(literal(*a))
}

// literal returns the part of a recording rule to check: Prometheus renders no templates in its labels.
func literal(a v1alpha1.AlertSpec) v1alpha1.AlertSpec {
	labels := make(map[string]v1alpha1.LabelText, len(a.Labels))
	for key, text := range a.Labels {
		labels[key] = v1alpha1.LabelText(strings.ReplaceAll(string(text), "{{", "{"))
	}
	a.Labels = labels
	return a
}

// patches checks every patch alone, and that what it changes can be changed.
func (c packChecker) patches() *rule.Invalid {
	patches := c.pack.Spec.Patches
	if len(patches) > maxPatches {
		return rule.NewInvalid("spec.patches", "has %d entries; at most %d are allowed; remove some", len(patches), maxPatches)
	}
	for i := range patches {
		if bad := c.patch(&patches[i]); bad != nil {
			bad.Field = fmt.Sprintf("spec.patches[%d]", i) + strings.TrimPrefix(bad.Field, "spec")
			return bad
		}
	}
	return nil
}

// patch checks a patch as if its fields were those of a spec.
func (c packChecker) patch(patch *v1alpha1.RulePatch) *rule.Invalid {
	if patch.Rule == "" {
		return rule.NewInvalid("spec.rule", "the name of a rule is required")
	}
	o := *delivery.OverrideOf(patch)
	if patch.Disabled == nil && len(setBy(o)) == 0 {
		return rule.NewInvalid("spec", "a patch must change something; set disabled, expr, for, keepFiringFor, severity, labels or annotations")
	}
	if bad := c.checker.override(v1alpha1.AlertSpec{}, o, patch.Disabled != nil); bad != nil {
		return bad
	}
	cost, _ := promql.Cost(o.Expr)
	*c.cost += cost // it counts for each rule that gets the expression
	for i := range c.pack.Spec.Groups {
		g := &c.pack.Spec.Groups[i]
		for j := range g.Rules {
			r := &g.Rules[j]
			if !delivery.Patches(patch, g.Name, r) {
				continue
			}
			if *c.cost -= cost; *c.cost < 0 {
				return rule.InvalidExpr(o.Expr, &rule.Fault{Pos: -1, Message: "the expressions of the rules and patches take too long to parse (the expression of a patch counts once for each rule that the patch matches); use fewer or simpler expressions, or patches that match fewer rules"})
			}
			if r.Record != "" && (o.For != "" || o.KeepFiringFor != "" || len(o.Annotations) > 0) {
				return rule.NewInvalid("spec", "rule %s of group %s is a recording rule and cannot have for, keepFiringFor or annotations; remove them from the patch", r.Record, clip.Excerpt(g.Name))
			}
			if bad := c.merged(*delivery.AlertOf(r), o); bad != nil {
				return bad
			}
		}
	}
	return nil
}

// PackWarnings is Warnings for a RulePack.
func PackWarnings(p *v1alpha1.RulePack, o Options) []string {
	w := &warnings{evaluator: o.Evaluator}
	for i := range p.Spec.Patches {
		patch, path := &p.Spec.Patches[i], fmt.Sprintf("spec.patches[%d]", i)
		if !patchesAny(p, patch) {
			w.add(path, "matches no rule (%s); correct it, or remove it", clip.Excerpt(describe(patch)))
		}
		w.forced(path, patch.Labels, p, o)
	}
	for i := range p.Spec.Groups {
		path := fmt.Sprintf("spec.groups[%d]", i)
		for j := range p.Spec.Groups[i].Rules {
			r, path := &p.Spec.Groups[i].Rules[j], fmt.Sprintf("%s.rules[%d]", path, j)
			labels := delivery.AlertOf(r).Labels
			if r.Alert != "" && o.ClusterLabel != "" {
				w.overwritten(path, labels, o.ClusterLabel, clusterLabelValue)
			}
			w.forced(path, labels, p, o)
		}
	}
	return w.sorted()
}

func patchesAny(p *v1alpha1.RulePack, patch *v1alpha1.RulePatch) bool {
	for i := range p.Spec.Groups {
		g := &p.Spec.Groups[i]
		for j := range g.Rules {
			if delivery.Patches(patch, g.Name, &g.Rules[j]) {
				return true
			}
		}
	}
	return false
}

// describe returns which rules a patch is about.
func describe(patch *v1alpha1.RulePatch) string {
	out := "rule " + patch.Rule
	if patch.Group != "" {
		out += " of group " + patch.Group
	}
	if len(patch.MatchLabels) > 0 {
		out += " with the labels in matchLabels"
	}
	return out
}
