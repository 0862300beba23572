package schema

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/validation"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// ruleID names a rule in CEL: where it stands, and its message.
type ruleID struct{ kind, at, message string }

// The rules that stand in several places.
const (
	invalidName = "invalid name; use letters, digits and _, not beginning with a digit"
	reserved    = "names that begin with __ are reserved for Prometheus; use another name"
	alertname   = "label alertname holds the name of the alert; set spec.alert instead"
	noCluster   = "no cluster is selected; list names, or set a label selector; an empty selector ({}) selects every cluster"
	noTenant    = "no namespace is selected; list names, or set a label selector; an empty list of names selects none, and an empty selector ({}) selects all namespaces except platform namespaces"
	placeholder = "the name of an alert must not contain placeholders, because Alertmanager routes match it; put values that differ by cluster into labels"
	zero        = "the interval must not be zero; leave it out to use the interval of Prometheus"
	twice       = "the severity is set twice; set either severity or labels.severity"
	longLabel   = "the name of a label is longer than 1024 characters; shorten it"
	longNote    = "the name of an annotation is longer than 1024 characters; shorten it"
	fixedRef    = "workloadRef is immutable; delete the AlertRule and create another one"
	fixedPlace  = "placement is immutable when workloadRef is set, because the rule belongs to the cluster of its workload; delete the AlertRule and create another one or, if a template generated it, change spec.placement of the template"
	duration    = "not a Prometheus duration; use a form such as 30s, 5m or 1h30m"
	severity    = "invalid severity; use letters and digits, with -, _ or . between them"
	labelKey    = "invalid label name; use at most 63 letters, digits, -, _ and ., with an optional DNS prefix and /"
	labelValue  = "invalid label value; use letters and digits, with -, _ or . between them"
	reservedKey = "app.kubernetes.io/managed-by and labels of rulefleet.io are reserved for Rulefleet; remove them"
	address     = "not the address of a Prometheus; use a form such as https://prometheus.eu-1.example.com, without credentials, query and fragment"
	nothing     = "an override must change something; set state, expr, for, keepFiringFor, interval, severity, labels or annotations"
	noChange    = "a patch must change something; set disabled, expr, for, keepFiringFor, severity, labels or annotations"
	changeless  = "an override must change something; set state, expr, for, keepFiringFor, interval, severity, labels, annotations or parameters"
	renamed     = "clusters was renamed; move its content to spec.placement"
	moved       = "matchLabels and matchExpressions were moved; move them to spec.workloads.selector"
	noWorkload  = "no workload is excluded; list names, set a label selector, or remove exclude"
	parameter   = "not a number, duration or quantity; use a form such as 0.99, 5m or 2Gi"
	tooMany     = "a template has at most 62 labels, because two labels that identify the workload are added; remove some"
	noExclusion = "no cluster is excluded; list names, set a label selector, or remove exclude"
)

// change puts a value at a path of the full object.
type change struct {
	at    path
	value any
}

// breach is what breaks a rule.
type breach struct {
	ruleID
	field   string // where the API server is to find fault
	change  change
	update  bool   // the object exists, and is changed
	message string // what is said, where that is more than the rule's message
}

var override, patch, workloads = path{"spec", "overrides", 0}, path{"spec", "patches", 0}, path{"spec", "workloads"}

func breaches() []breach {
	longName := strings.Repeat("n", 64)
	out := []breach{
		{ruleID: ruleID{"AlertRuleTemplate", "", "the name of a template has at most 63 characters, because it is used as a label value; shorten it"},
			field: "<nil>", change: change{path{"metadata", "name"}, longName}},
		{ruleID: ruleID{"AlertRuleTemplate", "spec", tooMany},
			field: "spec.labels", change: change{path{"spec", "labels"}, manyLabels(63)}},
		{ruleID: ruleID{"AlertRuleTemplate", "spec", renamed}, field: "spec.clusters", change: change{path{"spec", "clusters"}, map[string]any{"names": []any{"eu-1"}}}},
		{ruleID: ruleID{"AlertRuleTemplate", "spec", moved}, field: "spec.workloads", change: change{workloads.to("matchLabels"), map[string]any{"app": "web"}}},
		{ruleID: ruleID{"AlertRuleTemplate", "spec", moved}, field: "spec.workloads", change: change{workloads.to("matchExpressions"), []any{map[string]any{"key": "app", "operator": "Exists"}}}},
		{ruleID: ruleID{"AlertRuleTemplate", "spec.workloads.exclude", noWorkload}, field: "spec.workloads.exclude", change: change{workloads.to("exclude"), map[string]any{}}},
		{ruleID: ruleID{"AlertRuleTemplate", "spec.placement", noCluster}, field: "spec.placement", change: change{path{"spec", "placement"}, map[string]any{}}},
		{ruleID: ruleID{"AlertRuleTemplate", "spec.overrides[]", changeless}, field: "spec.overrides[0]", change: change{override, map[string]any{"names": []any{"eu-1"}}}},
		{ruleID: ruleID{"SpokeCluster", "spec.tenants", noTenant}, field: "spec.tenants", change: change{path{"spec", "tenants"}, map[string]any{}}},
		{ruleID: ruleID{"AlertRule", "spec.placement", noCluster}, field: "spec.placement", change: change{path{"spec", "placement"}, map[string]any{}}},
		{ruleID: ruleID{"AlertRule", "spec.overrides[]", nothing}, field: "spec.overrides[0]", change: change{override, map[string]any{"names": []any{"eu-1"}}}},
	}
	out = append(out,
		breach{ruleID: ruleID{"RulePack", "spec.placement", noCluster}, field: "spec.placement", change: change{path{"spec", "placement"}, map[string]any{}}},
		breach{ruleID: ruleID{"RulePack", "spec.placement.exclude", noExclusion}, field: "spec.placement.exclude", change: change{path{"spec", "placement", "exclude"}, map[string]any{}}},
		breach{ruleID: ruleID{"RulePack", "spec.patches[]", noCluster}, field: "spec.patches[0]", change: change{patch, map[string]any{"rule": "x", "for": "1m"}}},
		breach{ruleID: ruleID{"RulePack", "spec.patches[].exclude", noExclusion}, field: "spec.patches[0].exclude", change: change{patch.to("exclude"), map[string]any{}}},
		breach{ruleID: ruleID{"RulePack", "spec.patches[]", noChange}, field: "spec.patches[0]", change: change{patch, map[string]any{"rule": "x", "names": []any{"eu-1"}}}},
		breach{ruleID: ruleID{"RulePack", "spec.patches[]", twice}, field: "spec.patches[0].severity", change: change{patch.to("labels").to("severity"), "page"}},
	)
	out = append(out, badTexts("RulePack", "spec.patches[]", patch, "for", duration, "5 min")...)
	out = append(out, badTexts("RulePack", "spec.patches[]", patch, "keepFiringFor", duration, "5 min")...)
	out = append(out, badTexts("RulePack", "spec.patches[]", patch, "severity", severity, "_")...)
	for _, kind := range []string{"AlertRule", "AlertRuleTemplate"} {
		out = append(out,
			breach{ruleID: ruleID{kind, "spec", twice}, field: "spec.severity", change: change{path{"spec", "labels", "severity"}, "page"}},
			breach{ruleID: ruleID{kind, "spec.overrides[]", twice}, field: "spec.overrides[0].severity", change: change{override.to("labels").to("severity"), "page"}},
			breach{ruleID: ruleID{kind, "spec.overrides[]", noCluster}, field: "spec.overrides[0]", change: change{override, map[string]any{"for": "1m"}}},
			breach{ruleID: ruleID{kind, "spec.overrides[].interval", zero}, field: "spec.overrides[0].interval", change: change{override.to("interval"), "0s"}},
			breach{ruleID: ruleID{kind, "spec.overrides[].exclude", noExclusion}, field: "spec.overrides[0].exclude", change: change{override.to("exclude"), map[string]any{}}},
			breach{ruleID: ruleID{kind, "spec.placement.exclude", noExclusion}, field: "spec.placement.exclude", change: change{path{"spec", "placement", "exclude"}, map[string]any{}}},
			breach{ruleID: ruleID{kind, "spec.alert", placeholder}, field: "spec.alert", change: change{path{"spec", "alert"}, "Down-$(cluster.name)"}},
		)
		for _, none := range []string{"0", "0s", "00m0s", "0h00m0ms"} {
			out = append(out, breach{ruleID: ruleID{kind, "spec.interval", zero}, field: "spec.interval", change: change{path{"spec", "interval"}, none}})
		}
		out = append(out, badNames(kind, "spec", path{"spec"})...)
		for _, field := range []string{"for", "keepFiringFor", "interval"} {
			out = append(out, badTexts(kind, "spec", path{"spec"}, field, duration, "5 min", "5", "m", "-5m", "1.5h", "5s1m", "5M")...)
		}
		out = append(out, badTexts(kind, "spec", path{"spec"}, "severity", severity, "very bad", "-a", "a.", "é")...)
		for _, field := range []string{"for", "keepFiringFor", "interval"} {
			out = append(out, badTexts(kind, "spec.overrides[]", override, field, duration, "5 min", "1m ")...)
		}
		out = append(out, badTexts(kind, "spec.overrides[]", override, "severity", severity, "_")...)
	}
	for _, field := range []string{"default", "minimum", "maximum"} {
		out = append(out, badTexts("AlertRuleTemplate", "spec.parameters[]", path{"spec", "parameters", 0}, field, parameter, "NaN", "Inf", "5 m", "1 or vector(1)", "5%", "-", "1e-", "$(x)")...)
	}
	for _, value := range []string{"NaN", "1)", "1e+"} {
		out = append(out, breach{ruleID: ruleID{"AlertRuleTemplate", "spec.overrides[].parameters{}", parameter},
			field: "spec.overrides[0].parameters[threshold]", change: change{override.to("parameters").to("threshold"), value}})
	}
	ruleLabels := path{"spec", "ruleLabels"}
	for key, says := range map[string]string{
		"": labelKey, "-a": labelKey, "a b": labelKey, "A.io/a": labelKey, strings.Repeat("k", 64): labelKey,
		"app.kubernetes.io/managed-by": reservedKey, "rulefleet.io/hub": reservedKey,
	} {
		b := breach{ruleID: ruleID{"SpokeCluster", "spec.ruleLabels", says}, field: "spec.ruleLabels", change: change{ruleLabels.to(key), "x"}}
		if says == labelKey {
			b.message = key + ": " + says
		}
		out = append(out, b)
	}
	for _, value := range []string{"a b", "-a", "a-"} {
		out = append(out, breach{ruleID: ruleID{"SpokeCluster", "spec.ruleLabels", labelValue}, field: "spec.ruleLabels", change: change{ruleLabels.to("release"), value},
			message: "release: " + labelValue})
	}
	out = append(out, badTexts("SpokeCluster", "spec.evaluatorRefs[]", path{"spec", "evaluatorRefs", 0}, "url", address,
		"prometheus.example.com:9090", "ftp://prometheus.example.com", "https://", "https://me:secret@prometheus.example.com", "https://a/?b", "https://a/#b", "https://a b")...)
	out = append(out, badNames("AlertRule", "spec.overrides[]", override)...)
	return append(out, transitions()...)
}

// badTexts are values that a field can't have.
func badTexts(kind, at string, p path, field, message string, values ...string) []breach {
	var out []breach
	for _, value := range values {
		out = append(out, breach{ruleID: ruleID{kind, at + "." + field, message}, field: p.to(field).String(), change: change{p.to(field), value}})
	}
	return out
}

// badNames are names of labels and annotations that can't be.
func badNames(kind, at string, p path) []breach {
	var out []breach
	add := func(texts, message, name, says string) {
		out = append(out, breach{ruleID: ruleID{kind, at + "." + texts, message}, field: p.to(texts).String(),
			change: change{p.to(texts).to(name), "x"}, message: says})
	}
	for _, name := range []string{"1st", "my-team", "app.kubernetes.io/name", "", "a b", "tým", "team\n", strings.Repeat("n", 1000) + "-"} {
		says := name + ": " + invalidName
		if strings.Contains(name, "\n") { // the API server takes no such message, and falls back
			says = invalidName
		}
		add("labels", invalidName, name, says)
		add("annotations", invalidName, name, says)
	}
	add("labels", longLabel, strings.Repeat("n", 1025), longLabel)
	add("annotations", longNote, strings.Repeat("n", 1025), longNote)
	for _, name := range []string{"__name__", "__", "__x"} {
		add("labels", reserved, name, name+": "+reserved)
	}
	add("labels", alertname, "alertname", alertname)
	return out
}

// transitions are changes of an AlertRule that has a workloadRef.
func transitions() []breach {
	var out []breach
	for _, c := range []struct {
		message, field string
		change         change
	}{
		{fixedRef, "spec.workloadRef", change{path{"spec", "workloadRef"}, absent{}}},
		{fixedRef, "spec.workloadRef", change{path{"spec", "workloadRef", "name"}, "api"}},
		{fixedRef, "spec.workloadRef", change{path{"spec", "workloadRef", "namespace"}, "office"}},
		{fixedRef, "spec.workloadRef", change{path{"spec", "workloadRef", "cluster"}, "us-1"}},
		{fixedPlace, "spec.placement", change{path{"spec", "placement", "names"}, []any{"us-1"}}},
		{fixedPlace, "spec.placement", change{path{"spec", "placement", "names"}, []any{"eu-1", "us-1"}}},
		{fixedPlace, "spec.placement", change{path{"spec", "placement", "names"}, absent{}}},
		{fixedPlace, "spec.placement", change{path{"spec", "placement", "selector"}, absent{}}},
		{fixedPlace, "spec.placement", change{path{"spec", "placement", "exclude"}, absent{}}},
		{fixedPlace, "spec.placement", change{path{"spec", "placement", "selector", "matchLabels", "env"}, "dev"}},
	} {
		out = append(out, breach{ruleID: ruleID{"AlertRule", "spec", c.message}, field: c.field, change: c.change, update: true})
	}
	return out
}

func manyLabels(n int) map[string]any {
	out := map[string]any{}
	for i := range n {
		out[fmt.Sprintf("k%d", i)] = "v"
	}
	return out
}

// TestRules breaks every rule in CEL of every CRD: the API server has to refuse it,
// with the rule's message, at the field that it is about.
func TestRules(t *testing.T) {
	untested := map[ruleID]bool{}
	for _, c := range crds(t) {
		collect(c.kind, "", c.schema, untested)
	}
	if len(untested) == 0 {
		t.Fatal("there are no rules")
	}
	t.Logf("%d rules, %d breaches", len(untested), len(breaches()))
	rules := maps.Clone(untested)
	stored := create(t, full(t, "AlertRule"))
	for _, b := range breaches() {
		if !rules[b.ruleID] {
			t.Errorf("there is no rule %+v", b.ruleID)
		}
		delete(untested, b.ruleID)
		for how, err := range b.send(t, stored) {
			t.Run(strings.TrimSpace(fmt.Sprintf("%s/%s/%s %.20v", b.kind, b.change.at, how, b.change.value)), func(t *testing.T) {
				if err == nil {
					t.Fatal("it is not refused")
				}
				b.check(t, causes(t, err))
			})
		}
	}
	for id := range untested {
		t.Errorf("no case breaks the rule %+v: add one", id)
	}
}

// collect finds the rules of a schema.
func collect(kind, at string, s *apiextensionsv1.JSONSchemaProps, into map[ruleID]bool) {
	for _, v := range s.XValidations {
		into[ruleID{kind, at, v.Message}] = true
	}
	for name, property := range s.Properties {
		if at := strings.TrimPrefix(at+"."+name, "."); !slices.Contains(former, at) {
			collect(kind, at, &property, into)
		}
	}
	if s.Items != nil {
		collect(kind, at+"[]", s.Items.Schema, into)
	}
	if s.AdditionalProperties != nil {
		collect(kind, at+"{}", s.AdditionalProperties.Schema, into)
	}
}

// send sends a breach in every way in which people would.
func (b breach) send(t *testing.T, stored *unstructured.Unstructured) map[string]error {
	t.Helper()
	if !b.update {
		o, _ := with(full(t, b.kind).Object, b.change.at, b.change.value).(map[string]any)
		return map[string]error{"create": dryCreate(t, &unstructured.Unstructured{Object: o})}
	}
	o, _ := with(stored.Object, b.change.at, b.change.value).(map[string]any)
	changed := &unstructured.Unstructured{Object: o}
	patch := func() error {
		return hub.Client.Patch(t.Context(), changed.DeepCopy(), client.MergeFrom(stored), client.DryRunAll)
	}
	return map[string]error{
		"update": hub.Client.Update(t.Context(), changed.DeepCopy(), client.DryRunAll),
		"patch":  patch(),
	}
}

// check reports whether the rule, and no other, was found to be broken.
func (b breach) check(t *testing.T, found []metav1.StatusCause) {
	t.Helper()
	if len(found) != 1 {
		t.Errorf("there is not one cause: %+v", found)
	}
	says := b.message
	if says == "" {
		says = b.ruleID.message
	}
	if !slices.ContainsFunc(found, func(c metav1.StatusCause) bool {
		return c.Field == b.field && strings.HasSuffix(c.Message, ": "+says)
	}) {
		t.Errorf("no cause says, at %s, %q: %+v", b.field, says, found)
	}
}

// own are rules that Rulefleet's validator tells in other words, or in another order.
var own = map[string]string{
	tooMany:   "it tells how many there are",
	parameter: "it tells the type of the parameter",
	longLabel: "it may say first that a name is not valid",
	longNote:  "it may say first that a name is not valid",
}

// TestWording has Rulefleet's validator look at what breaks a rule in CEL: where it
// checks the same, it has to say the same.
func TestWording(t *testing.T) {
	same := 0
	for _, b := range breaches() {
		if b.update || own[b.ruleID.message] != "" || b.kind == "SpokeCluster" { // which the API server alone checks
			continue
		}
		o, _ := with(full(t, b.kind).Object, b.change.at, b.change.value).(map[string]any)
		if bad := validate(t, &unstructured.Unstructured{Object: o}); bad != nil {
			same++
			if bad.Message != b.ruleID.message {
				t.Errorf("%s %s: the API says %q, and the validator, at %s: %q", b.kind, b.change.at, b.ruleID.message, bad.Field, bad.Message)
			}
		}
	}
	if same == 0 {
		t.Fatal("the validator checks nothing of this")
	}
	t.Logf("the validator says the same of %d breaches", same)
}

// hubOptions is as it is on the hub of these tests.
var hubOptions = validation.Options{AdminNamespace: fleet.Namespace, GeneratedNamespace: fleet.GeneratedNamespace}

func validate(t *testing.T, o *unstructured.Unstructured) *rule.Invalid {
	t.Helper()
	if o.GetKind() == "AlertRuleTemplate" {
		template := &v1alpha1.AlertRuleTemplate{}
		convert(t, o, template)
		return validation.Template(template, hubOptions)
	}
	if o.GetKind() == v1alpha1.RulePackKind {
		pack := &v1alpha1.RulePack{}
		convert(t, o, pack)
		return validation.Pack(pack, hubOptions)
	}
	ar := &v1alpha1.AlertRule{}
	convert(t, o, ar)
	return validation.Rule(ar, hubOptions)
}

// TestPlacementCanChange changes an AlertRule that a person wrote: it has no workload,
// and may get one once.
func TestPlacementCanChange(t *testing.T) {
	o, _ := with(full(t, "AlertRule").Object, path{"spec", "workloadRef"}, absent{}).(map[string]any)
	ar := create(t, &unstructured.Unstructured{Object: o})
	apply := func(patch string) error {
		return hub.Client.Patch(t.Context(), ar, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	for _, patch := range []string{
		`{"spec":{"placement":{"names":["us-1","eu-1"]}}}`,
		`{"spec":{"placement":{"names":["us-1"],"selector":null}}}`,
		`{"spec":{"placement":{"names":null,"selector":{}}}}`,
		`{"spec":{"placement":{"names":["eu-1"],"selector":null},"workloadRef":{"cluster":"eu-1","kind":"Deployment","namespace":"shop","name":"web"}}}`,
		`{"spec":{"for":"7m","labels":{"team":"ops"},"state":"Disabled","suspend":true,"overrides":null}}`,
	} {
		if err := apply(patch); err != nil {
			t.Errorf("%s is refused: %v", patch, err)
		}
	}
	for _, patch := range []string{`{"spec":{"workloadRef":null}}`, `{"spec":{"placement":{"names":["us-1"]}}}`} {
		if err := apply(patch); err == nil {
			t.Errorf("%s is not refused", patch)
		}
	}
}

// TestNamesOfOld takes every name of a label that Prometheus has always taken.
func TestNamesOfOld(t *testing.T) {
	for _, name := range []string{"a", "_", "_a", "A9_", "severity_", "name__", strings.Repeat("n", 1024)} {
		for _, at := range []path{{"spec"}, override} {
			for _, texts := range []string{"labels", "annotations"} {
				o, _ := with(full(t, "AlertRule").Object, at.to(texts).to(name), "x").(map[string]any)
				if err := dryCreate(t, &unstructured.Unstructured{Object: o}); err != nil {
					t.Errorf("%s in %s of %s is refused: %v", name, texts, at, err)
				}
			}
		}
	}
}
