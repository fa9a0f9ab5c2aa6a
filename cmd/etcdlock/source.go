package main

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// source is a client with a session.
type source struct {
	*clientv3.Client
	keeper *session.Keeper
	above  []surrounding
}

// connect returns a source whose session ends early enough before its lease for a command to be killed.
func (p *protection) connect(ctx context.Context, c *connection) (*source, error) {
	above, err := readSurrounding()
	if err != nil {
		return nil, err
	}
	client, err := c.client()
	if err != nil {
		return nil, orCause(ctx, err)
	}
	s := &source{
		Client: client, above: above,
		keeper: session.Keep(client, session.WithTTL(p.ttl.Duration), session.WithMargin(p.grace.Duration+spare)),
	}
	limited, cancel := c.limited(ctx)
	defer cancel()
	if _, err := s.keeper.Session(limited); err != nil {
		s.close(0)
		return nil, orCause(ctx, err)
	}
	return s, nil
}

// lease returns that of the current session, or 0.
func (s *source) lease(ctx context.Context) clientv3.LeaseID {
	current, err := s.keeper.Session(ctx)
	if err != nil {
		return 0
	}
	return current.Lease()
}

// close gives the lease back. If that fails, it ends by itself.
func (s *source) close(limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_ = s.keeper.Close(ctx)
	closeClient(s.Client)
}
