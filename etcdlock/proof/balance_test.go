package proof_test

import (
	"sync/atomic"

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

// even reports whether every wait and every hold has ended once. Lost is told in a moment.
func (b *balance) even() bool { return b.waits.Load() == 0 && b.holds.Load() == 0 }
