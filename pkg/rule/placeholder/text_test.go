package placeholder

import (
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

func TestPlaceholderInsideAnAction(t *testing.T) {
	for _, text := range []string{
		`{{ $(cluster.name) }}`,
		`{{ "$(cluster.name)" }}`,
		"{{ `$(cluster.name)` }}",
		`{{/* $(cluster.name) */}}`,
		`{{- /* }} $(cluster.name) */ -}}`,
		`{{ "}}" }}{{ "\"}}$(cluster.name)" }}`,
		`{{ '}' }}{{ '\'' "$(cluster.name)" }}`,
		`{{ $(cluster.name)`,
		`{{{ $(cluster.name)`,
		`$(cluster.name){{ $(cluster.name) }}`,
		"{{ `\n}}$(cluster.name)` }}",
	} {
		t.Run(text, func(t *testing.T) {
			for name, st := range map[string]Stage{"generate": ForWorkload(Workload{Kind: v1alpha1.DeploymentKind}, nil), "render": ForCluster("", nil)} {
				if got, f := st.text(text); f == nil || !strings.Contains(f.Message, "is inside {{ … }}") {
					t.Errorf("%s: text(%q) = %q, %v", name, text, got, f)
				}
			}
		})
	}
	for _, text := range []string{
		`{{ $value }}$(cluster.name){{ $value }}`, `{$(cluster.name)}`, `}}$(cluster.name)`, "{{ `}}` }}$(cluster.name)",
		`{{/* ' */}}$(cluster.name)`, `{{ "\"}}" }}$(cluster.name)`, `{{ '"' }}$(cluster.name)`, `{{- $value -}} $(cluster.name)`,
	} {
		t.Run(text, func(t *testing.T) {
			if _, f := ForCluster("", nil).text(text); f != nil {
				t.Errorf("text(%q): %v", text, f)
			}
		})
	}
}
