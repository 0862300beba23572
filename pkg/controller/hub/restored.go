package hub

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rulefleet/rulefleet/pkg/leader"
)

// Keys of the hub's ConfigMap.
const (
	// restoredKey has the time at which a manager noticed that the hub was restored.
	restoredKey = "restored"
	// gapsKey has the times in which no leader could write, according to the Lease: "from/to", separated by spaces.
	gapsKey = "without-leader"
	// maxGaps bounds them; the oldest ones are dropped.
	maxGaps = 32
)

// restores names this part of the record in errors.
const restores = "restores of the hub"

// past is what is recorded of restores of the hub's etcd.
type past struct {
	restored time.Time
	gaps     []gap
}

// gap is a time in which no leader could write, according to the Lease.
type gap struct{ from, to time.Time }

// RecordRestore records that the hub's etcd was restored from a backup, for all later processes: objects that
// a former leader pushed to the spokes may have been made from objects that are lost.
func (k *Kinds) RecordRestore(ctx context.Context) error {
	now, err := k.now(ctx)
	if err != nil {
		return err
	}
	return k.rewrite(ctx, func(p *past) { p.restored = now })
}

// recordGap records the time in which no leader could write before this process acquired the Lease. Before a backup
// of etcd is restored, a leader may have written in that time: its renewals are lost with the restore.
func (k *Kinds) recordGap(ctx context.Context) error {
	g := k.ownGap()
	if k.writer == nil || !g.to.After(g.from) {
		return nil
	}
	return k.rewrite(ctx, func(p *past) {
		p.gaps = append(p.gaps, g)
		p.gaps = p.gaps[max(0, len(p.gaps)-maxGaps):]
	})
}

// ownGap is the gap before this process acquired the Lease. It is empty if there is none.
func (k *Kinds) ownGap() gap {
	if k.former == nil {
		return gap{}
	}
	former, acquired := k.former()
	if former.IsZero() {
		return gap{}
	}
	return gap{former.Add(leader.RenewDeadline).UTC().Truncate(time.Second), acquired.UTC().Truncate(time.Second)}
}

// Times are the earliest and the latest time at which an object may have been created.
type Times struct{ Earliest, Latest time.Time }

// Undone reports whether objects in a spoke, created at these times, may have been made from objects that a restore of
// the hub's etcd has changed or removed. That is the case for objects from before a restore that a manager noticed. It
// is also the case for objects from a time without a leader: a leader of which this hub has no record made them.
func (k *Kinds) Undone(ctx context.Context, made ...Times) (bool, error) {
	p, err := k.recallPast(ctx)
	if err != nil {
		return false, err
	}
	gaps := append(slices.Clone(p.gaps), k.ownGap())
	return slices.ContainsFunc(made, func(t Times) bool {
		return !p.restored.IsZero() && !t.Earliest.After(p.restored) ||
			slices.ContainsFunc(gaps, func(g gap) bool { return t.Latest.After(g.from) && t.Earliest.Before(g.to) })
	}), nil
}

// rewrite changes what is recorded. Without the ConfigMap, nothing is recorded; the manager creates it at its next
// start.
func (k *Kinds) rewrite(ctx context.Context, change func(*past)) error {
	cm, err := k.readRecord(ctx, restores)
	if err != nil || cm == nil {
		return err
	}
	p := pastOf(cm)
	change(&p)
	if err := k.writeRecord(ctx, cm, restores, p.into); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.past = &p
	return nil
}

// recallPast returns what is recorded. It is read once.
func (k *Kinds) recallPast(ctx context.Context) (past, error) {
	k.mu.Lock()
	known := k.past
	k.mu.Unlock()
	switch {
	case known != nil:
		return *known, nil
	case k.writer == nil:
		return past{}, nil
	}
	cm, err := k.readRecord(ctx, restores)
	if err != nil {
		return past{}, err
	}
	p := past{}
	if cm != nil {
		p = pastOf(cm)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.past == nil { // it may have been recorded meanwhile
		k.past = &p
	}
	return *k.past, nil
}

// pastOf reads a record. Parts that can't be read are left out.
func pastOf(cm *corev1.ConfigMap) past {
	var p past
	p.restored, _ = time.Parse(time.RFC3339, cm.Data[restoredKey])
	for text := range strings.FieldsSeq(cm.Data[gapsKey]) {
		from, to, _ := strings.Cut(text, "/")
		var g gap
		var errs [2]error
		g.from, errs[0] = time.Parse(time.RFC3339, from)
		g.to, errs[1] = time.Parse(time.RFC3339, to)
		if errs == [2]error{} {
			p.gaps = append(p.gaps, g)
		}
	}
	return p
}

func (p *past) into(data map[string]string) {
	if !p.restored.IsZero() {
		data[restoredKey] = p.restored.Format(time.RFC3339)
	}
	var gaps []string
	for _, g := range p.gaps {
		gaps = append(gaps, g.from.Format(time.RFC3339)+"/"+g.to.Format(time.RFC3339))
	}
	if len(gaps) > 0 {
		data[gapsKey] = strings.Join(gaps, " ")
	}
}
