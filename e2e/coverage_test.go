package e2e

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	"github.com/rulefleet/rulefleet/pkg/testing/pipeline"
)

// countLimit is how soon the numbers of workloads must be right after the last change.
const countLimit = time.Minute

// ofEachKind is how many workloads of each kind each of two spokes has: 200 in total. There is also the StatefulSet that
// prometheus-operator makes.
const ofEachKind = 25

// covering is a fleet whose workloads are counted.
type covering struct {
	*fleet.Fleet
	manager *fleet.Manager
}

// TestCoverage counts 200 workloads of four kinds in two spokes. Some are excluded, disabled by an annotation, refused by
// maxRules, or in the spoke whose Prometheus does not answer. The intervals are those of production.
func TestCoverage(t *testing.T) {
	long(t)
	parallel(t)
	c := &covering{Fleet: start(t, fleet.Options{Spokes: []string{spokeA, spokeB}, ControllerManager: true, Intervals: 1})}
	for _, name := range []string{spokeA, spokeB} {
		c.prometheus(t, name, name == spokeA)
		namespace(t, "shop", c.Spoke(name))
		namespace(t, "batch", c.Spoke(name))
	}
	c.manager = startManagerWith(t, c.Fleet, fleet.ManagerOptions{Dir: t.TempDir(), HubID: "coverage", Args: []string{"--built-in-templates=", "--spoke-namespace-share=100"}})
	for _, name := range []string{spokeA, spokeB} {
		must(t, c.Register(t.Context(), name, nil))
	}
	eventually(t, "the spokes are engaged", func(ctx context.Context) error { return metricIs(ctx, c.manager, "rulefleet_engaged_spokes", 2) })
	// 15 workloads of each kind get an AlertRule, except for 9 in the first spoke.
	update(t, c.Hub, membership(spokeA), func(sc *v1alpha1.SpokeCluster) { sc.Spec.MaxRules = new(int32(51)) })
	for _, name := range []string{spokeA, spokeB} {
		c.fill(t, name)
	}

	// No template names the kinds, so three of them are only counted.
	for _, name := range []string{spokeA, spokeB} {
		c.expect(t, name, 0, map[v1alpha1.UncoveredReason]int{v1alpha1.UncoveredNoTemplate: ofEachKind})
	}

	create(t, c.Hub, everyKind())
	within(t, 3*time.Minute, "all AlertRules are as far as they get", func(ctx context.Context) error {
		var list v1alpha1.AlertRuleList
		if err := c.Hub.Client.List(ctx, &list); err != nil {
			return err
		}
		phases := map[string]int{}
		for i := range list.Items {
			ar := &list.Items[i]
			spoke := string(ar.Spec.WorkloadRef.Cluster)
			if r := row(ar, spoke); r != nil {
				phases[fmt.Sprint(spoke, " ", r.Phase == v1alpha1.PhaseEvaluating)]++
			}
		}
		if want := map[string]int{spokeA + " true": 51, spokeB + " false": 60}; !maps.Equal(phases, want) {
			return fmt.Errorf("there are %v", phases)
		}
		return nil
	})
	// The lists have 50 of 50, and 50 of 101.
	c.expect(t, spokeA, 51, map[v1alpha1.UncoveredReason]int{v1alpha1.UncoveredNoTemplate: 21, v1alpha1.UncoveredDisabled: 20, v1alpha1.UncoveredRefused: 9})
	c.expect(t, spokeB, 0, nil)
	c.summary(t, v1alpha1.TemplateSummary{Matched: 160, Generated: 111, Disabled: 40, Refused: 9})
	for _, series := range []struct {
		spoke, covered string
		want           float64
	}{{spokeA, "true", 51}, {spokeA, "false", 50}, {spokeB, "true", 0}, {spokeB, "false", 101}} {
		sum := 0.0
		for _, kind := range rule.WorkloadKinds() {
			n, err := metric(t.Context(), c.manager, fmt.Sprintf(`rulefleet_workloads{cluster=%q,covered=%q,kind=%q}`, series.spoke, series.covered, kind))
			must(t, err)
			sum += n
		}
		if sum != series.want {
			t.Errorf("the metric of %+v is %v", series, sum)
		}
	}

	update(t, c.Hub, membership(spokeA), func(sc *v1alpha1.SpokeCluster) { sc.Spec.MaxRules = nil })
	within(t, 2*time.Minute, "all AlertRules of the first spoke are evaluated", func(ctx context.Context) error {
		var list v1alpha1.AlertRuleList
		if err := c.Hub.Client.List(ctx, &list); err != nil {
			return err
		}
		n := 0
		for i := range list.Items {
			if r := row(&list.Items[i], spokeA); r != nil && r.Phase == v1alpha1.PhaseEvaluating {
				n++
			}
		}
		if n != 60 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	c.expect(t, spokeA, 60, map[v1alpha1.UncoveredReason]int{v1alpha1.UncoveredNoTemplate: 21, v1alpha1.UncoveredDisabled: 20})
	c.summary(t, v1alpha1.TemplateSummary{Matched: 160, Generated: 120, Disabled: 40})
}

// prometheus starts the Prometheus of a spoke, and stops it again unless it is to run.
func (c *covering) prometheus(t *testing.T, name string, runs bool) {
	t.Helper()
	p, err := pipeline.Start(t.Context(), c.Spoke(name), pipeline.Options{Prometheus: monitoringv1.PrometheusSpec{
		CommonPrometheusFields: monitoringv1.CommonPrometheusFields{ExternalLabels: map[string]string{"cluster": name}},
		RuleSelector:           &metav1.LabelSelector{}, RuleNamespaceSelector: &metav1.LabelSelector{},
	}})
	must(t, err)
	t.Cleanup(func() { must(t, p.Stop()) })
	if !runs {
		must(t, p.StopPrometheus())
	}
}

// fill creates the workloads of a spoke, without pods. Of each kind, a fifth is in a namespace that the template excludes,
// and annotations of another fifth disable its alerts.
func (c *covering) fill(t *testing.T, name string) {
	t.Helper()
	for _, kind := range rule.WorkloadKinds() {
		for i := range ofEachKind {
			in := "shop"
			if i%5 == 4 {
				in = "batch"
			}
			o := workload(kind, in, fmt.Sprintf("w-%02d", i))
			switch o := o.(type) {
			case *appsv1.Deployment:
				o.Spec.Replicas = new(int32(0))
			case *appsv1.StatefulSet:
				o.Spec.Replicas = new(int32(0))
			}
			if i%5 == 3 {
				o.SetAnnotations(map[string]string{v1alpha1.AdjustmentPrefix + string(v1alpha1.AdjustAlerts): "disabled"})
			}
			must(t, c.Spoke(name).Client.Create(t.Context(), o))
		}
	}
}

// everyKind returns a template for workloads of all kinds.
func everyKind() *v1alpha1.AlertRuleTemplate {
	out := template("every-kind")
	out.Spec.Expr = "vector(0) == 1"
	out.Spec.Namespaces = &v1alpha1.NamespaceSelection{Exclude: []v1alpha1.NamespaceName{"batch", pipeline.Namespace}}
	out.Spec.Workloads = &v1alpha1.WorkloadSelection{Kinds: rule.WorkloadKinds()}
	return out
}

// expect waits until the status of a spoke has as many workloads of each kind as the spoke, so many of which are covered,
// and lists others with these reasons. No reasons mean that the list has as many as it can.
func (c *covering) expect(t *testing.T, name string, covered int32, reasons map[v1alpha1.UncoveredReason]int) {
	t.Helper()
	began := time.Now()
	within(t, countLimit, fmt.Sprintf("%d workloads of %s are covered", covered, name), func(ctx context.Context) error {
		sc := membership(name)
		if err := read(ctx, c.Hub, client.ObjectKeyFromObject(sc), sc); err != nil {
			return err
		}
		n, listed := int32(0), map[v1alpha1.UncoveredReason]int{}
		for _, is := range sc.Status.Workloads {
			n += is.Covered
			want := int32(ofEachKind)
			if is.Kind == v1alpha1.StatefulSetKind {
				want++
			}
			if is.Total != want {
				return fmt.Errorf("there are %+v", sc.Status.Workloads)
			}
		}
		for i := range sc.Status.Uncovered {
			listed[sc.Status.Uncovered[i].Reason]++
		}
		if n != covered || len(sc.Status.Workloads) != len(rule.WorkloadKinds()) || reasons != nil && !maps.Equal(listed, reasons) || reasons == nil && len(sc.Status.Uncovered) != 50 {
			return fmt.Errorf("there are %+v, and the list has %v", sc.Status.Workloads, listed)
		}
		return nil
	})
	t.Logf("the numbers of %s are right after %v", name, time.Since(began).Round(time.Second))
}

// summary waits until the status of the template counts its workloads.
func (c *covering) summary(t *testing.T, want v1alpha1.TemplateSummary) {
	t.Helper()
	within(t, countLimit, "the template counts its workloads", func(ctx context.Context) error {
		var tpl v1alpha1.AlertRuleTemplate
		if err := read(ctx, c.Hub, client.ObjectKey{Name: "every-kind"}, &tpl); err != nil {
			return err
		}
		if is := tpl.Status.Summary; is == nil || *is != want {
			return fmt.Errorf("it has %+v", is)
		}
		return nil
	})
}
