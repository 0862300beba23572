package join

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
)

// chooseEvaluators finds out which Prometheus and ThanosRulers the spoke has, and which of them is to evaluate the rules.
func (j *joining) chooseEvaluators(ctx context.Context) error {
	found, err := candidates(ctx, j.spoke.Client)
	if err != nil {
		return err
	}
	if found.denied && !j.chosen() {
		j.Say("Warning: you have no permission to list Prometheus or ThanosRuler objects in the spoke, so the command cannot check whether there are several. If there are, choose one with --prometheus.")
	}
	if !found.served {
		j.Say("Warning: the spoke does not serve PrometheusRules. Install the CustomResourceDefinitions of prometheus-operator there.")
	}
	if len(found.selecting) > 0 && lacksKubeStateMetrics(ctx, j.spoke.Client) {
		j.Say("Warning: the spoke has no Service of kube-state-metrics (label %s=%s). Most built-in templates need its metrics.", nameLabel, kubeStateMetrics)
	}
	names, err := choices(found.selecting, j.refs, j.chosen())
	if err != nil || len(names) == 0 {
		return err
	}
	return j.choose(ctx, names)
}

// choose asks for the Prometheus or ThanosRuler that is to evaluate the rules. Without a person who can answer, it has to be
// on the command line.
func (j *joining) choose(ctx context.Context, names []string) error {
	if !j.Interactive {
		return exit.New(exit.Usage, "Choose the one that is to evaluate the rules: --prometheus "+names[0]+". To leave it to Rulefleet, use --prometheus auto.",
			"the spoke has several Prometheus or ThanosRuler objects with a ruleSelector: %s", strings.Join(names, ", "))
	}
	name, err := j.Choose("Which one is to evaluate the rules?", append(names, chooseAutomatically))
	if err != nil {
		return err
	}
	if j.refs, err = evaluators([]string{name}); err != nil {
		return err
	}
	return permit(ctx, j.hub, onHub, hubRights(j.namespace, j.name, j.suspend || len(j.refs) > 0))
}

// candidate is a Prometheus or ThanosRuler that could evaluate the rules.
type candidate struct{ kind, namespace, name string }

func (c candidate) String() string {
	if c.kind == "Prometheus" {
		return c.namespace + "/" + c.name
	}
	return c.kind + "/" + c.namespace + "/" + c.name
}

// monitoring is what is known about the monitoring of a spoke.
type monitoring struct {
	selecting []candidate // the Prometheus and ThanosRulers that select rules
	served    bool        // the spoke serves PrometheusRules
	denied    bool        // the person may not list all Prometheus and ThanosRulers
}

// candidates finds out which Prometheus and ThanosRulers of a spoke could evaluate the rules.
func candidates(ctx context.Context, c client.Client) (monitoring, error) {
	_, err := c.RESTMapper().RESTMapping(schema.GroupKind{Group: monitoringGroup, Kind: "PrometheusRule"}, "v1")
	found := monitoring{served: err == nil}
	if err != nil && !meta.IsNoMatchError(err) {
		return found, fmt.Errorf("reading which kinds the spoke serves: %w", err)
	}
	for _, kind := range []string{"Prometheus", "ThanosRuler"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: monitoringGroup, Version: "v1", Kind: kind + "List"})
		err := c.List(ctx, list)
		if apierrors.IsForbidden(err) {
			found.denied = true // it is only for the choice, which the manager reports as well
			continue
		}
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return found, fmt.Errorf("listing the %s objects of the spoke: %w", kind, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			if _, selects, _ := unstructured.NestedMap(o.Object, "spec", "ruleSelector"); selects {
				found.selecting = append(found.selecting, candidate{kind, o.GetNamespace(), o.GetName()})
			}
		}
	}
	return found, nil
}

// Services of kube-state-metrics have this label in its chart, in kube-prometheus and in OpenShift.
const nameLabel, kubeStateMetrics = "app.kubernetes.io/name", "kube-state-metrics"

// lacksKubeStateMetrics reports whether no Service of kube-state-metrics is known. It is only a hint: without the permission
// to list Services, nothing is said, and the manager reports which metrics Prometheus lacks.
func lacksKubeStateMetrics(ctx context.Context, c client.Client) bool {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceList"))
	err := c.List(ctx, list, client.MatchingLabels{nameLabel: kubeStateMetrics}, client.Limit(1))
	return err == nil && len(list.Items) == 0
}

// chooseAutomatically is the value of --prometheus that leaves the choice to Rulefleet.
const chooseAutomatically = "auto"

// evaluators reads --prometheus.
func evaluators(values []string) ([]v1alpha1.EvaluatorReference, error) {
	var out []v1alpha1.EvaluatorReference
	for _, value := range values {
		if value == chooseAutomatically {
			continue
		}
		parts := strings.Split(value, "/")
		if len(parts) == 2 {
			parts = append([]string{"Prometheus"}, parts...)
		}
		if len(parts) != 3 || slices.Contains(parts, "") || parts[0] != "Prometheus" && parts[0] != "ThanosRuler" {
			return nil, exit.New(exit.Usage, "", "--prometheus %q: write it as NAMESPACE/NAME, as ThanosRuler/NAMESPACE/NAME, or as %s", value, chooseAutomatically)
		}
		out = append(out, v1alpha1.EvaluatorReference{Kind: parts[0], Namespace: v1alpha1.NamespaceName(parts[1]), Name: parts[2]})
	}
	return out, nil
}

// choices returns what to choose from if the spoke has several and none is chosen, and refuses one that the spoke does not
// have. If none is known, the manager reports it.
func choices(found []candidate, wanted []v1alpha1.EvaluatorReference, chosen bool) ([]string, error) {
	names := make([]string, len(found))
	for i, c := range found {
		names[i] = c.String()
	}
	for _, w := range wanted {
		if c := (candidate{w.Kind, string(w.Namespace), w.Name}); len(found) > 0 && !slices.Contains(found, c) {
			return nil, exit.New(exit.Usage, "", "--prometheus %s: the spoke has no such object with a ruleSelector; it has: %s", c, strings.Join(names, ", "))
		}
	}
	if chosen || len(found) < 2 {
		return nil, nil
	}
	return names, nil
}

// chosen reports whether there is nothing to choose: it is on the command line, or was chosen earlier.
func (j *joining) chosen() bool {
	return len(j.prometheus) > 0 || j.present != nil && (len(j.present.Spec.EvaluatorRefs) > 0 ||
		slices.ContainsFunc(j.present.Status.Evaluators, func(e v1alpha1.Evaluator) bool { return e.Chosen }))
}
