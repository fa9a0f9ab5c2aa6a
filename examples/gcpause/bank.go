package main

import (
	"context"
	"database/sql"
	"errors"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// bank says where the account is kept, to every process.
type bank struct {
	Prefix   string // in etcd
	URL      string
	Database string // a file
}

// place is one where the account is kept.
type place struct {
	Store
	name   string
	fenced bool
}

func (b bank) open(client *clientv3.Client) (places []place, closePlaces func(), err error) {
	// Several processes use the file, so one may have to wait for the other for a moment.
	db, err := sql.Open("sqlite", "file:"+b.Database+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, nil, err
	}
	return []place{
		{inEtcd{client, b.Prefix + "plain"}, "etcd    Put", false},
		{inEtcdTxn{inEtcd{client, b.Prefix + "txn"}}, "etcd    h.Txn", true},
		{inEtcdGuard{inEtcd{client, b.Prefix + "guard"}}, "etcd    If(h.Guard())", true},
		{overHTTP{url: b.URL + "/account/plain"}, "HTTP    PUT", false},
		{overHTTP{url: b.URL + "/account/fenced", fenced: true}, "HTTP    PUT and the token; 409 of etcdlock.Fence", true},
		{inSQL{db, "plain"}, "SQLite  UPDATE", false},
		{inSQLFenced{inSQL{db, "fenced"}}, "SQLite  UPDATE ... AND fence <= $t; no row", true},
	}, func() { db.Close() }, nil
}

// fill opens the accounts that are not in the storage server, which has its own already.
func (b bank) fill(ctx context.Context, client *clientv3.Client, opening int) error {
	for _, name := range []string{"plain", "txn", "guard"} {
		if _, err := client.Put(ctx, b.Prefix+name, strconv.Itoa(opening)); err != nil {
			return err
		}
	}
	db, err := sql.Open("sqlite", "file:"+b.Database)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, `
		CREATE TABLE account (id TEXT PRIMARY KEY, balance INTEGER NOT NULL, fence INTEGER NOT NULL DEFAULT 0);
		INSERT INTO account (id, balance) VALUES ('plain', $opening), ('fenced', $opening)`, sql.Named("opening", opening))
	return errors.Join(err, db.Close())
}
