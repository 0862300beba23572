package rule_test

import (
	"fmt"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/clip"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/internal/ruletest"
)

// An object stands for an AlertRule by its labels, its annotation and its name together.
func TestStandsFor(t *testing.T) {
	const hub = "hub-1"
	own, former := rule.ObjectName(hub, rule.AlertRuleKey("shop", "web")), rule.ObjectName("hub-0", rule.AlertRuleKey("shop", "web"))
	for name, c := range map[string]struct {
		name   string
		change func(o *monitoringv1.PrometheusRule)
		want   bool
	}{
		"as it was pushed":         {own, func(*monitoringv1.PrometheusRule) {}, true},
		"in another namespace":     {own, func(o *monitoringv1.PrometheusRule) { o.Namespace = "other" }, true},
		"another name":             {own + "x", func(*monitoringv1.PrometheusRule) {}, false},
		"another AlertRule's name": {rule.ObjectName(hub, rule.AlertRuleKey("shop", "api")), func(*monitoringv1.PrometheusRule) {}, false},
		"another hub's name":       {former, func(*monitoringv1.PrometheusRule) {}, false},
		"taken over":               {former, func(o *monitoringv1.PrometheusRule) { o.Annotations[v1alpha1.AdoptedFromAnnotation] = "hub-0" }, true},
		"taken over from another":  {former, func(o *monitoringv1.PrometheusRule) { o.Annotations[v1alpha1.AdoptedFromAnnotation] = "hub-2" }, false},
		"another hub":              {own, func(o *monitoringv1.PrometheusRule) { o.Labels[v1alpha1.HubLabel] = "hub-2" }, false},
		"not managed":              {own, func(o *monitoringv1.PrometheusRule) { delete(o.Labels, v1alpha1.ManagedByLabel) }, false},
		"no annotation":            {own, func(o *monitoringv1.PrometheusRule) { o.Annotations = nil }, false},
		"an annotation that is no name": {own, func(o *monitoringv1.PrometheusRule) {
			o.Annotations[v1alpha1.AlertRuleAnnotation] = "../web"
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: c.name,
				Labels:      map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.HubLabel: hub},
				Annotations: map[string]string{v1alpha1.AlertRuleAnnotation: "shop/web"},
			}}
			c.change(o)
			key, got := rule.StandsFor(o, hub)
			if got != c.want || got && key != rule.AlertRuleKey("shop", "web") {
				t.Errorf("it stands for %q: %v", key, got)
			}
		})
	}
}

func TestParseRuleKey(t *testing.T) {
	for value, want := range map[string]bool{
		"shop/web-down": true,
		"shop/web.down": true,
		"":              false,
		"shop":          false,
		"/web":          false,
		"shop/":         false,
		"shop/web/down": false,
		"Shop/web":      false,
		"shop/../../x":  false,
		"sh.op/web":     false,
		"shop/web\n":    false,
		"shop /web":     false,
		ruletest.Long("n", 63) + "/" + ruletest.Long("a", 253): true,
		ruletest.Long("n", 64) + "/a":                          false,
		"n/" + ruletest.Long("a", 254):                         false,
		ruletest.Long("n/", 9999):                              false,
	} {
		t.Run(fmt.Sprintf("%.40q", value), func(t *testing.T) {
			p := &monitoringv1.PrometheusRule{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AlertRuleAnnotation: value}}}
			key, ok := rule.ParseRuleKey(p)
			if ok != want || ok && key.String() != "AlertRule "+value || !ok && key != (rule.Key{}) {
				t.Errorf("ParseRuleKey(%s) = %v, %v", clip.Excerpt(value), key, ok)
			}
		})
	}
	if _, ok := rule.ParseRuleKey(&monitoringv1.PrometheusRule{}); ok {
		t.Error("an object without annotations has a rule")
	}
}
