package certmagiclock_test

import (
	"context"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/require"

	certmagiclock "github.com/etcdlock/locks/adapters/certmagic"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const name = "issue_cert_example.com"

func TestOneStorageAtATimeHasALock(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	a, b := newStorage(t, cluster.Client(t)), newStorage(t, cluster.Client(t))
	ctx := within(t)
	require.NoError(t, a.Lock(ctx, name))
	ok, err := b.TryLock(ctx, name)
	require.NoError(t, err)
	require.False(t, ok)
	ok, err = b.TryLock(ctx, "another")
	require.NoError(t, err)
	require.True(t, ok)
	waits := make(chan error, 1)
	go func() { waits <- b.Lock(ctx, name) }()
	require.Eventually(t, func() bool { return waiters(t, cluster) == 1 }, time.Minute, time.Millisecond)
	require.NoError(t, a.Unlock(ctx, name))
	require.NoError(t, <-waits)
	require.NoError(t, b.Unlock(ctx, name))
	require.NoError(t, b.Unlock(ctx, name), "as certmagic does at exit with what it could not unlock before")

	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, a.Lock(ended, name), context.Canceled)
	ok, err = b.TryLock(ctx, name)
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, b.Unlock(ended, name), "etcd gets a moment")
}

// waiters returns how many wait for the lock.
func waiters(t *testing.T, cluster *embedtest.Cluster) int {
	for q, err := range etcdlock.InspectAll(t.Context(), cluster.Client(t)) {
		require.NoError(t, err)
		if q.Name == "certmagic/"+name {
			return len(q.Places) - 1
		}
	}
	return 0
}

// lose is what may happen to the holder of the lock.
var lose = map[string]func(t *testing.T, cluster *embedtest.Cluster, link *embedtest.Link){
	"black hole": func(_ *testing.T, _ *embedtest.Cluster, link *embedtest.Link) { link.Blackhole() },
	"removed key": func(t *testing.T, cluster *embedtest.Cluster, _ *embedtest.Link) {
		client := cluster.Client(t)
		for q, err := range etcdlock.InspectAll(t.Context(), client) {
			require.NoError(t, err)
			for _, place := range q.Places {
				require.NoError(t, etcdlock.ForceRelease(t.Context(), client, place.Key, place.Token))
			}
		}
	},
}

func TestUnlockIsNilAfterALossAndTheLossIsReported(t *testing.T) {
	t.Parallel()
	for what, lose := range lose {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			cluster := embedtest.Start(t)
			client, link := cluster.Link(t)
			lost := make(chan error, 1)
			a := newStorage(t, client, certmagiclock.WithOnLost(func(n string, err error) {
				if n == "certmagic/"+name {
					lost <- err
				}
			}))
			b := newStorage(t, cluster.Client(t))
			ctx := within(t)
			require.NoError(t, a.Lock(ctx, name))
			lose(t, cluster, link)
			require.ErrorIs(t, <-lost, etcdlock.ErrLost)
			require.NoError(t, b.Lock(ctx, name))
			require.NoError(t, a.Unlock(ctx, name))
			link.Heal()
			ok, err := a.TryLock(ctx, name)
			require.NoError(t, err)
			require.False(t, ok, "the next owner's lock is not touched")
			require.NoError(t, b.Unlock(ctx, name))
			require.NoError(t, a.Lock(ctx, name))
			require.NoError(t, a.Unlock(ctx, name))
		})
	}
}

// certmagic asks for the lock to last through the pause until its next attempt: two minutes at least, six hours at most.
func TestARenewalConfirmsTheLock(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	s := newStorage(t, cluster.Client(t))
	ctx := within(t)
	require.ErrorIs(t, s.RenewLockLease(ctx, name, time.Minute), etcdlock.ErrNotHeld)
	require.NoError(t, s.Lock(ctx, name))
	renewals := cluster.Calls("LeaseKeepAlive")
	require.NoError(t, s.RenewLockLease(ctx, name, 6*time.Hour))
	require.Greater(t, cluster.Calls("LeaseKeepAlive"), renewals)
	require.NoError(t, s.RenewLockLease(ctx, name, 0))

	defer cluster.DropKeepAlives().Heal()
	ended, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.RenewLockLease(ended, name, 6*time.Hour), context.DeadlineExceeded)
}

// Otherwise certmagic's further attempts would fail for 30 days.
func TestARenewalAfterALossTakesTheLockAgain(t *testing.T) {
	t.Parallel()
	for what, lose := range lose {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			cluster := embedtest.Start(t)
			client, link := cluster.Link(t)
			lost := make(chan error, 1)
			a := newStorage(t, client, certmagiclock.WithOnLost(func(_ string, err error) { lost <- err }))
			b := newStorage(t, cluster.Client(t))
			ctx := within(t)
			require.NoError(t, a.Lock(ctx, name))
			lose(t, cluster, link)
			require.ErrorIs(t, <-lost, etcdlock.ErrLost)
			require.NoError(t, b.Lock(ctx, name))
			link.Heal()

			ended, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			require.Error(t, a.RenewLockLease(ended, name, time.Minute), "the other storage has the lock")
			again := make(chan error, 1)
			go func() { again <- a.RenewLockLease(ctx, name, time.Minute) }()
			require.Eventually(t, func() bool { return waiters(t, cluster) == 1 }, time.Minute, time.Millisecond)
			require.NoError(t, b.Unlock(ctx, name))
			require.NoError(t, <-again)
			ok, err := b.TryLock(ctx, name)
			require.NoError(t, err)
			require.False(t, ok, "it is held again")
			require.NoError(t, a.Unlock(ctx, name))
			ok, err = b.TryLock(ctx, name)
			require.NoError(t, err)
			require.True(t, ok, "one Unlock is enough")
			require.NoError(t, b.Unlock(ctx, name))
		})
	}
}

func TestLocksOverAnotherStorage(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	files := &certmagic.FileStorage{Path: t.TempDir()}
	wrap := func(t *testing.T) storage {
		locks := etcdlock.NewNamed(keep(t, cluster.Client(t)), func(string, error) {})
		return certmagiclock.Wrap(files, locks).(storage)
	}
	a, b := wrap(t), wrap(t)
	ctx := within(t)
	require.NoError(t, a.Store(ctx, "some/key", []byte("value")))
	value, err := b.Load(ctx, "some/key")
	require.NoError(t, err)
	require.Equal(t, "value", string(value))
	require.NoError(t, a.Lock(ctx, name))
	ok, err := b.TryLock(ctx, name)
	require.NoError(t, err)
	require.False(t, ok)
	ok, err = files.TryLock(ctx, name)
	require.NoError(t, err)
	require.True(t, ok, "the locks of the other storage are not used")
	require.NoError(t, files.Unlock(ctx, name))
	require.NoError(t, a.Unlock(ctx, name))
}

func TestALockFailsWhenTheKeeperIsClosed(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	keeper := session.Keep(client)
	s := certmagiclock.NewStorage(client, keeper, "certmagic").(storage)
	ctx := within(t)
	require.NoError(t, s.Lock(ctx, name))
	require.NoError(t, keeper.Close(ctx))
	require.NoError(t, s.Unlock(ctx, name))
	err := s.Lock(ctx, name)
	require.ErrorIs(t, err, etcdlock.ErrClosed)
}
