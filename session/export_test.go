package session

import "time"

// WithMonotonicClock lets tests run in virtual time, which moves only Go's own
// clock.
func WithMonotonicClock() Option {
	return WithClock(monotonicClock())
}

// SystemClock is the clock of sessions that are not told otherwise.
func SystemClock() func() time.Duration { return systemClock() }
