package main

import (
	"context"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
)

// Order is what a customer wants. Its ID makes it safe to try again: an order is sold once,
// and the payment service is expected to know it again, too.
type Order struct {
	ID    string
	Units int
}

// Shop sells what is in stock. If Sell fails with ErrLost or ErrOutcomeUnknown, call it again.
type Shop interface {
	Sell(ctx context.Context, order Order) error
}

// TooFewError says that an order was refused since it asks for more than is left. Stock only
// falls, so waiting would not help.
type TooFewError struct {
	Asked, Left int
	Revision    int64 // of etcd, at which that was so
}

func (e *TooFewError) Error() string { return fmt.Sprintf("asked for %d, %d left", e.Asked, e.Left) }

// stock is what there is to sell, in one or more segments, each with a key in etcd.
type stock struct {
	client    *clientv3.Client
	prefix    string
	authorise func(ctx context.Context, order Order) error // the payment service; takes its time
}

// UnguardedShop is what everybody writes first.
type UnguardedShop struct{ stock }

// Sell implements Shop, but for two that look at the same time.
func (s UnguardedShop) Sell(ctx context.Context, order Order) error {
	return s.sell(ctx, order, []int{0}, s.client.Txn)
}

// LockedShop serves one customer at a time.
type LockedShop struct {
	stock
	lock etcdlock.Locker
}

// Sell implements Shop.
func (s LockedShop) Sell(ctx context.Context, order Order) error {
	return etcdlock.Do(ctx, s.lock, func(ctx context.Context, h *etcdlock.Hold) error {
		return s.sell(ctx, order, []int{0}, h.Txn)
	})
}

// sell takes the order's units from those segments, which the caller has locked. It writes what is left
// and the record of the sale in one transaction, which begin makes conditional on the lock: a process
// that has lost it meanwhile sells nothing.
func (s stock) sell(ctx context.Context, order Order, from []int, begin func(context.Context) clientv3.Txn) error {
	seen, err := s.look(ctx, order)
	if err != nil || seen.sold {
		return err
	}
	writes := []clientv3.Op{clientv3.OpPut(s.record(order), strconv.Itoa(order.Units))}
	missing := order.Units
	for _, i := range from {
		if units := min(seen.segments[i], missing); units > 0 {
			writes = append(writes, s.put(i, seen.segments[i]-units))
			missing -= units
		}
	}
	if missing > 0 {
		return &TooFewError{order.Units, order.Units - missing, seen.revision}
	}
	// The money is reserved here and taken when the units have been. If that does not happen,
	// the reservation lapses, and nobody has to pay anything back.
	if err := s.authorise(ctx, order); err != nil {
		return err
	}
	unsold := clientv3.Compare(clientv3.CreateRevision(s.record(order)), "=", 0) // by an earlier try
	_, err = begin(ctx).If(unsold).Then(writes...).Commit()
	return err
}

// view is the stock at one revision of etcd.
type view struct {
	segments []int
	revision int64
	sold     bool // the order, by an earlier try
}

func (s stock) look(ctx context.Context, order Order) (seen view, err error) {
	answer, err := s.client.Txn(ctx).Then(
		clientv3.OpGet(s.prefix+"stock/", clientv3.WithPrefix()),
		clientv3.OpGet(s.record(order), clientv3.WithCountOnly()),
	).Commit()
	if err != nil {
		return view{}, err
	}
	for _, kv := range answer.Responses[0].GetResponseRange().Kvs { // in the order of their numbers
		units, err := strconv.Atoi(string(kv.Value))
		if err != nil {
			return view{}, fmt.Errorf("%s: %w", kv.Key, err)
		}
		seen.segments = append(seen.segments, units)
	}
	seen.revision = answer.Header.Revision
	seen.sold = answer.Responses[1].GetResponseRange().Count > 0
	return seen, nil
}

func (s stock) record(order Order) string { return s.prefix + "sales/" + order.ID }

func (s stock) put(segment, units int) clientv3.Op {
	return clientv3.OpPut(fmt.Sprintf("%sstock/%03d", s.prefix, segment), strconv.Itoa(units))
}
