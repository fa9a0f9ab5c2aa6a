package fairqueue

import (
	"context"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// writing is what is known of a ticket's value in etcd, once somebody has replaced it.
type writing struct {
	turn chan struct{} // taken by the one who writes, and who may use the rest
	last int64         // revision of the last write, as far as known
}

func (t *Ticket) writing() *writing {
	if t.wrote.Load() == nil {
		t.wrote.CompareAndSwap(nil, &writing{turn: make(chan struct{}, 1), last: t.me.revision})
	}
	return t.wrote.Load()
}

// Set replaces the ticket's value, if it is still there: one round trip, one raft entry.
// Its place in line and its token stay. If the ticket is gone, the error wraps [ErrGone]; if the value has
// more than 1 MiB, it is [ErrTooLarge]. If ctx ends
// before etcd answers, the value may have been replaced or not, or may yet be, but no more once a later
// Set has returned nil. Calls at a time take turns. It is meant for candidates: that of an exclusive
// ticket must not begin with {"mark":, which is how owners tell others something.
func (t *Ticket) Set(ctx context.Context, value string) error {
	return t.failed(t.set(ctx, value))
}

func (t *Ticket) set(ctx context.Context, value string) error {
	if err := checkValue(value); err != nil {
		return err
	}
	w := t.writing()
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	put := clientv3.OpPut(t.me.key, value, clientv3.WithLease(t.session.Lease()))
	for {
		// Not only on the ticket: an attempt that comes late must not undo what was written since.
		condition := clientv3.Compare(clientv3.ModRevision(t.me.key), "=", w.last)
		var answer *clientv3.TxnResponse
		err := t.session.Link().Call(ctx, func(ctx context.Context) (err error) {
			answer, err = t.session.Client().Txn(ctx).If(condition).Then(put).Else(own([]*Ticket{t})...).Commit()
			return err
		})
		switch {
		case err != nil:
			return err
		case answer.Succeeded:
			w.last = answer.Header.Revision
			return nil
		}
		own := answer.Responses[0].GetResponseRange().Kvs
		if len(own) == 0 || own[0].CreateRevision != t.me.revision || t.left.Load() {
			return ErrGone // or given up by Linger, which is not to be undone
		}
		w.last = own[0].ModRevision
		if string(own[0].Value) == value && clientv3.LeaseID(own[0].Lease) == t.session.Lease() {
			return nil // by an attempt whose answer was lost
		}
	}
}

// Share lets shared tickets own together with this exclusive one, which must have been
// granted, as if it were shared itself: those that stand right behind it are granted, with
// no gap in which somebody else could own. It is for good. Costs and errors are those of
// Set. Other modes than [Exclusive] panic.
func (t *Ticket) Share(ctx context.Context) error {
	if t.mode != Exclusive {
		panic("fairqueue: only exclusive tickets can be made shared")
	}
	t.marked.Store(true) // or may be, if the answer is lost
	return t.Set(ctx, t.markedValue())
}

func (t *Ticket) markedValue() string { return markedShared + strings.TrimPrefix(t.value, "{") }
