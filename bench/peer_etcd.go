package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

// etcdTTL keeps renewals out of the figures of the workloads that are not about them.
const etcdTTL = 5 * time.Minute

// etcdClient is what all peers on etcd have in common: a client with default settings,
// behind a network of its own if it is to be cut off.
type etcdClient struct {
	*clientv3.Client
	link    *embedtest.Link // nil unless faulty
	session func(ctx context.Context, c *clientv3.Client, ttl time.Duration) (Session, error)
}

// onEtcd is the Connect of peers on etcd.
func onEtcd(session func(context.Context, *clientv3.Client, time.Duration) (Session, error)) func(context.Context, Server, bool) (Client, error) {
	return func(_ context.Context, s Server, faulty bool) (Client, error) {
		cluster := s.(*etcdServer).cluster
		c := etcdClient{session: session}
		var err error
		if faulty {
			c.Client, c.link, err = cluster.NewLink()
		} else {
			c.Client, err = cluster.NewClient()
		}
		if err != nil {
			return nil, fmt.Errorf("connect to etcd: %w", err)
		}
		return c, nil
	}
}

func (c etcdClient) Session(ctx context.Context, ttl time.Duration) (Session, error) {
	if ttl == 0 {
		ttl = etcdTTL
	}
	s, err := c.session(ctx, c.Client, ttl)
	if err != nil {
		return nil, fmt.Errorf("create a session: %w", err)
	}
	return s, nil
}

func (c etcdClient) Blackhole() { c.link.Blackhole() }

func (c etcdClient) Close() {
	_ = c.Client.Close()
	if c.link != nil {
		c.link.Close()
	}
}

// floorPeer takes part in one workload only, which uses etcd's client as it is.
func floorPeer() Peer {
	return Peer{
		Name: "plain watcher", Kind: Floor, Backend: Etcd,
		About: "no lock: a delete by one client, seen by a watch of another",
		Connect: onEtcd(func(context.Context, *clientv3.Client, time.Duration) (Session, error) {
			return nil, errors.New("the floor has no sessions")
		}),
	}
}
