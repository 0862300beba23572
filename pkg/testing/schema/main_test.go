package schema

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// root is the root module's folder.
var root = filepath.Join("..", "..", "..")

// hub is an API server with our CRDs.
var hub *fleet.Member

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(context.Background(), m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "schema:", err)
		code = 1
	}
	os.Exit(code)
}

func run(ctx context.Context, m *testing.M) (code int, err error) {
	f, err := fleet.Start(ctx, fleet.Options{})
	if err != nil {
		return 1, fmt.Errorf("starting a hub: %w", err)
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	hub = f.Hub
	return m.Run(), nil
}

// crd is one of our CRDs, with an object of its kind that has every field set.
type crd struct {
	kind   string
	schema *apiextensionsv1.JSONSchemaProps
	full   *unstructured.Unstructured
}

// crds reads the CRDs and their full objects.
func crds(t *testing.T) []crd {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "charts", "rulefleet", "files", "crds", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no CRDs: %v", err)
	}
	var out []crd
	for _, file := range files {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		decode(t, file, definition)
		if n := len(definition.Spec.Versions); n != 1 {
			t.Fatalf("%s: there are %d versions, and this test knows of one", file, n)
		}
		kind := definition.Spec.Names.Kind
		c := crd{kind: kind, schema: definition.Spec.Versions[0].Schema.OpenAPIV3Schema, full: &unstructured.Unstructured{}}
		decode(t, filepath.Join("testdata", kind+".yaml"), &c.full.Object)
		out = append(out, c)
	}
	return out
}

// full returns an object of a kind that has every field set.
func full(t *testing.T, kind string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	decode(t, filepath.Join("testdata", kind+".yaml"), &o.Object)
	return o
}

func decode(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// causes returns what an API server's refusal says, field by field. Any other error
// ends the test.
func causes(t *testing.T, err error) []metav1.StatusCause {
	t.Helper()
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsInvalid(err) || status.ErrStatus.Details == nil {
		t.Fatalf("that is no refusal of an invalid object: %v", err)
	}
	return status.ErrStatus.Details.Causes
}

// dryCreate asks the API server what it would say to a new object.
func dryCreate(t *testing.T, o *unstructured.Unstructured) error {
	t.Helper()
	return hub.Client.Create(t.Context(), o.DeepCopy(), client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
}

// create creates an object, and deletes it at the end of the test.
func create(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	o = o.DeepCopy()
	if err := hub.Client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := hub.Client.Delete(context.WithoutCancel(t.Context()), o); err != nil {
			t.Error(err)
		}
	})
	return o
}
