// Golang-migrate is the story of a service whose replicas migrate their database when they start, with golang-migrate.
//
//	go -C examples/migrations run ./golang-migrate
//
// starts three processes at once on one SQLite database: one applies all migrations, and the others find nothing to do. Then a
// process is killed in the middle of a migration. The next one gets the lock after the TTL, and golang-migrate refuses to go
// on with a dirty database, as it should.
//
// The part to copy is driver.go. The interface has no context: the wait for the lock ends before golang-migrate's own time
// limit, and each step asks first whether the lock is still held.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/session"
)

const (
	ttl          = 2 * time.Second
	wait         = 10 * time.Second
	closeTimeout = 3 * time.Second

	inTheMiddle = "is in the middle of a migration"
)

var program = stage.Program{Name: "golang-migrate", Story: story, OnlyEmbedded: true, Roles: map[string]stage.Act{"replica": replica}}

func main() { program.Main() }

// files are migrations; each adds a row.
func files(n int) fstest.MapFS {
	all := fstest.MapFS{"1_orders.up.sql": {Data: []byte("CREATE TABLE orders (id INTEGER); INSERT INTO orders VALUES (1);")}}
	for i := 2; i <= n; i++ {
		all[fmt.Sprintf("%d_more.up.sql", i)] = &fstest.MapFile{Data: fmt.Appendf(nil, "INSERT INTO orders VALUES (%d);", i)}
	}
	return all
}

func open(file string) (database.Driver, *sql.DB, error) {
	db, err := sql.Open("sqlite", file+"?_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, nil, err
	}
	d, err := sqlite.WithInstance(db, &sqlite.Config{})
	return d, db, err
}

type config struct {
	Name  string
	File  string
	Files int
	Hang  bool // in a migration
}

// hanging is a database in which a migration does not come to an end.
type hanging struct {
	database.Driver
	in func()
}

func (h hanging) Run(migration io.Reader) error {
	h.in()
	return h.Driver.Run(migration)
}

func replica(ctx context.Context, e *stage.Etcd) (err error) {
	var c config
	if err := e.Job(&c); err != nil {
		return err
	}
	sessions := session.Keep(e.Client, session.WithTTL(ttl))
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		err = errors.Join(err, sessions.Close(bounded))
	}()
	base, _, err := open(c.File)
	if err != nil {
		return err
	}
	if c.Hang {
		base = hanging{base, func() {
			e.Printf("%s %s\n", c.Name, inTheMiddle)
			<-ctx.Done()
		}}
	}
	migrations, err := iofs.New(files(c.Files), ".")
	if err != nil {
		return err
	}
	m, err := newMigrate(sessions, "schema", wait, migrations, base)
	if err != nil {
		return err
	}
	defer m.Close()
	switch err := m.Up(); {
	case errors.Is(err, migrate.ErrNoChange):
		e.Printf("%s has found nothing to do\n", c.Name)
	case errors.As(err, new(migrate.ErrDirty)):
		e.Printf("%s does not start: %v\n", c.Name, err)
	case err != nil:
		return err
	default:
		e.Printf("%s has applied all migrations\n", c.Name)
	}
	return nil
}

func story(ctx context.Context, e *stage.Etcd) (err error) {
	dir, err := os.MkdirTemp("", "golang-migrate")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "orders.db")
	base, db, err := open(file) // makes the table of versions, which the lock does not cover
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, base.Close()) }()
	e.Printf("Three replicas start, and migrate one database. TTL %v.\n\n", ttl)
	var replicas []*stage.Process
	for i := range 3 {
		name := fmt.Sprintf("replica-%d", i+1)
		p, err := e.Start(ctx, name, "replica", config{name, file, 3, false})
		if err != nil {
			return err
		}
		replicas = append(replicas, p)
	}
	for _, p := range replicas {
		if err := listen(e, p); err != nil {
			return err
		}
	}
	var rows string
	if err := db.QueryRowContext(ctx, "SELECT group_concat(id) FROM orders").Scan(&rows); err != nil {
		return err
	}
	if rows != "1,2,3" {
		return fmt.Errorf("the table has rows %s", rows)
	}
	e.Printf("\nEach migration has taken effect once. Now there is one more, and a replica is killed in it.\n\n")
	return crash(ctx, e, file)
}

func crash(ctx context.Context, e *stage.Etcd, file string) error {
	victim, err := e.Start(ctx, "replica-4", "replica", config{"replica-4", file, 4, true})
	if err != nil {
		return err
	}
	for line := range victim.Lines {
		e.Say("%s", line)
		if line == "replica-4 "+inTheMiddle {
			break
		}
	}
	next, err := e.Start(ctx, "replica-5", "replica", config{"replica-5", file, 4, false})
	if err != nil {
		return err
	}
	if err := victim.Kill(); err != nil {
		return err
	}
	_ = victim.Wait()
	e.Say("replica-4 is killed; the lock is free when its lease has expired")
	return listen(e, next)
}

// listen passes on what a process says until it ends.
func listen(e *stage.Etcd, p *stage.Process) error {
	for line := range p.Lines {
		e.Say("%s", line)
	}
	return p.Wait()
}
