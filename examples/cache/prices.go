package main

import (
	"context"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
)

// Prices are kept in a database, which is slow, and in a cache, which must not be outdated. In this
// example both are keys in etcd, so that writes can be conditional on the lock. Another store
// would get the writer's token, and refuse tokens that are too low.
//
// One lock covers all prices, since they change together. Where one changes at a time, a Striped
// has a lock for each.
type Prices struct {
	client *clientv3.Client
	prefix string
	answer func(ctx context.Context, price int) error // of the database, on its way; takes its time

	fill   etcdlock.Locker // to copy from the database to the cache; may be shared
	change etcdlock.Locker // to change both
}

// GetUnlocked is cache-aside as everybody writes it first.
func (p *Prices) GetUnlocked(ctx context.Context, product string) (int, error) {
	if price, ok, err := p.read(ctx, p.cached(product)); ok || err != nil {
		return price, err
	}
	price, err := p.ask(ctx, product)
	if err != nil {
		return 0, err
	}
	_, err = p.client.Put(ctx, p.cached(product), strconv.Itoa(price)) // which may be an old one by now
	return price, err
}

// SetUnlocked changes prices and empties the cache, so that they are read anew. It cannot stop a reader
// that has read an old price and has not yet put it into the cache.
func (p *Prices) SetUnlocked(ctx context.Context, prices map[string]int) error {
	if _, err := p.client.Txn(ctx).Then(p.stored(prices)...).Commit(); err != nil {
		return err
	}
	_, err := p.client.Delete(ctx, p.cached(""), clientv3.WithPrefix())
	return err
}

// Get needs no lock for what is in the cache. Only a reader that copies a price there keeps
// others from changing it meanwhile. If it fails with ErrLost or ErrOutcomeUnknown, call it again.
func (p *Prices) Get(ctx context.Context, product string) (price int, err error) {
	if price, ok, err := p.read(ctx, p.cached(product)); ok || err != nil {
		return price, err
	}
	err = etcdlock.Do(ctx, p.fill, func(ctx context.Context, h *etcdlock.Hold) (err error) {
		// Somebody else may have copied it while this one was waiting.
		var ok bool
		if price, ok, err = p.read(ctx, p.cached(product)); ok || err != nil {
			return err
		}
		if price, err = p.ask(ctx, product); err != nil {
			return err
		}
		_, err = h.Txn(ctx).Then(clientv3.OpPut(p.cached(product), strconv.Itoa(price))).Commit()
		return err
	})
	return price, err
}

// Set changes prices. The cache is emptied first: nobody fills it before the lock is free, and if
// this process dies in between, nothing old is left in it. If it fails with ErrLost or ErrOutcomeUnknown,
// call it again.
func (p *Prices) Set(ctx context.Context, prices map[string]int) error {
	return etcdlock.Do(ctx, p.change, func(ctx context.Context, h *etcdlock.Hold) error {
		if _, err := p.client.Delete(ctx, p.cached(""), clientv3.WithPrefix()); err != nil {
			return err
		}
		_, err := h.Txn(ctx).Then(p.stored(prices)...).Commit()
		return err
	})
}

// ask reads a price from the database.
func (p *Prices) ask(ctx context.Context, product string) (int, error) {
	price, ok, err := p.read(ctx, p.prefix+"database/"+product)
	switch {
	case err != nil:
		return 0, err
	case !ok:
		return 0, fmt.Errorf("there is no product %q", product)
	}
	return price, p.answer(ctx, price)
}

func (p *Prices) read(ctx context.Context, key string) (price int, ok bool, err error) {
	answer, err := p.client.Get(ctx, key)
	if err != nil || len(answer.Kvs) == 0 {
		return 0, false, err
	}
	price, err = strconv.Atoi(string(answer.Kvs[0].Value))
	return price, err == nil, err
}

func (p *Prices) cached(product string) string { return p.prefix + "cache/" + product }

func (p *Prices) stored(prices map[string]int) (writes []clientv3.Op) {
	for product, price := range prices {
		writes = append(writes, clientv3.OpPut(p.prefix+"database/"+product, strconv.Itoa(price)))
	}
	return writes
}
