// Goose is the story of a service whose replicas migrate their database when they start, with goose.
//
//	go -C examples/migrations run ./goose
//
// starts three processes at once on one SQLite database. One is killed in the middle of a migration; another goes on with it.
// Each migration takes effect once.
//
// The part to copy is goose.go: the Locker for goose, and a run whose context ends when the lock is lost. If you call goose
// in one place only, etcdlock.Do around Provider.Up is simpler. If you call the goose program, "etcdlock run schema -- goose up"
// needs no code.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite"

	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/session"
)

const (
	ttl          = 2 * time.Second
	closeTimeout = 3 * time.Second

	inTheMiddle = "is in the middle of migration 2"
)

var program = stage.Program{Name: "goose", Story: story, OnlyEmbedded: true, Roles: map[string]stage.Act{"replica": replica}}

func main() { program.Main() }

// migrations in SQL; the second one is in Go.
var migrations = fstest.MapFS{
	"1_orders.sql": {Data: []byte("-- +goose Up\nCREATE TABLE orders (id INTEGER);\nINSERT INTO orders VALUES (1);")},
	"3_index.sql":  {Data: []byte("-- +goose Up\nINSERT INTO orders VALUES (3);")},
}

func second(run func(ctx context.Context, tx *sql.Tx) error) goose.ProviderOption {
	return goose.WithGoMigrations(goose.NewGoMigration(2, &goose.GoFunc{RunTx: run}, nil))
}

func open(file string) (*sql.DB, error) {
	return sql.Open("sqlite", file+"?_pragma=busy_timeout(5000)")
}

type config struct {
	Name string
	File string
	Hang bool // in migration 2
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
	db, err := open(c.File)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	results, err := migrate(ctx, sessions, "schema", goose.DialectSQLite3, db, migrations, second(func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (2)"); err != nil {
			return err
		}
		if c.Hang {
			e.Printf("%s %s\n", c.Name, inTheMiddle)
			<-ctx.Done()
		}
		return ctx.Err()
	}))
	if err == nil {
		e.Printf("%s has applied %d migrations and starts to serve\n", c.Name, len(results))
	}
	return err
}

func story(ctx context.Context, e *stage.Etcd) (err error) {
	dir, err := os.MkdirTemp("", "goose")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "orders.db")
	e.Printf("Three replicas start, and migrate one database. TTL %v.\n\n", ttl)
	first, err := e.Start(ctx, "replica-1", "replica", config{"replica-1", file, true})
	if err != nil {
		return err
	}
	for line := range first.Lines {
		e.Say("%s", line)
		if line == "replica-1 "+inTheMiddle {
			break
		}
	}
	var others []*stage.Process
	for _, name := range []string{"replica-2", "replica-3"} {
		p, err := e.Start(ctx, name, "replica", config{name, file, false})
		if err != nil {
			return err
		}
		others = append(others, p)
	}
	if err := first.Kill(); err != nil {
		return err
	}
	_ = first.Wait()
	e.Say("replica-1 is killed; the lock is free when its lease has expired")
	for _, p := range others {
		for line := range p.Lines {
			e.Say("%s", line)
		}
		if err := p.Wait(); err != nil {
			return err
		}
	}
	return verify(ctx, e, file)
}

// verify requires that each migration has taken effect once.
func verify(ctx context.Context, e *stage.Etcd, file string) (err error) {
	db, err := open(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var rows string
	if err := db.QueryRowContext(ctx, "SELECT group_concat(id) FROM orders").Scan(&rows); err != nil {
		return err
	}
	if rows != "1,2,3" {
		return fmt.Errorf("the table has rows %s", rows)
	}
	e.Printf("\nEach migration has taken effect once.\n")
	return nil
}
