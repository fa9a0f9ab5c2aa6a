package etcdlock_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

func TestUnlockOfEveryKindReleasesOnceWhateverItsContext(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		l := b.open(b.session, "orders")
		first := lock(t, l)
		unlock(t, first)
		await(t, "the end", first.Done())
		require.ErrorIs(t, first.Err(), etcdlock.ErrUnlocked)
		require.ErrorIs(t, context.Cause(first.Context()), etcdlock.ErrUnlocked)
		second := lock(t, l)
		require.Equal(t, keysOf(first), keysOf(second), "so a delete by name would hit it")
		require.Greater(t, second.Token(), first.Token())
		require.Equal(t, createdAt(t, b.client, second.Key()), second.Token())
		require.NoError(t, first.Unlock(within(t)))
		late, err := b.client.Txn(within(t)).If(first.Guards()...).Commit()
		require.NoError(t, err)
		require.False(t, late.Succeeded, "although the names are the same")
		_, err = second.Txn(within(t)).Commit()
		require.NoError(t, err)
		require.NoError(t, second.Unlock(cancelled()), "a context that is over does not keep it from releasing")
		require.Empty(t, keysAt(t, b.client, ""))
	})
}

// Etcd is silent for longer than the caller waits.
func TestAnUnconfirmedUnlockOfEveryKindGoesOnInTheBackground(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		h := lock(t, b.open(b.session, "orders"))
		silence := b.cluster.LoseRequest("Txn")
		err := h.Unlock(cancelled())
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, h.Name())
		require.ErrorIs(t, h.Err(), etcdlock.ErrUnlocked)
		require.NoError(t, h.Unlock(within(t)), "the second call does nothing")
		silence.Heal()
		requireNothingLeft(t, b.client)
		require.NoError(t, b.session.Err(), "it was not the end of the session that released")
		unlock(t, lock(t, b.orders(t)))
	})
}

// Replies are lost after the join, and after the release, was applied.
// Finding that out takes three seconds, so all kinds do it at the same time.
func TestLostRepliesOfEveryKindAreNoticedByNobody(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, client *clientv3.Client) {
		alias := func(i int) string { return fmt.Sprintf("orders-%c", 'a'+i) } // not to be escaped
		lose := func(which func(any) bool) (requireAll func()) {
			var faults []*embedtest.Fault
			for i, k := range kinds {
				faults = append(faults, cluster.LoseReply("Txn", embedtest.Once(), touches(k.queue(alias(i))+"/", which)))
			}
			return func() {
				for i, f := range faults {
					require.Equal(t, 1, f.Bites(), kinds[i].title)
				}
			}
		}
		requireAll := lose(creates)
		var waiting []<-chan result
		for i, k := range kinds {
			// A session of its own, or their requests go out together and one reply is lost for all.
			waiting = append(waiting, locking(within(t), k.open(virtualSession(t, client), alias(i))))
		}
		var holds []*etcdlock.Hold
		keys := 0
		for i, w := range waiting {
			holds = append(holds, granted(t, w))
			keys += kinds[i].keys
		}
		requireAll()
		require.Len(t, keysAt(t, client, ""), keys, "the ticket was found again")

		requireAll = lose(deletes)
		var released []<-chan error
		for _, h := range holds {
			released = append(released, background(func() error { return h.Unlock(within(t)) }))
		}
		for _, r := range released {
			require.NoError(t, await(t, "the release", r))
		}
		requireAll()
		require.Empty(t, keysAt(t, client, ""))
	})
}
