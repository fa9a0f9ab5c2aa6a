package session_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/etcdlock/locks/session"
)

func TestTheClockCountsSuspensions(t *testing.T) {
	now := session.SystemClock()
	boot := func() time.Duration {
		var ts unix.Timespec
		require.NoError(t, unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts))
		return time.Duration(ts.Nano())
	}
	before, told, after := boot(), now(), boot()
	require.LessOrEqual(t, before, told)
	require.LessOrEqual(t, told, after)
}
