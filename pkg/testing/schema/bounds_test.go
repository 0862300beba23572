package schema

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// inSelector is a path into a label selector. Its fields have no bounds: the type is
// Kubernetes' own, and markers can't reach into it. The size of a request bounds them,
// and the validator parses every selector.
var inSelector = regexp.MustCompile(`\.(selector|workloads|ruleSelector|ruleNamespaceSelector)\.match`)

// keyed is a key of a map, as rules in CEL name it.
var keyed = regexp.MustCompile(`\[([a-z]+)\]`)

// TestBounds breaks every bound of every field, one at a time: the API server has to
// refuse it, and to name the field.
func TestBounds(t *testing.T) {
	for _, c := range crds(t) {
		t.Run(c.kind, func(t *testing.T) {
			if err := dryCreate(t, c.full); err != nil {
				t.Fatalf("the full object is refused as it is: %v", err)
			}
			spec := violations(t, c, "spec")
			checkAll(t, spec, func(v violation) error {
				o, _ := with(c.full.Object, v.put, v.value).(map[string]any)
				return dryCreate(t, &unstructured.Unstructured{Object: o})
			})
			stored := create(t, c.full)
			status := violations(t, c, "status")
			checkAll(t, status, func(v violation) error {
				o, _ := with(with(stored.Object, path{"status"}, c.full.Object["status"]), v.put, v.value).(map[string]any)
				return hub.Client.Status().Update(t.Context(), &unstructured.Unstructured{Object: o}, client.DryRunAll)
			})
			t.Logf("%d checks of the spec, %d of the status: %s", len(spec), len(status), count(append(spec, status...)))
		})
	}
}

// violations returns those of the spec or of the status. There are always some.
func violations(t *testing.T, c crd, part string) []violation {
	t.Helper()
	w := &walker{t: t}
	schema := c.schema.Properties[part]
	w.walk(&schema, path{part}, c.full.Object[part])
	if len(w.violations) == 0 {
		t.Fatalf("no bound was found in the %s of %s", part, c.kind)
	}
	for _, complaint := range w.unbounded {
		if !inSelector.MatchString(complaint) {
			t.Errorf("%s: %s", c.kind, complaint)
		}
	}
	return w.violations
}

func checkAll(t *testing.T, all []violation, send func(violation) error) {
	t.Helper()
	for _, v := range all {
		err := send(v)
		if err == nil {
			t.Errorf("%s: %s is not refused", v.name(), excerpt(v.value))
			continue
		}
		found := causes(t, err)
		if !slices.ContainsFunc(found, v.is) {
			t.Errorf("%s: no cause names the field and says %q: %+v", v.name(), v.says, found)
		}
		for _, cause := range found {
			if !v.concerns(cause) {
				t.Errorf("%s: something else is wrong, too: %+v", v.name(), cause)
			}
		}
	}
}

// is reports whether a cause is the one that was to be expected.
func (v violation) is(cause metav1.StatusCause) bool {
	return cause.Field == v.at.String() && strings.Contains(cause.Message, v.says)
}

// concerns reports whether a cause is a consequence of the violation: it is at the same
// field or within what was put, or says that the rules in CEL were left out.
func (v violation) concerns(cause metav1.StatusCause) bool {
	return strings.HasPrefix(keyed.ReplaceAllString(cause.Field, ".$1"), v.put.String()) || strings.Contains(cause.Message, "some validation rules were not checked")
}

func count(all []violation) string {
	counts := map[string]int{}
	for _, v := range all {
		counts[v.bound]++
	}
	var out []string
	for _, bound := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%d %s", counts[bound], bound))
	}
	return strings.Join(out, ", ")
}

func excerpt(value any) string {
	text := fmt.Sprint(value)
	return text[:min(len(text), 80)]
}
