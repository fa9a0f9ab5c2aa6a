package etcdlock

import (
	"context"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
)

// Txn starts a transaction that takes effect only while the hold exists on the server. It is used as
// etcd's own: If, Then, Else, Commit. Commit makes one request, and returns when it is answered, or
// when ctx or the hold ends. It does not retry: only the caller knows whether the transaction may
// take effect twice.
//
// If a key of the hold is missing, neither Then nor Else takes effect, and Commit returns an error
// that wraps [ErrLost] (or [ErrClosed], or [ErrUnlocked]). Otherwise the response is that of the
// transaction as written, and Succeeded says whether the comparisons given to If hold.
//
// If the answer is lost, the transaction may have taken effect while the hold existed. Then the
// error wraps [ErrOutcomeUnknown], next to ctx's error, the end of the hold or that of the network.
//
// etcd allows 128 comparisons and 128 operations in a transaction, unless it was started with another
// --max-txn-ops. Each key of the hold counts as a comparison, and with both If and Else also as an
// operation. If there are too many, the error wraps [rpctypes.ErrTooManyOps].
//
// A transaction that may take effect twice can be given to [session.Retry]:
//
//	err := session.Retry(ctx, func(ctx context.Context) error {
//		_, err := h.Txn(ctx).Then(clientv3.OpPut("orders/last", "42")).Commit()
//		return err
//	})
func (h *Hold) Txn(ctx context.Context) clientv3.Txn {
	h.ready(ctx)
	return &guardedTxn{ctx: ctx, hold: h}
}

// guardedTxn is the user's transaction, which takes effect only while all keys of the hold exist.
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

func (t *guardedTxn) Commit() (response *clientv3.TxnResponse, err error) {
	defer func() { err = failed("txn", t.hold.lock.name, err) }()
	if err := t.hold.Err(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(t.ctx)
	defer stop()
	if err := ctx.Err(); err != nil {
		return nil, err // the client would send nothing, and its error would look like that of a lost answer
	}
	defer context.AfterFunc(t.hold.Context(), stop)() // without the lock there is nothing to wait for
	s, guards := t.hold.ticket.Session(), t.hold.Guards()
	var missing string
	if err = request.AwaitConnection(ctx, ctx, s.Client()); err != nil {
		err = request.Unsent(err)
	} else {
		response, missing, err = t.guarded(s.Client().Txn(ctx), guards)
	}
	switch {
	case request.IsAnswer(err, rpctypes.ErrTooManyOps):
		return nil, fmt.Errorf("%w: %d comparisons guard the lock, which count as well (etcd allows 128 unless it has another --max-txn-ops)",
			err, len(guards))
	case err != nil:
		unknown := request.Doubtful(err)
		err = request.Explain(s.Client(), err)
		if t.ctx.Err() == nil {
			err = t.hold.orEnd(err)
		}
		if unknown {
			err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
		}
		return nil, err
	case missing != "":
		return nil, t.hold.gone(explainLoss(s, missing))
	}
	return response, nil
}

// guarded commits the transaction with the guards, and returns the response to it as written, or the
// name of a missing key. The guards are comparisons next to the user's, which etcd does not count
// together with the operations. Only an Else has to be nested: it depends on the guards and not on
// the comparisons.
func (t *guardedTxn) guarded(txn clientv3.Txn, guards []clientv3.Cmp) (response *clientv3.TxnResponse, missing string, err error) {
	nested := len(t.comparisons) > 0 && len(t.otherwise) > 0
	if nested {
		txn = txn.If(guards...).Then(clientv3.OpTxn(t.comparisons, t.then, t.otherwise))
	} else {
		txn = txn.If(slices.Concat(guards, t.comparisons)...).Then(t.then...)
	}
	keys := make([]clientv3.Op, len(guards)) // show which guard has failed, if one has
	for i, g := range guards {
		keys[i] = clientv3.OpGet(string(g.KeyBytes()), clientv3.WithKeysOnly())
	}
	outer, err := txn.Else(keys...).Commit()
	switch {
	case err != nil:
		return nil, "", err
	case !outer.Succeeded:
		missing = missingKey(guards, outer)
		outer.Responses = nil
		return outer, missing, nil
	case !nested:
		return outer, "", nil
	}
	inner := (*clientv3.TxnResponse)(outer.Responses[0].GetResponseTxn())
	inner.Header = outer.Header
	return inner, "", nil
}

// missingKey returns a key whose guard does not hold, according to the reads, or "".
func missingKey(guards []clientv3.Cmp, reads *clientv3.TxnResponse) string {
	for i, g := range guards {
		kvs := reads.Responses[i].GetResponseRange().Kvs
		if len(kvs) == 0 || kvs[0].CreateRevision != g.GetCompare().GetCreateRevision() {
			return string(g.KeyBytes())
		}
	}
	return ""
}
