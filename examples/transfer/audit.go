package main

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/examples/internal/stage"
)

// audit adds up all accounts as they were right after each transfer.
func audit(ctx context.Context, e *stage.Etcd, b *Bank, want int) error {
	receipts, err := b.receipts(ctx)
	if err != nil {
		return err
	}
	if len(receipts) != want {
		return fmt.Errorf("there are receipts of %d transfers, not %d", len(receipts), want)
	}
	total := opening * len(people)
	for _, kv := range receipts {
		accounts, err := b.client.Get(ctx, b.account(""), clientv3.WithPrefix(), clientv3.WithRev(kv.ModRevision))
		if err != nil {
			return err
		}
		sum, err := money(accounts.Kvs)
		if err != nil {
			return err
		}
		if sum != total {
			return fmt.Errorf("all accounts together have %d after %s, not %d", sum, kv.Key, total)
		}
	}
	e.Say("all accounts together have %d after each of the %d transfers so far", total, len(receipts))
	return nil
}

func (b *Bank) receipts(ctx context.Context) ([]*mvccpb.KeyValue, error) {
	answer, err := b.client.Get(ctx, b.receipt(Transfer{}), clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	return answer.Kvs, nil
}
