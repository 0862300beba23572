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

// How long a leader may be silent before another takes over, how long it tries to renew
// before it gives up, and how often: client-go's defaults.
const (
	LeaseDuration = 15 * time.Second
	RenewDeadline = 10 * time.Second
	RetryPeriod   = 2 * time.Second
)

var (
	errForeign = errors.New("lease not released: another replica holds it")
	errNewTerm = errors.New("another replica held the lease in the meantime, so the state of this one is outdated")
)

// Identity returns a name for this replica that no other has, nor this one when it is
// started again. pod is the UID of the pod that it runs in, or "".
func Identity(pod string) (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("reading the host name: %w", err)
	}
	return host + inPod(pod) + string(uuid.NewUUID()), nil
}

// inPod is what the names of all processes that ran in a pod have in common.
func inPod(pod string) string {
	if pod == "" {
		return "_"
	}
	return "_" + pod + "_"
}

// NewLock returns the lock by which replicas agree on a leader, with what it learns told
// to the fence. The configuration has to be one that no fence stands before. It emits no
// Events: the last would be a write of one that leads no more.
//
// With the UID of the pod that this replica runs in, a lease that a former process of that pod
// holds is free: a container is started again when its process has ended.
//
// The lease is not taken as long as current returns an error, which tells that what this replica
// knows of the hub may be of another time. It is asked before each attempt, and not about renewals.
func NewLock(
	cfg *rest.Config, lease client.ObjectKey, identity, pod string, fence *Fence, current func(context.Context) error,
) (resourcelock.Interface, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent += " leader-election"
	cfg.Timeout = RenewDeadline / 2 // a request that hangs leaves time for another
	c, err := coordinationv1.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating a client for leader election: %w", err)
	}
	l := fence.watch(&resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name},
		Client:     c,
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	})
	l.pod, l.current = pod, current
	return l, nil
}

func (f *Fence) watch(l resourcelock.Interface) *lock {
	return &lock{Interface: l, fence: f, current: func(context.Context) error { return nil }}
}

// lock tells a fence what becomes of the lease. It is used by one goroutine, the elector's.
type lock struct {
	resourcelock.Interface
	fence *Fence
	// pod is the UID of the pod that this replica runs in, or "".
	pod string
	// holder is who was last seen to hold the lease.
	holder string
	// current tells whether this replica may lead by what it knows.
	current func(context.Context) error
}

// Get implements resourcelock.Interface.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err != nil {
		return nil, nil, err
	}
	l.holder = record.HolderIdentity
	if _, ever := l.fence.held(); ever && l.holder != "" && l.holder != l.Identity() {
		l.fence.lose()
	}
	if l.ended(l.holder) {
		record.HolderIdentity = ""
	}
	return record, raw, nil
}

// ended tells whether a holder of the lease is a former process of this replica's pod.
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

// write gets or renews the lease. What counts is when that was sent: others count from
// when they see it.
func (l *lock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	if _, ever := l.fence.held(); !ever {
		if err := l.current(ctx); err != nil {
			return fmt.Errorf("this replica does not hold the lease yet: %w", err)
		}
	}
	sent := l.fence.now()
	if err := write(ctx, record); err != nil {
		return err
	}
	l.holder = record.HolderIdentity
	l.fence.renew(sent, record.LeaderTransitions)
	return nil
}

// giveUp releases the lease: nothing is written from then on. client-go would release
// another's lease too, when the one that stops had no time to notice that it lost its own.
func (l *lock) giveUp(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.fence.release()
	if l.holder != l.Identity() {
		return errForeign
	}
	return l.Interface.Update(ctx, record)
}
