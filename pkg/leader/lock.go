package leader

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// How long a leader may be silent before another one takes over, how long it tries to renew before it gives
// up, and how often. These are the defaults of client-go.
const (
	LeaseDuration = 15 * time.Second
	RenewDeadline = 10 * time.Second
	RetryPeriod   = 2 * time.Second
)

var (
	errForeign = errors.New("lease not released: another replica holds it")
	errNewTerm = errors.New("another replica held the lease in the meantime, so the state of this one is outdated")
)

// Identity returns a unique name for this process. pod is the UID of its pod, or "".
func Identity(pod string) (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("reading the host name: %w", err)
	}
	return host + inPod(pod) + string(uuid.NewUUID()), nil
}

// inPod returns the common part of the names of all processes of a pod.
func inPod(pod string) string {
	if pod == "" {
		return "_"
	}
	return "_" + pod + "_"
}

// History knows the history of the hub, which a restore from a backup changes.
type History interface {
	// Current returns an error if this replica's state of the hub may be outdated.
	Current(ctx context.Context) error
	// Follow compares the versions of an object. reading begins a read or a write of it by the caller.
	Follow(kind string, read func(context.Context) (resourceVersion string, err error)) (reading func() func(resourceVersion string))
}

// NewLock returns the lock for the leader election, which reports to the fence. The configuration must not be
// behind a fence. The lock emits no Events, because the last one would be a write by a replica that no longer
// leads.
//
// With the UID of this replica's pod, a lease that a former process of the pod holds is free: a container is
// restarted only after its process has ended.
//
// The lease is not acquired while the history is not known to be current. That is checked before each attempt, but not
// for renewals. The history follows the versions of the Lease.
func NewLock(
	cfg *rest.Config, lease client.ObjectKey, identity, pod string, fence *Fence, history History,
) (resourcelock.Interface, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent += " leader-election"
	cfg.Timeout = RenewDeadline / 2 // leaves time for another attempt after a request that hangs
	c, err := coordinationv1.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating a client for leader election: %w", err)
	}
	l := fence.watch(&resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name},
		Client:     follow(c, lease, history),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	})
	l.pod, l.current = pod, history.Current
	return l, nil
}

func (f *Fence) watch(l resourcelock.Interface) *lock {
	return &lock{Interface: l, fence: f, current: func(context.Context) error { return nil }}
}

// lock reports the state of the lease to a fence. Only the elector's goroutine uses it.
type lock struct {
	resourcelock.Interface
	fence *Fence
	// pod is the UID of this replica's pod, or "".
	pod string
	// holder is the last known holder of the lease, and renewed is when another replica last renewed it.
	holder  string
	renewed time.Time
	// current returns an error if this replica's state is outdated.
	current func(context.Context) error
}

// Get implements resourcelock.Interface.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err != nil {
		return nil, nil, err
	}
	l.holder = record.HolderIdentity
	if l.holder != l.Identity() { // the answer to its own first write may be lost
		l.renewed = record.RenewTime.Time
	}
	if _, ever := l.fence.held(); ever && l.holder != "" && l.holder != l.Identity() {
		l.fence.lose()
	}
	if l.ended(l.holder) {
		record.HolderIdentity = ""
	}
	return record, raw, nil
}

// ended reports whether a holder of the lease is a former process of this replica's pod.
func (l *lock) ended(holder string) bool {
	return l.pod != "" && holder != l.Identity() && strings.Contains(holder, inPod(l.pod))
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity != l.Identity() {
		return l.giveUp(ctx, record)
	}
	if term, ever := l.fence.held(); ever && record.LeaderTransitions != term {
		l.fence.lose()
		return errNewTerm
	}
	return l.write(ctx, record, l.Interface.Update)
}

// write acquires or renews the lease. The time when it was sent counts, because others count from when they
// see it.
func (l *lock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	_, ever := l.fence.held()
	if !ever {
		if err := l.current(ctx); err != nil {
			return fmt.Errorf("this replica does not hold the lease yet: %w", err)
		}
	}
	sent := l.fence.now()
	if err := write(ctx, record); err != nil {
		return err
	}
	l.holder = record.HolderIdentity
	if !ever {
		l.fence.succeed(l.renewed)
	}
	l.fence.renew(sent, record.LeaderTransitions)
	return nil
}

// giveUp releases the lease; nothing is written afterwards. client-go would also release the lease of another
// replica if the one that stops has not noticed that it lost its own.
func (l *lock) giveUp(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.fence.Close()
	if l.holder != l.Identity() {
		return errForeign
	}
	return l.Interface.Update(ctx, record)
}
