package fairqueue

import (
	"context"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Set replaces the value of the ticket's key, if it is still there: one round trip, one raft entry.
// Its place in line and its token stay. If the ticket is gone, the error wraps [ErrGone]; if the
// value has more than 1 MiB, it is [ErrTooLarge]. If ctx ends before etcd answers, the value may
// have been replaced or not, or may yet be, but no more once a later Set has returned nil.
// Concurrent calls take turns. It is meant for candidates: the value of an exclusive ticket must
// not begin with {"mark":, which is how an owner says that it shares.
func (t *Ticket) Set(ctx context.Context, value string) error {
	return t.failed(t.first().set(ctx, value))
}

// set replaces only the value that it knows of. An attempt that arrives late replaces nothing
// newer, nor takes the key back from the lease that ReleaseAfter has moved it to.
func (p *part) set(ctx context.Context, value string) error {
	if err := checkValue(value); err != nil {
		return err
	}
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	put := clientv3.OpPut(p.me.key, value, clientv3.WithLease(p.session.Lease()))
	for {
		unchanged := clientv3.Compare(clientv3.ModRevision(p.me.key), "=", p.written)
		var answer *clientv3.TxnResponse
		err := p.link().Call(ctx, func(ctx context.Context) (err error) {
			answer, err = p.session.Client().Txn(ctx).If(unchanged).Then(put).Else(clientv3.OpGet(p.me.key)).Commit()
			return err
		})
		switch {
		case err != nil:
			return err
		case answer.Succeeded:
			p.written = answer.Header.Revision
			return nil
		}
		own := answer.Responses[0].GetResponseRange().Kvs
		if len(own) == 0 || own[0].CreateRevision != p.me.revision || p.left.Load() {
			return ErrGone // or given up by ReleaseAfter, which is not to be undone
		}
		p.written = own[0].ModRevision
		if string(own[0].Value) == value && clientv3.LeaseID(own[0].Lease) == p.session.Lease() {
			return nil // by an attempt whose answer was lost
		}
	}
}

// Share lets shared tickets own together with this exclusive one, which must have been
// granted, as if it were shared itself: those that stand right behind it are granted, with
// no gap in which another ticket could own. It cannot be undone. Costs and errors are those of
// Set. Tickets of other modes than [Exclusive], or of several keys, panic.
func (t *Ticket) Share(ctx context.Context) error {
	p := t.first()
	if p.mode != Exclusive || len(t.parts) > 1 {
		panic("fairqueue: only exclusive tickets can be made shared")
	}
	p.shares.Store(true) // or may be, if the answer is lost
	return t.Set(ctx, p.markedValue())
}

func (p *part) markedValue() string { return markedShared + strings.TrimPrefix(p.value, "{") }
