package join

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
)

// register writes the Secret on the hub. The kubeconfig has a field manager of its own, which the manager shares to renew
// the token without force. A field manager that applies fewer fields than before gives up the others, and a field without
// one is removed: so a Secret of an earlier version is shared before it is given up.
func (j *joining) register(ctx context.Context, config []byte) error {
	put := func(manager string, s *corev1.Secret) func() error {
		return func() error { return j.putAs(ctx, j.hub, manager, s) }
	}
	kubeconfig := put(v1alpha1.CredentialManager, kubeconfigOf(j.namespace, j.name, config))
	labels := put(fieldManager, secret(j.namespace, j.name, j.labels, j.renews()))
	steps := []func() error{kubeconfig, labels} // the label registers the spoke
	if j.registered != nil && writesKubeconfig(j.registered, fieldManager) {
		share := put(v1alpha1.CredentialManager, kubeconfigOf(j.namespace, j.name, j.registered.Data[v1alpha1.KubeconfigKey]))
		steps = []func() error{share, labels, kubeconfig}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// writesKubeconfig reports whether a field manager has applied the kubeconfig of a Secret.
func writesKubeconfig(s *corev1.Secret, manager string) bool {
	return slices.ContainsFunc(s.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == manager && e.FieldsV1 != nil && bytes.Contains(e.FieldsV1.GetRawBytes(), []byte(`"f:`+v1alpha1.KubeconfigKey+`"`))
	})
}

// grant creates or corrects the account in the spoke.
func (j *joining) grant(ctx context.Context) error {
	for _, o := range j.apply {
		put := j.put
		if o.GetKind() == kindNamespace {
			put = j.putNamespace
		}
		err := put(ctx, j.spoke.Client, o)
		if apierrors.IsConflict(err) && (o.GetKind() == kindClusterRole || o.GetKind() == kindRole) {
			return j.describeConflict(ctx, o, err)
		}
		if err != nil {
			return err
		}
	}
	for _, o := range slices.Backward(j.removed) { // the binding first
		err := j.spoke.Client.Delete(ctx, o)
		if err == nil {
			j.Say("In the spoke: %s %s was removed", o.GetKind(), o.GetName())
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing %s %s from the spoke: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// putNamespace creates the namespace if it is absent. There is nothing in it to correct.
func (j *joining) putNamespace(ctx context.Context, c client.Client, o client.Object) error {
	var present corev1.Namespace
	err := c.Get(ctx, client.ObjectKeyFromObject(o), &present)
	if apierrors.IsNotFound(err) {
		err = c.Create(ctx, o, client.FieldOwner(fieldManager))
	}
	if err != nil {
		return fmt.Errorf("creating Namespace %s: %w", o.GetName(), err)
	}
	return nil
}

// describeConflict names the rights that another client has removed from a role, or added to it.
func (j *joining) describeConflict(ctx context.Context, wanted *unstructured.Unstructured, conflict error) error {
	present := &unstructured.Unstructured{}
	present.SetGroupVersionKind(wanted.GroupVersionKind())
	if err := j.spoke.Client.Get(ctx, client.ObjectKeyFromObject(wanted), present); err != nil {
		return conflict
	}
	want, err := cluster.Grants([]*unstructured.Unstructured{wanted})
	if err != nil {
		return err
	}
	have, err := cluster.Grants([]*unstructured.Unstructured{present})
	if err != nil {
		return err
	}
	parts := []string{}
	for _, d := range []struct {
		what string
		of   []cluster.Right
	}{{"it lacks: ", cluster.Without(want, have)}, {"it also grants: ", cluster.Without(have, want)}} {
		if len(d.of) > 0 {
			parts = append(parts, d.what+cluster.Words(d.of))
		}
	}
	_, next := exit.Of(conflict)
	return exit.New(exit.Failed, next, "%w; %s", conflict, strings.Join(parts, "; "))
}

// put applies an object.
func (j *joining) put(ctx context.Context, c client.Client, o client.Object) error {
	return j.putAs(ctx, c, fieldManager, o)
}

// putAs applies an object with a field manager. A client-side apply would repeat a token in an annotation.
func (j *joining) putAs(ctx context.Context, c client.Client, manager string, o client.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return fmt.Errorf("applying %s: %w", o.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	opts := []client.ApplyOption{client.FieldOwner(manager)}
	if j.force {
		opts = append(opts, client.ForceOwnership)
	}
	err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), opts...)
	if apierrors.IsConflict(err) {
		return exit.New(exit.Failed, "Find out who made the change. To overwrite it, run the command again with --force-conflicts.",
			"another client has changed %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	if err != nil {
		return fmt.Errorf("applying %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}

// describeSpec describes the settings of a SpokeCluster that a join sets.
func describeSpec(spec *v1alpha1.SpokeClusterSpec) string {
	var parts []string
	if spec.Suspend != nil && *spec.Suspend {
		parts = append(parts, "suspended")
	}
	if len(spec.EvaluatorRefs) > 0 {
		refs := make([]string, 0, len(spec.EvaluatorRefs))
		for _, r := range spec.EvaluatorRefs {
			refs = append(refs, candidate{r.Kind, string(r.Namespace), r.Name}.String())
		}
		parts = append(parts, "with rules evaluated by "+strings.Join(refs, ", "))
	}
	return strings.Join(parts, ", ")
}

// configure creates or changes the SpokeCluster before the Secret, so that its settings count from the start.
func (j *joining) configure(ctx context.Context) error {
	wanted := j.wantedSpoke()
	if wanted == nil {
		return nil
	}
	j.Say("On the hub: SpokeCluster %s, %s", j.name, describeSpec(&wanted.Spec))
	if j.present == nil {
		if err := j.hub.Create(ctx, wanted); err != nil {
			return fmt.Errorf("creating SpokeCluster %s: %w", j.name, err)
		}
		return nil
	}
	changed := j.present.DeepCopy()
	changed.Spec = wanted.Spec
	if err := j.hub.Patch(ctx, changed, client.MergeFrom(j.present)); err != nil {
		return fmt.Errorf("changing SpokeCluster %s: %w", j.name, err)
	}
	return nil
}
