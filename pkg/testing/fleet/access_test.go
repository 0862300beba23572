package fleet

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// TestSpokeAccessIsWhatIsRegistered holds what the suite runs with in the spokes to what
// kubectl rulefleet join gives there.
func TestSpokeAccessIsWhatIsRegistered(t *testing.T) {
	given := rulesOf(t, "ClusterRole")
	runsWith := map[string][]rbacv1.PolicyRule{}
	for _, o := range spokeAccess() {
		if role, ok := o.(*rbacv1.ClusterRole); ok {
			runsWith[role.Name] = role.Rules
		}
	}
	if !reflect.DeepEqual(runsWith, given) {
		t.Errorf("the suite runs with\n%+v\nand spoke-access.yaml gives\n%+v", runsWith, given)
	}
	if len(given) != 2 || len(given[SpokeUser]) == 0 || len(given[EvaluateGrant]) == 0 {
		t.Errorf("spoke-access.yaml gives %+v", given)
	}
	// The permission to renew tokens is only for those that join has requested.
	if other := rulesOf(t, "Role"); len(other) != 1 || len(other["rulefleet-spoke-renew"]) != 1 {
		t.Errorf("the suite runs without what spoke-access.yaml gives by Roles: %+v", other)
	}
}

// rulesOf returns the rules in spoke-access.yaml by the name of their role, of one kind.
func rulesOf(t *testing.T, kind string) map[string][]rbacv1.PolicyRule {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(root, "charts", "rulefleet", "files", "spoke-access.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]rbacv1.PolicyRule{}
	for doc := range bytes.SplitSeq(data, []byte("\n---\n")) {
		role := &rbacv1.ClusterRole{}
		if err := yaml.Unmarshal(doc, role); err != nil {
			t.Fatal(err)
		}
		if role.Kind == kind {
			out[role.Name] = role.Rules
		}
	}
	return out
}
