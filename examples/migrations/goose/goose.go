package main

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const unlockTimeout = 10 * time.Second

// migrate brings the database up to date. Of several processes that call it one after the other does so, and all but
// the first find nothing left to do. If the lock is lost, the migration that runs is rolled back where the database can do
// that, and no further one is begun.
func migrate(ctx context.Context, src session.Source, name string, dialect goose.Dialect, db *sql.DB, migrations fs.FS,
	opts ...goose.ProviderOption) ([]*goose.MigrationResult, error) {
	// The lock is taken within goose's Up, so its context is there before the hold is. It ends with the hold all the same.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	locks := etcdlock.NewNamed(src, func(_ string, err error) { cancel(err) })
	opts = append(opts[:len(opts):len(opts)], goose.WithLocker(&locker{locks, name}), goose.WithDisableGlobalRegistry(true))
	p, err := goose.NewProvider(dialect, db, migrations, opts...)
	if err != nil {
		return nil, err
	}
	results, err := p.Up(ctx)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	return results, err
}

// locker is goose's lock.Locker. A Provider frees its own mutex before it calls Unlock. So if it is used by two goroutines,
// the second may call Lock before the first has called Unlock. A Named is made for that: it waits, and each Unlock ends the
// older hold.
type locker struct {
	locks *etcdlock.Named
	name  string
}

func (l *locker) Lock(ctx context.Context, _ *sql.DB) error { return l.locks.Lock(ctx, l.name) }

// Unlock is called without a deadline. goose adds its error to that of the run; after a loss it is nil.
func (l *locker) Unlock(ctx context.Context, _ *sql.DB) error {
	ctx, cancel := context.WithTimeout(ctx, unlockTimeout)
	defer cancel()
	return l.locks.Unlock(ctx, l.name)
}
