package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stagetest"
	"github.com/etcdlock/locks/session"
)

func TestMain(m *testing.M) {
	// golang-migrate reads migrations ahead, and goes on with that when one fails.
	stagetest.Main(m, program, goleak.IgnoreAnyFunction("github.com/golang-migrate/migrate/v4.(*Migration).Buffer"))
}

func TestOneReplicaMigratesAndACrashIsSeen(t *testing.T) {
	t.Parallel()
	out := stagetest.Play(t)
	require.Equal(t, 1, strings.Count(out, "has applied all migrations"), out)
	require.Equal(t, 2, strings.Count(out, "has found nothing to do"), out)
	require.Regexp(t, `replica-4 is killed.*\n.* replica-5 does not start: Dirty database version 4`, out)
}

func newTest(t *testing.T, client *clientv3.Client, base database.Driver, wait time.Duration) *migrate.Migrate {
	sessions := session.Keep(client, session.WithTTL(2*time.Second))
	t.Cleanup(func() { _ = sessions.Close(context.Background()) })
	migrations, err := iofs.New(files(3), ".")
	require.NoError(t, err)
	m, err := newMigrate(sessions, "schema", wait, migrations, base)
	require.NoError(t, err)
	return m
}

func TestNoMigrationBeginsAfterALoss(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client, link := cluster.Link(t)
	base, db, err := open(filepath.Join(t.TempDir(), "orders.db"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	sessions := session.Keep(cluster.Client(t))
	t.Cleanup(func() { _ = sessions.Close(context.Background()) })
	next := etcdlock.NewMutex(sessions, "schema")
	m := newTest(t, client, hanging{base, func() {
		link.Blackhole()
		h, err := next.Lock(t.Context()) // the second replica comes when the first has lost the lock
		require.NoError(t, err)
		require.NoError(t, h.Unlock(t.Context()))
	}}, wait)
	require.ErrorIs(t, m.Up(), etcdlock.ErrLost)
	link.Heal()
	version, dirty, err := base.Version()
	require.NoError(t, err)
	require.Equal(t, 1, version, "the first migration has taken effect; the second has not begun")
	require.True(t, dirty, "a person has to look whether the first has overlapped with another replica's")
}

func TestTheWaitForTheLockEndsBeforeMigratesOwn(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	sessions := session.Keep(cluster.Client(t))
	t.Cleanup(func() { _ = sessions.Close(context.Background()) })
	h, err := etcdlock.NewMutex(sessions, "schema").Lock(t.Context())
	require.NoError(t, err)
	base, db, err := open(filepath.Join(t.TempDir(), "orders.db"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	m := newTest(t, cluster.Client(t), base, 100*time.Millisecond)
	require.ErrorIs(t, m.Up(), database.ErrLocked)
	require.NoError(t, h.Unlock(t.Context()))
	require.NoError(t, m.Up())
}
