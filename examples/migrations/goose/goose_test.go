package main

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stagetest"
	"github.com/etcdlock/locks/session"
)

func TestMain(m *testing.M) { stagetest.Main(m, program) }

func TestEachMigrationTakesEffectOnce(t *testing.T) {
	t.Parallel()
	out := stagetest.Play(t)
	require.Regexp(t, `replica-1 is in the middle of migration 2\n.* replica-1 is killed`, out)
	require.Regexp(t, `replica-[23] has applied 2 migrations`, out)
	require.Regexp(t, `replica-[23] has applied 0 migrations`, out)
	require.Contains(t, out, "Each migration has taken effect once.")
}

func openTemporary(t *testing.T) *sql.DB {
	db, err := open(filepath.Join(t.TempDir(), "orders.db"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestALossEndsTheRunAndRollsBack(t *testing.T) {
	t.Parallel()
	client, link := embedtest.Start(t).Link(t)
	sessions := session.Keep(client, session.WithTTL(2*time.Second))
	t.Cleanup(func() { _ = sessions.Close(context.Background()) })
	db := openTemporary(t)
	results, err := migrate(t.Context(), sessions, "schema", goose.DialectSQLite3, db, migrations, second(func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (2)"); err != nil {
			return err
		}
		link.Blackhole()
		<-ctx.Done()
		return ctx.Err()
	}))
	require.ErrorIs(t, err, etcdlock.ErrLost)
	require.Empty(t, results)
	link.Heal()
	results, err = migrate(t.Context(), sessions, "schema", goose.DialectSQLite3, db, migrations, second(func(context.Context, *sql.Tx) error { return nil }))
	require.NoError(t, err)
	require.Len(t, results, 2, "the first had been applied")
	var rows string
	require.NoError(t, db.QueryRow("SELECT group_concat(id) FROM orders").Scan(&rows))
	require.Equal(t, "1,3", rows)
}

// A second run of one Provider may lock before the first has unlocked.
func TestRunsOfOneProviderFollowEachOther(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	sessions := session.Keep(client)
	t.Cleanup(func() { _ = sessions.Close(context.Background()) })
	locks := etcdlock.NewNamed(sessions, func(name string, err error) { t.Error(name, err) })
	p, err := goose.NewProvider(goose.DialectSQLite3, openTemporary(t), migrations,
		goose.WithLocker(&locker{locks, "schema"}), goose.WithDisableGlobalRegistry(true),
		second(func(context.Context, *sql.Tx) error { return nil }))
	require.NoError(t, err)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5 {
				if _, err := p.Up(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	_, held := locks.Hold("schema")
	require.False(t, held)
}
