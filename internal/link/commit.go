package link

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/coalesce"
	"github.com/etcdlock/locks/internal/request"
)

// Transaction is what one caller asks of etcd.
type Transaction = coalesce.Transaction

// Commit is [Link.Call] for t, which must be repeatable and must not be changed afterwards. The first attempt may
// share a request with other transactions of the session, but not with one that creates a key in the same
// folder; see package coalesce. No two of them may write the same key.
//
// A shared request is not cancelled when ctx ends, since its answer leaves no doubt: see Late. A
// transaction that is alone ends with ctx. Doubts is the number of requests that were sent and not answered, apart
// from one that is left to Late: each may have taken effect, or may yet. Requests that etcd's client repeats by
// itself are not among them. Values of ctx travel with a transaction that is alone, not with a shared request.
func (l *Link) Commit(ctx context.Context, t Transaction) (answer *clientv3.TxnResponse, doubts int, err error) {
	request.NeedContext(ctx)
	err = l.call(ctx, func(limit time.Duration) (timedOut bool, err error) {
		o := l.queue.Do(ctx, t, doubts > 0, limit)
		answer, doubts = o.Answer, doubts+o.Unanswered
		return o.TimedOut, o.Err
	})
	return answer, doubts, err
}

// Read is [Link.Call] for reads in one request, all answered at one revision. A single read is a plain range.
func (l *Link) Read(ctx context.Context, reads ...clientv3.Op) (answer *clientv3.TxnResponse, err error) {
	quorum := false
	for _, op := range reads {
		quorum = quorum || !op.IsSerializable()
	}
	err = l.Call(ctx, func(ctx context.Context) (err error) {
		var earliest position
		if quorum {
			earliest.revision = l.history.known().revision // a member that was given a snapshot reads at an old term
		}
		if answer, err = l.read(ctx, reads); err == nil {
			err = l.observe(answer.Header, earliest)
		}
		return err
	})
	return answer, err
}

func (l *Link) read(ctx context.Context, reads []clientv3.Op) (*clientv3.TxnResponse, error) {
	if len(reads) > 1 {
		return l.client.Txn(ctx).Then(reads...).Commit()
	}
	answer, err := l.client.Do(ctx, reads[0])
	if err != nil {
		return nil, err
	}
	read := (*etcdserverpb.RangeResponse)(answer.Get())
	return &clientv3.TxnResponse{Header: read.Header, Succeeded: true, Responses: []*etcdserverpb.ResponseOp{
		{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: read}},
	}}, nil
}
