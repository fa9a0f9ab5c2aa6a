package session

import "time"

// clock returns the time since a fixed but arbitrary instant. It never goes back.
type clock func() time.Duration

// monotonicClock is Go's monotonic clock.
func monotonicClock() clock {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
