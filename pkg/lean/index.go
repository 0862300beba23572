package lean

import (
	"slices"
	"strings"

	toolscache "k8s.io/client-go/tools/cache"
)

// These are how controller-runtime names the indexes of fields, and the entries in them for lists of all namespaces.
const (
	fieldIndexes  = "field:"
	allNamespaces = "__all_namespaces/"
)

// Indexed returns an informer whose indexes of fields only serve lists of all namespaces: a list with MatchingFields and
// InNamespace finds nothing. Each entry takes as much memory as a small object, and for each value, there would be one
// more for the namespace.
func Indexed(i toolscache.SharedIndexInformer) toolscache.SharedIndexInformer { return &indexed{i} }

type indexed struct{ toolscache.SharedIndexInformer }

// AddIndexers implements SharedIndexInformer.
func (i *indexed) AddIndexers(all toolscache.Indexers) error {
	out := make(toolscache.Indexers, len(all))
	for name, keys := range all {
		if strings.HasPrefix(name, fieldIndexes) {
			keys = ofAllNamespaces(keys)
		}
		out[name] = keys
	}
	return i.SharedIndexInformer.AddIndexers(out) //nolint:wrapcheck // it takes the place of that method
}

func ofAllNamespaces(keys toolscache.IndexFunc) toolscache.IndexFunc {
	return func(o any) ([]string, error) {
		found, err := keys(o)
		return slices.DeleteFunc(found, func(key string) bool { return !strings.HasPrefix(key, allNamespaces) }), err
	}
}
