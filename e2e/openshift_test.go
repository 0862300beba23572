package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
	"github.com/rulefleet/rulefleet/pkg/testing/openshift"
	"github.com/rulefleet/rulefleet/pkg/testing/pipeline"
)

// startOpenShift starts a spoke with the monitoring objects of OpenShift. prometheus-operator selects the rules. A
// Prometheus evaluates those of the ThanosRuler.
func startOpenShift(t *testing.T) *evaluating {
	t.Helper()
	e := &evaluating{t: t, Fleet: start(t, fleet.Options{Spokes: []string{spokeA}, ControllerManager: true, Audit: true}), shop: "shop", dir: t.TempDir()}
	m := e.Spoke(spokeA)
	for _, plural := range []string{"prometheuses", "thanosrulers"} {
		must(t, e.InstallMonitoringCRD(t.Context(), m, plural))
	}
	for _, o := range append(openshift.Namespaces(), openshift.Evaluators()...) {
		must(t, m.Client.Create(t.Context(), o))
	}
	namespace(t, e.shop, m)
	must(t, m.Client.Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "openshift-ingress", Labels: map[string]string{openshift.PlatformLabel: "true"}},
	}))
	var err error
	e.alertmanager, err = pipeline.StartAlertmanager(t.Context(), "")
	must(t, err)
	t.Cleanup(func() { must(t, e.alertmanager.Stop()) })
	e.first, err = pipeline.Start(t.Context(), m, pipeline.Options{
		Ruler: types.NamespacedName{Namespace: openshift.User, Name: openshift.UserWorkload}, Alertmanager: e.alertmanager,
	})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			e.first.Dump(t.Output())
		}
		must(t, e.first.Stop())
	})
	e.run()
	must(t, e.Register(t.Context(), spokeA, nil))
	return e
}

// TestOpenShift has the setup of OpenShift with monitoring for user-defined projects. A person runs the command of
// docs/how-to/choose-prometheus.md; until then, and after it, everything is as that page says.
func TestOpenShift(t *testing.T) {
	long(t)
	parallel(t)
	e := startOpenShift(t)
	m := e.Spoke(spokeA)
	const ruler = "ThanosRuler " + openshift.User + "/" + openshift.UserWorkload

	ofProject := written("project", "test_project > 0", onNamed(spokeA))
	ofProject.Spec.RuleNamespace = "shop"
	project := create(t, e.Hub, ofProject)
	e.expect(t, project, spokeA, v1alpha1.PhaseApplied, v1alpha1.ReasonAmbiguous, "EvaluatorsFound")
	e.shown(t, v1alpha1.ConditionEvaluatorsFound, metav1.ConditionFalse, v1alpha1.ReasonAmbiguous,
		"Prometheus "+openshift.Platform+"/k8s", "Prometheus "+openshift.User+"/"+openshift.UserWorkload, ruler, "kubectl patch")

	command := openShiftCommand(t)
	out, err := e.Hub.Kubectl(t.Context(), command...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %q: %v: %s", command, err, out)
	}
	e.shown(t, v1alpha1.ConditionEvaluatorsFound, metav1.ConditionTrue, v1alpha1.ReasonEvaluatorsFound, ruler)

	// prometheus-operator passes the rules of projects to the ThanosRuler, which can't be queried.
	unproven := func(key client.ObjectKey) {
		t.Helper()
		e.expect(t, key, spokeA, v1alpha1.PhaseSelected, v1alpha1.ReasonConfirmed, ruler)
	}
	unproven(project)
	must(t, m.Client.Create(t.Context(), deployment(e.shop, "web")))
	web := client.ObjectKeyFromObject(expectGenerated(t, e.Fleet, spokeA, e.shop, "web", 1))
	unproven(web)
	expectReady(t, e.Fleet, project, metav1.ConditionTrue, v1alpha1.ReasonAllApplied)
	e.shown(t, v1alpha1.ConditionEvaluating, metav1.ConditionUnknown, v1alpha1.ReasonNotGranted, "spec.listenLocal", "spec.evaluatorRefs[].url")

	// It gets no others, as the rows say.
	here := create(t, e.Hub, written("here", "test_here > 0", onNamed(spokeA)))
	must(t, m.Client.Create(t.Context(), deployment("openshift-ingress", "router")))
	router := client.ObjectKeyFromObject(expectGenerated(t, e.Fleet, spokeA, "openshift-ingress", "router", 1))
	for _, key := range []client.ObjectKey{here, router} {
		e.expect(t, key, spokeA, v1alpha1.PhaseApplied, v1alpha1.ReasonNotSelected, ruler, openshift.PlatformLabel)
	}
	if o := expectPushed(t, m, here, 1); o.Namespace != openshift.User {
		t.Errorf("a rule without a namespace is in %s", o.Namespace)
	}
	within(t, linkLimit, "the ThanosRuler gets the rules of projects alone", func(ctx context.Context) error {
		files, err := rulesOf(ctx, m, "thanos-ruler-"+openshift.UserWorkload)
		if err == nil && (len(files) != 2 || !strings.HasPrefix(files[0], "shop-") || !strings.HasPrefix(files[1], "shop-")) {
			err = fmt.Errorf("its files are %q", files)
		}
		return err
	})
	if files, err := rulesOf(t.Context(), m, "prometheus-"+openshift.UserWorkload); err != nil || len(files) > 0 {
		t.Errorf("the Prometheus for projects gets %q: %v", files, err)
	}

	e.byAddress(t, project)
	e.keepsTheChoice(t, project)
}

// openShiftCommand returns the arguments of the command with which the documentation chooses the ThanosRuler.
func openShiftCommand(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../docs/how-to/choose-prometheus.md")
	must(t, err)
	_, section, _ := strings.Cut(string(page), "## On OpenShift")
	_, section, _ = strings.Cut(section, "```bash\nkubectl ")
	section, _, _ = strings.Cut(section, "```")
	args, patch, found := strings.Cut(strings.NewReplacer("\\\n", "", "\n", "", "eu-prod-1", spokeA).Replace(section), " '")
	if !found {
		t.Fatalf("the page has no such command: %q", section)
	}
	return append(strings.Fields(args), strings.ReplaceAll(strings.TrimSuffix(patch, "'"), " ", ""))
}

// rulesOf returns the names of the rule files that prometheus-operator passes to one for projects.
func rulesOf(ctx context.Context, m *fleet.Member, name string) (files []string, err error) {
	var list corev1.ConfigMapList
	err = m.Client.List(ctx, &list, client.InNamespace(openshift.User))
	for i := range list.Items {
		if cm := &list.Items[i]; strings.HasPrefix(cm.Name, name+"-rulefiles-") {
			for file := range cm.Data {
				files = append(files, file)
			}
		}
	}
	return files, err
}

// byAddress gives the address of the ThanosRuler, so that the rules are proven, and one fires.
func (e *evaluating) byAddress(t *testing.T, key client.ObjectKey) {
	t.Helper()
	update(t, e.Hub, membership(spokeA), func(sc *v1alpha1.SpokeCluster) { sc.Spec.EvaluatorRefs[0].URL = e.first.PrometheusURL() })
	e.evaluates(t, key, spokeA)
	e.first.SetMetric("test_project", map[string]string{"namespace": e.shop}, 1)
	e.first.SetMetric("test_project", map[string]string{"namespace": "another"}, 1)
	e.notified(t, linkLimit, pipeline.Firing, map[string]string{"alertname": "Ofproject", "namespace": e.shop, "cluster": spokeA})
	e.firing(t, key, spokeA, 1, 1) // it sees its own namespace alone
}

// keepsTheChoice names nothing any more, has a tenant create another Prometheus, and starts another manager.
func (e *evaluating) keepsTheChoice(t *testing.T, key client.ObjectKey) {
	t.Helper()
	m := e.Spoke(spokeA)
	before := expectPushed(t, m, key, 1)
	looked(t, m)
	update(t, e.Hub, membership(spokeA), func(sc *v1alpha1.SpokeCluster) { sc.Spec.EvaluatorRefs = nil })
	must(t, m.Client.Create(t.Context(), aTenants(e.shop)))
	looked(t, m)
	must(t, e.manager.Stop())
	e.run()
	looked(t, m)
	e.expect(t, key, spokeA, v1alpha1.PhaseSelected, v1alpha1.ReasonConfirmed, openshift.UserWorkload)
	e.shown(t, v1alpha1.ConditionEvaluatorsFound, metav1.ConditionTrue, v1alpha1.ReasonEvaluatorsFound, openshift.UserWorkload)
	after := expectPushed(t, m, key, 1)
	if after.UID != before.UID || after.Generation != before.Generation || !maps.Equal(after.Labels, before.Labels) {
		t.Errorf("the rule is written again: %+v", after.ObjectMeta)
	}
}
