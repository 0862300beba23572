package rule

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// ValidateOptions are the settings of the hub that an AlertRule's validity depends on.
type ValidateOptions struct {
	// AdminNamespace is the operator's own namespace.
	AdminNamespace string
	// GeneratedNamespace is the hub's namespace for generated AlertRules.
	GeneratedNamespace string
}

// Limits of the API that Validate knows too: it also runs where no API server has
// checked them, and they bound its work.
const (
	maxAlertName = 253
	maxTexts     = 64
	maxTemplate  = validation.LabelValueMaxLength
)

var severityPattern = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9_.-]{0,61}[a-zA-Z0-9])?$`)

// Validate returns what is wrong with an AlertRule, or nil. Webhook, controller and
// CLI use this one.
func Validate(r *v1alpha1.AlertRule, o ValidateOptions) *Invalid {
	if bad := checkAlert(r.Spec.AlertSpec, sampleStage(false), maxTexts); bad != nil {
		return bad
	}
	if bad := checkSelection("spec.placement", r.Spec.Placement); bad != nil {
		return bad
	}
	return checkTenancy(r, o)
}

// ValidateTemplate returns what is wrong with an AlertRuleTemplate, or nil.
func ValidateTemplate(t *v1alpha1.AlertRuleTemplate) *Invalid {
	if len(t.Name) > maxTemplate {
		return invalid("metadata.name", "a template's name has at most %d characters: it is the value of a label", maxTemplate)
	}
	// Two labels are added to every alert that it makes.
	if bad := checkAlert(t.Spec.AlertSpec, sampleStage(true), maxTexts-2); bad != nil {
		return bad
	}
	if t.Spec.Clusters != nil {
		if bad := checkSelection("spec.clusters", *t.Spec.Clusters); bad != nil {
			return bad
		}
	}
	if t.Spec.Namespaces != nil {
		if bad := checkSelector("spec.namespaces.selector", t.Spec.Namespaces.Selector); bad != nil {
			return bad
		}
	}
	return checkSelector("spec.workloads", t.Spec.Workloads)
}

// checkAlert checks an alert as it was written, and as it is with its placeholders
// replaced.
func checkAlert(a v1alpha1.AlertSpec, st stage, maxLabels int) *Invalid {
	if bad := checkFields(a); bad != nil {
		return bad
	}
	if bad := checkTexts("spec.labels", a.Labels, maxLabels); bad != nil {
		return bad
	}
	if bad := checkTexts("spec.annotations", a.Annotations, maxTexts); bad != nil {
		return bad
	}
	if bad := checkSize(a.Expr); bad != nil {
		return bad
	}
	expanded, bad := st.alert(a)
	if bad != nil {
		return bad
	}
	if bad := checkExpr(expanded.Expr); bad != nil {
		// The positions of what was written are of more use than those of what it became.
		if own := checkExpr(a.Expr); own != nil {
			return own
		}
		return bad
	}
	if bad := checkGoTemplates("spec.labels", expanded.Labels); bad != nil {
		return bad
	}
	return checkGoTemplates("spec.annotations", expanded.Annotations)
}

// checkFields checks what holds no placeholders.
func checkFields(a v1alpha1.AlertSpec) *Invalid {
	if bad := checkAlertName(a.Alert); bad != nil {
		return bad
	}
	if a.For != "" {
		if _, err := model.ParseDuration(string(a.For)); err != nil {
			return invalid("spec.for", "%q is no duration as Prometheus writes it, such as 30s, 5m or 1h30m: %v", excerpt(string(a.For)), err)
		}
	}
	if a.Severity != "" && !severityPattern.MatchString(string(a.Severity)) {
		return invalid("spec.severity", "%q is not valid: letters, digits, and -, _ or . between them, 63 at most", excerpt(string(a.Severity)))
	}
	if _, twice := a.Labels[severityLabel]; twice && a.Severity != "" {
		return invalid("spec.severity", "give the severity in severity or in labels.severity, not in both")
	}
	return nil
}

func checkAlertName(name string) *Invalid {
	const field = "spec.alert"
	switch {
	case name == "":
		return invalid(field, "an alert needs a name")
	case utf8.RuneCountInString(name) > maxAlertName:
		return invalid(field, "an alert's name has at most %d characters", maxAlertName)
	case !utf8.ValidString(name):
		return invalid(field, "the alert's name is not valid UTF-8")
	case hasPlaceholder(name):
		return invalid(field, "an alert's name holds no placeholder, so that routes can match it: put what differs into labels")
	}
	return nil
}

// checkTexts checks the names of labels or annotations, and their size. Prometheus
// before version 3 takes only the names of old.
func checkTexts(field string, texts map[string]v1alpha1.LabelText, limit int) *Invalid {
	if len(texts) > limit {
		return invalid(field, "there are more than %d of them", limit)
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		switch {
		case !model.LegacyValidation.IsValidLabelName(name):
			return invalid(keyed(field, name), "the name is not valid: letters, digits and _, with no digit first")
		case field != "spec.labels":
		case strings.HasPrefix(name, model.ReservedLabelPrefix):
			return invalid(keyed(field, name), "names that begin with %s are Prometheus' own", model.ReservedLabelPrefix)
		case name == model.AlertNameLabel:
			return invalid(keyed(field, name), "the label %s is the alert's name: set spec.alert", model.AlertNameLabel)
		}
		switch text := string(texts[name]); {
		case utf8.RuneCountInString(text) > maxText:
			return invalid(keyed(field, name), "it has more than %d characters", maxText)
		case !utf8.ValidString(text):
			return invalid(keyed(field, name), "it is not valid UTF-8")
		}
	}
	return nil
}

func checkSelection(field string, s v1alpha1.ClusterSelection) *Invalid {
	if len(s.Names) == 0 && s.Selector == nil {
		return invalid(field, "name the clusters in names, or select them by label in selector; an empty selector ({}) is every cluster")
	}
	for i, name := range s.Names {
		if errs := validation.IsDNS1123Subdomain(string(name)); len(errs) > 0 {
			return invalid(fmt.Sprintf("%s.names[%d]", field, i), "%q is no name of a cluster: %s", excerpt(string(name)), errs[0])
		}
	}
	return checkSelector(field+".selector", s.Selector)
}

func checkSelector(field string, s *metav1.LabelSelector) *Invalid {
	if _, err := selectorOf(s); err != nil {
		return invalid(field, "%v", err)
	}
	return nil
}

// checkGenerated keeps what is in the namespace of generated AlertRules to what
// templates make: one rule, for a workload, where the workload is. People who may edit
// those could write anywhere otherwise.
func checkGenerated(r *v1alpha1.AlertRule, o ValidateOptions) *Invalid {
	w, p := r.Spec.WorkloadRef, r.Spec.Placement
	var field string
	switch {
	case w == nil:
		field = "spec.workloadRef"
	case p.Selector != nil || len(p.Names) != 1 || p.Names[0] != w.Cluster:
		field = "spec.placement"
	case r.Spec.RuleNamespace != "" && r.Spec.RuleNamespace != w.Namespace:
		field = "spec.ruleNamespace"
	default:
		return nil
	}
	bad := invalid(field, "namespace %s holds what templates make: an AlertRule for a workload, placed on its cluster and in its namespace; write others in the operator's namespace (%s)",
		r.Namespace, o.AdminNamespace)
	bad.Reason = v1alpha1.ReasonNamespaceNotAllowed
	return bad
}

// checkTenancy lets an AlertRule of any other namespace than the operator's two
// write to the spokes' namespace of the same name alone.
func checkTenancy(r *v1alpha1.AlertRule, o ValidateOptions) *Invalid {
	if r.Namespace != "" && r.Namespace == o.AdminNamespace {
		return nil
	}
	if r.Namespace != "" && r.Namespace == o.GeneratedNamespace {
		return checkGenerated(r, o)
	}
	target := TargetNamespace(r, RenderOptions{AdminNamespace: o.AdminNamespace})
	if target == r.Namespace {
		return nil
	}
	field := "spec.ruleNamespace"
	if r.Spec.RuleNamespace == "" {
		field = "spec.workloadRef.namespace"
	}
	bad := invalid(field, "an AlertRule in namespace %s may write to the spokes' namespace %s alone, not to %s: move it to that namespace of the hub, or to the operator's (%s)",
		r.Namespace, r.Namespace, target, o.AdminNamespace)
	bad.Reason = v1alpha1.ReasonNamespaceNotAllowed
	return bad
}
