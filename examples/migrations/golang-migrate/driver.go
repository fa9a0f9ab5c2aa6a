package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/source"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const (
	unlockTimeout = 10 * time.Second
	// spare is how much longer migrate waits than the lock does. A lock that comes after migrate has given up stays taken
	// until the process ends, since migrate forgets it.
	spare = 5 * time.Second
)

// newMigrate returns a Migrate for the database of base whose lock is in etcd. Another process waits for it for up to wait,
// and then gets database.ErrLocked. If the lock is lost, no further migration begins.
func newMigrate(src session.Source, name string, wait time.Duration, migrations source.Driver, base database.Driver) (*migrate.Migrate, error) {
	d := &driver{Driver: base, name: name, wait: wait}
	d.locks = etcdlock.NewNamed(src, func(string, error) {}) // Run and SetVersion ask the hold
	m, err := migrate.NewWithInstance("migrations", migrations, name, d)
	if err != nil {
		return nil, err
	}
	m.LockTimeout = wait + spare // 15 s by default
	return m, nil
}

// driver is a database.Driver with a lock in etcd.
type driver struct {
	database.Driver
	locks *etcdlock.Named
	name  string
	wait  time.Duration
}

// Lock has no context, so its wait is bounded here.
func (d *driver) Lock() error {
	ctx, cancel := context.WithTimeout(context.Background(), d.wait)
	defer cancel()
	err := d.locks.Lock(ctx, d.name)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", database.ErrLocked, err)
	}
	return err
}

func (d *driver) Unlock() error {
	ctx, cancel := context.WithTimeout(context.Background(), unlockTimeout)
	defer cancel()
	return d.locks.Unlock(ctx, d.name)
}

// Run has no context either. A migration that runs cannot be stopped; the next one does not begin after a loss.
func (d *driver) Run(migration io.Reader) error {
	if err := d.held(); err != nil {
		return err
	}
	return d.Driver.Run(migration)
}

// SetVersion is called before and after each migration. After a loss it changes nothing: neither does a process that has
// lost the lock mark the database dirty, nor does it clear the mark of the next owner.
func (d *driver) SetVersion(version int, dirty bool) error {
	if err := d.held(); err != nil {
		return err
	}
	return d.Driver.SetVersion(version, dirty)
}

func (d *driver) held() error {
	if h, ok := d.locks.Hold(d.name); ok {
		return h.Err()
	}
	return etcdlock.ErrNotHeld
}
