// Package interval scales the time between two checks of something that changes slowly, and between
// two attempts, so that tests are fast. Timeouts are not intervals and are not scaled.
package interval

import "time"

// Scale is a factor for intervals. The zero value leaves them as they are.
type Scale float64

// Of returns a scaled interval.
func (s Scale) Of(d time.Duration) time.Duration {
	if s == 0 {
		return d
	}
	return time.Duration(float64(d) * float64(s))
}
