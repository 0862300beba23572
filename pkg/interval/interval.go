// Package interval lets tests shorten the time between two looks at something that changes slowly,
// and between two tries. Timeouts are not intervals: they stay as they are.
package interval

import "time"

// Scale is what all intervals are multiplied by. The zero value leaves them as they are.
type Scale float64

// Of returns a scaled interval.
func (s Scale) Of(d time.Duration) time.Duration {
	if s == 0 {
		return d
	}
	return time.Duration(float64(d) * float64(s))
}
