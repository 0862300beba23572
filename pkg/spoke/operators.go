package spoke

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// left lists what the flags of a prometheus-operator exclude.
type left struct {
	generation int64
	namespaces []string // --namespaces
	denied     []string // --deny-namespaces
}

const maxNamespaces = 64

// namesOperator are the labels that name prometheus-operator in its own manifests and in the usual charts.
var (
	namesOperator = []string{"app.kubernetes.io/name", "app.kubernetes.io/component", "app", "k8s-app"}
	operatorNames = []string{"prometheus-operator", "kube-prometheus-stack-operator", "kube-prometheus-stack-prometheus-operator"}
)

// isOperator reports whether a Deployment is prometheus-operator. Its admission webhook has other flags and
// does not count.
func isOperator(labels map[string]string) bool {
	if strings.HasSuffix(labels["app.kubernetes.io/component"], "webhook") {
		return false
	}
	return slices.ContainsFunc(namesOperator, func(key string) bool { return slices.Contains(operatorNames, labels[key]) })
}

// limit sets, for the chosen evaluators, the namespaces that their prometheus-operator excludes by its flags.
// It considers only the operator in the evaluator's own namespace, or else in one of others, because anybody
// could label a Deployment elsewhere. If there is not exactly one, nothing is excluded. If its flags can't be
// read, the last known ones apply.
func (s *session) limit(ctx context.Context, others []string, all []v1alpha1.Evaluator) {
	known := map[types.UID]left{}
	for i := range all {
		e := &all[i]
		if !e.Chosen || !e.MissingTime.IsZero() {
			continue
		}
		found := s.operators(ctx, e.Namespace)
		for _, namespace := range others {
			if len(found) > 0 {
				break
			}
			found = s.operators(ctx, namespace)
		}
		if len(found) == 1 {
			l := s.flagsOf(ctx, &found[0])
			known[found[0].UID] = l
			e.Namespaces, e.DeniedNamespaces = l.namespaces, l.denied
		}
	}
	s.left = known
}

// operators returns the Deployments of prometheus-operator in a namespace.
func (s *session) operators(ctx context.Context, namespace string) []metav1.PartialObjectMetadata {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("DeploymentList"))
	if s.cluster.GetClient().List(ctx, &list, client.InNamespace(namespace)) != nil {
		return nil // the cache has stopped
	}
	return slices.DeleteFunc(list.Items, func(d metav1.PartialObjectMetadata) bool { return !isOperator(d.Labels) })
}

// flagsOf returns the exclusions of a Deployment's flags. It reads the Deployment when it has changed. If it is too large,
// nothing is excluded: anyone who can write Deployments there can make it large.
func (s *session) flagsOf(ctx context.Context, found *metav1.PartialObjectMetadata) left {
	was, known := s.left[found.UID]
	if known && was.generation == found.Generation {
		return was
	}
	ctx, done := context.WithCancel(spare(ctx))
	defer done()
	d := &appsv1.Deployment{}
	err := s.cluster.GetAPIReader().Get(ctx, client.ObjectKeyFromObject(found), d)
	switch {
	case tooLarge(err) != nil:
		return left{generation: found.Generation}
	case err != nil:
		return was
	}
	return leftOut(d)
}

// leftOut parses the flags of a Deployment of prometheus-operator.
func leftOut(d *appsv1.Deployment) left {
	out := left{generation: d.Generation}
	for _, c := range d.Spec.Template.Spec.Containers {
		args := slices.Concat(c.Command, c.Args)
		for i, arg := range args {
			name, value, given := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			if !given && i+1 < len(args) {
				value = args[i+1]
			}
			switch {
			case !strings.HasPrefix(arg, "-"):
			case name == "namespaces":
				out.namespaces = append(out.namespaces, namespacesIn(value)...)
			case name == "deny-namespaces":
				out.denied = append(out.denied, namespacesIn(value)...)
			}
		}
	}
	if len(out.namespaces) > maxNamespaces || slices.ContainsFunc(out.namespaces, isVariable) {
		out.namespaces = nil // otherwise a namespace excluded here would look like one that is not watched
	}
	out.denied = slices.DeleteFunc(out.denied, isVariable)
	out.denied = out.denied[:min(len(out.denied), maxNamespaces)]
	return out
}

// isVariable reports whether the kubelet replaces this text by an environment variable, as in the manifests of
// OperatorHub: --namespaces=$(NAMESPACES).
func isVariable(name string) bool { return strings.Contains(name, "$") }

func namespacesIn(list string) []string {
	var out []string
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" && len(name) <= 63 {
			out = append(out, name)
		}
	}
	return out
}
