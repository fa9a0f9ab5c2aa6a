package dbtest_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/etcdlock/locks/sqlfence"
)

// database is one of those that are fenced.
type database struct {
	name    string
	dialect sqlfence.Dialect
	open    func(t *testing.T) *sql.DB
	levels  []sql.IsolationLevel
	// again reports whether a transaction has to be run again.
	again func(error) bool
}

var databases = []database{
	{"SQLite", sqlfence.SQLite, openSQLite, []sql.IsolationLevel{sql.LevelDefault}, func(err error) bool {
		var failed *sqlite.Error
		return errors.As(err, &failed) && failed.Code()&0xff == 5 // SQLITE_BUSY
	}},
	{
		"PostgreSQL", sqlfence.Postgres, openPostgres,
		[]sql.IsolationLevel{sql.LevelDefault, sql.LevelRepeatableRead, sql.LevelSerializable},
		func(err error) bool {
			var failed *pgconn.PgError
			return errors.As(err, &failed) && (failed.Code == "40001" || failed.Code == "40P01")
		},
	},
	{
		"MariaDB", sqlfence.MySQL, openMariaDB,
		[]sql.IsolationLevel{sql.LevelDefault, sql.LevelReadCommitted, sql.LevelSerializable},
		func(err error) bool {
			var failed *mysql.MySQLError
			return errors.As(err, &failed) && failed.Number == 1213
		},
	},
}

func openSQLite(t *testing.T) *sql.DB {
	file := filepath.Join(t.TempDir(), "db") + "?_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)"
	return connect(t, "sqlite", file)
}

func openPostgres(t *testing.T) *sql.DB {
	dir, owner := serverDir(t, "postgres")
	find(t, "initdb", "postgres")
	run(t, owner, "initdb", "-D", dir, "--no-sync", "--auth=trust", "--username=test")
	serve(t, owner, syscall.SIGINT, "postgres", "-D", dir, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off")
	return connect(t, "pgx", "postgres://test@/postgres?host="+dir)
}

func openMariaDB(t *testing.T) *sql.DB {
	dir, owner := serverDir(t, "mysql")
	find(t, "mariadb-install-db", "mariadbd")
	run(t, owner, "mariadb-install-db", "--no-defaults", "--datadir="+dir, "--auth-root-authentication-method=normal", "--skip-test-db")
	socket := filepath.Join(dir, "socket")
	serve(t, owner, syscall.SIGTERM, "mariadbd", "--no-defaults", "--datadir="+dir, "--socket="+socket, "--skip-networking",
		"--pid-file="+filepath.Join(dir, "pid"), "--innodb-flush-log-at-trx-commit=0")
	return connect(t, "mysql", "root@unix("+socket+")/mysql")
}

// find skips the test if a program is not there.
func find(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("not tested here: %v", err)
		}
	}
}

// serverDir returns an empty directory of the user that the server runs as: these servers refuse to be run by root.
func serverDir(t *testing.T, name string) (dir string, owner *syscall.Credential) {
	t.Helper()
	dir, err := os.MkdirTemp("", "dbtest")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if os.Getuid() != 0 {
		return dir, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		t.Skipf("not tested here: %v", err)
	}
	uid, err := strconv.Atoi(u.Uid)
	require.NoError(t, err)
	gid, err := strconv.Atoi(u.Gid)
	require.NoError(t, err)
	require.NoError(t, os.Chown(dir, uid, gid))
	return dir, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func command(owner *syscall.Credential, name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Dir = os.TempDir() // the user may not enter that of the test
	c.SysProcAttr = &syscall.SysProcAttr{Credential: owner}
	return c
}

func run(t *testing.T, owner *syscall.Credential, name string, args ...string) {
	t.Helper()
	output, err := command(owner, name, args...).CombinedOutput()
	require.NoError(t, err, "%s", output)
}

// serve runs a server until the end of the test.
func serve(t *testing.T, owner *syscall.Credential, stop syscall.Signal, name string, args ...string) {
	t.Helper()
	c := command(owner, name, args...)
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Signal(stop)
		_ = c.Wait()
	})
}

// connect waits until the server serves.
func connect(t *testing.T, driver, source string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, source)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.EventuallyWithT(t, func(c *assertion) { require.NoError(c, db.Ping()) }, time.Minute, 50*time.Millisecond)
	return db
}

// transact runs f in a transaction, again for as long as the database says so.
func (d database) transact(ctx context.Context, db *sql.DB, level sql.IsolationLevel, f func(tx *sql.Tx) error) error {
	for {
		err := once(ctx, db, level, f)
		if !d.again(err) {
			return err
		}
	}
}

func once(ctx context.Context, db *sql.DB, level sql.IsolationLevel, f func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
