package waits

import (
	"cmp"
	"slices"
)

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
