package link_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

func touches(r *etcdserverpb.TxnRequest, key string) bool {
	for _, op := range r.Success {
		if read := op.GetRequestRange(); read != nil && string(read.Key) == key {
			return true
		}
		if deletion := op.GetRequestDeleteRange(); deletion != nil && string(deletion.Key) == key {
			return true
		}
		if nested := op.GetRequestTxn(); nested != nil && touches(nested, key) {
			return true
		}
	}
	return false
}

// R2
func TestDiscardDeletesTheKeyAndTellsOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line) {
		s := open(t, f)
		var gone atomic.Int64
		s.Link().Discard("key", f.Create(t, "key", s.Lease()), func() { gone.Add(1) })
		synctest.Wait()
		require.False(t, f.Exists(t, "key"))
		require.EqualValues(t, 1, gone.Load())
		require.Zero(t, s.Link().Abandoned())
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, gone.Load())
		require.Len(t, f.Requests(), 1)

	})
}

// R3, promise 5
func TestDiscardLeavesALaterKeyOfThatNameAlone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line) {
		s := open(t, f)
		old := f.Create(t, "key", s.Lease())
		f.Create(t, "key", s.Lease())
		gone := make(chan struct{})
		s.Link().Discard("key", old, func() { close(gone) })
		<-gone
		require.True(t, f.Exists(t, "key"))
	})
}

// R2, R12
func TestDiscardTriesUntilItIsConfirmed(t *testing.T) {
	for name, trouble := range map[string]fate{
		"requests vanish":   lost,
		"answers vanish":    unheard,
		"too many requests": refused(rpctypes.ErrTooManyRequests),
		"no leader":         refused(rpctypes.ErrNoLeader),
		"permission denied": refused(rpctypes.ErrPermissionDenied), // somebody may grant it again
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *line) {
				f.OnTxn = trouble
				s := open(t, f)
				var gone atomic.Bool
				s.Link().Discard("key", f.Create(t, "key", s.Lease()), func() { gone.Store(true) })
				time.Sleep(time.Minute)
				require.False(t, gone.Load())
				attempts := len(f.Requests())
				require.Greater(t, attempts, 4)
				require.Less(t, attempts, 100, "with growing pauses")
				f.Set(func(f *line) { f.OnTxn = nil })
				time.Sleep(20 * time.Second)
				require.True(t, gone.Load())
				require.False(t, f.Exists(t, "key"))
				require.Zero(t, s.Link().Abandoned())
			})
		})
	}
}

func TestManyKeysGoInFewTransactions(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line) {
		s := open(t, f)
		f.OnTxn = late(500 * time.Millisecond) // so that all have been handed over by then
		var gone atomic.Int64
		for n := range 200 {
			key := fmt.Sprint("key", n)
			s.Link().Discard(key, f.Create(t, key, s.Lease()), func() { gone.Add(1) })
		}
		time.Sleep(time.Minute)
		require.EqualValues(t, 200, gone.Load())
		require.True(t, f.Empty(t))
		require.LessOrEqual(t, len(f.Requests()), 8)
		for _, r := range f.Requests() {
			require.LessOrEqual(t, len(r.Success), 64)
		}
	})
}

func TestKeyThatMayNotBeTouchedDoesNotKeepTheOthers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line) {
		handedOver := make(chan struct{})
		f.Decide = func(r *etcdserverpb.TxnRequest) error {
			<-handedOver
			if touches(r, "key2") {
				return rpctypes.ErrPermissionDenied
			}
			return nil
		}
		s := open(t, f)
		var gone atomic.Int64
		for n := range 5 {
			key := fmt.Sprint("key", n)
			s.Link().Discard(key, f.Create(t, key, s.Lease()), func() { gone.Add(1) })
		}
		close(handedOver)
		synctest.Wait()
		require.EqualValues(t, 4, gone.Load(), "at once")
		require.True(t, f.Exists(t, "key2"))

		f.Set(func(f *line) { f.Decide = nil })
		time.Sleep(time.Minute)
		require.EqualValues(t, 5, gone.Load())
	})
}

// Many keys whose removal fails are no reason for as many log lines.
func TestRemovalsThatFailAreLoggedOnceASecond(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line) {
		log := &warnings{}
		s := open(t, f, log.logger())
		f.Set(func(f *line) { f.OnTxn = refused(rpctypes.ErrCorrupt) })
		for n := range 50 {
			key := fmt.Sprint("key", n)
			s.Link().Discard(key, f.Create(t, key, s.Lease()), func() {})
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.LessOrEqual(t, int(log.n.Load()), 11)
		f.Set(func(f *line) { f.OnTxn = nil })
		time.Sleep(2 * time.Second)
		require.True(t, f.Empty(t))
	})
}

// R2, with more keys than one transaction may carry.
func TestDiscardRemovesKeysFromEtcd(t *testing.T) {
	cluster := startEtcd(t)
	client := cluster.Client(t)
	s := create(t, client)
	fault := cluster.Refuse("Txn", rpctypes.ErrTooManyRequests, embedtest.Times(2))
	lost := cluster.LoseReply("Txn", embedtest.Once())
	const keys = 150
	var gone atomic.Int64
	for n := range keys {
		key := fmt.Sprint("key", n)
		s.Link().Discard(key, put(t, client, key, s.Lease()), func() { gone.Add(1) })
		s.Link().Epoch("!/epoch").Doubt(fmt.Sprint("never", n), func() {})
	}
	until(t, func() bool { return gone.Load() == keys })
	answer, err := client.Get(t.Context(), "key", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, answer.Kvs)
	require.Equal(t, 2, fault.Bites())
	require.Equal(t, 1, lost.Bites())
}

func TestDiscardAfterKeepsTheKeyForThatTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line) {
		s := open(t, f)
		var gone atomic.Int64
		s.Link().DiscardAfter(time.Minute, "later", f.Create(t, "later", s.Lease()), func() { gone.Add(1) })
		s.Link().DiscardAfter(10*time.Second, "sooner", f.Create(t, "sooner", s.Lease()), func() {})
		time.Sleep(10*time.Second - 1)
		require.True(t, f.Exists(t, "sooner"))
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		require.False(t, f.Exists(t, "sooner"), "although the one before it has longer to go")
		s.Link().Discard("now", f.Create(t, "now", s.Lease()), func() {})
		synctest.Wait()
		require.False(t, f.Exists(t, "now"))

		time.Sleep(50*time.Second - 2)
		require.True(t, f.Exists(t, "later"))
		require.Zero(t, gone.Load())
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		require.False(t, f.Exists(t, "later"))
		require.EqualValues(t, 1, gone.Load())
		require.Len(t, f.Requests(), 3, "none before its time")
		require.Zero(t, s.Link().Abandoned())
	})
}

func TestDiscardAfterEndsWithTheSession(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line) {
		s := open(t, f)
		gone := func() { t.Error("nobody looked") }
		s.Link().DiscardAfter(time.Minute, "key", f.Create(t, "key", clientv3.NoLease), gone)
		synctest.Wait()
		require.NoError(t, s.Close(context.Background()))
		require.Zero(t, s.Link().Abandoned())
		s.Link().DiscardAfter(0, "key", 1, gone)
		time.Sleep(10 * time.Minute)
		require.Empty(t, f.Requests())
		require.True(t, f.Exists(t, "key"))
	})
}
