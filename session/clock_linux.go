package session

import (
	"time"

	"golang.org/x/sys/unix"
)

// systemClock counts the time during which the machine is suspended: the lease
// runs out on the server meanwhile, and Go's monotonic clock stands still.
func systemClock() clock {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return monotonicClock()
	}
	return func() time.Duration {
		var now unix.Timespec
		// It cannot fail for a clock that it knew before.
		_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
		return time.Duration(now.Nano())
	}
}
