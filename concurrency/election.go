package concurrency

import (
	"context"
	"errors"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// These are the variables of etcd's package, and are returned unwrapped.
var (
	// ErrElectionNotLeader is returned by Proclaim if the caller does not lead (any more).
	ErrElectionNotLeader = concurrency.ErrElectionNotLeader
	// ErrElectionNoLeader is returned by Leader during a vacancy.
	ErrElectionNoLeader = concurrency.ErrElectionNoLeader
)

// Election is the election of a prefix. It is safe for concurrent use.
type Election struct {
	session  *Session
	election *etcdlock.Election

	mu     sync.Mutex
	term   *etcdlock.Term // nil: not the leader
	failed bool           // a Resign was not confirmed
	value  string
	header *etcdserverpb.ResponseHeader
}

// NewElection returns the election of a prefix. No request is made.
func NewElection(s *Session, pfx string) *Election {
	return &Election{session: s, election: etcdlock.NewElection(s.session, pfx, etcdlock.AtPrefix())}
}

// Campaign waits in line until it leads, or ctx ends: one round trip if there is no other candidate. A leader that
// campaigns again proclaims val. If the session ends, the error is [ErrSessionExpired].
func (e *Election) Campaign(ctx context.Context, val string) error {
	if term, value := e.leading(); term != nil && term.Err() == nil {
		if value == val {
			return nil
		}
		return e.Proclaim(ctx, val)
	}
	term, err := e.election.Campaign(ctx, val)
	if err != nil {
		return translate(ctx, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term, e.failed, e.value = term, false, val
	e.header = &etcdserverpb.ResponseHeader{Revision: int64(term.Token())}
	return nil
}

func (e *Election) leading() (*etcdlock.Term, string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.term, e.value
}

// Proclaim replaces the leader's value: one round trip. Without a term the error is [ErrElectionNotLeader].
func (e *Election) Proclaim(ctx context.Context, val string) error {
	term, _ := e.leading()
	if term == nil {
		return ErrElectionNotLeader
	}
	err := term.Proclaim(ctx, val)
	if err != nil && term.Err() != nil {
		return ErrElectionNotLeader
	}
	if err == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.value = val
	}
	return translate(ctx, err)
}

// Resign ends the term: one round trip. Without a term, or after a loss, it returns nil. If ctx ends before etcd answers,
// the error is ctx's, the release goes on in the background, and Resign may be called again for a confirmation.
func (e *Election) Resign(ctx context.Context) error {
	e.mu.Lock()
	term, again := e.term, e.failed
	e.mu.Unlock()
	if term == nil {
		return nil
	}
	err := release(ctx, e.session.Client(), term.Hold, again)
	if over(err) {
		err = nil // as with etcd's package, which does not look
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failed = err != nil; !e.failed && e.term == term {
		e.term = nil
	}
	return translate(ctx, err)
}

// Leader returns the leader's key with its value: two reads. During a vacancy the error is [ErrElectionNoLeader].
func (e *Election) Leader(ctx context.Context) (*clientv3.GetResponse, error) {
	for {
		leader, err := e.election.Leader(ctx)
		switch {
		case errors.Is(err, etcdlock.ErrNoLeader):
			return nil, ErrElectionNoLeader
		case err != nil:
			return nil, translate(ctx, err)
		}
		answer, err := e.read(ctx, leader)
		if err != nil {
			return nil, translate(ctx, err)
		}
		if len(answer.Kvs) > 0 && answer.Kvs[0].CreateRevision == int64(leader.Token) {
			return answer, nil
		}
	}
}

// read returns what is stored at the leader's key.
func (e *Election) read(ctx context.Context, leader etcdlock.Leader) (answer *clientv3.GetResponse, err error) {
	err = session.Retry(ctx, func(ctx context.Context) (err error) {
		answer, err = e.session.Client().Get(ctx, leader.Key)
		return err
	})
	return answer, err
}

// Observe reports the present leader and then every change of leader or value, in order, until ctx ends. Then the channel
// is closed, as it is if etcd refuses the read. Vacancies are left out. It makes one read for each change. The header has
// the revision of that read. A leader that has changed again by then is reported with its value, key and create revision
// only: Version and ModRevision are 0.
func (e *Election) Observe(ctx context.Context) <-chan *clientv3.GetResponse {
	leaders := make(chan *clientv3.GetResponse)
	go func() {
		defer close(leaders)
		for leader, err := range e.election.Observe(ctx) {
			if err != nil {
				return
			}
			if leader.Vacant() {
				continue
			}
			read, err := e.read(ctx, leader)
			if err != nil {
				return
			}
			select {
			case leaders <- responseOf(leader, read):
			case <-ctx.Done():
				return
			}
		}
	}()
	return leaders
}

// responseOf is what was read later, or the leader as it was before if that has changed.
func responseOf(leader etcdlock.Leader, read *clientv3.GetResponse) *clientv3.GetResponse {
	token := int64(leader.Token)
	if len(read.Kvs) > 0 && read.Kvs[0].CreateRevision == token && string(read.Kvs[0].Value) == leader.Value {
		return read
	}
	return &clientv3.GetResponse{
		Header: read.Header,
		Kvs: []*mvccpb.KeyValue{{
			Key: []byte(leader.Key), Value: []byte(leader.Value), CreateRevision: token,
		}},
		Count: 1,
	}
}

// Key returns the leader's key, or an empty string if the caller does not lead.
func (e *Election) Key() string {
	if term, _ := e.leading(); term != nil {
		return term.Key()
	}
	return ""
}

// Rev returns the create revision of the leader's key, its fencing token, or 0 if the caller does not lead.
func (e *Election) Rev() int64 {
	if term, _ := e.leading(); term != nil {
		return int64(term.Token())
	}
	return 0
}

// Header returns a header with the revision of the term's key, or nil before the first term.
func (e *Election) Header() *etcdserverpb.ResponseHeader {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.header
}
