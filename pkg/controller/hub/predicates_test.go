package hub

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

func TestEdited(t *testing.T) {
	version := func(uid types.UID, generation int64, tier string) client.Object {
		return &v1alpha1.SpokeCluster{ObjectMeta: metav1.ObjectMeta{UID: uid, Generation: generation, Labels: map[string]string{"tier": tier}}}
	}
	for name, tc := range map[string]struct {
		is              client.Object
		edited, decided bool
	}{
		"the same":       {is: version("1", 1, "gold")},
		"another spec":   {is: version("1", 2, "gold"), edited: true, decided: true},
		"another label":  {is: version("1", 1, "silver"), decided: true},
		"another object": {is: version("2", 1, "gold"), edited: true, decided: true},
	} {
		t.Run(name, func(t *testing.T) {
			e := event.UpdateEvent{ObjectOld: version("1", 1, "gold"), ObjectNew: tc.is}
			if edited, decided := Edited.Update(e), Decided.Update(e); edited != tc.edited || decided != tc.decided {
				t.Errorf("edited: %v, decided: %v", edited, decided)
			}
		})
	}
}
