package session_test

import (
	"sync"
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

func TestTheClockCountsSuspensions(t *testing.T) {
	now := session.SystemClock()
	for range 10_000 {
		before, told, after := bootTime(t), now(), bootTime(t)
		require.LessOrEqual(t, before-2*session.ClockError, told)
		require.LessOrEqual(t, told, after)
	}
}

func TestTheClockNeverGoesBack(t *testing.T) {
	now := session.SystemClock()
	var mu sync.Mutex
	var last time.Duration
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for until := time.Now().Add(5 * session.KeepOffset); time.Now().Before(until); {
				mu.Lock()
				seen := last
				mu.Unlock()
				told := now()
				mu.Lock()
				last = max(last, told)
				mu.Unlock()
				if told < seen {
					t.Errorf("%v after %v", told, seen)
				}
			}
		})
	}
	running.Wait()
}

// machine has the clocks of a Linux machine. Reading one of Go's takes a nanosecond.
type machine struct {
	wall, monotonic, boot time.Duration
	calls                 int // of bootTime

	pauses map[int]func() // before the first reading, the second, ...
	read   int
}

func newMachine() (*machine, func() time.Duration) {
	m := &machine{wall: 1_000 * time.Hour, boot: 10 * time.Hour}
	return m, session.CachedClock(m.goClock, m.bootTime)
}

func (m *machine) goClock() (wall, monotonic time.Duration) {
	m.pause()
	wall = m.wall
	m.pause()
	return wall, m.monotonic
}

func (m *machine) bootTime() time.Duration {
	m.calls++
	m.pause()
	return m.boot
}

func (m *machine) pause() {
	m.run(1)
	m.read++
	if pause := m.pauses[m.read]; pause != nil {
		pause()
	}
}

func (m *machine) run(d time.Duration) {
	m.wall, m.monotonic, m.boot = m.wall+d, m.monotonic+d, m.boot+d
}

func (m *machine) suspend(d time.Duration) { m.wall, m.boot = m.wall+d, m.boot+d }

// requireRight looks at the clock once.
func (m *machine) requireRight(t *testing.T, now func() time.Duration) {
	t.Helper()
	before := m.boot
	told := now()
	require.LessOrEqual(t, before-2*session.ClockError, told)
	require.LessOrEqual(t, told, m.boot)
}

func TestTheClockNoticesASuspensionAtTheFirstLook(t *testing.T) {
	m, now := newMachine()
	for range 3 {
		m.requireRight(t, now)
		m.suspend(time.Hour)
		m.requireRight(t, now)
		m.run(time.Hour)
		m.requireRight(t, now)
	}
}

func TestTheClockSavesSystemCalls(t *testing.T) {
	m, now := newMachine()
	for range 1_500 {
		m.requireRight(t, now)
		m.run(session.KeepOffset / 1_000)
	}
	require.Equal(t, 2, m.calls)
}

// Whatever happens between two readings, what is told is right, then and from then on.
func TestTheClockMayBeInterruptedAnywhere(t *testing.T) {
	const d = time.Hour
	for at := range 13 {
		for name, pause := range map[string]func(*machine){
			"waits":               func(m *machine) { m.run(d) },
			"is suspended":        func(m *machine) { m.suspend(d) },
			"waits, suspended":    func(m *machine) { m.run(d); m.suspend(d) },
			"set forward":         func(m *machine) { m.wall += d },
			"set back":            func(m *machine) { m.wall -= 2 * d },
			"waits for a while":   func(m *machine) { m.run(session.KeepOffset / 2) },
			"waits just not long": func(m *machine) { m.run(session.ClockError * 9 / 10) },
		} {
			for _, first := range []bool{false, true} {
				m, now := newMachine()
				m.pauses = map[int]func(){at: func() { pause(m) }}
				if first { // otherwise at the first look of all
					m.requireRight(t, now)
					m.suspend(d)
				}
				told := time.Duration(0)
				for range 5 {
					m.requireRight(t, now)
					next := now()
					require.Less(t, told, next, name)
					told = next
				}
			}
		}
	}
}

// One goroutine looks twice while the first look of another takes long.
func TestTheClockDoesNotGoBackForAnother(t *testing.T) {
	m, now := newMachine()
	var told time.Duration
	m.pauses = map[int]func(){4: func() { // when boot has been called
		m.run(session.ClockError / 2)
		now()
		told = now()
	}}
	m.requireRight(t, now)
	require.Less(t, told, now())
	require.Equal(t, 2, m.calls)
}

// The same, but it is the other one whose look is the more exact.
func TestTheClockDoesNotGoBackBecauseOfAnother(t *testing.T) {
	m, now := newMachine()
	m.pauses = map[int]func(){
		3: func() { now() },                         // when boot is about to be called
		7: func() { m.run(session.ClockError / 2) }, // and has been, in there
	}
	told := now()
	require.Equal(t, 2, m.calls)
	require.Less(t, told, now())
	require.Equal(t, 2, m.calls)
}

func TestTheClockForgetsNothingOfWhatItKnew(t *testing.T) {
	m, now := newMachine()
	m.requireRight(t, now)
	m.run(session.KeepOffset)
	m.pauses = map[int]func(){m.read + 4: func() { m.run(session.ClockError / 2) }}
	m.requireRight(t, now)
	require.Greater(t, now(), m.boot-session.ClockError/10, "as exact as before")
	require.Equal(t, 2, m.calls)
}

func TestTheWallClockIsSetBackByTheLengthOfASuspension(t *testing.T) {
	m, now := newMachine()
	m.requireRight(t, now)
	m.suspend(time.Hour)
	m.wall -= time.Hour
	m.run(session.KeepOffset)
	m.requireRight(t, now)
}
