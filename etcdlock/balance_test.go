package etcdlock_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/etcdlock"
)

// balance counts the waits and the holds that hooks have told of, less those that have ended.
type balance struct{ waits, holds atomic.Int64 }

func (b *balance) hooks() *etcdlock.Hooks {
	endOf := func(n *atomic.Int64, ended bool) {
		if ended {
			n.Add(-1)
		}
	}
	return &etcdlock.Hooks{
		Waiting:  func(etcdlock.Waiting) { b.waits.Add(1) },
		Acquired: func(a etcdlock.Acquired) { b.holds.Add(1); endOf(&b.waits, a.Queued) },
		Failed:   func(f etcdlock.Failed) { endOf(&b.waits, f.Queued) },
		Released: func(r etcdlock.Released) { endOf(&b.holds, !r.AfterLost) },
		Lost:     func(etcdlock.Lost) { b.holds.Add(-1) },
	}
}

// requireEven requires that every wait and every hold has ended once. Lost is told in a moment.
func (b *balance) requireEven(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return b.waits.Load() == 0 && b.holds.Load() == 0 }, patience, waitABit,
		"waits and holds that have not ended, or twice: %+v", b)
}
