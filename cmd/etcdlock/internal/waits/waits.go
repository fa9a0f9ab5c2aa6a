// Package waits tells which holders and waiters of locks wait for each other, and finds deadlocks.
//
// A waiter depends on what is ahead of it and blocks it. A holder depends on the waits that it has begun under its hold, as
// its tickets tell. A circle of such dependencies is a deadlock: none of them ends unless one gives up. If a ticket does
// not tell under which holds it is asked for, it may be under any of its session's. Such dependencies are not certain,
// and neither are those of a ticket in several queues, of which any will do.
package waits

import (
	"cmp"
	"slices"

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
	shared = "shared"
	permit = "permit"
)

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

// Cycle is a circle of dependencies: each node waits for the next one, and the last one for the first.
type Cycle struct {
	Nodes   []Node
	Certain bool
}

// Cycles returns the circles, one for each set of nodes that wait for each other, first those that are certain. A set
// with a certain circle is not looked through for others.
func (g *Graph) Cycles() []Cycle {
	var all []Cycle
	inCertain := make(map[int]bool)
	for _, certain := range []bool{true, false} {
		for _, component := range g.components(certain) {
			if slices.ContainsFunc(component, func(i int) bool { return inCertain[i] }) {
				continue
			}
			c := Cycle{Certain: certain}
			for _, i := range g.shortest(component, certain) {
				if n := g.nodes[i]; n.Place.Key != "" {
					c.Nodes = append(c.Nodes, n)
				}
			}
			for _, i := range component {
				inCertain[i] = inCertain[i] || certain
			}
			all = append(all, c)
		}
	}
	return all
}

// Has reports whether g has the same circle, with the same holders and waiters.
func (g *Graph) Has(c Cycle) bool {
	edges := make(map[[2]id]bool, len(g.nodes))
	for _, e := range g.Edges() {
		pair := [2]id{e.From.id(), e.To.id()}
		edges[pair] = edges[pair] || e.Certain || !c.Certain
	}
	for i, n := range c.Nodes {
		if !edges[[2]id{n.id(), c.Nodes[(i+1)%len(c.Nodes)].id()}] {
			return false
		}
	}
	return true
}

// shortest returns a circle with as few nodes as possible through the first holder of a component.
func (g *Graph) shortest(component []int, certain bool) []int {
	start := slices.MinFunc(component, func(a, b int) int { return cmp.Compare(g.rank(a), g.rank(b)) })
	inside := make(map[int]bool, len(component))
	for _, i := range component {
		inside[i] = true
	}
	before := make(map[int]int)
	for queue := []int{start}; ; queue = queue[1:] {
		from := queue[0]
		for _, e := range g.edges[from] {
			if certain && !e.certain || !inside[e.to] {
				continue
			}
			if e.to == start {
				circle := []int{from}
				for from != start {
					from = before[from]
					circle = append(circle, from)
				}
				slices.Reverse(circle)
				return circle
			}
			if _, seen := before[e.to]; !seen {
				before[e.to] = from
				queue = append(queue, e.to)
			}
		}
	}
}

// rank puts holders first, in the order in which they came, and what stands for a session last.
func (g *Graph) rank(i int) int64 {
	const later = 1 << 62
	switch p := g.nodes[i].Place; {
	case p.Key == "":
		return 2*later - 1
	case p.Holding:
		return int64(p.Token)
	default:
		return later + int64(p.Token)
	}
}

// components returns the sets of two nodes or more that wait for each other, by Tarjan's algorithm.
func (g *Graph) components(certain bool) (all [][]int) {
	t := &tarjan{graph: g, certain: certain, index: make([]int, len(g.nodes)), low: make([]int, len(g.nodes)), open: make([]bool, len(g.nodes))}
	for i := range g.nodes {
		if t.index[i] == 0 {
			t.visit(i)
		}
	}
	return t.found
}

type tarjan struct {
	graph   *Graph
	certain bool // only such edges

	count int
	index []int // in the order of visits, from 1; 0: not visited
	low   []int // the lowest index that can be reached, of those that are open
	open  []bool
	stack []int // of those that are open

	found [][]int
}

func (t *tarjan) visit(i int) {
	t.count++
	t.index[i], t.low[i], t.open[i] = t.count, t.count, true
	t.stack = append(t.stack, i)
	for _, e := range t.graph.edges[i] {
		switch {
		case t.certain && !e.certain:
		case t.index[e.to] == 0:
			t.visit(e.to)
			t.low[i] = min(t.low[i], t.low[e.to])
		case t.open[e.to]: // otherwise no circle goes through it
			t.low[i] = min(t.low[i], t.index[e.to])
		}
	}
	if t.low[i] < t.index[i] {
		return
	}
	start := len(t.stack)
	for t.open[i] {
		start--
		t.open[t.stack[start]] = false
	}
	component := slices.Clone(t.stack[start:])
	t.stack = t.stack[:start]
	if len(component) > 1 {
		t.found = append(t.found, component)
	}
}
