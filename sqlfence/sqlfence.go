package sqlfence

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/etcdlock/locks/etcdlock"
)

// Dialect has the statements of a kind of database.
type Dialect struct{ name, schema, lock, read, raise string }

// The databases that the package is tested with. MySQL is also for MariaDB, which is the one that the tests run.
var (
	SQLite = Dialect{
		name:   "SQLite",
		schema: "CREATE TABLE IF NOT EXISTS etcdlock_fences (name TEXT PRIMARY KEY, token BIGINT NOT NULL)",
		lock:   "INSERT INTO etcdlock_fences (name, token) VALUES (?, 0) ON CONFLICT (name) DO NOTHING",
		read:   "SELECT token FROM etcdlock_fences WHERE name = ?",
		raise:  "UPDATE etcdlock_fences SET token = ? WHERE name = ?",
	}
	Postgres = Dialect{
		name:   "PostgreSQL",
		schema: "CREATE TABLE IF NOT EXISTS etcdlock_fences (name TEXT PRIMARY KEY, token BIGINT NOT NULL)",
		lock:   "INSERT INTO etcdlock_fences (name, token) VALUES ($1, 0) ON CONFLICT (name) DO NOTHING",
		read:   "SELECT token FROM etcdlock_fences WHERE name = $1 FOR UPDATE",
		raise:  "UPDATE etcdlock_fences SET token = $1 WHERE name = $2",
	}
	// Names are bytes: a collation would take some names for equal. ON DUPLICATE KEY locks the row exclusively at once,
	// where INSERT IGNORE would share it, and two transactions would wait for each other.
	MySQL = Dialect{
		name:   "MySQL",
		schema: "CREATE TABLE IF NOT EXISTS etcdlock_fences (name VARBINARY(512) PRIMARY KEY, token BIGINT NOT NULL) ENGINE=InnoDB",
		lock:   "INSERT INTO etcdlock_fences (name, token) VALUES (?, 0) ON DUPLICATE KEY UPDATE token = token",
		read:   "SELECT token FROM etcdlock_fences WHERE name = ? FOR UPDATE",
		raise:  "UPDATE etcdlock_fences SET token = ? WHERE name = ?",
	}
)

// Schema returns the statement that creates the table etcdlock_fences, if it is not there. Put it into a migration.
func Schema(d Dialect) string {
	d.need()
	return d.schema
}

func (d Dialect) need() {
	if d.name == "" {
		panic("sqlfence: a Dialect is SQLite, Postgres or MySQL")
	}
}

// Execer is a transaction: a [*sql.Tx], or a [*sql.Conn] in which one was begun.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Admit returns nil if no transaction with a higher token of name has been committed. From then on no other transaction of
// that name is admitted until this one ends. It has to be the first statement of the transaction, which has to be
// rolled back if Admit fails.
//
// The error wraps [etcdlock.ErrStale] if the token is not the highest: stop the work, the lock has a new owner.
// Errors of the database are wrapped, too. With serializable or repeatable-read transactions, PostgreSQL may return
// 40001 after a wait, and MySQL 1213 (deadlock). Then run the transaction again.
//
// It makes three statements. It is as safe for concurrent use as tx is.
func Admit(ctx context.Context, tx Execer, d Dialect, name string, t etcdlock.Token) error {
	d.need()
	if err := admit(ctx, tx, d, name, t); err != nil {
		return fmt.Errorf("sqlfence: admitting token %d of %q: %w", t, name, err)
	}
	return nil
}

func admit(ctx context.Context, tx Execer, d Dialect, name string, t etcdlock.Token) error {
	// A write comes first, which makes a transaction of SQLite wait for others before it reads.
	if _, err := tx.ExecContext(ctx, d.lock, name); err != nil {
		return err
	}
	var highest etcdlock.Token
	if err := tx.QueryRowContext(ctx, d.read, name).Scan(&highest); err != nil {
		return err
	}
	if t < max(highest, 1) {
		return fmt.Errorf("%w: %d has been admitted", etcdlock.ErrStale, highest)
	}
	// Also if the token is the same: a repeatable-read transaction of PostgreSQL that has waited for this one must fail,
	// since it would not see what this one has written.
	_, err := tx.ExecContext(ctx, d.raise, int64(t), name)
	return err
}
