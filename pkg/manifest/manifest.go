// Package manifest reads files with Kubernetes objects.
package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Objects returns the objects of a file with YAML documents. Documents without content are left out.
func Objects(file []byte) ([]*unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(file), 4096)
	var out []*unstructured.Unstructured
	for n := 1; ; n++ {
		o := &unstructured.Unstructured{}
		switch err := decoder.Decode(&o.Object); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("document %d: %w", n, err)
		case len(o.Object) > 0:
			out = append(out, o)
		}
	}
}
