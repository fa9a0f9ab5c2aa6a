package session_test

import (
	"bytes"
	"context"
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

func writes(r *etcdserverpb.TxnRequest) bool {
	for _, op := range r.Success {
		if op.GetRequestRange() == nil {
			return true
		}
	}
	return false
}

func touches(r *etcdserverpb.TxnRequest, key string) bool {
	for _, op := range r.Success {
		if read := op.GetRequestRange(); read != nil && string(read.Key) == key {
			return true
		}
		if nested := op.GetRequestTxn(); nested != nil && string(nested.Success[0].GetRequestDeleteRange().Key) == key {
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
		s.Discard("key", f.put("key", s.Lease()), func() { gone.Add(1) })
		synctest.Wait()
		require.False(t, f.exists("key"))
		require.EqualValues(t, 1, gone.Load())
		require.False(t, s.Sweeping(), "no goroutine without work")
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, gone.Load())
		require.Len(t, f.requests(), 1)

		s.Discard("key", f.put("key", s.Lease()), nil)
		synctest.Wait()
		require.False(t, f.exists("key"), "a second sweep")
	})
}

// R3, promise 5
func TestDiscardLeavesALaterKeyOfThatNameAlone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		old := f.put("key", s.Lease())
		f.put("key", s.Lease())
		gone := make(chan struct{})
		s.Discard("key", old, func() { close(gone) })
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
				s.Discard("key", f.put("key", s.Lease()), func() { gone.Store(true) })
				time.Sleep(time.Minute)
				require.False(t, gone.Load())
				attempts := len(f.requests())
				require.Greater(t, attempts, 4)
				require.Less(t, attempts, 40, "with growing pauses")
				f.set(func(f *fake) { f.txn = nil })
				time.Sleep(20 * time.Second)
				require.True(t, gone.Load())
				require.False(t, f.exists("key"))
				require.False(t, s.Sweeping())
			})
		})
	}
}

func TestDiscardGivesASlowServerMoreTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		f.txn = late(5 * time.Second)
		s := open(t, f)
		gone := make(chan struct{})
		s.Discard("key", f.put("key", s.Lease()), func() { close(gone) })
		<-gone
		require.Equal(t, 3*time.Second, f.limits[0])
	})
}

func TestManyKeysGoInFewTransactions(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.txn = late(500 * time.Millisecond) // so that all have been handed over by then
		var gone atomic.Int64
		for n := range 200 {
			key := fmt.Sprint("key", n)
			s.Discard(key, f.put(key, s.Lease()), func() { gone.Add(1) })
		}
		time.Sleep(time.Minute)
		require.EqualValues(t, 200, gone.Load())
		require.Empty(t, f.keys)
		require.LessOrEqual(t, len(f.requests()), 5)
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
		s.Discard("late", 0, nil)
		for n := range 5 {
			key := fmt.Sprint("key", n)
			s.Discard(key, f.put(key, s.Lease()), func() { gone.Add(1) })
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

// R12
func TestOverloadedServerIsNotAskedKeyByKey(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		handedOver := make(chan struct{})
		f.txn = func(context.Context, func() error) error {
			<-handedOver
			return rpctypes.ErrTooManyRequests
		}
		s := open(t, f)
		for n := range 50 {
			key := fmt.Sprint("key", n)
			s.Discard(key, f.put(key, s.Lease()), nil)
		}
		close(handedOver)
		synctest.Wait()
		require.LessOrEqual(t, len(f.requests()), 2, "what was there when the sweep began, and the rest")
	})
}

// R11: the request that creates the key is applied after everybody gave up.
func TestKeyThatAppearsLateIsRemoved(t *testing.T) {
	for _, after := range []time.Duration{0, 100 * time.Millisecond, 10 * time.Second, 10 * time.Minute, 5 * time.Hour} {
		t.Run(after.String(), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fake) {
				var log bytes.Buffer
				s := open(t, f, session.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				s.Discard("key", 0, func() { t.Error("confirmed what cannot be known") })
				time.Sleep(after)
				f.put("key", s.Lease())
				time.Sleep(max(after/2, time.Second)) // within seconds of the time since, and
				if after > 3*time.Minute {
					time.Sleep(90 * time.Second) // at most a minute, give or take
				}
				require.False(t, f.exists("key"))
				require.Contains(t, log.String(), "created late")
				require.NoError(t, s.Close(context.Background()))
				require.False(t, s.Sweeping())
			})
		})
	}
}

// R11: somebody else's key, which must not cost a write at each look either.
func TestLateKeyOfAnotherLeaseIsLeftAlone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.put("key", s.Lease()+1)
		s.Discard("key", 0, nil)
		time.Sleep(time.Hour)
		require.True(t, f.exists("key"))
		for _, r := range f.requests() {
			require.False(t, writes(r))
		}
	})
}

// R11: what is found is replaced between the look and the deletion.
func TestLateKeyIsDeletedOnlyUnderTheSessionsLease(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.put("key", s.Lease())
		f.decide = func(r *etcdserverpb.TxnRequest) error {
			if writes(r) {
				f.put("key", s.Lease()+1)
			}
			return nil
		}
		s.Discard("key", 0, nil)
		time.Sleep(time.Minute)
		require.True(t, f.exists("key"))
	})
}

// R11, R4
func TestLooksAreReadsWithGrowingPauses(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		start := time.Now()
		s := open(t, f)
		s.Discard("key", 0, nil)
		time.Sleep(3 * time.Hour)
		requests := f.requests()
		for _, r := range requests {
			require.False(t, writes(r))
		}
		looks := secondsSince(start, f.txnTimes)
		require.Zero(t, looks[0])
		require.Greater(t, len(looks), 100)
		for i := 1; i < len(looks); i++ {
			since, pause := looks[i-1], looks[i]-looks[i-1]
			want := min(max(since/4, 0.25), 10)
			require.InDelta(t, want, pause, want/2+1e-6, "look %d", i)
		}
		require.True(t, s.Sweeping(), "for as long as the session lasts")
	})
}

func TestSweepEndsWithTheSession(t *testing.T) {
	t.Run("closed", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, f *fake) {
			f.txn = lost
			s := open(t, f)
			s.Discard("late", 0, nil)
			s.Discard("key", 7, func() { t.Error("told after the end") })
			time.Sleep(time.Minute)
			require.NoError(t, s.Close(context.Background()))
			require.False(t, s.Sweeping(), "Close waits for it")
			looks := len(f.requests())
			s.Discard("another", 8, func() { t.Error("told after the end") })
			time.Sleep(time.Hour)
			require.Len(t, f.requests(), looks)
		})
	})
	t.Run("lost", func(t *testing.T) {
		inVirtualTime(t, func(t *testing.T, f *fake) {
			s := open(t, f)
			s.Discard("late", 0, nil)
			f.set(func(f *fake) { f.renew = lost })
			<-s.Done()
			synctest.Wait()
			require.False(t, s.Sweeping())
		})
	})
}

// A sweep that hears nothing must not delay a renewal.
func TestSweepDoesNotDelayRenewals(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		start := time.Now()
		f.txn = lost
		s := open(t, f, session.WithTTL(3*time.Second))
		s.Discard("late", 0, nil)
		time.Sleep(5500 * time.Millisecond)
		require.Equal(t, []float64{1, 2, 3, 4, 5}, secondsSince(start, f.renewalTimes()))
	})
}

func TestNewLeftoverWakesTheSweeper(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		s.Discard("late", 0, nil)
		time.Sleep(time.Hour) // the next look is about a minute away
		gone := make(chan struct{})
		start := time.Now()
		s.Discard("key", f.put("key", s.Lease()), func() { close(gone) })
		<-gone
		require.Zero(t, time.Since(start))
	})
}
