package contest

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// The intention of a status does not depend on its times, but on the object.
func TestOfStatus(t *testing.T) {
	status := func(at int64, message string) *v1alpha1.SpokeClusterStatus {
		when := metav1.NewTime(time.Unix(at, 0))
		return &v1alpha1.SpokeClusterStatus{
			Identity: "a", LastContactTime: when, IdentityTime: when,
			Conditions: []metav1.Condition{{Type: "Ready", Message: message, LastTransitionTime: when}},
		}
	}
	sc := &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "first", ResourceVersion: "7"}}
	write := OfStatus(SpokeCluster, sc, status(1, "x"))
	if write.Name != "s" || write.Base != "7" || !write.Status {
		t.Errorf("got %+v", write)
	}
	if later := OfStatus(SpokeCluster, sc, status(2, "x")); later != write {
		t.Errorf("at another time it is\n%+v, not\n%+v", later, write)
	}
	if other := OfStatus(SpokeCluster, sc, status(1, "y")); other.Meant == write.Meant {
		t.Error("another message is the same")
	}
	sc.UID = "second"
	if other := OfStatus(SpokeCluster, sc, status(1, "x")); other.Meant == write.Meant || other.Object != write.Object {
		t.Errorf("of another object it is %+v", other)
	}
}
