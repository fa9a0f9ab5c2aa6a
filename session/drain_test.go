package session_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/session"
)

func TestDrainRenewsUntilNoNameIsUsed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		k := keep(t, f)
		s, err := k.Session(context.Background())
		require.NoError(t, err)
		first, second := s.Link().Claim("a/"), s.Link().Claim("b/")
		drained := make(chan error, 1)
		go func() { drained <- k.Drain(context.Background()) }()
		time.Sleep(time.Hour)
		require.NoError(t, s.Err())
		_, err = k.Session(context.Background())
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
		k := keep(t, f)
		s, err := k.Session(context.Background())
		require.NoError(t, err)
		s.Link().Claim("a/")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = k.Drain(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualError(t, err, "session: closed while locks were held or waited for: context deadline exceeded")
		require.ErrorIs(t, s.Err(), session.ErrClosed)
		require.Zero(t, f.LeaseCount())
	})
}

func TestDrainEndsWithTheSession(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, f *fake, k *session.Keeper, s *session.Session){
		"lost": func(_ *testing.T, f *fake, _ *session.Keeper, _ *session.Session) {
			f.Set(func(f *fake) { clear(f.Alive) })
		},
		"closed": func(t *testing.T, _ *fake, k *session.Keeper, _ *session.Session) {
			require.NoError(t, k.Close(context.Background()))
		},
		"itself": func(t *testing.T, _ *fake, _ *session.Keeper, s *session.Session) {
			require.NoError(t, s.Close(context.Background()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fake) {
				k := keep(t, f)
				s, err := k.Session(context.Background())
				require.NoError(t, err)
				s.Link().Claim("a/")
				drained := make(chan error, 1)
				go func() { drained <- k.Drain(context.Background()) }()
				synctest.Wait()
				end(t, f, k, s)
				require.NoError(t, <-drained)
			})
		})
	}
}

// With the lease the key goes for certain, whatever is under way. So Drain does not wait for that.
func TestDrainWaitsForNoNameInDoubt(t *testing.T) {
	c := startEtcd(t)
	client := c.Client(t)
	k := session.Keep(client)
	s, err := k.Session(t.Context())
	require.NoError(t, err)
	n := s.Link().Claim("a/")
	c.LoseRequest("Txn")
	s.Link().Epoch("!/epoch").Doubt("a/key", func() { s.Link().Free("a/", n) })
	require.NoError(t, k.Drain(t.Context()))
	require.Empty(t, leases(t, client))
}

func TestDrainWithoutASessionCreatesNone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		k := keep(t, f)
		require.NoError(t, k.Drain(context.Background()))
		_, err := k.Session(context.Background())
		require.ErrorIs(t, err, session.ErrClosed)
		require.Empty(t, f.GrantTimes())
	})
}
