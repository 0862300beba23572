package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/placeholder"
)

// checkSize checks the size of an expression as it is written.
func checkSize(expr string) *rule.Invalid {
	switch {
	case expr == "":
		return rule.InvalidExpr(expr, &rule.Fault{Pos: -1, Message: "an expression is required"})
	case utf8.RuneCountInString(expr) > rule.MaxExpr:
		return rule.InvalidExpr(expr, &rule.Fault{Pos: -1, Message: fmt.Sprintf("longer than %d characters; shorten it", rule.MaxExpr)})
	}
	return nil
}

// Limits of the API that Rule checks, too, because it also runs on objects that no API server has
// checked, and because they limit its work.
const (
	maxAlertName      = 253
	maxOverrides      = 64
	maxWorkloadName   = 253
	maxClusterNames   = 1000
	maxNamespaceNames = 256
	maxTemplate       = validation.LabelValueMaxLength
)

// checkFields checks the fields without placeholders.
func checkFields(a v1alpha1.AlertSpec) *rule.Invalid {
	for _, d := range []struct {
		field string
		value v1alpha1.Duration
	}{{"spec.for", a.For}, {"spec.keepFiringFor", a.KeepFiringFor}, {"spec.interval", a.Interval}} {
		length, bad := checkDuration(d.field, string(d.value))
		switch {
		case bad != nil:
			return bad
		case d.field == "spec.interval" && d.value != "" && length == 0:
			return rule.NewInvalid(d.field, "the interval must not be zero; leave it out to use the interval of Prometheus")
		}
	}
	if a.Severity != "" && !rule.SeverityPattern.MatchString(string(a.Severity)) {
		return rule.NewInvalid("spec.severity", "invalid severity; use letters and digits, with -, _ or . between them")
	}
	if _, twice := a.Labels[rule.SeverityLabel]; twice && a.Severity != "" {
		return rule.NewInvalid("spec.severity", "the severity is set twice; set either severity or labels.severity")
	}
	return nil
}

// checkDuration parses a duration as Prometheus does. An empty one is zero.
func checkDuration(field, s string) (time.Duration, *rule.Invalid) {
	if s == "" {
		return 0, nil
	}
	if len(s) > rule.MaxDuration {
		return 0, rule.NewInvalid(field, "%q is longer than %d characters; shorten it", clip.Excerpt(s), rule.MaxDuration)
	}
	d, err := model.ParseDuration(s)
	switch {
	case err == nil:
		return time.Duration(d), nil
	case strings.Contains(err.Error(), "out of range"):
		return 0, rule.NewInvalid(field, "%q is out of range; Prometheus accepts up to 292y", s)
	}
	return 0, rule.NewInvalid(field, "not a Prometheus duration; use a form such as 30s, 5m or 1h30m")
}

func checkState(s v1alpha1.State) *rule.Invalid {
	switch s {
	case "", v1alpha1.Enabled, v1alpha1.Disabled:
		return nil
	}
	return rule.NewInvalid("spec.state", "%q is not valid; use %s or %s", clip.Excerpt(string(s)), v1alpha1.Enabled, v1alpha1.Disabled)
}

func checkAlertName(name string) *rule.Invalid {
	const field = "spec.alert"
	switch {
	case name == "":
		return rule.NewInvalid(field, "a name is required")
	case utf8.RuneCountInString(name) > maxAlertName:
		return rule.NewInvalid(field, "the name of an alert has at most %d characters; shorten it", maxAlertName)
	case !utf8.ValidString(name):
		return rule.NewInvalid(field, "the name of the alert is not valid UTF-8")
	case placeholder.In(name):
		return rule.NewInvalid(field, "the name of an alert must not contain placeholders, because Alertmanager routes match it; put values that differ by cluster into labels")
	}
	return nil
}

// checkTexts checks the names of labels or annotations, and their size. Prometheus before version 3
// only accepts legacy names.
func checkTexts(field string, texts map[string]v1alpha1.LabelText, limit int) *rule.Invalid {
	if len(texts) > limit {
		return rule.NewInvalid(field, "has %d entries; at most %d are allowed; remove some", len(texts), limit)
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		switch {
		case !model.LegacyValidation.IsValidLabelName(name):
			return rule.NewInvalid(rule.Keyed(field, name), "invalid name; use letters, digits and _, not beginning with a digit")
		case len(name) > rule.MaxLabelName:
			return rule.NewInvalid(rule.Keyed(field, name), "the name is longer than %d characters; shorten it", rule.MaxLabelName)
		case field != "spec.labels":
		case strings.HasPrefix(name, model.ReservedLabelPrefix):
			return rule.NewInvalid(rule.Keyed(field, name), "names that begin with %s are reserved for Prometheus; use another name", model.ReservedLabelPrefix)
		case name == model.AlertNameLabel:
			return rule.NewInvalid(rule.Keyed(field, name), "label %s holds the name of the alert; set spec.alert instead", model.AlertNameLabel)
		}
		switch text := string(texts[name]); {
		case utf8.RuneCountInString(text) > rule.MaxText:
			return rule.NewInvalid(rule.Keyed(field, name), "longer than %d characters; shorten it", rule.MaxText)
		case !utf8.ValidString(text):
			return rule.NewInvalid(rule.Keyed(field, name), "the text is not valid UTF-8")
		}
	}
	return nil
}

func checkSelection(field string, s v1alpha1.ClusterSelection) *rule.Invalid {
	if len(s.Names) == 0 && s.Selector == nil {
		return rule.NewInvalid(field, "no cluster is selected; list names, or set a label selector; an empty selector ({}) selects every cluster")
	}
	if bad := checkList(field+".names", s.Names, maxClusterNames, checkCluster); bad != nil {
		return bad
	}
	if bad := checkSelector(field+".selector", s.Selector); bad != nil || s.Exclude == nil {
		return bad
	}
	if len(s.Exclude.Names) == 0 && s.Exclude.Selector == nil {
		return rule.NewInvalid(field+".exclude", "no cluster is excluded; list names, set a label selector, or remove exclude")
	}
	if bad := checkList(field+".exclude.names", s.Exclude.Names, maxClusterNames, checkCluster); bad != nil {
		return bad
	}
	return checkSelector(field+".exclude.selector", s.Exclude.Selector)
}

func checkNamespaces(s *v1alpha1.NamespaceSelection) *rule.Invalid {
	if s == nil {
		return nil
	}
	if bad := checkList("spec.namespaces.names", s.Names, maxNamespaceNames, checkNamespace); bad != nil {
		return bad
	}
	if bad := checkList("spec.namespaces.exclude", s.Exclude, maxNamespaceNames, checkNamespace); bad != nil {
		return bad
	}
	return checkSelector("spec.namespaces.selector", s.Selector)
}

// checkList checks a set of names.
func checkList[S ~string](field string, names []S, limit int, check func(field, name string) *rule.Invalid) *rule.Invalid {
	if len(names) > limit {
		return rule.NewInvalid(field, "has %d entries; at most %d are allowed; remove some", len(names), limit)
	}
	seen := make(map[S]bool, len(names))
	for i, name := range names {
		at := fmt.Sprintf("%s[%d]", field, i)
		if bad := check(at, string(name)); bad != nil {
			return bad
		}
		if seen[name] {
			return rule.NewInvalid(at, "duplicate value %q; remove one of them", name)
		}
		seen[name] = true
	}
	return nil
}

func checkCluster(field, name string) *rule.Invalid {
	if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
		return rule.NewInvalid(field, "%q is not a valid cluster name: %s", clip.Excerpt(name), errs[0])
	}
	return nil
}

func checkNamespace(field, name string) *rule.Invalid {
	if errs := validation.IsDNS1123Label(name); len(errs) > 0 {
		return rule.NewInvalid(field, "%q is not a valid namespace name: %s", clip.Excerpt(name), errs[0])
	}
	return nil
}

func checkSelector(field string, s *metav1.LabelSelector) *rule.Invalid {
	if _, err := rule.SelectorOf(s); err != nil {
		return rule.NewInvalid(field, "%v", err)
	}
	return nil
}

func checkKind(field, kind string) *rule.Invalid {
	if !slices.Contains(rule.WorkloadKinds(), v1alpha1.WorkloadKind(kind)) {
		return rule.NewInvalid(field, "unsupported kind %q; use Deployment, StatefulSet, DaemonSet or CronJob", clip.Excerpt(kind))
	}
	return nil
}

// checkWorkloads checks which workloads a template selects.
func checkWorkloads(s *v1alpha1.WorkloadSelection) *rule.Invalid {
	if s == nil {
		return nil
	}
	if bad := checkList("spec.workloads.kinds", s.Kinds, len(s.Kinds), checkKind); bad != nil {
		return bad
	}
	if bad := checkSelector("spec.workloads.selector", s.Selector); bad != nil || s.Exclude == nil {
		return bad
	}
	if len(s.Exclude.Names) == 0 && s.Exclude.Selector == nil {
		return rule.NewInvalid("spec.workloads.exclude", "no workload is excluded; list names, set a label selector, or remove exclude")
	}
	return checkSelector("spec.workloads.exclude.selector", s.Exclude.Selector)
}

func checkRuleNamespace(field string, from v1alpha1.TemplateRuleNamespace) *rule.Invalid {
	switch from {
	case "", v1alpha1.InWorkloadNamespace, v1alpha1.InOperatorNamespace:
		return nil
	}
	return rule.NewInvalid(field, "%q is not valid; use %s or %s", clip.Excerpt(string(from)), v1alpha1.InWorkloadNamespace, v1alpha1.InOperatorNamespace)
}

// checkPlace checks the namespace of a rule in the spokes, and its workload.
func checkPlace(s rule.Source) *rule.Invalid {
	if s.GetRuleNamespace() != "" {
		if bad := checkNamespace("spec.ruleNamespace", string(s.GetRuleNamespace())); bad != nil {
			return bad
		}
	}
	if r, ok := s.(*v1alpha1.AlertRule); ok {
		if bad := checkRuleNamespace("spec.ruleNamespaceFrom", r.Spec.RuleNamespaceFrom); bad != nil {
			return bad
		}
	}
	w := s.GetWorkloadRef()
	if w == nil {
		return nil
	}
	if bad := checkCluster("spec.workloadRef.cluster", string(w.Cluster)); bad != nil {
		return bad
	}
	if bad := checkKind("spec.workloadRef.kind", string(w.Kind)); bad != nil {
		return bad
	}
	if bad := checkNamespace("spec.workloadRef.namespace", string(w.Namespace)); bad != nil {
		return bad
	}
	if n := utf8.RuneCountInString(w.Name); n == 0 || n > maxWorkloadName {
		return rule.NewInvalid("spec.workloadRef.name", "the name has %d characters; 1 to %d are allowed", n, maxWorkloadName)
	}
	return nil
}
