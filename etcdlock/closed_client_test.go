package etcdlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
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
		"a wait for a mutex": func(t *testing.T, src session.Source, began func()) error {
			began()
			_, err := etcdlock.NewMutex(src, "taken").Lock(ctx)
			require.ErrorIs(t, err, etcdlock.ErrLost)
			return err
		},
		"a wait for a mutex in memory": func(t *testing.T, src session.Source, began func()) error {
			began()
			_, err := etcdlock.NewMutex(src, "taken", etcdlock.WithLocalHandover(time.Hour, 10)).Lock(ctx)
			require.ErrorIs(t, err, etcdlock.ErrLost)
			return err
		},
		"a wait for a permit": func(t *testing.T, src session.Source, began func()) error {
			began()
			_, err := etcdlock.NewSemaphore(src, "all permits", 1).Lock(ctx)
			require.ErrorIs(t, err, etcdlock.ErrLost)
			return err
		},
		"a candidate": func(t *testing.T, src session.Source, began func()) error {
			began()
			_, err := etcdlock.NewElection(src, "taken").Campaign(ctx, "me")
			require.ErrorIs(t, err, etcdlock.ErrLost)
			return err
		},
		"Run of a candidate": func(t *testing.T, src session.Source, began func()) error {
			began()
			return etcdlock.NewElection(src, "taken").Run(ctx, "me", func(context.Context, *etcdlock.Term) error {
				return errors.New("the place was taken")
			})
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
		"Do": func(t *testing.T, src session.Source, began func()) error {
			return etcdlock.Do(ctx, etcdlock.NewMutex(src, "done"), func(ctx context.Context, _ *etcdlock.Hold) error {
				began()
				<-ctx.Done()
				return errors.New("stopped")
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := embedtest.Start(t)
			holder := newSession(t, cluster.Client(t))
			lock(t, etcdlock.NewSemaphore(holder, "all permits", 1))
			_, err := etcdlock.NewElection(holder, "taken").Campaign(within(t), "other")
			require.NoError(t, err)

			client, err := clientv3.New(clientv3.Config{Endpoints: cluster.Endpoints()})
			require.NoError(t, err)
			keeper := session.Keep(client, session.WithTTL(longTTL))
			watches := cluster.Calls("Watch")
			began, ended := make(chan struct{}, 10), make(chan error, 1)
			go func() { ended <- start(t, keeper, func() { began <- struct{}{} }) }()
			await(t, "the beginning", began)
			switch name {
			case "a hold", "Do", "Run of a leader":
			default:
				awaitWatch(t, cluster, watches)
			}
			require.NoError(t, client.Close())
			require.ErrorContains(t, await(t, "the end of "+name, ended), "the client was closed")
			require.NoError(t, keeper.Close(within(t)))
		})
	}
}
