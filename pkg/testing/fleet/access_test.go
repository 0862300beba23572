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
// kind/register gives there.
func TestSpokeAccessIsWhatIsRegistered(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(root, "charts", "rulefleet", "files", "spoke-access.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var given []rbacv1.PolicyRule
	for doc := range bytes.SplitSeq(data, []byte("\n---\n")) {
		role := &rbacv1.ClusterRole{}
		if err := yaml.Unmarshal(doc, role); err != nil {
			t.Fatal(err)
		}
		given = append(given, role.Rules...)
	}
	for _, o := range spokeAccess() {
		if role, ok := o.(*rbacv1.ClusterRole); ok && !reflect.DeepEqual(role.Rules, given) {
			t.Errorf("the suite runs with\n%+v\nand spoke-access.yaml gives\n%+v", role.Rules, given)
		}
	}
	if len(given) == 0 {
		t.Error("spoke-access.yaml gives nothing")
	}
}
