// Package interval scales the intervals of repeated checks and retries, so that tests are fast. Timeouts are
// not intervals and are not scaled.
package interval

import "time"

// Scale is a factor for intervals. The zero value does not change them.
type Scale float64

// Of returns the scaled interval.
func (s Scale) Of(d time.Duration) time.Duration {
	if s == 0 {
		return d
	}
	return time.Duration(float64(d) * float64(s))
}

// Soonest returns the shortest of the non-zero times, or 0.
func Soonest(times ...time.Duration) time.Duration {
	var out time.Duration
	for _, t := range times {
		if t > 0 && (out == 0 || t < out) {
			out = t
		}
	}
	return out
}
