package etcdlock_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
)

// Scenario R5.
func TestNestedNamesAreIndependent(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		var holds []*etcdlock.Hold
		for _, name := range []string{"orders", "orders/a", "orders/a/b", "ordersa"} {
			h, err := b.open(b.session, name).TryLock(within(t))
			require.NoError(t, err, name)
			holds = append(holds, h)
		}
		for _, name := range []string{"b", "b/a"} { // the longer one is there first
			inner := lock(t, b.open(b.session, name+"/c"))
			outer := lock(t, b.open(b.session, name))
			holds = append(holds, inner, outer)
		}
		unlockAll(t, holds)
	})
}

func TestNamesThatCannotBeAreRefusedByEveryKind(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		before := b.cluster.Calls("Txn") + b.cluster.Calls("Range")
		for _, name := range []string{"", strings.Repeat("x", 513), "a\xffb"} {
			l := b.open(b.session, name)
			for _, call := range []func(context.Context) (*etcdlock.Hold, error){l.Lock, l.TryLock} {
				_, err := call(within(t))
				require.ErrorIs(t, err, etcdlock.ErrInvalidName)
				var typed *etcdlock.Error
				require.ErrorAs(t, err, &typed)
			}
		}
		require.Equal(t, before, b.cluster.Calls("Txn")+b.cluster.Calls("Range"))
	})
}

func TestTxnOfEveryKindIsEtcdsOwn(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		h := lock(t, b.orders(t))
		absent := clientv3.Compare(clientv3.CreateRevision("data"), "=", 0)
		for _, fresh := range []bool{true, false} {
			answer, err := h.Txn(within(t)).If(absent).Then(clientv3.OpPut("data", "1")).
				Else(clientv3.OpDelete("data")).Commit()
			require.NoError(t, err)
			require.Equal(t, fresh, answer.Succeeded)
		}
		answer, err := b.client.Txn(within(t)).If(h.Guards()...).Commit()
		require.NoError(t, err)
		require.True(t, answer.Succeeded)
		unlock(t, h)
		_, err = h.Txn(within(t)).Then(clientv3.OpPut("data", "2")).Commit()
		require.ErrorIs(t, err, etcdlock.ErrUnlocked)
	})
}
