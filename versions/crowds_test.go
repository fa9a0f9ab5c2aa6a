package versions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// Where hundreds wait, each in its own session, an owner marks its key, and its successor finds the mark in the event
// of the key's deletion. With few sessions, waiters of one session share their first looks.
func TestALongQueueIsServedInOrder(t *testing.T) {
	onEach(t, locks, func(t *testing.T, e *etcd) {
		for _, sessions := range []int{4, 700} {
			t.Run(fmt.Sprintf("%d sessions", sessions), func(t *testing.T) { serveInOrder(t, e, sessions) })
		}
	})
}

func serveInOrder(t *testing.T, e *etcd, sessions int) {
	const waiters = 700
	admin, ctx := e.client(t), within(t)
	first := lock(t, etcdlock.NewMutex(newSession(t, e), name(t)))
	var ( // guarded by the lock
		served []etcdlock.Token
		marked int
	)
	var all []*session.Session
	var group errgroup.Group
	clients := []*clientv3.Client{e.client(t), e.client(t), e.client(t), e.client(t)}
	for i := range sessions {
		s, err := session.New(ctx, clients[i%len(clients)], session.WithTTL(longTTL))
		require.NoError(t, err)
		all = append(all, s)
		m := etcdlock.NewMutex(s, name(t))
		for range waiters / sessions {
			group.Go(func() error {
				return etcdlock.Do(ctx, m, func(ctx context.Context, h *etcdlock.Hold) error {
					answer, err := admin.Get(ctx, h.Key())
					if err == nil && strings.HasPrefix(string(answer.Kvs[0].Value), `{"mark":"owner`) {
						marked++
					}
					served = append(served, h.Token())
					return err
				})
			})
		}
	}
	eventually(t, "all in line", func() bool { return count(t, admin, inNamespace(name(t))) == waiters+1 })
	unlock(t, first)
	require.NoError(t, group.Wait())
	require.Len(t, served, waiters)
	require.True(t, slices.IsSorted(served))
	if sessions == waiters {
		require.Greater(t, marked, waiters/2) // the first 64 know too little of the queue to be told
	}
	require.Zero(t, count(t, admin, inNamespace(name(t))))
	for _, s := range all {
		require.NoError(t, s.Close(ctx))
	}
}

// What goroutines of a session ask for at the same time goes out together, and each gets its own
// answer.
func TestManyNamesOfOneSession(t *testing.T) {
	onEach(t, locks, func(t *testing.T, e *etcd) {
		held := lock(t, etcdlock.NewMutex(newSession(t, e), name(t)+"-0"))
		s, ctx := newSession(t, e), within(t)
		var group errgroup.Group
		for i := range 200 {
			m := etcdlock.NewMutex(s, fmt.Sprintf("%s-%d", name(t), i%100))
			group.Go(func() error {
				h, err := m.TryLock(ctx)
				switch {
				case errors.Is(err, etcdlock.ErrBusy) && i%100 == 0:
					return nil
				case errors.Is(err, etcdlock.ErrBusy):
					h, err = m.Lock(ctx)
				}
				if err != nil {
					return err
				}
				return h.Unlock(ctx)
			})
		}
		require.NoError(t, group.Wait())
		unlock(t, held)
	})
}
