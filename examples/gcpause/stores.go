package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	_ "modernc.org/sqlite" // the driver called sqlite

	"github.com/etcdlock/locks/etcdlock"
)

// Store is a place where the account is kept. Read and Write are for the holder of the lock; a store
// with a fence returns ErrLost or ErrStale if somebody else has been the holder since.
type Store interface {
	Read(ctx context.Context, h *etcdlock.Hold) (balance int, err error)
	Write(ctx context.Context, h *etcdlock.Hold, balance int) error

	Balance(ctx context.Context) (int, error) // for everybody
}

// --- etcd ---

// inEtcd has no protection but the lock itself.
type inEtcd struct {
	client *clientv3.Client
	key    string
}

func (s inEtcd) Balance(ctx context.Context) (int, error) {
	answer, err := s.client.Get(ctx, s.key)
	if err != nil {
		return 0, err
	}
	if len(answer.Kvs) == 0 {
		return 0, fmt.Errorf("no account at %s", s.key)
	}
	return strconv.Atoi(string(answer.Kvs[0].Value))
}

func (s inEtcd) Read(ctx context.Context, _ *etcdlock.Hold) (int, error) { return s.Balance(ctx) }

func (s inEtcd) Write(ctx context.Context, _ *etcdlock.Hold, balance int) error {
	_, err := s.client.Put(ctx, s.key, strconv.Itoa(balance))
	return err
}

// inEtcdTxn writes while the hold exists on the server. What this process knows of a loss is
// refused without asking.
type inEtcdTxn struct{ inEtcd }

func (s inEtcdTxn) Write(ctx context.Context, h *etcdlock.Hold, balance int) error {
	_, err := h.Txn(ctx).Then(clientv3.OpPut(s.key, strconv.Itoa(balance))).Commit()
	return err
}

// inEtcdGuard does the same in a transaction of the client's. It shows that etcd itself refuses.
type inEtcdGuard struct{ inEtcd }

func (s inEtcdGuard) Write(ctx context.Context, h *etcdlock.Hold, balance int) error {
	answer, err := s.client.Txn(ctx).If(h.Guard()).Then(clientv3.OpPut(s.key, strconv.Itoa(balance))).Commit()
	if err == nil && !answer.Succeeded {
		return fmt.Errorf("%w: refused by etcd", etcdlock.ErrLost)
	}
	return err
}

// --- HTTP ---

// tokenHeader carries the token to the server, which has the fence; see server.go.
const tokenHeader = "Fencing-Token"

type overHTTP struct {
	url    string
	fenced bool // sends its token
}

func (s overHTTP) Read(ctx context.Context, h *etcdlock.Hold) (int, error) {
	text, err := s.do(ctx, http.MethodGet, h, "")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

func (s overHTTP) Write(ctx context.Context, h *etcdlock.Hold, balance int) error {
	_, err := s.do(ctx, http.MethodPut, h, strconv.Itoa(balance))
	return err
}

func (s overHTTP) Balance(ctx context.Context) (int, error) { return s.Read(ctx, nil) }

func (s overHTTP) do(ctx context.Context, method string, h *etcdlock.Hold, body string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, method, s.url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	if s.fenced && h != nil {
		request.Header.Set(tokenHeader, strconv.FormatInt(int64(h.Token()), 10))
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	switch {
	case response.StatusCode == http.StatusConflict:
		return "", fmt.Errorf("%s: %w", response.Status, etcdlock.ErrStale)
	case response.StatusCode != http.StatusOK:
		return "", errors.New(response.Status)
	}
	return string(text), err
}

// --- SQL ---

type inSQL struct {
	db *sql.DB
	id string
}

func (s inSQL) Read(ctx context.Context, _ *etcdlock.Hold) (int, error) { return s.Balance(ctx) }

func (s inSQL) Balance(ctx context.Context) (balance int, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT balance FROM account WHERE id = $id`, sql.Named("id", s.id)).Scan(&balance)
	return balance, err
}

func (s inSQL) Write(ctx context.Context, _ *etcdlock.Hold, balance int) error {
	_, err := s.db.ExecContext(ctx, `UPDATE account SET balance = $balance WHERE id = $id`,
		sql.Named("balance", balance), sql.Named("id", s.id))
	return err
}

// inSQLFenced keeps the highest token that has been there in the row.
type inSQLFenced struct{ inSQL }

// Read leaves the token as well: otherwise an older holder could still write between what this one
// reads and what it writes.
func (s inSQLFenced) Read(ctx context.Context, h *etcdlock.Hold) (balance int, err error) {
	err = s.db.QueryRowContext(ctx, `UPDATE account SET fence = $t WHERE id = $id AND fence <= $t RETURNING balance`,
		sql.Named("t", int64(h.Token())), sql.Named("id", s.id)).Scan(&balance)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, etcdlock.ErrStale
	}
	return balance, err
}

func (s inSQLFenced) Write(ctx context.Context, h *etcdlock.Hold, balance int) error {
	result, err := s.db.ExecContext(ctx, `UPDATE account SET balance = $balance, fence = $t WHERE id = $id AND fence <= $t`,
		sql.Named("balance", balance), sql.Named("t", int64(h.Token())), sql.Named("id", s.id))
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); err != nil || rows == 0 {
		return errors.Join(etcdlock.ErrStale, err)
	}
	return nil
}
