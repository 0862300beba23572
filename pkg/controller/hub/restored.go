package hub

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rulefleet/rulefleet/pkg/leader"
)

// restoredKey is the key of the hub's ConfigMap that has the time at which a restore of the hub was noticed.
const restoredKey = "restored"

// RecordRestore records that the hub's etcd was restored from a backup, for all later processes: objects that
// a former leader pushed to the spokes may have been made from objects that are lost.
func (k *Kinds) RecordRestore(ctx context.Context) error {
	now, err := k.now(ctx)
	if err != nil {
		return err
	}
	cm := &corev1.ConfigMap{}
	if err := k.reader.Get(ctx, k.keys.ConfigMap, cm); err != nil {
		return fmt.Errorf("reading ConfigMap %s to record the restore of the hub: %w", k.keys.ConfigMap, err)
	}
	next := cm.DeepCopy()
	if next.Data == nil {
		next.Data = map[string]string{}
	}
	next.Data[restoredKey] = now.Format(time.RFC3339)
	if err := k.writer.Patch(ctx, next, client.MergeFrom(cm)); err != nil {
		return fmt.Errorf("recording the restore of the hub in ConfigMap %s: %w", k.keys.ConfigMap, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.restored = &now
	return nil
}

// Undone reports whether the removal of an object from a spoke may follow from a restore of the hub's etcd, which
// changed or removed what the object was made from. made has the times at which the object may have been created.
// That is the case for objects from before a recorded restore. It is also the case for objects from a time between
// two leaders, this one and the former one according to the Lease: a leader that this hub does not know has made
// them. The restore is then recorded. decided is when the decision to remove the object was made, or zero if that
// is unknown: a decision that was made later is none of the restore's.
func (k *Kinds) Undone(ctx context.Context, decided time.Time, made ...time.Time) (bool, error) {
	restored, err := k.recallRestore(ctx)
	if err != nil {
		return false, err
	}
	if !restored.IsZero() && !decided.After(restored) && slices.ContainsFunc(made, func(t time.Time) bool { return !t.After(restored) }) {
		return true, nil
	}
	if k.writer == nil || k.Former == nil || !k.between(decided, made) {
		return false, nil
	}
	log.FromContext(ctx).Info("a spoke has rules that were written when no leader is known to have run, so the hub's etcd" +
		" was restored from a backup; removals that may follow from it wait for an acknowledgement")
	return true, k.RecordRestore(ctx)
}

// between reports whether any of the times is after the former leader's last write, and before this leader's first.
func (k *Kinds) between(decided time.Time, made []time.Time) bool {
	former, acquired := k.Former()
	last := former.Add(leader.RenewDeadline)
	return !former.IsZero() && !decided.After(last) && slices.ContainsFunc(made, func(t time.Time) bool {
		return t.After(last) && t.Before(acquired)
	})
}

// recallRestore returns when a restore of the hub was noticed, or zero. The record is read once.
func (k *Kinds) recallRestore(ctx context.Context) (time.Time, error) {
	k.mu.Lock()
	restored := k.restored
	k.mu.Unlock()
	if restored != nil || k.writer == nil {
		return ptr.Deref(restored, time.Time{}), nil
	}
	cm := &corev1.ConfigMap{}
	if err := k.reader.Get(ctx, k.keys.ConfigMap, cm); err != nil && !apierrors.IsNotFound(err) {
		return time.Time{}, fmt.Errorf("reading from ConfigMap %s whether the hub was restored: %w", k.keys.ConfigMap, err)
	}
	at, _ := time.Parse(time.RFC3339, cm.Data[restoredKey])
	k.mu.Lock()
	defer k.mu.Unlock()
	k.restored = &at
	return at, nil
}
