package spoke

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

// listBounds bound what the lists of a session take in memory. A nil one bounds nothing.
type listBounds struct {
	*holdings
	pages *pageBudget
}

// page begins a page of a list, and the list where it is the first. The share has to be ended when
// the page is trimmed.
func (b *listBounds) page(r *reading, from string) *share {
	if b == nil {
		return nil
	}
	if from == "" {
		r.kept = amount{}
	}
	return b.pages.join()
}

// fits tells whether a list may be kept, of which a page was read. What it says of the rest is
// believed: one that is far too large is not read to its bound.
func (b *listBounds) fits(r *reading, page runtime.Object) error {
	if b == nil {
		return nil
	}
	list := r.kept
	if l, err := meta.ListAccessor(page); err == nil && l.GetRemainingItemCount() != nil {
		list.objects += max(0, *l.GetRemainingItemCount())
	}
	if excess := b.holdings.fits(r.kind, list); excess != nil {
		return excess
	}
	return nil
}

// smaller tells whether a page that was not read is to be asked for again, with fewer objects. Of one
// that is too large nevertheless it tells the connection.
func (r *reading) smaller(err error) bool {
	excess := tooLarge(err)
	switch {
	case excess == nil:
		return false
	case excess.part:
		r.mu.Lock()
		r.limit = max(1, r.limit/16)
		r.mu.Unlock()
		return true
	case r.bounds != nil && r.bounds.tell != nil:
		r.bounds.tell(excess)
	}
	return false
}
