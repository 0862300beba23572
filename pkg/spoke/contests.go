package spoke

import "time"

// Contests tells what somebody undoes of what the operator writes.
type Contests interface {
	// InSpoke says what is contested of what is written for a spoke, or "", and when to ask
	// again, or 0.
	InSpoke(spoke string) (message string, again time.Duration)
}

func contested(c Contests, name string) (message string, again time.Duration) {
	if c == nil {
		return "", 0
	}
	return c.InSpoke(name)
}
