package delivery

import (
	"reflect"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

type edit = func(*monitoringv1.PrometheusRule)

// Edits of a rendered object.
func foreign(p *monitoringv1.PrometheusRule)  { p.Labels[v1alpha1.ManagedByLabel] = "somebody" }
func otherHub(p *monitoringv1.PrometheusRule) { p.Labels[v1alpha1.HubLabel] = "hub-2" }
func noHub(p *monitoringv1.PrometheusRule)    { delete(p.Labels, v1alpha1.HubLabel) }
func bare(p *monitoringv1.PrometheusRule)     { p.Labels, p.Annotations = nil, nil }
func drifted(p *monitoringv1.PrometheusRule) {
	p.Spec.Groups[0].Rules[0].Expr = intstr.FromString("vector(0)")
}
func moved(p *monitoringv1.PrometheusRule)   { p.Namespace = "former" }
func renamed(p *monitoringv1.PrometheusRule) { p.Name = "former" }
func terminating(p *monitoringv1.PrometheusRule) {
	p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
}

// held returns an object as the spoke holds it: with metadata of the server's and of
// other people's.
func held(t *testing.T, edits ...edit) *monitoringv1.PrometheusRule {
	t.Helper()
	p, err := Render(ruletest.Rule(), eu, options)
	if err != nil {
		t.Fatal(err)
	}
	p.TypeMeta = metav1.TypeMeta{}
	p.UID, p.ResourceVersion = "uid", "7"
	p.Labels["release"], p.Annotations["note"] = "stack", "keep me"
	p.Finalizers = []string{"example.com/keep"}
	for _, f := range edits {
		f(p)
	}
	return p
}

func TestDecide(t *testing.T) {
	desired, err := Render(ruletest.Rule(), eu, options)
	if err != nil {
		t.Fatal(err)
	}
	type objects = []*monitoringv1.PrometheusRule
	inPlace, drift := held(t), held(t, drifted)
	former, formerName := held(t, moved), held(t, renamed)
	foreignFormer, otherFormer, dyingFormer := held(t, moved, foreign), held(t, renamed, otherHub), held(t, moved, terminating)
	answer := AnswerDigest(desired, drift)
	for name, c := range map[string]struct {
		desired, existing *monitoringv1.PrometheusRule
		claimed           objects
		answer            string
		action            Action
		deletes           objects
	}{
		"nothing there":                       {desired, nil, nil, "", Create, nil},
		"as it should be":                     {desired, inPlace, objects{inPlace}, "", Keep, nil},
		"as it should be, once mutated":       {desired, inPlace, objects{inPlace}, answer, Keep, nil},
		"drifted":                             {desired, drift, objects{drift}, "", Update, nil},
		"drifted, another answer":             {desired, drift, objects{drift}, AnswerDigest(desired, inPlace), Update, nil},
		"drifted, an answer to other content": {desired, drift, objects{drift}, AnswerDigest(drift, drift), Update, nil},
		"mutated":                             {desired, drift, objects{drift}, answer, Mutated, nil},
		"our annotation gone":                 {desired, held(t, func(p *monitoringv1.PrometheusRule) { p.Annotations = nil }), nil, "", Update, nil},
		"terminating":                         {desired, held(t, terminating), objects{held(t, terminating)}, "", Terminating, nil},
		"terminating, drifted":                {desired, held(t, drifted, terminating), nil, "", Terminating, nil},

		"somebody else's":                 {desired, held(t, foreign), objects{held(t, foreign)}, "", Conflict, nil},
		"somebody else's, drifted":        {desired, held(t, foreign, drifted), nil, answer, Conflict, nil},
		"somebody else's, terminating":    {desired, held(t, foreign, terminating), nil, "", Conflict, nil},
		"another hub's":                   {desired, held(t, otherHub), objects{held(t, otherHub)}, "", Conflict, nil},
		"without labels":                  {desired, held(t, bare), nil, "", Conflict, nil},
		"somebody else's, and our former": {desired, held(t, foreign), objects{former}, "", Conflict, nil},

		"moved, not there yet":  {desired, nil, objects{former}, "", Create, objects{former}},
		"moved, there":          {desired, inPlace, objects{inPlace, formerName, former}, "", Keep, objects{former, formerName}},
		"moved, drifted":        {desired, drift, objects{former, drift}, "", Update, objects{former}},
		"moved, mutated":        {desired, drift, objects{former, drift}, answer, Mutated, objects{former}},
		"moved, terminating":    {desired, held(t, terminating), objects{former}, "", Terminating, nil},
		"former ones of others": {desired, inPlace, objects{inPlace, foreignFormer, otherFormer, dyingFormer}, "", Keep, nil},

		"not wanted, not there":          {nil, nil, nil, "", None, nil},
		"not wanted":                     {nil, nil, objects{inPlace}, "", None, objects{inPlace}},
		"not wanted, drifted":            {nil, nil, objects{drift}, answer, None, objects{drift}},
		"not wanted, two":                {nil, nil, objects{formerName, former}, "", None, objects{former, formerName}},
		"not wanted, not ours":           {nil, nil, objects{foreignFormer, otherFormer, held(t, bare), held(t, noHub)}, "", None, nil},
		"not wanted, terminating":        {nil, nil, objects{dyingFormer}, "", None, nil},
		"not wanted, though it is there": {nil, held(t, foreign), nil, "", None, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := Decide(c.desired, c.existing, c.claimed, ruletest.HubID, c.answer)
			if got.Action != c.action || !reflect.DeepEqual(got.Delete, c.deletes) {
				t.Errorf("%s: got %s, deleting %v; want %s, deleting %v", name, got.Action, keys(got.Delete), c.action, keys(c.deletes))
			}
			if (got.Object != nil) != (got.Action == Create || got.Action == Update) {
				t.Errorf("%s: %s sends %v", name, got.Action, got.Object)
			}
			for _, o := range got.Delete {
				if !rule.Owned(o, ruletest.HubID) {
					t.Errorf("%s: it deletes what is not ours", name)
				}
			}
			if got.Action == Update && !rule.Owned(c.existing, ruletest.HubID) {
				t.Errorf("%s: it changes what is not ours", name)
			}
			// Nothing is ours to a hub without an id.
			if got := Decide(c.desired, c.existing, c.claimed, "", c.answer); len(got.Delete) > 0 || got.Action == Update {
				t.Errorf("%s: without an id, it would %s, deleting %v", name, got.Action, keys(got.Delete))
			}
		})
	}
}

func keys(objects []*monitoringv1.PrometheusRule) []string {
	var out []string
	for _, o := range objects {
		out = append(out, o.Namespace+"/"+o.Name)
	}
	return out
}

func TestUpdateKeepsWhatIsOthers(t *testing.T) {
	desired, err := Render(ruletest.Rule(), eu, options)
	if err != nil {
		t.Fatal(err)
	}
	existing := held(t, drifted, func(p *monitoringv1.PrometheusRule) {
		delete(p.Annotations, v1alpha1.AlertRuleAnnotation)
		p.Labels[v1alpha1.AlertRuleHashLabel] = "changed"
		p.Spec.Groups = append(p.Spec.Groups, monitoringv1.RuleGroup{Name: "smuggled in"})
		p.Spec.Groups[0].Rules[0].Labels["smuggled"] = "in"
	})
	before := existing.DeepCopy()
	got := Decide(desired, existing, nil, ruletest.HubID, "").Object
	if got == nil {
		t.Fatal("no update")
	}
	want := held(t) // with everything of others
	want.TypeMeta = desired.TypeMeta
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if Digest(got) != Digest(desired) {
		t.Error("what is sent is not what is desired")
	}
	got.Labels["release"], got.Spec.Groups[0].Rules[0].Labels["cluster"] = "changed", "changed"
	if !reflect.DeepEqual(existing, before) || desired.Spec.Groups[0].Rules[0].Labels["cluster"] == "changed" {
		t.Error("what is sent shares memory with the cache")
	}
	created := Decide(desired, nil, nil, ruletest.HubID, "").Object
	created.Spec.Groups[0].Name = "changed"
	if desired.Spec.Groups[0].Name == "changed" {
		t.Error("what is created shares memory with what is desired")
	}
}

// Whatever a spoke makes of what was sent, the second look ends it.
func TestNoWriteLoop(t *testing.T) {
	desired, err := Render(ruletest.Rule(), eu, options)
	if err != nil {
		t.Fatal(err)
	}
	sent := Decide(desired, nil, nil, ruletest.HubID, "").Object
	answered := sent.DeepCopy()
	drifted(answered)
	answer := AnswerDigest(sent, answered)
	if got := Decide(desired, answered, nil, ruletest.HubID, answer); got.Action != Mutated {
		t.Errorf("the same is sent again: %s", got.Action)
	}
	changed, err := Render(ruletest.Rule(func(r *v1alpha1.AlertRule) { r.Spec.For = "1m" }), eu, options)
	if err != nil {
		t.Fatal(err)
	}
	if got := Decide(changed, answered, nil, ruletest.HubID, answer); got.Action != Update {
		t.Errorf("the rule changed, and it is %s", got.Action)
	}
	answered.Spec.Groups = nil
	if got := Decide(desired, answered, nil, ruletest.HubID, answer); got.Action != Update {
		t.Errorf("the spoke changed, and it is %s", got.Action)
	}
}
