package session_test

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/session"
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
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		var gone atomic.Int64
		s.Link().Discard("key", f.put("key", s.Lease()), func() { gone.Add(1) })
		synctest.Wait()
		require.False(t, f.exists("key"))
		require.EqualValues(t, 1, gone.Load())
		require.Zero(t, s.Link().Unsettled())
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, gone.Load())
		require.Len(t, f.requests(), 1)

	})
}

// R3, promise 5
func TestDiscardLeavesALaterKeyOfThatNameAlone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		old := f.put("key", s.Lease())
		f.put("key", s.Lease())
		gone := make(chan struct{})
		s.Link().Discard("key", old, func() { close(gone) })
		<-gone
		require.True(t, f.exists("key"))
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
			inVirtualTime(t, func(t *testing.T, f *fake) {
				f.txn = trouble
				s := open(t, f)
				var gone atomic.Bool
				s.Link().Discard("key", f.put("key", s.Lease()), func() { gone.Store(true) })
				time.Sleep(time.Minute)
				require.False(t, gone.Load())
				attempts := len(f.requests())
				require.Greater(t, attempts, 4)
				require.Less(t, attempts, 100, "with growing pauses")
				f.set(func(f *fake) { f.txn = nil })
				time.Sleep(20 * time.Second)
				require.True(t, gone.Load())
				require.False(t, f.exists("key"))
				require.Zero(t, s.Link().Unsettled())
			})
		})
	}
}

func TestManyKeysGoInFewTransactions(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.txn = late(500 * time.Millisecond) // so that all have been handed over by then
		var gone atomic.Int64
		for n := range 200 {
			key := fmt.Sprint("key", n)
			s.Link().Discard(key, f.put(key, s.Lease()), func() { gone.Add(1) })
		}
		time.Sleep(time.Minute)
		require.EqualValues(t, 200, gone.Load())
		f.set(func(f *fake) { require.Empty(t, f.keys) })
		require.LessOrEqual(t, len(f.requests()), 8)
		for _, r := range f.requests() {
			require.LessOrEqual(t, len(r.Success), 64)
		}
	})
}

func TestKeyThatMayNotBeTouchedDoesNotKeepTheOthers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		handedOver := make(chan struct{})
		f.decide = func(r *etcdserverpb.TxnRequest) error {
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
			s.Link().Discard(key, f.put(key, s.Lease()), func() { gone.Add(1) })
		}
		close(handedOver)
		synctest.Wait()
		require.EqualValues(t, 4, gone.Load(), "at once")
		require.True(t, f.exists("key2"))

		f.set(func(f *fake) { f.decide = nil })
		time.Sleep(time.Minute)
		require.EqualValues(t, 5, gone.Load())
	})
}

// Many keys whose removal fails are no reason for as many log lines.
func TestRemovalsThatFailAreLoggedOnceASecond(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		log := &logbook{}
		s := open(t, f, session.WithLogger(slog.New(log)))
		f.set(func(f *fake) { f.txn = refused(rpctypes.ErrCorrupt) })
		for n := range 50 {
			key := fmt.Sprint("key", n)
			s.Link().Discard(key, f.put(key, s.Lease()), func() {})
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.LessOrEqual(t, len(log.warnings(t)), 11)
		f.set(func(f *fake) { f.txn = nil })
		time.Sleep(2 * time.Second)
		f.set(func(f *fake) { require.Empty(t, f.keys) })
	})
}
