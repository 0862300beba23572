package cluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
)

// TestDenied has a message about rights that fits into a screen: one right in its line, others by their resource.
func TestDenied(t *testing.T) {
	const secrets = "secrets"
	var many []Right
	for i := range 2 * maxLines {
		many = append(many, Right{Verb: "get", Resource: fmt.Sprintf("kind-%02d", i)})
	}
	var first []string
	for _, r := range many[:maxLines] {
		first = append(first, "  "+r.Resource+": get\n")
	}
	for name, tc := range map[string]struct {
		rights []Right
		want   string
	}{
		"one":    {[]Right{{Verb: "get", Resource: secrets, Namespace: "a", Name: "b"}}, " get secrets b in namespace a\n"},
		"a path": {[]Right{{Verb: "get", Path: "/metrics"}}, " get /metrics\n"},
		"of names": {
			[]Right{{Verb: "get", Group: "apps", Resource: "deployments", Subresource: "scale", Name: "b"}, {Verb: "get", Path: "/metrics"}},
			"\n  deployments/scale.apps: get b\n  /metrics: get\n",
		},
		"of namespaces": {
			[]Right{{Verb: "get", Resource: secrets, Namespace: "a"}, {Verb: "get", Resource: secrets, Namespace: "b"}},
			"\n  secrets in namespace a: get\n  secrets in namespace b: get\n",
		},
		"by name": {
			[]Right{
				{Verb: "get", Resource: secrets, Name: "b"}, {Verb: "create", Resource: secrets}, {Verb: "patch", Resource: secrets, Name: "b"},
				{Verb: "get", Resource: secrets, Name: "a"}, {Verb: "patch", Resource: secrets, Name: "a"}, {Verb: "create", Resource: secrets, Name: "c"},
			},
			"\n  secrets: create; get, patch a, b; create c\n",
		},
		"many": {many, "\n" + strings.Join(first, "") + "  …\n"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Denied("here", tc.rights)
			code, next := exit.Of(err)
			printed, found := strings.CutPrefix(fmt.Sprintf("%v\n%s", err, next), "you lack permissions here:")
			if code != exit.Denied || !found || !strings.HasPrefix(printed, tc.want+"Ask an administrator") {
				t.Errorf("%d: %q, want %q", code, printed, tc.want)
			}
		})
	}
	if err := Denied("here", nil); err != nil {
		t.Error(err)
	}
}
