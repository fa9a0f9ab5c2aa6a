package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// ErrFunds is returned if an account has too little to pay.
var ErrFunds = errors.New("not enough money")

// Transfer is an order to a bank. Its ID makes it safe to try again: it is carried out once.
type Transfer struct {
	ID       string
	From, To string
	Amount   int
}

// Bank keeps accounts in etcd, a key for each.
type Bank struct {
	client   *clientv3.Client
	prefix   string
	sessions *session.Keeper
	options  []etcdlock.Option                     // of the locks
	approve  func(context.Context, Transfer) error // asked about every transfer; takes its time
}

// Transfer moves money with both accounts locked. The order of the two names does not matter. It writes the
// accounts and a receipt in one transaction, which takes effect only while both locks are held. The
// process may die or be suspended anywhere in here: all of the transfer takes effect, or nothing.
func (b *Bank) Transfer(ctx context.Context, t Transfer) error {
	if t.From == t.To || t.Amount <= 0 {
		return fmt.Errorf("transfer %q makes no sense", t.ID)
	}
	accounts := etcdlock.NewMulti(b.sessions, b.lock(t.From), b.lock(t.To))
	for {
		err := etcdlock.Do(ctx, accounts, func(ctx context.Context, h *etcdlock.Hold) error {
			return b.transfer(ctx, h, t)
		})
		// The receipt shows whether a transfer that was interrupted has taken effect.
		if ctx.Err() != nil || !errors.Is(err, etcdlock.ErrLost) && !errors.Is(err, etcdlock.ErrOutcomeUnknown) {
			return err
		}
	}
}

func (b *Bank) lock(account string) *etcdlock.Mutex {
	return etcdlock.NewMutex(b.sessions, account, b.options...)
}

func (b *Bank) transfer(ctx context.Context, h *etcdlock.Hold, t Transfer) error {
	answer, err := b.client.Txn(ctx).Then(
		clientv3.OpGet(b.account(t.From)),
		clientv3.OpGet(b.account(t.To)),
		clientv3.OpGet(b.receipt(t), clientv3.WithCountOnly()),
	).Commit()
	if err != nil {
		return err
	}
	if answer.Responses[2].GetResponseRange().Count > 0 {
		return nil // by an earlier try
	}
	from, fromErr := money(answer.Responses[0].GetResponseRange().Kvs)
	to, toErr := money(answer.Responses[1].GetResponseRange().Kvs)
	switch {
	case fromErr != nil || toErr != nil:
		return errors.Join(fromErr, toErr)
	case from < t.Amount:
		return fmt.Errorf("%s has %d: %w", t.From, from, ErrFunds)
	}
	if err := b.approve(ctx, t); err != nil {
		return err
	}
	receipt, err := json.Marshal(t)
	if err != nil {
		return err
	}
	isNew := clientv3.Compare(clientv3.CreateRevision(b.receipt(t)), "=", 0)
	_, err = h.Txn(ctx).If(isNew).Then(
		b.put(t.From, from-t.Amount),
		b.put(t.To, to+t.Amount),
		clientv3.OpPut(b.receipt(t), string(receipt)),
	).Commit()
	return err
}

func (b *Bank) account(name string) string { return b.prefix + "accounts/" + name }
func (b *Bank) receipt(t Transfer) string  { return b.prefix + "receipts/" + t.ID }

func (b *Bank) put(name string, money int) clientv3.Op {
	return clientv3.OpPut(b.account(name), strconv.Itoa(money))
}

// money is what the accounts have together.
func money(accounts []*mvccpb.KeyValue) (total int, err error) {
	if len(accounts) == 0 {
		return 0, errors.New("there is no such account")
	}
	for _, kv := range accounts {
		n, err := strconv.Atoi(string(kv.Value))
		if err != nil {
			return 0, fmt.Errorf("%s: %w", kv.Key, err)
		}
		total += n
	}
	return total, nil
}
