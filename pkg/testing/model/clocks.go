package model

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/pkg/controller/hub"
)

// record is the ConfigMap in which processes record the kinds.
var record = client.ObjectKey{Namespace: "rulefleet-system", Name: "rulefleet-hub"}

// recordKinds creates the record, with the kinds that there are, as the first process does.
func (s *Schedule) recordKinds() {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: record.Namespace, Name: record.Name}, Data: map[string]string{}}
	for _, k := range kinds {
		crd := definition(k.plural)
		cm.Data[crd.Name] = string(s.Hub.Find(RefOf(crd)).GetUID())
	}
	s.Create(s.Hub, cm)
}

// Kinds returns what a new process knows of the kinds: the record.
func (s *Schedule) Kinds() *hub.Kinds {
	return hub.NewKinds(s.Reads(s.Hub), &recorder{on: s.Hub}, hub.RecordKeys{ConfigMap: record}, clock.RealClock{}, nil)
}

// recorder writes the record. The faults of a Schedule do not hit it, because it writes in a goroutine of its own.
type recorder struct {
	client.Writer // what is not needed

	on *Server
}

// Patch implements client.Writer.
func (r *recorder) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	if _, err := r.on.Update(o); err != nil {
		return fmt.Errorf("patching %s: %w", o.GetName(), err)
	}
	return nil
}

// clockIsSet sets the clock of an API server. That of the hub is never ahead: that it was is not noticed when it was set
// right (see docs/design/removals.md).
func (s *Schedule) clockIsSet(*rapid.T) {
	of, name, by := s.Hub, "hub", []time.Duration{0, -time.Hour}
	if rapid.Bool().Draw(s.T, "spoke") {
		of, name, by = s.Spoke, "spoke", []time.Duration{0, -time.Hour, 10 * time.Minute, time.Hour}
	}
	ahead := rapid.SampledFrom(by).Draw(s.T, "ahead")
	if ahead == of.Ahead {
		s.Skip("it is")
	}
	s.Say("the clock of the %s is set: it is %v ahead", name, ahead)
	of.Ahead = ahead
}
