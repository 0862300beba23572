package spoke

import (
	"math"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

// listBounds bounds the memory of the lists of a session. A nil one has no bounds.
type listBounds struct {
	*holdings
	pages *pageBudget
	// turn lets one page be decoded at a time.
	turn *together
}

// listBounds returns the bounds of the lists that are read together. tell is called on an excess; it may be nil.
func (c *connection) listBounds(tell func(*TooLargeError)) *listBounds {
	l := c.p.opts.Limits
	return &listBounds{holdings: &holdings{limits: l, tell: tell, charge: c.account.charge()}, pages: &pageBudget{most: l.memory() / 2, within: c.p.pages}, turn: &c.paces.turn}
}

// page starts a page of a list, and the list if it is the first page. End the share when the page has been
// trimmed.
func (b *listBounds) page(r *reading, from string) *share {
	if b == nil {
		return nil
	}
	if from == "" {
		r.kept = amount{}
	}
	s := b.pages.join()
	if s != nil {
		s.turn = b.turn
	}
	return s
}

// fits checks whether a list may be kept, after one of its pages was read. It trusts the page's count of
// remaining items, so that a list that is far too large is not read to its limit.
func (b *listBounds) fits(r *reading, page runtime.Object) error {
	if b == nil {
		return nil
	}
	list := r.kept
	if l, err := meta.ListAccessor(page); err == nil && l.GetRemainingItemCount() != nil {
		list.objects += min(max(0, *l.GetRemainingItemCount()), math.MaxInt32)
	}
	if excess := b.holdings.fits(r.kind, list); excess != nil {
		return excess
	}
	return nil
}

// account returns the account of the spoke, or nil.
func (b *listBounds) account() *account {
	if b == nil || b.charge == nil {
		return nil
	}
	return b.charge.of
}

// ended is called when a list has ended.
func (b *listBounds) ended(r *reading) {
	if b != nil {
		b.holdings.ended(r.kind)
	}
}

// waitingPart divides the memory of a spoke: events of one kind that wait for the end of a list may use this fraction, so
// that those of the six kinds that can be watched use at most three quarters.
const waitingPart = 8

// waits reports whether events of this amount may wait for the end of a list.
func (b *listBounds) waits(events amount) bool {
	return b == nil || (events.objects <= b.limits.objects() && events.bytes <= b.limits.memory()/waitingPart)
}

// smaller reports whether to ask again for a page with fewer objects. If the page is too large even so, it
// reports that to the connection.
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
