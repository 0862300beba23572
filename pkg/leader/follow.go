package leader

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// follow returns a client for a Lease, of which a history follows all versions.
func follow(c coordination.LeasesGetter, lease client.ObjectKey, history History) coordination.LeasesGetter {
	reading := history.Follow("Lease", func(ctx context.Context) (string, error) {
		l, err := c.Leases(lease.Namespace).Get(ctx, lease.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return l.ResourceVersion, nil
	})
	return followedLeases{c, reading}
}

type followedLeases struct {
	coordination.LeasesGetter

	reading func() func(resourceVersion string)
}

// Leases implements coordination.LeasesGetter.
func (f followedLeases) Leases(namespace string) coordination.LeaseInterface {
	return followedLease{f.LeasesGetter.Leases(namespace), f.reading}
}

type followedLease struct {
	coordination.LeaseInterface

	reading func() func(resourceVersion string)
}

// Get implements coordination.LeaseInterface.
func (f followedLease) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	return f.note(func() (*coordinationv1.Lease, error) { return f.LeaseInterface.Get(ctx, name, o) })
}

// Create implements coordination.LeaseInterface.
func (f followedLease) Create(ctx context.Context, l *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return f.note(func() (*coordinationv1.Lease, error) { return f.LeaseInterface.Create(ctx, l, o) })
}

// Update implements coordination.LeaseInterface.
func (f followedLease) Update(ctx context.Context, l *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return f.note(func() (*coordinationv1.Lease, error) { return f.LeaseInterface.Update(ctx, l, o) })
}

func (f followedLease) note(ask func() (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	found := f.reading()
	l, err := ask()
	if err == nil {
		found(l.ResourceVersion)
	}
	return l, err
}
