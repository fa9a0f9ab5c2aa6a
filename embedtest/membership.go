package embedtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

const (
	undoTimeout        = 2 * time.Second
	reconfigureTimeout = 300 * time.Millisecond
)

var (
	errRemoved  = errors.New("member is removed")
	errNoQuorum = errors.New("the members that run and are not isolated would be no quorum")
	errAlone    = errors.New("a cluster that is started with one member can have no other")
)

// AddMember adds a member to the cluster, starts it, and returns when it serves. It
// needs a quorum and a cluster that was started with two members at least. Clients
// do not know the new member until they are given its endpoint or ask for the
// members ([clientv3.Client.Sync]). Links to it have no fault at first.
//
// It fails if the members that run and are not isolated would be no quorum until the new one is there. etcd's own
// check of that is off, because it refuses every change in a cluster's first seconds. After an error the cluster is
// as before, unless it has no quorum.
func (c *Cluster) AddMember(ctx context.Context) (*Member, error) {
	c.reconfiguring.Lock()
	defer c.reconfiguring.Unlock()
	m, err := c.addMember(ctx)
	if err != nil {
		return nil, fmt.Errorf("embedtest: add a member: %w", err)
	}
	return m, nil
}

func (c *Cluster) addMember(ctx context.Context) (*Member, error) {
	if c.settings.size == 1 {
		return nil, errAlone
	}
	if size := len(c.Members()) + 1; c.reachable(nil) <= size/2 {
		return nil, errNoQuorum
	}
	var err error
	m := c.newMember(fmt.Sprintf("m%d", c.nextName))
	c.nextName++
	if m.peers, err = listenForPeers(anyPort); err != nil {
		return nil, err
	}
	peer, err := url.Parse(m.peers.url())
	if err != nil {
		return nil, err
	}
	now := time.Now()
	entry := membership.NewMember(m.name, []url.URL{*peer}, c.token(), &now)
	m.joins = true
	c.setMembers(append(c.Members(), m))
	if err := c.admitMember(ctx, m, entry); err != nil {
		c.undoAdd(m, entry.ID)
		return nil, err
	}
	return m, c.recordPeerAddresses()
}

// admitMember adds the member to the lists of all others before it starts, because it reads the list of
// any of them.
func (c *Cluster) admitMember(ctx context.Context, m *Member, entry *membership.Member) error {
	err := c.reconfigure(ctx, func(ctx context.Context, s *etcdserver.EtcdServer) error {
		_, err := s.AddMember(ctx, *entry)
		if errors.Is(err, membership.ErrIDExists) {
			return nil // an earlier attempt's
		}
		return err
	})
	if err != nil {
		return err
	}
	err = c.awaitEachReachable(ctx, func(s *etcdserver.EtcdServer) bool { return s.IsMemberExist(entry.ID) })
	if err != nil {
		return err
	}
	if err := m.launch(); err != nil {
		return err
	}
	if err := m.awaitServing(ctx); err != nil {
		return err
	}
	return c.poll(ctx, func() bool {
		server := m.Server()
		return server == nil || server.ClusterVersion() != nil
	})
}

// undoAdd has a context of its own, because the caller's may have ended.
func (c *Cluster) undoAdd(m *Member, id types.ID) {
	ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
	defer cancel()
	_ = c.dismiss(ctx, id)
	c.forget(m)
}

// Remove removes the member from the cluster and ends it. Its data are gone, and it
// never comes back: Restart fails. Nothing listens at its addresses any more. It
// may be down. If it leads, it hands the leadership over first. Remove needs a
// quorum and returns when the others, those that run and are not isolated, know of
// it and follow one leader. It fails if the others that run and are not isolated would be
// no quorum, or if there are no others.
func (m *Member) Remove(ctx context.Context) error {
	c := m.cluster
	c.reconfiguring.Lock()
	defer c.reconfiguring.Unlock()
	if err := c.removeMember(ctx, m); err != nil {
		return fmt.Errorf("embedtest: remove %s: %w", m.name, err)
	}
	return nil
}

func (c *Cluster) removeMember(ctx context.Context, m *Member) error {
	switch members := c.Members(); {
	case !slices.Contains(members, m):
		return errRemoved
	case len(members) == 1:
		return errors.New("it is the last member")
	case c.reachable(m) <= (len(members)-1)/2:
		return errNoQuorum
	}
	m.handOver()
	if err := c.dismiss(ctx, m.etcdID()); err != nil {
		return err
	}
	c.forget(m)
	if err := c.awaitFollowed(ctx); err != nil {
		return err
	}
	return c.recordPeerAddresses()
}

// dismiss returns when all know that the member is gone. Only then may it end: a
// leader that has not told the others leaves them without a quorum.
func (c *Cluster) dismiss(ctx context.Context, id types.ID) error {
	err := c.reconfigure(ctx, func(ctx context.Context, s *etcdserver.EtcdServer) error {
		_, err := s.RemoveMember(ctx, uint64(id))
		if errors.Is(err, membership.ErrIDRemoved) || errors.Is(err, membership.ErrIDNotFound) {
			return nil // an earlier attempt's
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.awaitEachReachable(ctx, func(s *etcdserver.EtcdServer) bool {
		return s.MemberID() == id || !s.IsMemberExist(id)
	})
}

// reconfigure asks the leader for a change until it is made or refused. etcd drops a
// change without a word while another one, or a new leader's first entry, is not
// applied.
func (c *Cluster) reconfigure(ctx context.Context, change func(context.Context, *etcdserver.EtcdServer) error) error {
	for {
		server, err := c.leaderServer(ctx)
		if err != nil {
			return err
		}
		attempt, cancel := context.WithTimeout(server.AuthStore().WithRoot(ctx), reconfigureTimeout)
		err = change(attempt, server)
		expired := attempt.Err() != nil
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !expired:
			return err
		}
	}
}

// forget ends the member for good and removes what it has left.
func (c *Cluster) forget(m *Member) {
	m.lifecycle.Lock()
	m.removed = true
	if p := m.process.Load(); p != nil {
		m.end(p)
	}
	m.lifecycle.Unlock()
	m.peers.close()
	_ = os.RemoveAll(c.memberDir(m))
	c.setMembers(slices.DeleteFunc(c.Members(), func(other *Member) bool { return other == m }))
}

func (c *Cluster) newMember(name string) *Member {
	return &Member{cluster: c, name: name, endpoint: endpointScheme + filepath.Join(c.tempDir, name+".sock")}
}

func (c *Cluster) setMembers(members []*Member) {
	c.membersMu.Lock()
	defer c.membersMu.Unlock()
	c.members = members
}

// leaderServer waits for a leader.
func (c *Cluster) leaderServer(ctx context.Context) (*etcdserver.EtcdServer, error) {
	leader, err := c.WaitLeader(ctx)
	if err != nil {
		return nil, err
	}
	if server := leader.Server(); server != nil {
		return server, nil
	}
	return nil, fmt.Errorf("%s: %w", leader.name, errDown)
}

// awaitEachReachable waits until done of every member that runs and is not isolated.
func (c *Cluster) awaitEachReachable(ctx context.Context, done func(*etcdserver.EtcdServer) bool) error {
	return c.poll(ctx, func() bool {
		for _, m := range c.Members() {
			if server := m.Server(); server != nil && !m.isIsolated() && !done(server) {
				return false
			}
		}
		return true
	})
}
