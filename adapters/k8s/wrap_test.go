package k8slock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	k8slock "github.com/etcdlock/locks/adapters/k8s"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

func TestAReleaseWaitsForTheWork(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	a, b := newLock(t, cluster, "a"), newLock(t, cluster, "b")
	lead(t, a)
	require.Equal(t, answer{holder: "a"}, <-get(t.Context(), b))
	news := get(t.Context(), b)
	inLine(t, cluster.Client(t), 1)

	started, finished := make(chan struct{}), make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	go a.Wrap(func(context.Context) {
		close(started)
		<-finished // and does not obey its context
	})(ctx)
	<-started
	stop()
	bounded, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond) // client-go's RenewDeadline
	defer cancel()
	require.ErrorIs(t, a.Update(bounded, record("")), context.DeadlineExceeded)
	a.RecordEvent("stopped leading")
	again := get(t.Context(), a)
	require.Empty(t, news)
	term, ok := a.Term()
	require.True(t, ok, "it is not given up")
	require.NoError(t, term.Err())
	close(finished)
	require.Equal(t, answer{}, <-news)
	require.NoError(t, b.Update(t.Context(), record("b")))
	require.Equal(t, answer{holder: "b"}, <-again, "a stands again when its work is over")
}

// client-go's default timings would let it go on; the context of the work ends with the term.
func TestTheWorkIsToldOfALossAtOnce(t *testing.T) {
	t.Parallel()
	client, link := embedtest.Start(t).Link(t)
	l := k8slock.New(keep(t, client, session.WithTTL(2*time.Second)), name, "a")
	t.Cleanup(func() { finish(l) })
	lead(t, l)
	term, ok := l.Term()
	require.True(t, ok)
	causes := make(chan error)
	go l.Wrap(func(ctx context.Context) {
		<-ctx.Done()
		causes <- context.Cause(ctx)
	})(t.Context())
	link.Blackhole()
	require.ErrorIs(t, <-causes, etcdlock.ErrLost)
	require.Error(t, term.Err())
	link.Heal()
}

func TestTheWorkDoesNotBeginAfterTheTerm(t *testing.T) {
	t.Parallel()
	l := newLock(t, embedtest.Start(t), "a")
	never := l.Wrap(func(context.Context) { t.Error("it began") })
	never(t.Context())
	lead(t, l)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	never(ended)
	require.NoError(t, l.Update(t.Context(), record("")))
	never(t.Context())
}
