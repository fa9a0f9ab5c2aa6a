package dbtest_test

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
	"github.com/etcdlock/locks/sqlfence"
)

type assertion = assert.CollectT

// onEach runs test on each database, with the table of the fences and one for what is written.
func onEach(t *testing.T, test func(t *testing.T, d database, db *sql.DB)) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			db := d.open(t)
			for range 2 { // a migration may run again
				execute(t, db, sqlfence.Schema(d.dialect))
			}
			execute(t, db, "CREATE TABLE writes (number BIGINT PRIMARY KEY, token BIGINT NOT NULL)")
			test(t, d, db)
		})
	}
}

func execute(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), statement)
	require.NoError(t, err)
}

// write appends a row, by reading the last one: two transactions at a time would write the same number, or out of order.
func write(tx *sql.Tx, token etcdlock.Token) error {
	var last int64
	if err := tx.QueryRow("SELECT COALESCE(MAX(number), 0) FROM writes").Scan(&last); err != nil {
		return err
	}
	_, err := tx.Exec(fmt.Sprintf("INSERT INTO writes (number, token) VALUES (%d, %d)", last+1, token))
	return err
}

func written(t *testing.T, db *sql.DB) (tokens []int64) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT token FROM writes ORDER BY number")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var token int64
		require.NoError(t, rows.Scan(&token))
		tokens = append(tokens, token)
	}
	require.NoError(t, rows.Err())
	return tokens
}

func TestALowerTokenIsRefused(t *testing.T) {
	onEach(t, func(t *testing.T, d database, db *sql.DB) {
		admit := func(name string, token etcdlock.Token) error {
			return d.transact(t.Context(), db, sql.LevelDefault, func(tx *sql.Tx) error {
				return sqlfence.Admit(t.Context(), tx, d.dialect, name, token)
			})
		}
		long := strings.Repeat("ä", 256)
		for _, name := range []string{"orders", "Orders", "orders ", "0rders'; --", long} {
			require.ErrorIs(t, admit(name, 0), etcdlock.ErrStale, "no token at all")
			require.NoError(t, admit(name, 1<<62))
			require.NoError(t, admit(name, 1<<62), "the same holder again")
			require.ErrorIs(t, admit(name, 1<<62-1), etcdlock.ErrStale)
			require.NoError(t, admit(name, 1<<62+1))
			require.ErrorIs(t, admit(name, 1<<62), etcdlock.ErrStale)
		}
		require.ErrorContains(t, admit("orders", 7), `admitting token 7 of "orders": etcdlock: stale token`)
	})
}

func TestARolledBackTransactionHasShownNoToken(t *testing.T) {
	onEach(t, func(t *testing.T, d database, db *sql.DB) {
		giveUp := errors.New("give up")
		err := d.transact(t.Context(), db, sql.LevelDefault, func(tx *sql.Tx) error {
			require.NoError(t, sqlfence.Admit(t.Context(), tx, d.dialect, "orders", 9))
			return giveUp
		})
		require.ErrorIs(t, err, giveUp)
		require.NoError(t, d.transact(t.Context(), db, sql.LevelDefault, func(tx *sql.Tx) error {
			return sqlfence.Admit(t.Context(), tx, d.dialect, "orders", 8)
		}))
	})
}

// Many holders of before and after write at the same time. No write is lost, and none of an earlier holder comes after
// one of a later.
func TestWritesAreInTheOrderOfTheirTokens(t *testing.T) {
	onEach(t, func(t *testing.T, d database, db *sql.DB) {
		for _, level := range d.levels {
			t.Run(level.String(), func(t *testing.T) {
				execute(t, db, "DELETE FROM writes")
				name := "orders " + level.String()
				var latest, admitted atomic.Int64
				var working sync.WaitGroup
				for i := range 8 {
					working.Go(func() {
						random := rand.New(rand.NewPCG(uint64(i), 0))
						for range 25 {
							token := etcdlock.Token(latest.Add(1) - random.Int64N(4))
							err := d.transact(t.Context(), db, level, func(tx *sql.Tx) error {
								if err := sqlfence.Admit(t.Context(), tx, d.dialect, name, token); err != nil {
									return err
								}
								return write(tx, token)
							})
							if err == nil {
								admitted.Add(1)
							} else if !errors.Is(err, etcdlock.ErrStale) {
								t.Error(err)
							}
						}
					})
				}
				working.Wait()
				tokens := written(t, db)
				require.Len(t, tokens, int(admitted.Load()))
				require.NotEmpty(t, tokens)
				require.IsNonDecreasing(t, tokens)
			})
		}
	})
}

// A holder stops between Admit and Commit, and another gets the lock. The next holder's transaction waits for the commit
// and sees what was written; after that the first one is refused.
func TestAHolderThatStopsBeforeItsCommitIsBeforeTheNext(t *testing.T) {
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	onEach(t, func(t *testing.T, d database, db *sql.DB) {
		ctx := t.Context()
		lock := func() *etcdlock.Hold {
			keeper := session.Keep(cluster.Client(t))
			t.Cleanup(func() { _ = keeper.Close(ctx) })
			h, err := etcdlock.NewMutex(keeper, d.name).Lock(ctx)
			require.NoError(t, err)
			return h
		}
		first := lock()
		stopped, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		require.NoError(t, sqlfence.Admit(ctx, stopped, d.dialect, "orders", first.Token()))

		require.NoError(t, etcdlock.ForceRelease(ctx, client, first.Key(), first.Token()))
		second := lock()
		done := make(chan error, 1)
		go func() {
			done <- d.transact(ctx, db, sql.LevelDefault, func(tx *sql.Tx) error {
				if err := sqlfence.Admit(ctx, tx, d.dialect, "orders", second.Token()); err != nil {
					return err
				}
				return write(tx, second.Token())
			})
		}()
		require.NoError(t, write(stopped, first.Token()))
		require.Empty(t, done, "the next one waits")
		require.NoError(t, stopped.Commit())
		require.NoError(t, <-done)
		require.Equal(t, []int64{int64(first.Token()), int64(second.Token())}, written(t, db))

		require.ErrorIs(t, d.transact(ctx, db, sql.LevelDefault, func(tx *sql.Tx) error {
			return sqlfence.Admit(ctx, tx, d.dialect, "orders", first.Token())
		}), etcdlock.ErrStale)
		require.NoError(t, second.Unlock(ctx))
	})
}
