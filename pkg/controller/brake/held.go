package brake

import "slices"

// Held are deletions that the brake holds because they may be a mistake.
type Held struct {
	// Count is their number. Names are the AlertRules of the first of them.
	Count int
	Names []string
	// Suspects is how many of them are held until they are acknowledged.
	Suspects int
	// Message says what is held, until when, and what to do.
	Message string
}

// Equal reports whether two are the same.
func (h *Held) Equal(other *Held) bool {
	if h == nil || other == nil {
		return h == other
	}
	return h.Count == other.Count && h.Suspects == other.Suspects && h.Message == other.Message && slices.Equal(h.Names, other.Names)
}
