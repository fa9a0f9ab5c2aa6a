package etcdlock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
)

// commit is a write that only the holder may make.
func commit(ctx context.Context, h *etcdlock.Hold) error {
	_, err := h.Txn(ctx).Then(clientv3.OpPut("orders/last", "1")).Commit()
	return err
}

func TestARefusedTransactionTellsWhetherTheLeaseIsGoneOrTheKeyAlone(t *testing.T) {
	_, client := newCluster(t)
	s := newSession(t, client)
	m := etcdlock.NewMutex(s, "orders")

	h := lock(t, m)
	require.NoError(t, etcdlock.ForceRelease(within(t), client, h.Key(), h.Token()))
	err := commit(within(t), h)
	require.ErrorIs(t, err, etcdlock.ErrLost)
	require.ErrorContains(t, err, fmt.Sprintf("the key %s was removed", h.Key()))

	h = lock(t, m)
	revoke(t, client, s)
	err = commit(within(t), h)
	require.ErrorIs(t, err, etcdlock.ErrLost)
	require.ErrorContains(t, err, fmt.Sprintf("the key %s is gone with its lease %x", h.Key(), s.Lease()))
}

func TestDoTellsALossOnce(t *testing.T) {
	_, client := newCluster(t)
	m := etcdlock.NewMutex(newSession(t, client), "orders")
	for what, last := range map[string]func(context.Context, *etcdlock.Hold) error{
		"a transaction":  commit,
		"the hold's end": func(_ context.Context, h *etcdlock.Hold) error { return h.Err() },
		"its own Unlock": func(ctx context.Context, h *etcdlock.Hold) error { return h.Unlock(ctx) },
	} {
		err := etcdlock.Do(within(t), m, func(ctx context.Context, h *etcdlock.Hold) error {
			require.NoError(t, etcdlock.ForceRelease(within(t), client, h.Key(), h.Token()))
			_ = commit(ctx, h) // which finds it out
			return last(within(t), h)
		})
		require.ErrorIs(t, err, etcdlock.ErrLost, what)
		require.Equal(t, 1, strings.Count(err.Error(), etcdlock.ErrLost.Error()), err)
	}
}
