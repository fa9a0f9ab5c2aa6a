package session_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/etcdlock/locks/session"
)

func bootTime(t *testing.T) time.Duration {
	var ts unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts))
	return time.Duration(ts.Nano())
}

// Other clocks stand still while the machine is suspended.
func TestTheClockIsTheOneThatCountsSuspensions(t *testing.T) {
	now := session.SystemClock()
	for range 1000 {
		before, shown, after := bootTime(t), now(), bootTime(t)
		require.LessOrEqual(t, before, shown)
		require.LessOrEqual(t, shown, after)
	}
}
