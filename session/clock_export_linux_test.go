package session

import "time"

// CachedClock is what SystemClock makes of Go's clocks and CLOCK_BOOTTIME.
func CachedClock(goClock func() (wall, monotonic time.Duration), boot func() time.Duration) func() time.Duration {
	return cachedClock(goClock, boot)
}

const (
	KeepOffset = keepOffset
	ClockError = clockError
)
