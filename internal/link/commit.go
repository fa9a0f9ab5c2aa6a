package link

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
)

// Transaction is what one caller asks of etcd. It may share a request with others.
type Transaction struct {
	If         []clientv3.Cmp
	Then, Else []clientv3.Op

	// Epoch, if not nil, is a further condition: an attempt takes effect only in the epoch in which it
	// began.
	Epoch *Epoch

	// Apart, if not empty, keeps the transaction out of requests that carry another one with the same
	// Apart, so that the two never take effect at the same revision. In a shared request
	// transactions without Apart come first, so the others see what they did.
	Apart string

	// Likely says that If is expected to hold, as for a key of one's own. In a shared request
	// such a transaction costs etcd less if it does. If it does not, all of them cost a second request.
	Likely bool

	// Alone keeps the transaction out of shared requests.
	Alone bool

	// Late is called once if the caller's context ended while a shared request was in flight, for which
	// the error of Commit satisfies [request.IsInFlight]. It gets the answer, or an error if there was none within
	// a second, and the number of attempts before that one that were not answered. It may be called
	// before Commit returns. It is not called after the end of the session. It must not block.
	Late func(answer *clientv3.TxnResponse, doubts int, err error)
}

// Commit is [Link.Call] for t, which must be repeatable. T must not be changed afterwards.
//
// It may share a request with transactions of other goroutines of the session. While four are in
// flight, others collect. They are sent as one request when nothing is in flight any more, or when
// as many have collected as are in flight, in at most three requests; or after 100 ms, and a request that
// has been in flight for longer does not count. A request carries at most 64 transactions and half a
// megabyte. The answer and the error are those that t would get alone: a request that etcd refuses
// is sent again, one transaction at a time. No two of them may write the same key. Since etcd looks at the
// conditions of all before it does anything, those that depend on what others write need the same Apart.
//
// Transactions that only read, without a condition, share requests among themselves, so that they are no
// raft entries; so do those that any member may answer. A single read is a plain range.
//
// A shared request is not cancelled when ctx ends, since its answer leaves no doubt: see Late. A
// transaction that is alone ends with ctx. Doubts is the number of attempts that were sent and not answered, that one apart: each may have
// taken effect, or may yet. Requests that etcd's client repeats by itself are not among them. Values
// of ctx travel with a transaction that is alone, not with a shared request. Safe for concurrent use.
func (l *Link) Commit(ctx context.Context, t Transaction) (answer *clientv3.TxnResponse, doubts int, err error) {
	request.NeedContext(ctx)
	c := l.coalescers.of(t)
	err = l.call(ctx, func(limit time.Duration) (timedOut bool, err error) {
		o := c.attempt(ctx, t, doubts, limit)
		if o.again {
			before := request.Doubtful(o.err)
			if before {
				doubts++
			}
			alone := t
			alone.Alone = true
			o = c.attempt(ctx, alone, doubts, limit)
			if before && request.Refused(o.err) {
				o.err = request.Unsure(o.err)
				doubts-- // or it counts twice
			}
		}
		if request.Doubtful(o.err) && !request.IsInFlight(o.err) {
			doubts++
		}
		t.Likely = t.Likely && doubts == 0 // it may find itself
		answer = o.answer
		return o.timedOut, o.err
	})
	return answer, doubts, err
}

// reads reports whether t writes nothing, whatever is there.
func (t Transaction) reads() bool {
	for _, op := range t.Then {
		if !op.IsGet() {
			return false
		}
	}
	return len(t.If) == 0 && len(t.Else) == 0 && len(t.Then) > 0
}

// size is about how many bytes the request for t has.
func (t Transaction) size() (bytes int) {
	for _, op := range t.Then {
		bytes += len(op.KeyBytes()) + len(op.RangeBytes()) + len(op.ValueBytes())
	}
	return bytes
}

// send makes one request, and takes in what its answer tells of the cluster.
func (l *Link) send(ctx context.Context, t Transaction) (*clientv3.TxnResponse, error) {
	least := int64(0)
	if t.quorum() {
		least = l.history.known()
	}
	answer, err := l.request(ctx, t)
	if err == nil {
		err = l.Heard(answer.Header, least)
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func (l *Link) request(ctx context.Context, t Transaction) (*clientv3.TxnResponse, error) {
	if t.reads() && len(t.Then) == 1 {
		answer, err := l.client.Do(ctx, t.Then[0])
		if err != nil {
			return nil, err
		}
		read := (*etcdserverpb.RangeResponse)(answer.Get())
		return &clientv3.TxnResponse{Header: read.Header, Succeeded: true, Responses: []*etcdserverpb.ResponseOp{
			{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: read}},
		}}, nil
	}
	return l.client.Txn(ctx).If(t.If...).Then(t.Then...).Else(t.Else...).Commit()
}
