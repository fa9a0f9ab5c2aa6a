package link_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// discard creates keys and hands them to DiscardAfter. What is gone can be received.
func discard(t *testing.T, f *line, s *session.Session, after time.Duration, keys ...string) (gone chan string) {
	t.Helper()
	gone = make(chan string, 2*len(keys))
	for _, key := range keys {
		s.Link().DiscardAfter(after, key, f.Create(t, key, s.Lease()), func() { gone <- key })
	}
	return gone
}

// handOver is discard, or creates keys and hands them to Doubt.
func handOver(t *testing.T, f *line, s *session.Session, discarded bool, keys ...string) (gone chan string) {
	t.Helper()
	if discarded {
		return discard(t, f, s, 0, keys...)
	}
	for _, key := range keys {
		f.Create(t, key, s.Lease())
	}
	return doubt(epoch(s), keys...)
}

// requireFewRequests requires that there were at most n, each with as many operations as etcd allows.
func requireFewRequests(t *testing.T, f *line, n int) {
	t.Helper()
	require.LessOrEqual(t, len(f.Requests()), n)
	for _, r := range f.Requests() {
		require.LessOrEqual(t, len(r.Success), 64)
	}
}

// R2
func TestDiscardDeletesTheKeyAndTellsOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		gone := discard(t, f, s, 0, "key")
		synctest.Wait()
		require.False(t, f.Exists(t, "key"))
		require.Len(t, gone, 1)
		require.Zero(t, s.Link().Abandoned())
		time.Sleep(time.Hour)
		require.Len(t, gone, 1)
		require.Len(t, f.Requests(), 1)
	})
}

// R3, promise 5
func TestDiscardLeavesALaterKeyOfThatNameAlone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		old := f.Create(t, "key", s.Lease())
		f.Create(t, "key", s.Lease())
		gone := make(chan struct{})
		s.Link().Discard("key", old, func() { close(gone) })
		<-gone
		require.True(t, f.Exists(t, "key"))
	})
}

// R2, R11, R12
func TestAKeyIsRemovedForAsLongAsThatIsNotConfirmed(t *testing.T) {
	for _, discarded := range []bool{true, false} {
		inEach(t, map[string]fate{
			"requests vanish":   lost,
			"answers vanish":    unheard,
			"too many requests": refused(rpctypes.ErrTooManyRequests),
			"no leader":         refused(rpctypes.ErrNoLeader),
			"no space":          refused(rpctypes.ErrNoSpace),
		}, func(t *testing.T, f *line, s *session.Session, trouble fate) {
			f.Meet(trouble)
			gone := handOver(t, f, s, discarded, "key")
			time.Sleep(time.Minute)
			require.Empty(t, gone)
			attempts := len(f.Requests())
			require.Greater(t, attempts, 4)
			require.Less(t, attempts, 100, "with growing pauses")
			f.Meet(answered)
			time.Sleep(30 * time.Second)
			require.Len(t, gone, 1)
			require.False(t, f.Exists(t, "key"))
			require.Zero(t, s.Link().Abandoned())
		})
	}
}

func TestManyKeysGoInFewTransactions(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		f.Meet(late(500 * time.Millisecond)) // so that all have been handed over by then
		gone := discard(t, f, s, 0, numbered(200)...)
		time.Sleep(time.Minute)
		require.Len(t, gone, 200)
		require.True(t, f.Empty(t))
		requireFewRequests(t, f, 8)
	})
}

func touches(r *etcdserverpb.TxnRequest, key string) bool {
	for _, op := range r.Success {
		nested := op.GetRequestTxn()
		if string(op.GetRequestDeleteRange().GetKey()) == key || nested != nil && touches(nested, key) {
			return true
		}
	}
	return false
}

func TestKeyThatMayNotBeTouchedDoesNotKeepTheOthers(t *testing.T) {
	inEach(t, map[string]bool{"discarded": true, "in doubt": false}, func(t *testing.T, f *line, s *session.Session, discarded bool) {
		handedOver := make(chan struct{})
		f.Refuse(func(r *etcdserverpb.TxnRequest) error {
			<-handedOver
			if touches(r, "key2") {
				return rpctypes.ErrPermissionDenied
			}
			return nil
		})
		gone := handOver(t, f, s, discarded, numbered(5)...)
		close(handedOver)
		synctest.Wait()
		require.Len(t, gone, 4, "at once")
		require.True(t, f.Exists(t, "key2"))

		f.Refuse(nil) // somebody may grant the permission again
		time.Sleep(time.Minute)
		require.Len(t, gone, 5)
	})
}

// Many keys whose removal fails are no reason for as many log lines.
func TestRemovalsThatFailAreLoggedOnceASecond(t *testing.T) {
	log := &warnings{}
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		f.Meet(refused(rpctypes.ErrCorrupt))
		discard(t, f, s, 0, numbered(50)...)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.LessOrEqual(t, int(log.n.Load()), 11)
		f.Meet(answered)
		time.Sleep(2 * time.Second)
		require.True(t, f.Empty(t))
	}, log.logger())
}

func TestDiscardAfterKeepsTheKeyForThatTime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		gone := discard(t, f, s, time.Minute, "later")
		discard(t, f, s, 10*time.Second, "sooner")
		time.Sleep(10*time.Second - 1)
		require.True(t, f.Exists(t, "sooner"))
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		require.False(t, f.Exists(t, "sooner"), "although the one before it has longer to go")
		discard(t, f, s, 0, "now")
		synctest.Wait()
		require.False(t, f.Exists(t, "now"))

		time.Sleep(50*time.Second - 2)
		require.True(t, f.Exists(t, "later"))
		require.Empty(t, gone)
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		require.False(t, f.Exists(t, "later"))
		require.Len(t, gone, 1)
		require.Len(t, f.Requests(), 3, "none before its time")
		require.Zero(t, s.Link().Abandoned())
	})
}

func TestDiscardAfterEndsWithTheSession(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
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
