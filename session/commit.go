package session

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Transaction is what one caller wants of etcd, and may go out together with others'.
type Transaction struct {
	If         []clientv3.Cmp
	Then, Else []clientv3.Op

	// Apart keeps transactions apart from others with the same one, if it is not empty: they
	// must not take effect at the same revision. So up to 128 may be under way. Those without one come
	// first where several go out together, so the others see what they did.
	Apart string

	// Likely says that If is expected to hold, as for a key of one's own. Together with others,
	// such a transaction costs etcd less if it does, and otherwise all of them a second request. After
	// an attempt that was not answered it is not expected any more.
	Likely bool

	// Shortcut may take the place of If and Then where t is likely and goes out with others. Nil if there is
	// none.
	Shortcut *Shortcut

	// Alone keeps a transaction from going out together with others. So it does not wait, but others
	// may have to until it has been answered.
	Alone bool

	// Grace goes on for a quarter of a second from the call even if the caller's context is over: for
	// what cleans up. It is [Grace], and costs less where t goes out with others.
	Grace bool
}

// Commit is [Session.Call] for t, which must be repeatable, and not be changed before the session is
// over. It may go out together with
// transactions of other goroutines that use the session: while four are under way, what comes
// collects. It goes out as one request when nothing is under way any more, or when as many have
// collected as are, in no more than three requests; or after 100 ms, and what has been under way that
// long does not count, since its endpoint may be silent. In one request there are no more
// than 64, and of their operations no more than 64 on the way to each transaction within it, added up.
// An attempt begins when it goes out. The answer is what
// it would be for t alone, or for its shortcut, and so is the error: what etcd refuses as a whole is asked for
// again by each on its own. No two of them may write the same key; and since etcd looks at the conditions of
// all before it does anything, those that depend on what others write need the same Apart as these.
//
// What only reads, without a condition, is counted and collects apart from the rest, and what any
// member may answer (serializable) apart from what the quorum is asked; so reads are no raft entry
// whoever they go out with, up to 64 of them. A single read is a plain range. One that costs etcd much
// keeps those waiting that it goes out with, so it had better go alone.
//
// Doubts tells how many attempts were sent and not answered: each may have taken effect, or
// may yet. One that was answered is among them if it may have taken effect all the same (no space: see
// [Doubtful]). Not among them are those that etcd's client makes by itself, as where a proxy in between says that
// the request was cancelled. Values of ctx, as for tracing, do not travel with what goes out together, whose answers
// share a header. Safe for concurrent use.
func (s *Session) Commit(ctx context.Context, t Transaction) (answer *clientv3.TxnResponse, doubts int, err error) {
	needContext(ctx)
	if t.Grace && ctx.Done() != nil {
		g := &graced{caller: ctx, least: time.Now().Add(grace)}
		defer g.stop()
		ctx = g
	}
	err = s.call(ctx, func(limit time.Duration) (timedOut bool, err error) {
		o := s.tryCommit(ctx, limit, t)
		doubtful := Doubtful(o.err)
		if o.again {
			o = s.tryAlone(ctx, limit, t)
			switch {
			case doubtful && refused(o.err):
				o.err = unsure{o.err}
			case doubtful && Doubtful(o.err):
				doubts++
			default:
				doubtful = doubtful || Doubtful(o.err)
			}
		}
		if doubtful {
			doubts++
			t.Likely = false // it may find itself
		}
		answer = o.answer
		return o.timedOut, o.err
	})
	return answer, doubts, err
}

// tryCommit makes one attempt at t.
func (s *Session) tryCommit(ctx context.Context, limit time.Duration, t Transaction) outcome {
	if ctx.Err() != nil {
		return outcome{err: unsent{ctx.Err()}}
	}
	r := s.routes.of(t)
	p, number := r.board(t, limit)
	if p == nil {
		defer r.land(number)
		return s.tryAlone(ctx, limit, t)
	}
	r.depart(false)
	err := r.wait(ctx, p)
	switch {
	case err == nil:
		return p.outcome
	case r.withdraw(p):
		return outcome{err: unsent{err}}
	}
	return outcome{err: unsure{err}}
}

func (s *Session) tryAlone(ctx context.Context, limit time.Duration, t Transaction) (o outcome) {
	o.timedOut, o.err = attempt(ctx, s.ctx, limit, func(ctx context.Context) (err error) {
		o.answer, err = s.commit(ctx, t)
		return err
	})
	return o
}

func (s *Session) commit(ctx context.Context, t Transaction) (*clientv3.TxnResponse, error) {
	if t.reads() && len(t.Then) == 1 {
		answer, err := s.client.Do(ctx, t.Then[0])
		if err != nil {
			return nil, err
		}
		read := (*etcdserverpb.RangeResponse)(answer.Get())
		return &clientv3.TxnResponse{Header: read.Header, Succeeded: true, Responses: []*etcdserverpb.ResponseOp{
			{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: read}},
		}}, nil
	}
	return s.client.Txn(ctx).If(t.If...).Then(t.Then...).Else(t.Else...).Commit()
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

// unsent is the error of a request that etcd never got.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }
