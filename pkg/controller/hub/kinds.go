package hub

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// lostRetry is when to check again a kind that is gone.
const lostRetry = 5 * time.Second

var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// Kinds reports when the kinds were defined. The hub's ConfigMap records the UID of each
// CustomResourceDefinition: a different UID means that the kind was deleted and defined again, whatever its
// creationTimestamp is. Use NewKinds to create one.
type Kinds struct {
	reader client.Reader
	writer client.Writer
	keys   RecordKeys
	former func() (renewed, acquired time.Time)
	clock  clock.PassiveClock
	begun  time.Time

	flights singleflight.Group
	// turn is held by the reader.
	turn chan struct{}
	// lost tells Start that a kind is gone.
	lost chan struct{}

	mu    sync.Mutex
	known map[Kind]known
	// past is what is recorded of restores; nil until it was read.
	past *past
}

// RecordKeys are the objects on the hub that record earlier processes.
type RecordKeys struct {
	// ConfigMap records the kinds.
	ConfigMap client.ObjectKey
	// Lease is the leader's lease, which was renewed until shortly before.
	Lease client.ObjectKey
}

// Defined says when a kind was defined.
type Defined struct {
	// Since is the time before which objects may belong to a former definition.
	Since time.Time
	// Anew means that the record has a former definition.
	Anew bool

	created time.Time
	// version is the first known resourceVersion of the CustomResourceDefinition.
	version string
}

// known is the known state of a CustomResourceDefinition.
type known struct {
	uid     types.UID
	version string
	// anew is when it was found to replace another one, or zero.
	anew time.Time
}

// NewKinds returns Kinds that bypass the cache. Without a writer, they do not record anything. former returns when a
// former leader renewed the lease for the last time, and when this one acquired it; it may be nil.
func NewKinds(reader client.Reader, writer client.Writer, keys RecordKeys, c clock.PassiveClock, former func() (renewed, acquired time.Time)) *Kinds {
	return &Kinds{
		reader: reader, writer: writer, keys: keys, clock: c, former: former, begun: c.Now(),
		turn: make(chan struct{}, 1), lost: make(chan struct{}, 1), known: map[Kind]known{},
	}
}

// Learn records the kinds on the hub, and reports whether it has all of them.
func (k *Kinds) Learn(ctx context.Context) (all bool, err error) {
	for _, kind := range kinds {
		if _, served, err := k.Defined(ctx, kind); err != nil || !served {
			return false, err
		}
	}
	return true, nil
}

// Start records the time without a leader, and then a kind that was gone as soon as it is back: an early record dates
// its objects more precisely. It returns when ctx ends.
func (k *Kinds) Start(ctx context.Context) error {
	for err := k.recordGap(ctx); err != nil && ctx.Err() == nil; err = k.recordGap(ctx) {
		log.FromContext(ctx).Error(err, "could not record the time in which no replica was the leader; trying again")
		select {
		case <-ctx.Done():
		case <-time.After(lostRetry):
		}
	}
	for {
		all, err := k.Learn(ctx)
		if err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "recording the CustomResourceDefinitions failed; retrying")
		}
		again := k.lost
		var later <-chan time.Time
		if !all {
			again, later = nil, time.After(lostRetry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-later:
		}
	}
}

// Defined says when a kind was defined, and whether it is served: its CustomResourceDefinition exists and is
// not being deleted. The read starts after the call, because the kind may have been lost recently. Concurrent
// callers share a read.
func (k *Kinds) Defined(ctx context.Context, kind Kind) (d Defined, served bool, err error) {
	flight := k.flights.DoChan(kind.crd, func() (any, error) {
		k.turn <- struct{}{}
		defer func() { <-k.turn }()
		k.flights.Forget(kind.crd) // later callers wait for the next read
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), live.Timeout)
		defer cancel()
		return k.read(ctx, kind)
	})
	select {
	case result := <-flight:
		if result.Err != nil {
			return Defined{}, false, result.Err //nolint:wrapcheck // it is read's
		}
		found := result.Val.(*Defined)
		if found == nil {
			select {
			case k.lost <- struct{}{}:
			default: // Start knows
			}
			return Defined{}, false, nil
		}
		return *found, true, nil
	case <-ctx.Done():
		return Defined{}, false, fmt.Errorf("reading CustomResourceDefinition %s: %w", kind.crd, ctx.Err())
	}
}

// Definition returns the UID of the CustomResourceDefinition that Defined found last, or "".
func (k *Kinds) Definition(kind Kind) types.UID {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.known[kind].uid
}

// read is Defined, once. It returns nil for a kind that is not served.
func (k *Kinds) read(ctx context.Context, kind Kind) (*Defined, error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(crdKind)
	err := k.reader.Get(ctx, client.ObjectKey{Name: kind.crd}, crd)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading CustomResourceDefinition %s: %w", kind.crd, err)
	case !crd.DeletionTimestamp.IsZero():
		return nil, nil
	}
	is, err := k.recall(ctx, kind, crd)
	if err != nil {
		return nil, err
	}
	d := &Defined{Since: crd.CreationTimestamp.Time, created: crd.CreationTimestamp.Time, version: is.version, Anew: !is.anew.IsZero()}
	if is.anew.After(d.Since) {
		d.Since = is.anew
	}
	return d, nil
}

// recall returns the known state of a CustomResourceDefinition, from this process or else from the record.
func (k *Kinds) recall(ctx context.Context, kind Kind, crd *metav1.PartialObjectMetadata) (known, error) {
	k.mu.Lock()
	is, found := k.known[kind]
	k.mu.Unlock()
	if found && is.uid == crd.UID {
		return is, nil
	}
	anew, err := k.record(ctx, kind, crd.UID)
	if err != nil {
		return known{}, err
	}
	if found && anew.IsZero() { // somebody removed the record
		if anew, err = k.now(ctx); err != nil {
			return known{}, err
		}
	}
	is = known{uid: crd.UID, version: crd.ResourceVersion, anew: anew}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known[kind] = is
	return is, nil
}

// record returns when a CustomResourceDefinition was found to replace another one, or zero, and adds missing
// data to the record. Without the ConfigMap, only the times decide; the manager creates it again at its next
// start.
func (k *Kinds) record(ctx context.Context, kind Kind, uid types.UID) (anew time.Time, err error) {
	if k.writer == nil {
		return time.Time{}, nil
	}
	cm, err := k.readRecord(ctx, "CustomResourceDefinition "+kind.crd)
	if err != nil || cm == nil {
		return time.Time{}, err
	}
	was, at, _ := strings.Cut(cm.Data[kind.crd], " ")
	if was == string(uid) {
		anew, _ = time.Parse(time.RFC3339, at)
		return anew, nil
	}
	value := string(uid)
	if was != "" {
		if anew, err = k.now(ctx); err != nil {
			return time.Time{}, err
		}
		value += " " + anew.Format(time.RFC3339)
	}
	if err := k.writeRecord(ctx, cm, "CustomResourceDefinition "+kind.crd, func(data map[string]string) { data[kind.crd] = value }); err != nil {
		return time.Time{}, err
	}
	return anew, nil
}

// readRecord returns the ConfigMap with the record, or nil if it does not exist. what is the part that is of interest.
func (k *Kinds) readRecord(ctx context.Context, what string) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{}
	switch err := k.reader.Get(ctx, k.keys.ConfigMap, cm); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the record of %s from ConfigMap %s: %w", what, k.keys.ConfigMap, err)
	}
	return cm, nil
}

// writeRecord changes the ConfigMap with the record.
func (k *Kinds) writeRecord(ctx context.Context, cm *corev1.ConfigMap, what string, change func(data map[string]string)) error {
	next := cm.DeepCopy()
	if next.Data == nil {
		next.Data = map[string]string{}
	}
	change(next.Data)
	if err := k.writer.Patch(ctx, next, client.MergeFrom(cm)); err != nil {
		return fmt.Errorf("recording the %s in ConfigMap %s: %w", what, k.keys.ConfigMap, err)
	}
	return nil
}

// now returns the latest of the clock's time, the time since the process started, and the leader's last
// renewal of the lease. A clock that was set back can't date earlier objects.
func (k *Kinds) now(ctx context.Context) (time.Time, error) {
	// Monotonic readings would hide that a clock was set back.
	now, counted := k.clock.Now().Round(0), k.begun.Round(0).Add(k.clock.Since(k.begun))
	if counted.After(now) {
		now = counted
	}
	if k.keys.Lease.Name != "" {
		lease := &coordinationv1.Lease{}
		err := k.reader.Get(ctx, k.keys.Lease, lease)
		if client.IgnoreNotFound(err) != nil {
			return time.Time{}, fmt.Errorf("reading the time from Lease %s: %w", k.keys.Lease, err)
		}
		if t := lease.Spec.RenewTime; t != nil && t.After(now) {
			now = t.Time
		}
	}
	return now.UTC().Truncate(time.Second), nil
}

// Dated returns a SpokeCluster with an age no greater than that of its kind's definition.
func (d Defined) Dated(c rule.Cluster) rule.Cluster {
	if c.Created.Before(d.Since) {
		c.Created = d.Since
	}
	return c
}

// Has reports whether a deleted object belonged to this definition of the kind. The deletion of a former
// definition deletes all its objects, without a decision about each. made is when the object was created, and
// version its last resourceVersion, which is higher than that of a later CustomResourceDefinition. Versions
// are independent of clocks; times are used if versions can't be compared or come from two etcds.
func (d Defined) Has(made time.Time, version string) bool {
	return !made.Before(d.created) && later(version, d.version)
}
