package membership

import (
	"context"
	"encoding/json"
	"maps"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Only labels and the finalizer are applied, so that all other fields, and an empty map of labels, have no owner.
func TestMirrorAppliesNothingElse(t *testing.T) {
	for name, tc := range map[string]struct {
		labels map[string]string
		want   string
	}{
		"labels":    {map[string]string{"env": "prod", "a": "b"}, `{"finalizers":["` + v1alpha1.LeaveFinalizer + `"],"labels":{"a":"b","env":"prod"},"name":"s"}`},
		"no labels": {nil, `{"finalizers":["` + v1alpha1.LeaveFinalizer + `"],"name":"s"}`},
	} {
		t.Run(name, func(t *testing.T) {
			secret := secretOf("s", nil)
			maps.Copy(secret.Labels, tc.labels)
			r, _ := registrar(t, secret)
			r.Rules = noRules{}
			var applied []byte
			r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
				Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) (err error) {
					if applied, err = json.Marshal(o); err != nil {
						return err
					}
					return c.Apply(ctx, o, opts...)
				},
			})
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "s"}}); err != nil {
				t.Fatal(err)
			}
			want := `{"apiVersion":"rulefleet.io/v1alpha1","kind":"SpokeCluster","metadata":` + tc.want + `}`
			if string(applied) != want {
				t.Errorf("applied is\n%s, want\n%s", applied, want)
			}
		})
	}
}
