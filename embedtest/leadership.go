package embedtest

import (
	"context"
	"fmt"
)

// Leader returns the member that a majority of all members follows, or nil if
// there is none at the moment. Isolated members neither lead nor follow, whatever
// they still believe.
func (c *Cluster) Leader() *Member {
	followers := map[*Member]int{}
	for _, m := range c.Members() {
		if leader := c.followed(m); leader != nil {
			followers[leader]++
		}
	}
	for leader, n := range followers {
		if n > len(c.Members())/2 {
			return leader
		}
	}
	return nil
}

// followed returns whom m takes for the leader, in that leader's own opinion too.
func (c *Cluster) followed(m *Member) *Member {
	follower := m.Server()
	if follower == nil || m.isIsolated() {
		return nil
	}
	for _, leader := range c.Members() {
		server := leader.Server()
		if server != nil && !leader.isIsolated() && follower.Leader() == server.MemberID() &&
			server.Leader() == server.MemberID() && follower.Term() == server.Term() {
			return leader
		}
	}
	return nil
}

// WaitLeader returns the leader as soon as there is one, or the context's error.
func (c *Cluster) WaitLeader(ctx context.Context) (*Member, error) {
	var leader *Member
	err := c.poll(ctx, func() bool {
		leader = c.Leader()
		return leader != nil
	})
	return leader, err
}

// awaitFollowed waits until every member that runs and is not isolated follows one
// leader: what the others are asked to write before that may be lost.
func (c *Cluster) awaitFollowed(ctx context.Context) error {
	return c.poll(ctx, func() bool {
		leader := c.Leader()
		for _, m := range c.Members() {
			if m.Server() != nil && !m.isIsolated() && c.followed(m) != leader {
				return false
			}
		}
		return leader != nil
	})
}

// MoveLeader makes to the leader and returns when a majority follows it. It does
// nothing if that is the case already. It retries until ctx ends, because etcd
// drops a transfer to a member that lags behind.
func (c *Cluster) MoveLeader(ctx context.Context, to *Member) error {
	target := to.Server()
	if target == nil {
		return fmt.Errorf("embedtest: move leader to %s: %w", to.name, errDown)
	}
	_, election := c.settings.ticks()
	for {
		leader, err := c.WaitLeader(ctx)
		if err != nil {
			return fmt.Errorf("embedtest: move leader to %s: %w", to.name, err)
		}
		if leader == to {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("embedtest: move leader to %s: %w", to.name, context.Cause(ctx))
		}
		select {
		case <-c.closing:
			return errClosed
		default:
		}
		if server := leader.Server(); server != nil {
			attempt, cancel := context.WithTimeout(ctx, 2*election)
			_ = server.MoveLeader(attempt, uint64(server.MemberID()), uint64(target.MemberID()))
			_ = c.poll(attempt, func() bool { return c.Leader() == to })
			cancel()
		}
	}
}
