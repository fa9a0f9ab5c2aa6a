package session_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

// draining starts a Drain.
func draining(k *session.Keeper) (drained chan error) {
	drained = make(chan error, 1)
	go func() { drained <- k.Drain(context.Background()) }()
	return drained
}

func TestDrainRenewsUntilNoNameIsUsed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		k, s := keepOne(t, f)
		first, second := s.Link().Claim("a/"), s.Link().Claim("b/")
		drained := draining(k)
		time.Sleep(time.Hour)
		require.NoError(t, s.Err())
		_, err := k.Session(context.Background())
		require.ErrorIs(t, err, session.ErrClosed)
		s.Link().Free("a/", first)
		synctest.Wait()
		require.NoError(t, s.Err())
		s.Link().Free("b/", second)
		require.NoError(t, <-drained)
		require.ErrorIs(t, s.Err(), session.ErrClosed)
		require.Zero(t, f.LeaseCount())
		require.NoError(t, k.Drain(context.Background()), "again")
	})
}

func TestDrainClosesAllTheSameWhenItsContextEnds(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		k, s := keepOne(t, f)
		s.Link().Claim("a/")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err := k.Drain(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualError(t, err, "session: closed while locks were held or waited for: context deadline exceeded")
		require.ErrorIs(t, s.Err(), session.ErrClosed)
		require.Zero(t, f.LeaseCount())
	})
}

func TestDrainEndsWithTheSession(t *testing.T) {
	inEach(t, map[string]func(f *fake, k *session.Keeper, s *session.Session){
		"lost":   func(f *fake, _ *session.Keeper, _ *session.Session) { f.Forget() },
		"closed": func(_ *fake, k *session.Keeper, _ *session.Session) { _ = k.Close(context.Background()) },
		"itself": func(_ *fake, _ *session.Keeper, s *session.Session) { _ = s.Close(context.Background()) },
	}, func(t *testing.T, f *fake, end func(*fake, *session.Keeper, *session.Session)) {
		k, s := keepOne(t, f)
		s.Link().Claim("a/")
		drained := draining(k)
		synctest.Wait()
		end(f, k, s)
		require.NoError(t, <-drained)
	})
}

// With the lease the key goes for certain, whatever is under way. So Drain does not wait for that.
func TestDrainWaitsForNoNameInDoubt(t *testing.T) {
	withEtcd(t, func(t *testing.T, c *embedtest.Cluster) {
		client := c.Client(t)
		k := session.Keep(client, session.WithMonotonicClock())
		s := sessionOf(t, k)
		n := s.Link().Claim("a/")
		c.LoseRequest("Txn")
		s.Link().Epoch("!/epoch").Doubt("a/key", func() { s.Link().Free("a/", n) })
		require.NoError(t, k.Drain(t.Context()))
		require.Empty(t, leases(t, client))
	})
}

// A lock that is only kept in memory is given up while locks of a session that is being replaced are still held.
func TestDrainRetiresTheCurrentSessionBeforeItWaitsForOthers(t *testing.T) {
	withEtcd(t, func(t *testing.T, c *embedtest.Cluster) {
		k := session.Keep(c.Client(t), session.WithMonotonicClock())
		first := sessionOf(t, k)
		held := first.Link().Claim("a/")
		c.Refuse("Txn", rpctypes.ErrPermissionDenied)
		for range 512 { // that etcd refuses to end
			n := first.Link().Claim("b/")
			first.Link().Epoch("!/epoch").Doubt("b/key", func() { first.Link().Free("b/", n) })
		}
		until(t, first.Link().Spent)
		second := sessionOf(t, k)
		require.NotSame(t, first, second)
		drained := draining(k)
		<-second.Link().Retired().Done()
		require.NoError(t, first.Err())
		first.Link().Free("a/", held)
		require.NoError(t, <-drained)
		require.Error(t, first.Err())
		require.ErrorIs(t, second.Err(), session.ErrClosed)
	})
}

func TestDrainWithoutASessionCreatesNone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		k := keep(t, f)
		require.NoError(t, k.Drain(context.Background()))
		_, err := k.Session(context.Background())
		require.ErrorIs(t, err, session.ErrClosed)
		require.Empty(t, f.Grants.Times())
	})
}
