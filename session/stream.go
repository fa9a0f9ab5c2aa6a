package session

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/etcdlock/locks/internal/request"
)

const (
	// firstRest follows a stream that was of no use. Later ones are followed by longer rests.
	firstRest = time.Minute

	// answerTimeout bounds the wait for the first answer on a stream, and on two others the first time.
	answerTimeout = time.Second

	// pendingLimit keeps the messages on a stream, of 16 bytes each, so few that gRPC takes each without waiting for the
	// network: it takes 64 KiB.
	pendingLimit = 4000
)

// errAgain says that a stream has ended that had answered before, as when its token has expired.
var errAgain = errors.New("the stream of renewals has ended")

type renewalStream = etcdserverpb.Lease_LeaseKeepAliveClient

// renewals is a stream on which the sessions of one client renew their leases. A message on it costs a
// fraction of a call. Only the first attempt at a renewal uses it: it may be silent, and then the next attempts are
// calls, which go to other endpoints. One goroutine opens the stream and receives from it.
type renewals struct {
	mu       sync.Mutex
	sessions map[*Session]struct{}
	pending  map[clientv3.LeaseID]pending // asked and not answered

	drop     context.CancelFunc // ends the stream; nil if there is no goroutine
	done     chan struct{}      // closed when the goroutine has ended
	stream   renewalStream      // nil until it has answered
	answered bool               // by the stream
	roomy    bool               // the connection has room for other streams

	rest       time.Duration // after the next stream that is of no use
	restsUntil time.Time     // no stream is opened before
}

// pending is a renewal that has been asked for.
type pending struct {
	session *Session
	sent    time.Duration // by the session's clock; before it was sent
}

var renewalsByClient request.ByClient[renewals]

// joinRenewals returns the renewals of the client of s, which calls leave in the end.
func joinRenewals(s *Session) *renewals {
	r := renewalsByClient.Of(s.client)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions == nil {
		r.sessions, r.pending, r.rest = make(map[*Session]struct{}), make(map[clientv3.LeaseID]pending), firstRest
	}
	r.sessions[s] = struct{}{}
	return r
}

// leave is called when s has ended. The last session ends the stream.
func (r *renewals) leave(s *Session) {
	r.mu.Lock()
	delete(r.pending, s.lease)
	delete(r.sessions, s)
	drop, done := r.drop, r.done
	last := len(r.sessions) == 0
	r.mu.Unlock()
	if last && drop != nil {
		drop()
		<-done
	}
}

// ask renews the lease of s by the stream, and reports whether it does. The outcome goes to s.outcomes. Leases that
// are nearly due are renewed as well: messages that go out together cost half.
func (r *renewals) ask(s *Session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, asked := r.pending[s.lease]
	switch {
	case asked:
		return p.sent >= s.lastRenewed()
	case s.client.ActiveConnection() == nil, // a client made by hand
		r.drop == nil && time.Now().Before(r.restsUntil),
		len(r.pending) >= pendingLimit:
		return false
	}
	if r.drop == nil {
		var ctx context.Context
		ctx, r.drop = context.WithCancel(context.Background())
		r.done = make(chan struct{})
		go r.run(ctx, s.client, r.done)
	}
	r.renew(s)
	for other := range r.sessions {
		if _, asked := r.pending[other.lease]; !asked && other.untilRenewal() < other.ttl/30 && len(r.pending) < pendingLimit {
			r.renew(other)
		}
	}
	return true
}

// renew sends a renewal, as soon as the stream is open. The caller has locked mu.
func (r *renewals) renew(s *Session) {
	r.pending[s.lease] = pending{s, s.now()}
	if r.stream != nil {
		r.send(s.lease)
	}
}

func (r *renewals) send(lease clientv3.LeaseID) {
	_ = r.stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(lease)}) // receive reports why it fails
}

// overtaken drops the stream if it has not answered the renewal of s, and a later attempt has been answered.
func (r *renewals) overtaken(s *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p, asked := r.pending[s.lease]; asked && r.stream != nil && p.sent < s.lastRenewed() {
		r.drop()
	}
}

// run opens a stream, sends what has been asked for meanwhile, and receives until the stream or ctx ends.
func (r *renewals) run(ctx context.Context, c *clientv3.Client, done chan struct{}) {
	defer close(done)
	stream, err := r.open(ctx, c)
	if err == nil {
		r.mu.Lock()
		r.stream = stream
		for lease := range r.pending {
			r.send(lease)
		}
		r.mu.Unlock()
		err = r.receive(stream)
	}
	r.ended(err)
}

// open opens a stream that has answered. Until then gRPC may open it anew by itself, as when a server that is being
// stopped has refused it. That waits for a connection, and so would a message. A stream that does not answer soon is
// dropped. What is asked needs no permission and does nothing.
//
// A stream may take a connection's last place, so the first time it is kept only if there is room for two other streams:
// one for watches, one for requests. They are asked first, so all three have been open at a time.
func (r *renewals) open(ctx context.Context, c *clientv3.Client) (renewalStream, error) {
	stream, err := openStream(ctx, c)
	if err != nil {
		return nil, err
	}
	late := time.AfterFunc(answerTimeout, r.drop)
	defer late.Stop()
	ctx, cancel := context.WithCancel(ctx) // ends the other streams
	defer cancel()
	streams := []renewalStream{stream}
	for !r.roomy && len(streams) < 3 {
		another, err := openStream(ctx, c)
		if err != nil {
			return nil, err
		}
		streams = append(streams, another)
	}
	for _, s := range slices.Backward(streams) {
		if err := s.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(clientv3.NoLease)}); err != nil {
			return nil, err
		}
		if _, err := s.Recv(); err != nil {
			return nil, err
		}
	}
	r.roomy = true
	return stream, nil
}

func openStream(ctx context.Context, c *clientv3.Client) (renewalStream, error) {
	return etcdserverpb.NewLeaseClient(c.ActiveConnection()).LeaseKeepAlive(ctx, grpc.WaitForReady(true))
}

func (r *renewals) receive(stream renewalStream) error {
	for {
		answer, err := stream.Recv()
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.answered, r.rest = true, firstRest
		p, asked := r.pending[clientv3.LeaseID(answer.ID)]
		delete(r.pending, clientv3.LeaseID(answer.ID))
		r.mu.Unlock()
		if asked {
			p.report(p.session.settle(p.sent, answer.Header, answer.TTL, nil))
		}
	}
}

// ended is called when there is no stream any more.
func (r *renewals) ended(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered {
		err = errAgain
	} else if len(r.sessions) > 0 {
		r.restsUntil = time.Now().Add(r.rest)
		r.rest *= 2
	}
	for _, p := range r.pending {
		p.report(p.session.outcome(p.sent, err))
	}
	clear(r.pending)
	r.drop()
	r.stream, r.drop, r.answered = nil, nil, false
}

// report gives the outcome to the session. One that is busy looks by itself when it has to try again.
func (p pending) report(r Renewal) {
	select {
	case p.session.outcomes <- r:
	default:
	}
}
