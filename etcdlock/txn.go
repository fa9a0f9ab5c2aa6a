package etcdlock

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// Txn starts a transaction that takes effect only while the hold exists on the server.
// It is used as etcd's own: If, Then, Else, Commit. Commit makes one request, not tried
// again, because only its user knows whether it can be.
//
// If the hold is gone, nothing of it takes effect, neither Then nor Else, and Commit
// returns an error that wraps [ErrLost] (or [ErrClosed], or [ErrUnlocked]). Otherwise the
// response is that of the transaction as written, its Succeeded that of the comparisons
// given to If. Commit returns when ctx or the hold ends.
//
// If the answer was lost, the transaction may have taken effect while the hold existed.
// Then, and only then, the error wraps [ErrUnclear], next to ctx's error, the hold's end or
// the network's; so test for that first. A transaction that may take effect twice can be given
// to [session.Retry], which tries again what may pass:
//
//	err := session.Retry(ctx, func(ctx context.Context) error {
//		_, err := h.Txn(ctx).Then(clientv3.OpPut("orders/last", "42")).Commit()
//		return err
//	})
func (h *Hold) Txn(ctx context.Context) clientv3.Txn {
	h.ready(ctx)
	return &guardedTxn{ctx: ctx, hold: h}
}

// guardedTxn nests the user's transaction in one whose only comparison is the guard, so
// that a refused guard can be told from a comparison of the user's that did not hold.
type guardedTxn struct {
	ctx  context.Context // of the one request that Commit makes, as in etcd's own
	hold *Hold

	comparisons     []clientv3.Cmp
	then, otherwise []clientv3.Op
}

func (t *guardedTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	t.comparisons = append(t.comparisons, cs...)
	return t
}

func (t *guardedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.then = append(t.then, ops...)
	return t
}

func (t *guardedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.otherwise = append(t.otherwise, ops...)
	return t
}

func (t *guardedTxn) Commit() (*clientv3.TxnResponse, error) {
	response, err := t.commit()
	return response, failed("txn", t.hold.lock.name, err)
}

func (t *guardedTxn) commit() (*clientv3.TxnResponse, error) {
	if err := t.hold.Err(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(t.ctx)
	defer stop()
	if err := ctx.Err(); err != nil {
		return nil, err // the client would send nothing, which cannot be told from a lost answer
	}
	defer context.AfterFunc(t.hold.Context(), stop)() // without the lock there is nothing to wait for
	outer, err := t.hold.claim.Session().Client().Txn(ctx).
		If(t.hold.Guards()...).
		Then(clientv3.OpTxn(t.comparisons, t.then, t.otherwise)).
		Commit()
	if err != nil {
		unclear := session.Doubtful(err)
		if t.ctx.Err() == nil {
			err = t.hold.orEnd(err)
		}
		if unclear {
			err = fmt.Errorf("%w: %w", ErrUnclear, err)
		}
		return nil, err
	}
	if !outer.Succeeded {
		return nil, t.hold.gone(fmt.Errorf("%w: the guard was refused", ErrLost))
	}
	inner := (*clientv3.TxnResponse)(outer.Responses[0].GetResponseTxn())
	inner.Header = outer.Header
	return inner, nil
}
