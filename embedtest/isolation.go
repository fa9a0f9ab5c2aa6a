package embedtest

// Isolate cuts the member off from all its peers, in both directions, until Heal. Messages between them are lost;
// connections stay. It has no effect on a cluster of one.
//
// It stays in force when this or another member restarts. It does not reach the clients: the member answers them as
// far as it can without its peers. A leader takes itself for the leader for another election timeout, serializable
// reads are answered for ever, and a watch without a required leader stays silent. A lease renewal that an isolated
// follower forwards to its last known leader still gets through until it has noticed that it has none.
func (m *Member) Isolate() {
	if len(m.cluster.Members()) == 1 {
		return
	}
	m.cluster.topology.Lock()
	defer m.cluster.topology.Unlock()
	m.isolated = true
	m.peers.isolate(true)
	for _, other := range m.cluster.Members() {
		setPair(m, other)
	}
}

// Heal ends the isolation from all peers that are not isolated themselves.
// Nothing is resent; raft catches up by itself. It does nothing if the member is
// not isolated.
func (m *Member) Heal() {
	m.cluster.topology.Lock()
	defer m.cluster.topology.Unlock()
	m.isolated = false
	m.peers.isolate(false)
	for _, other := range m.cluster.Members() {
		setPair(m, other)
	}
}

func (m *Member) isIsolated() bool {
	m.cluster.topology.Lock()
	defer m.cluster.topology.Unlock()
	return m.isolated
}

// setPair makes both ends drop, or no longer drop, what they send to and receive
// from each other: one end alone lets one direction through.
func setPair(a, b *Member) {
	if a == b {
		return
	}
	for _, end := range [][2]*Member{{a, b}, {b, a}} {
		if server := end[0].Server(); server != nil {
			if a.isolated || b.isolated {
				server.CutPeer(end[1].etcdID())
			} else {
				server.MendPeer(end[1].etcdID())
			}
		}
	}
}

// admit makes p the current run of m and cuts what it must not reach. It comes
// before the member hears from its peers, and long before it can start an
// election.
func (c *Cluster) admit(m *Member, p *process) {
	c.topology.Lock()
	defer c.topology.Unlock()
	m.id.Store(uint64(p.server().MemberID()))
	m.process.Store(p)
	for _, other := range c.Members() {
		if other != m && (m.isolated || other.isolated) {
			p.server().CutPeer(other.etcdID())
		}
	}
}

// reachable returns how many members run and are not isolated, without the one that
// is given.
func (c *Cluster) reachable(without *Member) (count int) {
	for _, m := range c.Members() {
		if m != without && m.Server() != nil && !m.isIsolated() {
			count++
		}
	}
	return count
}

// quorumWith reports whether m and the members it can reach are a majority.
func (c *Cluster) quorumWith(m *Member) bool {
	c.topology.Lock()
	defer c.topology.Unlock()
	reached := 0
	for _, other := range c.Members() {
		if other.Server() != nil && (other == m || !m.isolated && !other.isolated) {
			reached++
		}
	}
	return reached > len(c.Members())/2
}
