package model

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/contest"
	"github.com/rulefleet/rulefleet/pkg/controller/brake"
	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/spoke/queue"
)

// holding is what a process does about held deletions: it shows them on the SpokeCluster, as package membership does, and
// processes acknowledgements.
type holding struct {
	*brake.Reconciler

	hop brake.Hop
}

// aboutHeld is the key of holding in a queue. Other keys have a namespace.
var aboutHeld = queue.Request{Request: reconcile.Request{NamespacedName: types.NamespacedName{Name: SpokeName}}}

// aboutHeldAfter is the debounce of the Reconciler.
const aboutHeldAfter = 2 * time.Second

// Hold returns the brake of a process, for one of the hops.
func (s *Schedule) Hold(p *Process, hop brake.Hop) *brake.Brake {
	b := brake.New(clock.RealClock{}, Hold)
	sc := &v1alpha1.SpokeCluster{}
	if err := p.OnHub.Get(context.Background(), client.ObjectKey{Name: SpokeName}, sc); err == nil {
		var shown *brake.Held
		if was := sc.Status.PendingDeletions; was != nil {
			shown = &brake.Held{Count: int(was.Held), Suspects: int(was.Suspect), Names: was.Names}
		}
		b.Recall(SpokeName, shown, sc.Status.IdentityTime.Time)
	}
	if err := b.Woken(hop).Start(context.Background(), p.Queue); err != nil {
		s.Fatal(err)
	}
	p.holding = &holding{hop: hop, Reconciler: &brake.Reconciler{
		Client: &Client{Schedule: s, Process: p}, Brake: b, Engaged: func(string) bool { return true },
		Changed: func(string) {}, Recorder: NoEvents{}, Contests: contest.New(clock.RealClock{}, 0),
	}}
	p.Queue.Add(aboutHeld)
	return b
}

// holds reports whether deletions are held or were released.
func (h *holding) holds() bool { return h != nil && len(h.Brake.Owners(h.hop, SpokeName)) > 0 }

// reconcile processes an acknowledgement, and updates the SpokeCluster.
func (h *holding) reconcile(ctx context.Context) (reconcile.Result, error) {
	result, err := h.Reconcile(ctx, aboutHeld.Request)
	if err != nil {
		return result, err
	}
	sc := &v1alpha1.SpokeCluster{}
	if err := h.Client.Get(ctx, aboutHeld.NamespacedName, sc); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	next := sc.DeepCopy()
	if next.Status.PendingDeletions = nil; h.Brake.Held(SpokeName) != nil {
		is := h.Brake.Held(SpokeName)
		next.Status.PendingDeletions = &v1alpha1.PendingDeletions{Count: int32(is.Count), Held: int32(is.Count), Suspect: int32(is.Suspects), Names: is.Names}
	}
	if equality.Semantic.DeepEqual(next.Status, sc.Status) {
		return result, nil
	}
	return result, h.Client.Status().Patch(ctx, next, nil)
}

// NoEvents is an EventRecorder.
type NoEvents struct{}

// Eventf implements events.EventRecorder.
func (NoEvents) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

// personAcknowledges releases held deletions, if there are any.
func (s *Schedule) personAcknowledges(*rapid.T) {
	sc := s.SpokeCluster()
	s.Say("a person acknowledges the deletions that are held: %v", pending(sc))
	metav1.SetMetaDataAnnotation(&sc.ObjectMeta, v1alpha1.AcknowledgeDeletionsAnnotation, "true")
	_, _ = s.Hub.Update(sc)
}

// acknowledged notes that a process removes an acknowledgement from a version of the SpokeCluster, which shows what the
// person has seen.
func (s *Schedule) acknowledged(p *Process, sc *v1alpha1.SpokeCluster) {
	for _, name := range pending(sc) {
		s.released[name] = true
	}
	s.Budget.Release(p, time.Now())
}

// Released reports whether a person acknowledged the removal of a rule's objects.
func (s *Schedule) Released(key rule.Key) bool { return s.released[key.Listed()] }

// Pending reports whether the SpokeCluster shows that the removal of a rule's objects waits for a person. It names some
// of those that wait.
func (s *Schedule) Pending(key rule.Key) bool {
	p := s.SpokeCluster().Status.PendingDeletions
	return p != nil && (slices.Contains(p.Names, key.Listed()) || int(p.Count) > len(p.Names))
}

func pending(sc *v1alpha1.SpokeCluster) []string {
	if sc.Status.PendingDeletions == nil {
		return nil
	}
	return sc.Status.PendingDeletions.Names
}
