package main

import "time"

// fixedServer is a server that is only a name.
type fixedServer struct {
	name    string
	backend Backend
	layout  layout
}

func (s fixedServer) Name() string     { return s.name }
func (s fixedServer) Backend() Backend { return s.backend }
func (s fixedServer) Layout() layout   { return s.layout }
func (fixedServer) Close() error       { return nil }

// fixedReport has figures that do not depend on anything.
func fixedReport() report {
	one, three := fixedServer{"etcd, 1 member", Etcd, layout{members: 1}}, fixedServer{"etcd, 3 members", Etcd, layout{members: 3}}
	ensemble := fixedServer{"ensemble", ZooKeeper, layout{members: 3}}
	other := fixedServer{"other", Redis, layout{}}
	ours, theirs, poller := Peer{Name: reference, Backend: Etcd}, Peer{Name: "theirs <&>", Backend: Etcd}, Peer{Name: "poller", Backend: Redis}
	keeper := Peer{Name: "keeper", Backend: ZooKeeper}
	w := workload{
		name: "rates", about: "About rates.", param: "contenders", params: []int{2, 8},
		metrics: []metric{{name: "grants/s", higher: true}, {name: "p99, ms"}},
		chart:   &chartOf{title: "Grants", metric: 0, logY: true},
	}
	single := workload{name: "single", about: "About one.", metrics: []metric{{name: "took, s"}}}
	return report{
		about: [][2]string{{"system", "a fixed one"}},
		took:  90 * time.Second,
		peers: []Peer{ours, theirs, poller, keeper},
		absent: []absence{
			{"zookeeper", "not installed"},
		},
		rows: []*row{
			{workload: w, param: 2, target: target{ours, one}, rounds: [][]float64{{100, 1}, {300, 2}, {200, 3}}},
			{workload: w, param: 2, target: target{theirs, one}, rounds: [][]float64{{50, unknown}}},
			{workload: w, param: 2, target: target{ours, three}, rounds: [][]float64{{20, 1}}},
			{workload: w, param: 2, target: target{theirs, three}, rounds: [][]float64{{10, 1}}},
			{workload: w, param: 2, target: target{poller, other}, rounds: [][]float64{{800, 1}}},
			{workload: w, param: 2, target: target{keeper, ensemble}, rounds: [][]float64{{30, 1}}},
			{workload: w, param: 8, target: target{ours, one}, rounds: [][]float64{{400, 1}}},
			{workload: w, param: 8, target: target{theirs, one}, trouble: "not finished in 1m0s"},
			{workload: single, target: target{ours, one}, rounds: [][]float64{{0.5}}, trouble: "lock: lost"},
		},
	}
}
