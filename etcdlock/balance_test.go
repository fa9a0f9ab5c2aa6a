package etcdlock_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/etcdlock"
)

// balance counts what hooks say, of locks all of whose waits and holds end.
type balance struct {
	mu    sync.Mutex
	waits int // that have begun, less those that have ended
	holds int
	calls int
}

func (b *balance) add(waits, holds int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waits += waits
	b.holds += holds
	b.calls++
}

func (b *balance) hooks() *etcdlock.Hooks {
	less := func(ended bool) int {
		if ended {
			return -1
		}
		return 0
	}
	return &etcdlock.Hooks{
		Waiting:  func(etcdlock.Waiting) { b.add(1, 0) },
		Acquired: func(a etcdlock.Acquired) { b.add(less(a.Queued), 1) },
		Failed:   func(f etcdlock.Failed) { b.add(less(f.Queued), 0) },
		Released: func(r etcdlock.Released) { b.add(0, less(!r.AfterLost)) },
		Lost:     func(etcdlock.Lost) { b.add(0, -1) },
	}
}

// requireEven requires that every wait and every hold has ended once. Lost is told in a moment.
func (b *balance) requireEven(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.waits == 0 && b.holds == 0
	}, patience, waitABit, "waits and holds that have not ended, or twice: %+v", b)
}
