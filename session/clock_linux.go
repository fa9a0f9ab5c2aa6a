package session

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// systemClock counts the time during which the machine is suspended: the lease
// runs out on the server meanwhile, and Go's monotonic clock would not tell.
func systemClock() clock {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return monotonicClock()
	}
	start := time.Now()
	return cachedClock(func() (wall, monotonic time.Duration) {
		t := time.Now()
		return time.Duration(t.UnixNano()), t.Sub(start)
	}, func() time.Duration {
		var now unix.Timespec
		// It cannot fail for a clock that it knew before.
		_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
		return time.Duration(now.Nano())
	})
}

const (
	keepOffset = 10 * time.Millisecond  // by the monotonic clock
	clockError = 100 * time.Microsecond // in the difference of two clocks that are read one after the other
)

// offset is how the clocks stood to each other when they were read. It is constant.
type offset struct {
	until time.Duration // by the monotonic clock: how long to believe in it
	wall  time.Duration // wall clock less monotonic clock
	boot  time.Duration // CLOCK_BOOTTIME less monotonic clock, or a little less
}

// cachedClock tells what boot does, CLOCK_BOOTTIME, mostly without calling it: that is a system
// call, which takes several times as long as reading Go's clocks.
//
// It adds to the monotonic clock by how much boot is ahead of it. That changes only with a
// suspension, and in the same update the kernel moves the wall clock by just as much: if wall less
// monotonic clock has not moved, neither has boot. What is told is right, but for twice
// clockError, at some instant during the call, even if the thread has to wait between two
// readings. Setting the wall clock only costs a call of boot, unless it is set back by the very
// length of a suspension that nobody has noticed yet: that is noticed after keepOffset.
func cachedClock(goClock func() (wall, monotonic time.Duration), boot func() time.Duration) clock {
	var last atomic.Pointer[offset]
	last.Store(&offset{})
	return func() time.Duration {
		o := last.Load()
		wall, monotonic := goClock()
		if monotonic < o.until && (wall-monotonic-o.wall).Abs() <= clockError {
			return monotonic + o.boot
		}
		now := boot()
		_, after := goClock() // not this wall clock: what has moved it since is not in now
		for !last.CompareAndSwap(o, o.next(wall, monotonic, after, now)) {
			o = last.Load() // somebody else's, of just now
		}
		return now
	}
}

// next is what takes the place of o.
func (o *offset) next(wall, monotonic, after, now time.Duration) *offset {
	next := offset{wall: wall - monotonic, boot: o.boot}
	if after-monotonic > clockError {
		return &next // too long between two readings to believe in
	}
	next.until = after + keepOffset
	next.boot = now - after
	if o.boot-next.boot <= clockError {
		// The larger is the more exact, so what is told never goes back.
		next.boot = max(next.boot, o.boot)
	}
	return &next
}
