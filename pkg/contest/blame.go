package contest

import (
	"hash/maphash"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Manager is the field manager of the operator's writes other than applies, which the API server derives from
// the user agent. MirrorManager is that of the labels copied from a Secret to its SpokeCluster.
const (
	Manager       = "rulefleet-manager"
	MirrorManager = "rulefleet-registrar"
)

// writer is the client that reverted a write, according to managedFields. The zero value is unknown.
type writer struct {
	// name is the name of a field manager.
	name string
	// ours means that the name is the operator's own.
	ours bool
}

// mark is a summary of an object's managedFields after a write of the operator.
type mark struct {
	// at is their latest time, and fields is a hash of the operator's own fields.
	at     metav1.Time
	fields uint64
}

// entries are the managedFields of an object, either those of the status or the others.
type entries struct{ own, others []metav1.ManagedFieldsEntry }

func entriesOf(o metav1.Object, status bool) (out entries) {
	part := ""
	if status {
		part = "status"
	}
	for _, e := range o.GetManagedFields() {
		switch {
		case e.Subresource != part || e.Time == nil:
		case e.Manager == Manager, e.Manager == MirrorManager, e.Manager == v1alpha1.FieldManager:
			out.own = append(out.own, e)
		default:
			out.others = append(out.others, e)
		}
	}
	return out
}

func latest(entries []metav1.ManagedFieldsEntry) (last metav1.ManagedFieldsEntry) {
	for i := range entries {
		if last.Time == nil || last.Time.Before(entries[i].Time) {
			last = entries[i]
		}
	}
	return last
}

func (w *Writes) markOf(of Object, o metav1.Object) mark {
	if o == nil {
		return mark{}
	}
	e := entriesOf(o, of.Status)
	m := mark{fields: w.fields(e.own)}
	for _, last := range []metav1.ManagedFieldsEntry{latest(e.own), latest(e.others)} {
		if last.Time != nil && m.at.Before(last.Time) {
			m.at = *last.Time
		}
	}
	return m
}

func (w *Writes) fields(own []metav1.ManagedFieldsEntry) uint64 {
	var h maphash.Hash
	h.SetSeed(w.seed)
	for i := range own {
		if own[i].FieldsV1 != nil {
			_, _ = h.Write(own[i].FieldsV1.GetRawBytes()) // it never returns an error
		}
	}
	return h.Sum64()
}

// blame returns the client that wrote an object after the operator: another field manager whose entry is as
// new as the operator's write, or a client of the same name if the operator's entry still has all its fields.
// A client that only removes fields gets no entry, and removes fields from the operator's.
func (w *Writes) blame(of Object, since mark, o metav1.Object) writer {
	e := entriesOf(o, of.Status)
	if last := latest(e.others); last.Time != nil && !last.Time.Before(&since.at) {
		return writer{name: printable(last.Manager)}
	}
	if last := latest(e.own); last.Time != nil && (since.at.Before(last.Time) || w.fields(e.own) == since.fields) {
		return writer{name: last.Manager, ours: true}
	}
	return writer{}
}

// maxName is the API's limit for the name of a field manager.
const maxName = 128

// printable makes a name safe to show, because it comes from a spoke.
func printable(name string) string {
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(name, ""))
	if len(name) > maxName {
		name = strings.ToValidUTF8(name[:maxName], "")
	}
	return name
}
