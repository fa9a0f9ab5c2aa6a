// Package link is what the queues need of a session: transactions and calls that end with it, names for its keys and
// their removal, watches, and turns at what costs etcd much.
//
// Invariants:
//
//  1. Nothing is sent after the session has ended and [Link.Wait] has returned.
//  2. An answer that shows that etcd went back, or that the lease is gone, ends the session.
//  3. Keys handed to Discard are removed in the background until that is confirmed or the lease is over.
//  4. A name handed to Epoch.Doubt is free again only when no request that was sent before can create its
//     key any more. A doubt costs one write and one deletion; doubts that arise meanwhile share the next two.
//  5. Calls that have given up do not pile up: while 128 or more have left a request, a removal or a
//     doubt that is not over, Admit lets no other call begin.
//  6. Doubts that etcd refuses to end, for want of a permission or of space, are limited: a Keeper replaces a session
//     with 512 of them, and with 2048 Admit returns that refusal.
package link

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/coalesce"
	"github.com/etcdlock/locks/internal/request"
)

// logPause is the time between two log lines about the same trouble.
const logPause = time.Second

// Session is what a link knows of its session.
type Session interface {
	Client() *clientv3.Client
	Lease() clientv3.LeaseID

	// Context ends with the session. Its cause is the error of the session.
	Context() context.Context

	// Err compares with the clock, and ends the session if its time is over.
	Err() error

	// Lose ends the session as lost.
	Lose(cause error)
}

// Link connects the queues to one session. It is safe for concurrent use.
type Link struct {
	*Streams // of the client, for the watches on behalf of the session

	session Session
	client  *clientv3.Client
	lease   clientv3.LeaseID
	ctx     context.Context // that of the session
	logger  *slog.Logger

	running sync.WaitGroup // the link's own goroutines
	ending  sync.Mutex     // keeps goroutines from being started while Wait waits

	history history
	queue   *coalesce.Queue
	retired context.Context // ends with Retire
	retire  context.CancelFunc
	turns   chan struct{} // has room for the callers of InTurn

	mu         sync.Mutex
	slots      map[string][]bool     // by prefix: the numbers that are taken
	used       int                   // numbers that callers use; see AwaitUnused
	unused     chan struct{}         // closed when there are none; nil if nothing waits for that
	epochs     map[string]*Epoch     // by key
	warned     time.Time             // when a failed removal was logged last
	refusal    error                 // of the last attempt to end doubts that was refused
	abandoned  int                   // what callers have given up and is unfinished
	room       chan struct{}         // closed when there is room for more; nil if there is
	gatherings map[string]*gathering // the last one of each key, until it is answered
	kept       map[string]*Watch     // by name: unused at the moment
	keeps      bool                  // a watch keeps their stream open

	lasting atomic.Int64 // doubts that cannot be ended; is changed with mu locked
}

// New returns the link of a session that has just been created.
func New(s Session, logger *slog.Logger) *Link {
	l := &Link{
		Streams:    StreamsOf(s.Client()),
		session:    s,
		client:     s.Client(),
		lease:      s.Lease(),
		ctx:        s.Context(),
		logger:     logger,
		slots:      make(map[string][]bool),
		gatherings: make(map[string]*gathering),
		epochs:     make(map[string]*Epoch),
		kept:       make(map[string]*Watch),
		turns:      make(chan struct{}, turnLimit),
	}
	l.retired, l.retire = context.WithCancel(l.ctx)
	l.queue = coalesce.New(l.ctx, l.send, l.Start, l.countAbandoned)
	return l
}

// Wait returns when the link's goroutines have ended, after the session has.
func (l *Link) Wait() {
	l.ending.Lock()
	l.ending.Unlock() //nolint:staticcheck // no goroutine is started after this
	l.running.Wait()
}

// Start runs f in a goroutine that Wait waits for, unless the session is over. Its
// context ends with the session.
func (l *Link) Start(f func(context.Context)) (started bool) {
	l.ending.Lock()
	defer l.ending.Unlock()
	if l.ctx.Err() != nil {
		return false
	}
	l.running.Go(func() { f(l.ctx) })
	return true
}

// send makes one request that etcd takes for a write, and compares the header of its answer with the history of the cluster.
func (l *Link) send(ctx context.Context, conditions []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	earliest := l.history.known()
	answer, err := l.client.Txn(ctx).If(conditions...).Then(then...).Else(otherwise...).Commit()
	if err == nil {
		err = l.observe(answer.Header, earliest)
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// Call runs op, a single request to etcd, until it is answered: each attempt
// gets a context with a deadline of its own (3 s at first, up to 12 s), and
// failures that may pass (no answer, no leader, member down, too many requests)
// are tried again after a jittered pause. Without a connection no attempt begins. It returns early with an error that
// wraps ctx's when that ends, with the session's when that ends, and with
// etcd's own answer when that will not change (permission denied, no space).
// An answer that the lease is unknown ends the session; so what is bound to another lease is not for
// Call.
//
// As op may be run several times, it must be repeatable; see [request.Doubtful] for
// what its error says about writes.
func (l *Link) Call(ctx context.Context, op func(context.Context) error) error {
	request.NeedContext(ctx)
	return l.call(ctx, func(limit time.Duration) (timedOut bool, err error) { return request.Attempt(ctx, l.ctx, limit, op) })
}

func (l *Link) call(ctx context.Context, try func(limit time.Duration) (timedOut bool, err error)) error {
	if err := l.session.Err(); err != nil {
		return request.Unsent(err)
	}
	err := request.Repeat(ctx, l.ctx, func(limit time.Duration) (timedOut bool, err error) {
		if err := request.AwaitConnection(ctx, l.ctx, l.client); err != nil {
			return true, request.Unsent(err)
		}
		// The error of the call may have ctx's cause, which may be the loss of another session. So each attempt is
		// judged.
		if timedOut, err = try(limit); request.IsAnswer(err, rpctypes.ErrLeaseNotFound) {
			l.session.Lose(err)
		}
		return timedOut, err
	})
	if ended := l.session.Err(); err != nil && ended != nil {
		return request.Instead(err, ended)
	}
	return request.Explain(l.client, err)
}
