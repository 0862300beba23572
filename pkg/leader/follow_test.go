package leader

import (
	"context"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// noted is a history that records the versions of the Lease.
type noted struct {
	read     func(context.Context) (string, error)
	versions []string
}

func (n *noted) Current(context.Context) error { return nil }

func (n *noted) Follow(_ string, read func(context.Context) (string, error)) func() func(string) {
	n.read = read
	return func() func(string) { return func(version string) { n.versions = append(n.versions, version) } }
}

// TestFollowLease compares each version of the Lease that the election reads or writes.
func TestFollowLease(t *testing.T) {
	hub, version := fake.NewClientset(), ""
	for _, verb := range []string{"get", "create", "update"} {
		hub.PrependReactor(verb, "leases", func(k8stesting.Action) (bool, runtime.Object, error) {
			return true, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "manager", ResourceVersion: version}}, nil
		})
	}
	h, key := &noted{}, client.ObjectKey{Namespace: "system", Name: "manager"}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Client:     follow(hub.CoordinationV1(), key, h),
		LockConfig: resourcelock.ResourceLockConfig{Identity: "a"},
	}
	steps := []func() error{
		func() error { return lock.Create(t.Context(), resourcelock.LeaderElectionRecord{}) },
		func() error { return lock.Update(t.Context(), resourcelock.LeaderElectionRecord{}) },
		func() error { _, _, err := lock.Get(t.Context()); return err },
	}
	for i, want := range []string{"7", "8", "5"} {
		version = want
		if err := steps[i](); err != nil {
			t.Fatal(err)
		}
		if n := len(h.versions); n != i+1 || h.versions[i] != want {
			t.Errorf("the history knows %v, and not %s at last", h.versions, want)
		}
	}
	if got, err := h.read(t.Context()); got != "5" || err != nil {
		t.Errorf("the history reads %q, %v", got, err)
	}
}
