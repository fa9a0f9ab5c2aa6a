package k8slock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	k8slock "github.com/etcdlock/locks/adapters/k8s"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

func TestGetWaitsForNewsAndUpdateTakesTheTerm(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	a, b := newLock(t, cluster, "a"), newLock(t, cluster, "b")
	require.True(t, apierrors.IsConflict(a.Update(t.Context(), record("a"))), "before Get")
	lead(t, a)
	r, raw, err := a.Get(t.Context())
	require.NoError(t, err)
	require.Equal(t, record("a"), *r)
	_, next, err := a.Get(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, raw, next, "client-go looks at new ones only")

	r, _, err = b.Get(t.Context())
	require.NoError(t, err)
	require.Equal(t, "a", r.HolderIdentity)
	require.True(t, apierrors.IsConflict(b.Update(t.Context(), record("b"))), "another leads")
	news := get(t.Context(), b)
	inLine(t, cluster.Client(t), 1)
	require.Empty(t, news, "there is none")
	require.NoError(t, a.Update(t.Context(), record("")), "resigns")
	require.Equal(t, answer{}, <-news, "it may lead")
	require.NoError(t, b.Update(t.Context(), record("b")))
	require.NoError(t, a.Update(t.Context(), record("")), "nothing to resign")
	require.True(t, apierrors.IsConflict(a.Update(t.Context(), record("a"))))
	require.Equal(t, answer{holder: "b"}, <-get(t.Context(), a), "at the end of the line")
	require.Greater(t, b.Token(), a.Token())
}

func TestOthersAndCreateAreConflicts(t *testing.T) {
	t.Parallel()
	l := newLock(t, embedtest.Start(t), "a")
	lead(t, l)
	require.True(t, apierrors.IsConflict(l.Update(t.Context(), record("b"))))
	require.True(t, apierrors.IsConflict(l.Create(t.Context(), record("a"))))
	require.NoError(t, l.Update(t.Context(), record("a")), "it still leads")
	require.Equal(t, "a", l.Identity())
	require.Equal(t, `etcdlock election "controller"`, l.Describe())
	require.Panics(t, func() { k8slock.New(nil, name, "") })
}

// The leader that is observed has the same identity: another process, or a predecessor whose lease lives.
func TestTheOwnIdentityIsNeverReturnedWithoutTheTerm(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	a, twin := newLock(t, cluster, "a"), newLock(t, cluster, "a")
	lead(t, a)
	news := get(t.Context(), twin)
	inLine(t, cluster.Client(t), 1)
	require.True(t, apierrors.IsConflict(twin.Update(t.Context(), record("a"))))
	require.Empty(t, news)
	require.NoError(t, a.Update(t.Context(), record("")))
	require.Equal(t, answer{}, <-news)
	require.NoError(t, twin.Update(t.Context(), record("a")))
	require.True(t, apierrors.IsConflict(a.Update(t.Context(), record("a"))))
}

func TestGetSaysAgainWhoLeadsAfterItsContextHasEnded(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	a, b := newLock(t, cluster, "a"), newLock(t, cluster, "b")
	lead(t, a)
	require.Equal(t, answer{holder: "a"}, <-get(t.Context(), b))
	ctx, cancel := context.WithCancel(t.Context())
	news := get(ctx, b)
	cancel()
	require.ErrorIs(t, (<-news).err, context.Canceled)
	require.Equal(t, answer{holder: "a"}, <-get(t.Context(), b), "another LeaderElector may ask")
}

// A term that client-go believes in is not replaced by the next one: its work would go on over a time when another
// led.
func TestALossIsReportedUntilClientGoHasStopped(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(t *testing.T, cluster *embedtest.Cluster, link *embedtest.Link, term *etcdlock.Term){
		"black hole": func(_ *testing.T, _ *embedtest.Cluster, link *embedtest.Link, _ *etcdlock.Term) { link.Blackhole() },
		"removed key": func(t *testing.T, cluster *embedtest.Cluster, _ *embedtest.Link, term *etcdlock.Term) {
			require.NoError(t, etcdlock.ForceRelease(t.Context(), cluster.Client(t), term.Key(), term.Token()))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			cluster := embedtest.Start(t)
			client, link := cluster.Link(t)
			l := k8slock.New(keep(t, client, session.WithTTL(2*time.Second)), name, "a")
			t.Cleanup(func() { finish(l) })
			lead(t, l)
			first, ok := l.Term()
			require.True(t, ok)
			require.Equal(t, first.Token(), l.Token())
			lose(t, cluster, link, first)
			<-first.Done()
			require.ErrorIs(t, l.Update(t.Context(), record("a")), etcdlock.ErrLost)
			_, ok = l.Term()
			require.False(t, ok)
			for range 3 {
				require.Equal(t, answer{}, <-get(t.Context(), l), "no holder, and nothing to wait for")
				require.ErrorIs(t, l.Update(t.Context(), record("a")), etcdlock.ErrLost)
			}
			link.Heal()
			require.ErrorIs(t, l.Update(t.Context(), record("")), etcdlock.ErrLost, "there is nothing to release")
			l.RecordEvent("stopped leading")
			lead(t, l)
			require.Greater(t, l.Token(), first.Token())
		})
	}
}

func TestATermThatIsLostBeforeClientGoTakesItIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	l := newLock(t, cluster, "a")
	require.Equal(t, answer{}, <-get(t.Context(), l))
	leader, err := etcdlock.NewElection(session.Keep(cluster.Client(t)), name).Leader(t.Context())
	require.NoError(t, err)
	require.NoError(t, etcdlock.ForceRelease(t.Context(), cluster.Client(t), leader.Key, leader.Token))
	require.Eventually(t, func() bool { // until it has learned of it
		err := l.Update(t.Context(), record("a"))
		if err == nil {
			// It was taken in time, as client-go would have, and is lost now.
			l.RecordEvent("stopped leading")
		}
		return err != nil
	}, time.Minute, time.Millisecond)
	lead(t, l)
	require.Greater(t, l.Token(), leader.Token)
}

func TestAnUnhealthyLeaderHasToStopAndResignsThen(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	var ill atomic.Bool
	a := newLock(t, cluster, "a", etcdlock.WithHealthCheck(5*time.Millisecond, func(context.Context) error {
		if ill.Load() {
			return errors.New("ill")
		}
		return nil
	}))
	b := newLock(t, cluster, "b")
	lead(t, a)
	require.Equal(t, answer{holder: "a"}, <-get(t.Context(), b))
	news := get(t.Context(), b)
	ill.Store(true)
	require.Eventually(t, func() bool {
		return errors.Is(a.Update(t.Context(), record("a")), etcdlock.ErrUnhealthy)
	}, time.Minute, time.Millisecond)
	inLine(t, cluster.Client(t), 1)
	require.Empty(t, news, "client-go still believes that it leads")
	a.RecordEvent("stopped leading")
	require.Equal(t, answer{}, <-news)
}

func TestErrorsOfTheElectionAreReturnedByGet(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	k := session.Keep(cluster.Client(t))
	invalid := k8slock.New(k, "", "a")
	for range 2 { // and it is tried again
		require.ErrorIs(t, (<-get(t.Context(), invalid)).err, etcdlock.ErrInvalidName)
	}
	require.NoError(t, invalid.Close(t.Context()))
	l := k8slock.New(k, name, "a")
	require.NoError(t, k.Close(t.Context()))
	require.ErrorIs(t, (<-get(t.Context(), l)).err, etcdlock.ErrClosed)
	_, err := l.Timings(t.Context())
	require.ErrorIs(t, err, etcdlock.ErrClosed)
	require.NoError(t, l.Close(t.Context()))
	require.ErrorIs(t, (<-get(t.Context(), l)).err, etcdlock.ErrClosed)
	require.NoError(t, l.Close(t.Context()), "again")
}

func TestCloseLeavesTheLine(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	a, b := newLock(t, cluster, "a"), newLock(t, cluster, "b")
	lead(t, a)
	require.Equal(t, answer{holder: "a"}, <-get(t.Context(), b))
	news := get(t.Context(), b)
	inLine(t, cluster.Client(t), 1)
	require.NoError(t, b.Close(t.Context()))
	require.ErrorIs(t, (<-news).err, etcdlock.ErrClosed)
	inLine(t, cluster.Client(t), 0)
}

func TestCloseMakesClientGoStopAndResignsThen(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	a, b := newLock(t, cluster, "a"), newLock(t, cluster, "b")
	lead(t, a)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, a.Close(ctx), context.Canceled, "it goes on in the background")
	require.ErrorIs(t, a.Update(t.Context(), record("a")), etcdlock.ErrClosed)
	news := get(t.Context(), b)
	require.Equal(t, answer{holder: "a"}, <-news)
	news = get(t.Context(), b)
	inLine(t, cluster.Client(t), 1)
	require.Empty(t, news, "client-go still believes that it leads")
	a.RecordEvent("stopped leading")
	require.NoError(t, a.Close(t.Context()))
	require.Equal(t, answer{}, <-news)
}

func TestTheGuardRefusesWritesOfAnEarlierTerm(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	write := func(guard clientv3.Cmp) bool {
		response, err := client.Txn(t.Context()).If(guard).Then(clientv3.OpPut("state", "")).Commit()
		require.NoError(t, err)
		return response.Succeeded
	}
	a := newLock(t, cluster, "a")
	require.Zero(t, a.Token())
	require.False(t, write(a.Guard()), "before the first term")
	lead(t, a)
	require.True(t, write(a.Guard()))
	require.NoError(t, a.Update(t.Context(), record("")))
	require.False(t, write(a.Guard()))
	require.NotZero(t, a.Token(), "of the latest term")
}
