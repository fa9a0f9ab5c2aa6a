// Package waits tells which holders and waiters of locks wait for each other, and finds deadlocks.
//
// A waiter depends on what is ahead of it and blocks it. A holder depends on the waits that it has begun under its hold, as
// its tickets tell. A circle of such dependencies is a deadlock: none of them ends unless one gives up. If a ticket does
// not tell under which holds it is asked for, it may be under any of its session's. Such dependencies are not certain,
// and neither are those of a ticket in several queues, of which any will do.
package waits

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/internal/within"
)

// Node is a holder or a waiter.
type Node struct {
	Name  string // of its lock
	Place etcdlock.Place
}

// id tells a ticket from a later one with its key.
type id struct {
	key   string
	token etcdlock.Token
}

func (n Node) id() id { return id{n.Place.Key, n.Place.Token} }

// Edge leads from what waits to what it waits for.
type Edge struct {
	From, To Node
	Certain  bool
}

// Graph has all holders and waiters.
type Graph struct {
	nodes []Node
	byID  map[id]int
	edges [][]edge // from each node
}

type edge struct {
	to      int
	certain bool
}

// New returns the graph of all queues, as they were at one moment.
func New(queues []etcdlock.Queue) *Graph {
	g := &Graph{byID: make(map[id]int)}
	for _, q := range queues {
		for _, p := range q.Places {
			n := Node{q.Name, p}
			g.byID[n.id()] = len(g.nodes)
			g.nodes = append(g.nodes, n)
		}
	}
	g.edges = make([][]edge, len(g.nodes))
	first := 0
	for _, q := range queues {
		for i, p := range q.Places {
			if !p.Holding {
				g.behind(q, first, i)
			}
		}
		first += len(q.Places)
	}
	g.under()
	return g
}

func (g *Graph) add(from, to int, certain bool) {
	g.edges[from] = append(g.edges[from], edge{to, certain})
}

// behind adds what the waiter at i waits for in its queue, whose first place is the node first.
func (g *Graph) behind(q etcdlock.Queue, first, i int) {
	p := q.Places[i]
	certain := !p.Owner.Choice
	for ahead := i - 1; ahead >= 0; ahead-- {
		other := q.Places[ahead]
		switch {
		case p.Owner.Mark == MarkUpgrade: // it is ahead of those that wait
			if other.Kind == shared && other.Holding {
				g.add(first+i, first+ahead, certain)
			}
		case p.Kind == shared && other.Kind == upgradeable:
		case p.Kind == upgradeable && other.Kind == shared:
		case other.Kind == upgradeable, other.Owner.Mark == MarkUpgrade:
			g.add(first+i, first+ahead, certain) // which does not wait for all that is ahead of it
		case p.Kind == permit && other.Kind == permit && other.Holding:
			// It is in the way for sure if there is no room for both.
			g.add(first+i, first+ahead, certain && p.Weight+other.Weight > q.Size)
		case p.Kind == shared && other.Kind == shared:
		case other.Kind == shared:
			g.add(first+i, first+ahead, certain) // and those next to it
		default:
			g.add(first+i, first+ahead, certain) // the others ahead block this one
			return
		}
	}
}

const (
	shared      = "shared"
	upgradeable = "upgradeable"
	permit      = "permit"
)

// MarkUpgrade is the mark of a place that an upgradeable hold has in line until it is upgraded.
const MarkUpgrade = "upgrade"

// under adds the waits of the holders.
func (g *Graph) under() {
	g.together()
	holds := make(map[clientv3.LeaseID][]int) // of each session
	for i, n := range g.nodes {
		if n.Place.Holding {
			holds[n.Place.Lease] = append(holds[n.Place.Lease], i)
		}
	}
	waits := make(map[clientv3.LeaseID][]int) // of each session, that tell of no hold
	for i, n := range g.nodes {
		if n.Place.Holding {
			continue
		}
		told := false
		for key, revision := range within.Parse(n.Place.Owner.Within) {
			told = true
			if hold, ok := g.byID[id{key, etcdlock.Token(revision)}]; ok && hold != i {
				g.add(hold, i, true)
			}
		}
		if !told && n.Place.Lease != clientv3.NoLease {
			waits[n.Place.Lease] = append(waits[n.Place.Lease], i)
		}
	}
	for lease, all := range waits {
		if len(holds[lease]) == 0 {
			continue
		}
		// A node that stands for the session: otherwise there would be an edge from each hold to each wait.
		session := len(g.nodes)
		g.nodes = append(g.nodes, Node{})
		g.edges = append(g.edges, nil)
		for _, hold := range holds[lease] {
			g.add(hold, session, false)
		}
		for _, wait := range all {
			g.add(session, wait, false)
		}
	}
}

// together adds that the first in one queue may wait in another one, as part of the same ticket. Tickets that were joined
// in one request look the same.
func (g *Graph) together() {
	type request struct {
		lease clientv3.LeaseID
		token etcdlock.Token
	}
	waits := make(map[request][]int)
	for i, n := range g.nodes {
		if !n.Place.Holding && n.Place.Lease != clientv3.NoLease {
			r := request{n.Place.Lease, n.Place.Token}
			waits[r] = append(waits[r], i)
		}
	}
	for i, n := range g.nodes {
		if n.Place.Holding {
			for _, wait := range waits[request{n.Place.Lease, n.Place.Token}] {
				g.add(i, wait, false)
			}
		}
	}
}

// Edges returns what waits for what. A dependency that is not certain leads from a hold to every wait of its session that
// tells of no hold.
func (g *Graph) Edges() []Edge {
	var all []Edge
	for from, n := range g.nodes {
		if n.Place.Key == "" {
			continue
		}
		for _, e := range g.edges[from] {
			if to := g.nodes[e.to]; to.Place.Key != "" {
				all = append(all, Edge{n, to, e.certain})
				continue
			}
			for _, wait := range g.edges[e.to] {
				all = append(all, Edge{n, g.nodes[wait.to], false})
			}
		}
	}
	return all
}
