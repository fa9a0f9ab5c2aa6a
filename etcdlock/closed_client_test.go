package etcdlock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// What goes on under a Keeper of a client that is closed, each in its own goroutine, ends and says why.
func TestEverythingEndsWhenTheClientIsClosed(t *testing.T) {
	t.Parallel()
	ctx := t.Context() // which lasts
	for name, start := range map[string]func(t *testing.T, src session.Source, began func()) error{
		"Observe": func(t *testing.T, src session.Source, began func()) (last error) {
			for leader, err := range etcdlock.NewElection(src, "taken").Observe(ctx) {
				if last = err; !leader.Vacant() {
					began()
				}
			}
			return last
		},
		"Sizes": func(t *testing.T, src session.Source, began func()) (last error) {
			for _, err := range etcdlock.NewSemaphore(src, "permits", 2).Sizes(ctx) {
				if last = err; err == nil {
					began()
				}
			}
			return last
		},
		"Run of a leader": func(t *testing.T, src session.Source, began func()) error {
			return etcdlock.NewElection(src, "mine").Run(ctx, "me", func(ctx context.Context, _ *etcdlock.Term) error {
				began()
				<-ctx.Done()
				return context.Cause(ctx)
			})
		},
		"a hold": func(t *testing.T, src session.Source, began func()) error {
			h, err := etcdlock.NewMutex(src, "free").Lock(ctx)
			require.NoError(t, err)
			began()
			<-h.Done()
			require.ErrorIs(t, h.Unlock(ctx), etcdlock.ErrLost)
			return h.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, _ := newCluster(t)
			lead(t, etcdlock.NewElection(newSession(t, cluster.Client(t)), "taken"), "other")
			client, err := cluster.NewClient()
			require.NoError(t, err)
			keeper := session.Keep(client, session.WithTTL(longTTL))
			watches := cluster.Calls("Watch")
			began, ended := make(chan struct{}, 10), make(chan error, 1)
			go func() { ended <- start(t, keeper, func() { began <- struct{}{} }) }()
			await(t, "the beginning", began)
			switch name {
			case "a hold", "Run of a leader":
			default:
				awaitWatch(t, cluster, watches)
			}
			require.NoError(t, client.Close())
			require.ErrorContains(t, await(t, "the end of "+name, ended), "the client was closed")
			require.NoError(t, keeper.Close(within(t)))
		})
	}
}

func TestAWaitOfEveryKindEndsWhenTheClientIsClosed(t *testing.T) {
	everyKind(t, func(t *testing.T, b *bench) {
		client, err := b.cluster.NewClient()
		require.NoError(t, err)
		keeper := session.Keep(client, session.WithTTL(longTTL))
		blocker := lock(t, b.blocker())
		s, before := current(t, keeper), b.cluster.Calls("Watch")
		waiting := b.wait(t.Context(), t, b.open(keeper, "orders"), 1)
		awaitWatch(t, b.cluster, before) // so that it knows that it is in line
		require.NoError(t, client.Close())
		r := await(t, "the end of the wait", waiting)
		require.ErrorIs(t, r.err, etcdlock.ErrLost)
		require.ErrorContains(t, r.err, "the client was closed")
		require.NoError(t, keeper.Close(within(t)))
		unlock(t, blocker)
		revoke(t, b.client, s) // what nobody else can do any more
	})
}
