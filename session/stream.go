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
)

const (
	// firstRest follows a stream that was of no use. Later ones are followed by longer rests.
	firstRest = time.Minute

	// roomTimeout bounds the check that a connection has room for other streams.
	roomTimeout = time.Second
)

// errAgain says that a stream has ended that had answered before, as when its token has expired.
var errAgain = errors.New("the stream of renewals has ended")

// renewals is a stream on which the sessions of one client renew their leases. A message on it costs a
// fraction of a call. Only the first attempt at a renewal uses it: it may be silent, and then the next attempts are
// calls, which go to other endpoints. A nil *renewals has no stream.
type renewals struct {
	client   *clientv3.Client
	sessions map[*Session]struct{} // is changed with clients.mu and mu locked

	ctx     context.Context // ends with the last session
	end     context.CancelFunc
	running sync.WaitGroup

	roomy bool          // the connection has room for other streams; only send uses it
	wake  chan struct{} // wakes send

	mu         sync.Mutex
	pending    map[clientv3.LeaseID]pending // asked and not answered
	unsent     []clientv3.LeaseID           // of those
	stream     etcdserverpb.Lease_LeaseKeepAliveClient
	drop       context.CancelFunc // ends the stream
	answered   bool               // by the stream
	rest       time.Duration      // after the next stream that is of no use
	restsUntil time.Time          // no stream is opened before
}

// pending is a renewal that has been asked for.
type pending struct {
	session *Session
	sent    time.Duration // by the session's clock; before it was sent
}

// clients has the renewals of each client that has sessions.
var clients = struct {
	mu sync.Mutex
	of map[*clientv3.Client]*renewals
}{of: map[*clientv3.Client]*renewals{}}

// joinRenewals returns the renewals of c, for a session that calls leave in the end.
func joinRenewals(s *Session) *renewals {
	c := s.client
	if c.ActiveConnection() == nil {
		return nil // a client made by hand
	}
	clients.mu.Lock()
	defer clients.mu.Unlock()
	r := clients.of[c]
	if r == nil {
		r = &renewals{
			client: c, sessions: map[*Session]struct{}{}, wake: make(chan struct{}, 1),
			pending: map[clientv3.LeaseID]pending{}, rest: firstRest,
		}
		r.ctx, r.end = context.WithCancel(context.Background())
		r.running.Go(r.send)
		clients.of[c] = r
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions[s] = struct{}{}
	return r
}

// leave is called when s has ended. The last session ends the stream.
func (r *renewals) leave(s *Session) {
	if r == nil {
		return
	}
	clients.mu.Lock()
	r.mu.Lock()
	delete(r.pending, s.lease)
	delete(r.sessions, s)
	last := len(r.sessions) == 0
	r.mu.Unlock()
	if last {
		delete(clients.of, r.client)
	}
	clients.mu.Unlock()
	if last {
		r.end()
		r.running.Wait()
	}
}

// ask renews the lease of s by the stream, and reports whether it does. The outcome goes to s.outcomes. Leases that
// are nearly due are renewed as well: messages that go out together cost half.
func (r *renewals) ask(s *Session) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p, asked := r.pending[s.lease]; asked {
		return p.sent >= s.lastRenewed()
	}
	if r.stream == nil && time.Now().Before(r.restsUntil) {
		return false
	}
	r.add(s)
	for other := range r.sessions {
		if _, asked := r.pending[other.lease]; !asked && other.untilRenewal() < other.ttl/30 {
			r.add(other)
		}
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return true
}

func (r *renewals) add(s *Session) {
	r.pending[s.lease] = pending{s, s.now()}
	r.unsent = append(r.unsent, s.lease)
}

// overtaken drops the stream if it has not answered the renewal of s, and a later attempt has been answered.
func (r *renewals) overtaken(s *Session) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p, asked := r.pending[s.lease]; asked && r.drop != nil && p.sent < s.lastRenewed() {
		r.drop()
	}
}

// send sends what sessions ask for. It may block without delaying a session's next attempt.
func (r *renewals) send() {
	for {
		select {
		case <-r.wake:
		case <-r.ctx.Done():
			return
		}
		r.mu.Lock()
		stream, unsent := r.stream, r.unsent
		r.unsent = nil
		r.mu.Unlock()
		if stream == nil {
			var err error
			if stream, err = r.open(); err != nil {
				r.ended(err)
				continue
			}
		}
		for _, lease := range unsent {
			if r.isPending(lease) && stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(lease)}) != nil {
				break // receive reports it
			}
		}
	}
}

// isPending reports false for a session that has ended.
func (r *renewals) isPending(lease clientv3.LeaseID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, asked := r.pending[lease]
	return asked
}

// open opens a stream. It may take a connection's last place, so the first time it is
// kept only if there is room for two other streams: one for watches, one for requests.
func (r *renewals) open() (etcdserverpb.Lease_LeaseKeepAliveClient, error) {
	ctx, drop := context.WithCancel(r.ctx)
	stream, err := r.openOne(ctx)
	if err == nil && !r.roomy {
		err = r.checkRoom(ctx, stream, drop)
		r.roomy = err == nil
	}
	if err != nil {
		drop()
		return nil, err
	}
	r.mu.Lock()
	r.stream, r.drop, r.answered = stream, drop, false
	r.mu.Unlock()
	r.running.Go(func() {
		defer drop()
		r.receive(stream)
	})
	return stream, nil
}

func (r *renewals) openOne(ctx context.Context) (etcdserverpb.Lease_LeaseKeepAliveClient, error) {
	return etcdserverpb.NewLeaseClient(r.client.ActiveConnection()).LeaseKeepAlive(ctx, grpc.WaitForReady(true))
}

// checkRoom opens two streams beside the given one, and asks on each, on the last one first: so all
// three have been open at a time. It drops the given stream if that takes long. What it asks needs no permission and
// does nothing.
func (r *renewals) checkRoom(ctx context.Context, stream etcdserverpb.Lease_LeaseKeepAliveClient, drop func()) error {
	late := time.AfterFunc(roomTimeout, drop)
	defer late.Stop()
	ctx, cancel := context.WithCancel(ctx) // ends the other streams
	defer cancel()
	streams := []etcdserverpb.Lease_LeaseKeepAliveClient{stream}
	for range 2 {
		another, err := r.openOne(ctx)
		if err != nil {
			return err
		}
		streams = append(streams, another)
	}
	for _, s := range slices.Backward(streams) {
		if err := s.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(clientv3.NoLease)}); err != nil {
			return err
		}
		if _, err := s.Recv(); err != nil {
			return err
		}
	}
	return nil
}

func (r *renewals) receive(stream etcdserverpb.Lease_LeaseKeepAliveClient) {
	for {
		answer, err := stream.Recv()
		if err != nil {
			r.ended(err)
			return
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
	} else {
		r.restsUntil = time.Now().Add(r.rest)
		r.rest *= 2
	}
	for _, p := range r.pending {
		p.report(p.session.outcome(p.sent, err))
	}
	clear(r.pending)
	r.stream, r.drop, r.answered, r.unsent = nil, nil, false, nil
}

// report gives the outcome to the session. One that is busy looks by itself when it has to try again.
func (p pending) report(r Renewal) {
	select {
	case p.session.outcomes <- r:
	default:
	}
}
