package templating

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/model"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/parameter"
)

// adjustments are the changes that the annotations of a workload request from one template. People
// who have no permissions on the hub write them in a spoke. Annotations that the template does not
// allow, and invalid ones, are ignored and reported.
type adjustments struct {
	template *v1alpha1.AlertRuleTemplate
	given    map[string]v1alpha1.LabelText // the labels of the template in the workload's spoke
	workload Workload
	reserved []string // labels that the annotations can't set

	off        bool
	severity   v1alpha1.Severity
	wait       v1alpha1.Duration
	labels     map[string]string
	parameters parameter.Values
	// ignored lists the ignored annotations, and why they were ignored.
	ignored []string
}

// content lists the adjustments that change the content of an alert.
var content = []v1alpha1.Adjustment{v1alpha1.AdjustSeverity, v1alpha1.AdjustFor, v1alpha1.AdjustLabels, v1alpha1.AdjustParams}

// The values of rulefleet.io/alerts.
const (
	alertsDisabled = "disabled"
	alertsEnabled  = "enabled"
)

// maxIgnored limits the number of reported mistakes of one workload.
const maxIgnored = 10

// adjust reads the annotations of a workload, as far as a template allows them. given are the labels of the template in
// the workload's spoke.
func adjust(t *v1alpha1.AlertRuleTemplate, given map[string]v1alpha1.LabelText, w Workload) adjustments {
	a := adjustments{template: t, given: given, workload: w, reserved: reserved(w.Kind)}
	for _, key := range slices.Sorted(maps.Keys(w.Annotations)) {
		name, ours := strings.CutPrefix(key, v1alpha1.AdjustmentPrefix)
		if !ours {
			continue
		}
		read, known := readers[v1alpha1.Adjustment(name)]
		switch {
		case !known:
			a.ignore(key, "unknown annotation; use alerts, disable, severity, for, labels or params")
		case len(w.Annotations[key]) > rule.MaxAdjustment:
			a.ignore(key, "longer than %d bytes; shorten it", rule.MaxAdjustment)
		case w.fault != nil && slices.Contains(content, v1alpha1.Adjustment(name)):
			a.ignore(key, "ignored, together with the other annotations that change the alert, because the AlertRule is not valid with them: %s", clip.Marked(w.fault.Error(), rule.MaxValue/4))
		case name != string(v1alpha1.AdjustParams) && !a.allowed(v1alpha1.Adjustment(name)):
			a.ignore(key, notAllowed, t.Name)
		default:
			read(&a, key, w.Annotations[key])
		}
	}
	return a
}

const notAllowed = "template %s does not allow it; remove the annotation, or extend spec.allow of the template"

// DefaultAllow is the default of spec.allow.
var DefaultAllow = []v1alpha1.Adjustment{v1alpha1.AdjustAlerts, v1alpha1.AdjustDisable, v1alpha1.AdjustFor}

// allowed reports whether a template allows an adjustment. A nil list is from a template that no API server
// has defaulted.
func (a *adjustments) allowed(name v1alpha1.Adjustment) bool {
	allow := a.template.Spec.Allow
	if allow == nil {
		allow = DefaultAllow
	}
	return slices.Contains(allow, name)
}

var readers = map[v1alpha1.Adjustment]func(a *adjustments, key, value string){
	v1alpha1.AdjustAlerts:   (*adjustments).readAlerts,
	v1alpha1.AdjustDisable:  (*adjustments).readDisable,
	v1alpha1.AdjustSeverity: (*adjustments).readSeverity,
	v1alpha1.AdjustFor:      (*adjustments).readFor,
	v1alpha1.AdjustLabels:   (*adjustments).readLabels,
	v1alpha1.AdjustParams:   (*adjustments).readParams,
}

func (a *adjustments) readAlerts(key, value string) {
	switch strings.TrimSpace(value) {
	case alertsDisabled:
		a.off = true
	case alertsEnabled:
	default:
		a.ignore(key, "%q is not valid; use %s or %s", clip.Excerpt(value), alertsDisabled, alertsEnabled)
	}
}

func (a *adjustments) readDisable(key, value string) {
	for _, name := range list(value) {
		if name == a.template.Name {
			a.off = true
		}
		a.checkTemplate(key, name)
	}
}

// checkTemplate reports the name of a template that does not exist.
func (a *adjustments) checkTemplate(key, name string) {
	if known := a.workload.Templates; known != nil && !slices.Contains(known, name) {
		a.ignore(key, "template %q does not exist; correct the name (on the hub: kubectl get alertruletemplates)", clip.Excerpt(name))
	}
}

func (a *adjustments) readSeverity(key, value string) {
	if !rule.SeverityPattern.MatchString(value) {
		a.ignore(key, "%q is not a valid severity; use at most 63 letters and digits, with -, _ or . between them", clip.Excerpt(value))
		return
	}
	a.severity = v1alpha1.Severity(value)
}

func (a *adjustments) readFor(key, value string) {
	if _, err := model.ParseDuration(value); err != nil || len(value) > rule.MaxDuration {
		a.ignore(key, "%q is not a Prometheus duration; use a form such as 30s, 5m or 1h30m", clip.Excerpt(value))
		return
	}
	a.wait = v1alpha1.Duration(value)
}

func (a *adjustments) readLabels(key, value string) {
	for _, pair := range list(value) {
		name, text, found := strings.Cut(pair, "=")
		name, text = strings.TrimSpace(name), strings.TrimSpace(text)
		_, replaces := a.given[name]
		switch {
		case !found || text == "":
			a.ignore(key, "%q is not a label; write it as name=value", clip.Excerpt(pair))
		case !model.LegacyValidation.IsValidLabelName(name):
			a.ignore(key, "invalid label name %q; use letters, digits and _, not beginning with a digit", clip.Excerpt(name))
		case name == rule.SeverityLabel:
			a.ignore(key, "set the severity with the annotation %s%s instead", v1alpha1.AdjustmentPrefix, v1alpha1.AdjustSeverity)
		case strings.HasPrefix(name, model.ReservedLabelPrefix), slices.Contains(a.reserved, name):
			a.ignore(key, "label %q is reserved; use another name", clip.Excerpt(name))
		case replaces:
			a.ignore(key, "label %q is set by template %s; remove it from the annotation, or from the template", clip.Excerpt(name), a.template.Name)
		case len(name) > rule.MaxValue, len(text) > rule.MaxValue:
			a.ignore(key, "label %q is longer than %d bytes; shorten its name or its value", clip.Excerpt(name), rule.MaxValue)
		case len(a.labels)+len(a.given)+len(a.reserved) >= rule.MaxTexts:
			a.ignore(key, "label %q is not added, because an alert has at most %d labels; remove some from the annotation or the template", clip.Excerpt(name), rule.MaxTexts)
		default:
			if a.labels == nil {
				a.labels = map[string]string{}
			}
			a.labels[name] = text
		}
	}
}

// readParams reads values of parameters, such as threshold=5,down/window=10m. A value without the name of a template is
// for every template that has the parameter, and one with the name takes precedence.
func (a *adjustments) readParams(key, value string) {
	all, own := parameter.Values{}, parameter.Values{}
	for _, pair := range list(value) {
		name, text, found := strings.Cut(pair, "=")
		name, text = strings.TrimSpace(name), strings.TrimSpace(text)
		template, bare, addressed := strings.Cut(name, "/")
		to := own
		if !addressed {
			template, bare, to = a.template.Name, name, all
		}
		switch p, has := parameter.Find(a.template.Spec.Parameters, bare); {
		case !found || text == "":
			a.ignore(key, "%q is not a value of a parameter; write it as name=value", clip.Excerpt(pair))
		case template != a.template.Name:
			a.checkTemplate(key, template)
		case !has && addressed:
			a.ignore(key, "template %s has no parameter %q; correct the name", template, clip.Excerpt(bare))
		case !has:
			a.checkParameter(key, bare)
		case !a.allowed(v1alpha1.AdjustParams):
			a.ignore(key, notAllowed, a.template.Name)
			return
		default:
			a.setParameter(key, p, text, to)
		}
	}
	maps.Copy(all, own)
	a.parameters = all
}

// checkParameter reports the name of a parameter that no template has.
func (a *adjustments) checkParameter(key, name string) {
	if w := a.workload; w.Templates != nil && !slices.Contains(w.Parameters, name) {
		a.ignore(key, "no template has a parameter %q; correct the name", clip.Excerpt(name))
	}
}

func (a *adjustments) setParameter(key string, p v1alpha1.Parameter, text string, to parameter.Values) {
	v, err := parameter.Within(p, v1alpha1.ParameterValue(text))
	if err != nil {
		a.ignore(key, "parameter %s: %v", p.Name, err)
		return
	}
	if _, twice := to[p.Name]; twice {
		a.ignore(key, "parameter %s is set twice; remove one of the values", p.Name)
		return
	}
	to[p.Name] = v
}

// reserved returns the labels that identify the alert and its workload.
func reserved(kind v1alpha1.WorkloadKind) []string {
	return []string{model.AlertNameLabel, rule.NamespaceLabel, rule.WorkloadLabel(kind)}
}

// list splits a comma-separated list.
func list(s string) []string {
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

func (a *adjustments) ignore(key, format string, args ...any) {
	if len(a.ignored) < maxIgnored {
		a.ignored = append(a.ignored, clip.Excerpt(key)+": "+fmt.Sprintf(format, args...))
	}
}

// apply changes an alert as the annotations request.
func (a *adjustments) apply(alert *v1alpha1.AlertSpec) {
	if a.severity != "" {
		alert.Severity = a.severity
		delete(alert.Labels, rule.SeverityLabel)
	}
	if a.wait != "" {
		alert.For = a.wait
	}
	for name, text := range a.labels {
		alert.Labels[name] = storedText(text)
	}
}
