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
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rulefleet/rulefleet/pkg/live"
	"github.com/rulefleet/rulefleet/pkg/rule"
)

// lostRetry is when to look again at a kind that was found to be gone.
const lostRetry = 5 * time.Second

var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// Kinds tells when the kinds were defined. The hub's ConfigMap has the UID of each kind's
// CustomResourceDefinition: another UID means that the kind was deleted and made anew, whatever
// its creationTimestamp is. NewKinds makes one.
type Kinds struct {
	reader client.Reader
	writer client.Writer
	keys   RecordKeys
	clock  clock.PassiveClock
	begun  time.Time

	flights singleflight.Group
	// turn is held by the one who reads.
	turn chan struct{}
	// lost tells Start that a kind was found to be gone.
	lost chan struct{}

	mu    sync.Mutex
	known map[Kind]known
}

// RecordKeys are the objects on the hub by which a process knows what was before it.
type RecordKeys struct {
	// ConfigMap has the record of the kinds.
	ConfigMap client.ObjectKey
	// Lease is that of the leader: it was renewed until shortly before.
	Lease client.ObjectKey
}

// Defined is what is known of when a kind was defined.
type Defined struct {
	// Since is the time up to which what was made may be of a former kind.
	Since time.Time
	// Anew tells that there was a former kind, by the record.
	Anew bool

	created time.Time
	// version is the CustomResourceDefinition's resourceVersion when it was first read.
	version string
}

// known is what was read before of a CustomResourceDefinition.
type known struct {
	uid     types.UID
	version string
	// anew is when it was found in place of another one, or zero.
	anew time.Time
}

// NewKinds returns Kinds that read past the cache. Without a writer, they keep no record.
func NewKinds(reader client.Reader, writer client.Writer, keys RecordKeys, c clock.PassiveClock) *Kinds {
	return &Kinds{
		reader: reader, writer: writer, keys: keys, clock: c, begun: c.Now(),
		turn: make(chan struct{}, 1), lost: make(chan struct{}, 1), known: map[Kind]known{},
	}
}

// Learn records the kinds that the hub has, and tells whether it has all of them.
func (k *Kinds) Learn(ctx context.Context) (all bool, err error) {
	for _, kind := range kinds {
		if _, served, err := k.Defined(ctx, kind); err != nil || !served {
			return false, err
		}
	}
	return true, nil
}

// Start learns the kinds anew each time that one was found to be gone, until they are back. The
// sooner that is noticed, the less is taken to be older than it is. It returns when ctx ends.
func (k *Kinds) Start(ctx context.Context) error {
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

// Defined tells when a kind was defined, and whether it is there to stay: its
// CustomResourceDefinition exists, and is not being deleted. It is read after the call, for
// the kind may have been lost since what was read before. One read serves all who wait for it.
func (k *Kinds) Defined(ctx context.Context, kind Kind) (d Defined, served bool, err error) {
	flight := k.flights.DoChan(kind.crd, func() (any, error) {
		k.turn <- struct{}{}
		defer func() { <-k.turn }()
		k.flights.Forget(kind.crd) // who comes from here on waits for the next read
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

// read is Defined, once. It returns nil for a kind that is not there to stay.
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

// recall returns what is known of a CustomResourceDefinition: what this process read of it, or
// else what is on record.
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

// record returns when a CustomResourceDefinition was found in place of another one, or zero. It
// writes to the record what is not there yet. Without a ConfigMap, which a person deleted, the
// times decide alone: it is made again when the manager starts.
func (k *Kinds) record(ctx context.Context, kind Kind, uid types.UID) (anew time.Time, err error) {
	if k.writer == nil {
		return time.Time{}, nil
	}
	cm := &corev1.ConfigMap{}
	switch err := k.reader.Get(ctx, k.keys.ConfigMap, cm); {
	case apierrors.IsNotFound(err):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, fmt.Errorf("reading from ConfigMap %s the record of CustomResourceDefinition %s: %w", k.keys.ConfigMap, kind.crd, err)
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
	next := cm.DeepCopy()
	if next.Data == nil {
		next.Data = map[string]string{}
	}
	next.Data[kind.crd] = value
	if err := k.writer.Patch(ctx, next, client.MergeFrom(cm)); err != nil {
		return time.Time{}, fmt.Errorf("recording in ConfigMap %s the CustomResourceDefinition %s: %w", k.keys.ConfigMap, kind.crd, err)
	}
	return anew, nil
}

// now returns the time, by that clock which is the latest: the clock as it is, or as it was when the
// process started, or that of the leader that renewed its lease last. One that was set back says
// nothing of what was made before.
func (k *Kinds) now(ctx context.Context) (time.Time, error) {
	// Without their monotonic readings, by which a clock that was set back would not show.
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

// Dated returns a SpokeCluster, of a kind that was defined so, that is no older than it is
// known to be.
func (d Defined) Dated(c rule.Cluster) rule.Cluster {
	if c.Created.Before(d.Since) {
		c.Created = d.Since
	}
	return c
}

// Has tells whether an object that was deleted was of this kind, and not of a former one of
// the same name: with that, all of its objects are deleted, which is nobody's decision about any
// of them. made is when the object was, and version is its last resourceVersion, which is higher
// than that of a CustomResourceDefinition that came later. It tells the order whatever the
// clocks say; the times do so where resourceVersions can't be compared, or come from two etcds.
func (d Defined) Has(made time.Time, version string) bool {
	order, err := resourceversion.CompareResourceVersion(version, d.version)
	return !made.Before(d.created) && (err != nil || order > 0)
}
