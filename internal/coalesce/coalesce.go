// Package coalesce lets transactions of one session share requests to etcd.
//
// Invariants:
//
//  1. Two transactions that create keys in the same folder never share a request, so they never take effect at the
//     same revision. A folder is a key up to its last slash.
//  2. The answer of a transaction is the one that it would get alone.
//  3. A request in flight ends with its attempt's time limit, or with the session, and not with a caller's context.
//     The outcome is reported exactly once: to the caller, or to Late if the caller has given up.
//  4. While transactions wait, a request is sent at least every 100 ms, whether or not etcd answers.
package coalesce

import (
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
)

const (
	// AloneLimit is how many transactions are sent alone at a time before others wait to share a request.
	AloneLimit = 4

	// requestLimit is how many requests may be in flight when another one is sent. With more, each would carry less.
	requestLimit = 4

	// carryLimit is how many transactions a request carries: half of the operations that etcd allows by default, which
	// leaves as many to each of the transactions.
	carryLimit = 64

	// bytesLimit keeps a shared request well below etcd's --max-request-bytes of 1.5 MiB.
	bytesLimit = 512 << 10

	// overdue is when a request does not count as in flight any longer: its endpoint may be silent.
	overdue = 100 * time.Millisecond
)

// Sender makes one request of conditions and what is to be done if they hold, and otherwise.
type Sender func(ctx context.Context, conditions []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error)

// Queue collects transactions while others are in flight. It is safe for concurrent use.
type Queue struct {
	ctx       context.Context
	send      Sender
	start     func(f func(context.Context)) (started bool)
	abandoned func(n int)

	mu       sync.Mutex
	waiting  []*pending
	inFlight int // requests, without those that are overdue
	carried  int // transactions in them
	limit    int // of transactions in a request; less than usual where etcd allows less
}

// New returns an empty queue. Nothing is sent when ctx has ended. Start runs a function in a goroutine, unless ctx has
// ended. Abandoned adds to the number of attempts in flight that their callers have given up.
func New(ctx context.Context, send Sender, start func(f func(context.Context)) (started bool), abandoned func(n int)) *Queue {
	return &Queue{ctx: ctx, send: send, start: start, abandoned: abandoned, limit: carryLimit}
}

// pending is one attempt at a transaction: it waits to be sent, or is in flight.
type pending struct {
	Transaction
	epoch     Epoch         // in which it began
	folder    string        // of the key that it creates
	done      chan struct{} // closed when the outcome is there
	outcome   Outcome
	abandoned bool // by its caller; guarded by the queue's mu
}

// sending is a request that counts as in flight until it is settled.
type sending struct {
	carry   []*pending
	overdue *time.Timer // settles it
	settled bool
}

// Outcome is what has become of an attempt.
type Outcome struct {
	Answer   *clientv3.TxnResponse
	Err      error
	TimedOut bool

	// Unanswered is the number of its requests that may have taken effect, or may yet, apart from the one that was
	// answered, or whose outcome Late gets.
	Unanswered int

	refused bool // together with others
}

// Do makes one attempt at t, for at most limit, alone or in a request with others. Requests that are shared are
// limited to [request.FirstAttempt]. The error of an attempt whose outcome is left to t.Late satisfies
// [request.IsInFlight].
func (q *Queue) Do(ctx context.Context, t Transaction, alone bool, limit time.Duration) Outcome {
	if err := ctx.Err(); err != nil {
		return Outcome{Err: request.Unsent(err)}
	}
	p := &pending{Transaction: t}
	if t.Epoch != nil {
		p.epoch = t.Epoch()
	}
	r, waits := q.enqueue(p, alone)
	if !waits {
		defer q.settle(r)
		return q.sendAlone(ctx, p, limit)
	}
	o := q.wait(ctx, p)
	if !o.refused {
		return o
	}
	second := q.sendAlone(ctx, p, limit)
	if o.Unanswered > 0 && second.Err != nil { // an error which says nothing about the first request
		if request.Refused(second.Err) {
			second.Unanswered = 0 // in doubt like the first, and once is enough
		}
		second.Err = request.Unsure(second.Err)
	}
	second.Unanswered += o.Unanswered
	return second
}

// enqueue has p wait for others. If nothing is to be gained by that, or p cannot share a request, p is to be sent
// alone, as the request that is returned if it counts as in flight.
func (q *Queue) enqueue(p *pending, alone bool) (r *sending, waits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var shareable bool
	p.folder, shareable = p.classify(q.limit)
	sameFolder := func(other *pending) bool { return other.folder == p.folder }
	if alone || !shareable || p.folder != "" && slices.ContainsFunc(q.waiting, sameFolder) {
		return nil, false
	}
	if q.carried < AloneLimit && len(q.waiting) == 0 {
		return q.begin([]*pending{p}), false
	}
	p.done = make(chan struct{})
	q.waiting = append(q.waiting, p)
	q.flush()
	return nil, true
}

// flush sends requests for as long as it is time for one: when nothing is in flight, or as many
// wait as are in flight, so that the requests take turns and none is nearly empty. The caller has locked mu.
func (q *Queue) flush() {
	for len(q.waiting) > 0 && q.ctx.Err() == nil {
		n := min(len(q.waiting), q.limit)
		if q.inFlight > 0 && (q.inFlight >= requestLimit || n < q.limit && n < q.carried) {
			return
		}
		r := q.begin(q.next(n))
		q.start(func(context.Context) { q.sendShared(r) }) // or else the context has ended, and with it the callers' waits
	}
}

// next takes the first n transactions that wait, fewer if they are large.
func (q *Queue) next(n int) (carry []*pending) {
	bytes, operations := 0, 0
	for i, p := range q.waiting[:n] {
		bytes, operations = bytes+p.bytes(), operations+p.operations()
		if bytes > bytesLimit || operations > 2*q.limit {
			n = max(i, 1)
			break
		}
	}
	carry = slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	// A transaction that creates a key may read the line, so it comes after those that remove keys.
	slices.SortStableFunc(carry, func(a, b *pending) int { return min(len(a.folder), 1) - min(len(b.folder), 1) })
	return carry
}

// begin counts a request as in flight, until it is settled: answered, or overdue. The caller has locked mu.
func (q *Queue) begin(carry []*pending) *sending {
	r := &sending{carry: carry}
	r.overdue = time.AfterFunc(overdue, func() { q.settle(r) })
	q.inFlight++
	q.carried += len(carry)
	return r
}

// settle stops counting r, if it does count, and sends what waits for that.
func (q *Queue) settle(r *sending) {
	if r == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.settled {
		return
	}
	r.overdue.Stop()
	r.settled = true
	q.inFlight--
	q.carried -= len(r.carry)
	q.flush()
}
