package etcdlock_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
)

// abruptEnds are the ways in which a callback does not return. t.FailNow is one.
var abruptEnds = map[string]func(){
	"it ends its goroutine": runtime.Goexit,
	"it panics":             func() { panic("callback") },
}

// apart runs f in a goroutine of its own, whatever becomes of that.
func apart(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		f()
	}()
	await(t, "the end of the goroutine", done)
}

func TestACallbackThatDoesNotReturnLeavesNothingTaken(t *testing.T) {
	t.Parallel()
	for name, end := range abruptEnds {
		t.Run(name, func(t *testing.T) {
			cluster, client := newCluster(t)
			s := newSession(t, cluster.Client(t))
			held := lock(t, etcdlock.NewMutex(newSession(t, cluster.Client(t)), "taken"))
			counts := &balance{}
			waits, grants, releases := counts.hooks(), counts.hooks(), counts.hooks()
			waits.Waiting = func(etcdlock.Waiting) { counts.waits.Add(1); end() }
			grants.Acquired = func(etcdlock.Acquired) { counts.holds.Add(1); end() }
			releases.Released = func(etcdlock.Released) { counts.holds.Add(-1); end() }
			waiting, acquired, released := etcdlock.WithHooks(waits), etcdlock.WithHooks(grants), etcdlock.WithHooks(releases)
			local := etcdlock.WithLocalHandover(noBound, 1_000)
			must := func(_ *etcdlock.Hold, err error) { require.NoError(t, err) }
			for what, f := range map[string]func(){
				"Do": func() {
					_ = etcdlock.Do(within(t), etcdlock.NewMutex(s, "do"), func(context.Context, *etcdlock.Hold) error { end(); return nil })
				},
				"Waiting":                func() { must(etcdlock.NewMutex(s, "taken", waiting).Lock(within(t))) },
				"Waiting of a line":      func() { must(etcdlock.NewMutex(s, "taken", waiting, local).Lock(within(t))) },
				"Waiting of a permit":    func() { must(etcdlock.NewRWMutex(s, "taken", waiting).RLocker().Lock(within(t))) },
				"Waiting of several":     func() { must(allOf(s, "taken", "other").With(waiting).Lock(within(t))) },
				"Waiting of a candidate": func() { _, _ = etcdlock.NewElection(s, "taken", waiting).Campaign(within(t), "a") },
				"Acquired":               func() { must(etcdlock.NewMutex(s, "free", acquired).Lock(within(t))) },
				"Acquired of a line":     func() { must(etcdlock.NewMutex(s, "free", acquired, local).Lock(within(t))) },
				"Acquired of a slot": func() {
					permits := etcdlock.NewSemaphore(s, "permit", 1, acquired, etcdlock.WithSlots())
					defer func() { require.NoError(t, permits.Forget(within(t))) }()
					must(permits.Lock(within(t)))
				},
				"Released": func() { unlock(t, lock(t, etcdlock.NewMutex(s, "free", released))) },
				"Run": func() {
					_ = etcdlock.NewElection(s, "run").Run(within(t), "a", func(context.Context, *etcdlock.Term) error { end(); return nil })
				},
			} {
				apart(t, f)
				require.Eventually(t, func() bool { return tickets(t, client) == 1 }, patience, waitABit, what)
				counts.requireEven(t)
			}
			require.NoError(t, held.Err())
			unlock(t, held)
		})
	}
}

// Trouble may be told by a goroutine of its own, by Lock and by Unlock.
func TestALockerGoesOnAfterItsTroubleHasNotBeenTaken(t *testing.T) {
	_, client := newCluster(t)
	s := newSession(t, client)
	l := etcdlock.NewLocker(etcdlock.NewMutex(s, "orders"), func(error) { runtime.Goexit() })
	apart(t, func() {
		l.Lock()
		_, err := client.Delete(within(t), "etcdlock/orders/", clientv3.WithPrefix())
		require.NoError(t, err)
		l.Unlock()
	})
	apart(t, func() {
		l.Lock()
		l.Unlock() //nolint:staticcheck // that it can be locked is the point
	})
	require.Zero(t, tickets(t, client))
	require.NoError(t, s.Close(within(t)))
	apart(t, l.Lock)
}
