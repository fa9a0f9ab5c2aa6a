package main

import (
	"slices"
	"strings"
)

// charts draws, for each workload with a chart and each etcd, that etcd's peers together
// with those on other servers, but for those laid out as another etcd, by file name. Without
// a row on etcd there is one chart.
func (r report) charts() map[string]string {
	files := make(map[string]string)
	byWorkload := make(map[string][]*row)
	for _, row := range r.rows {
		if row.workload.chart != nil {
			byWorkload[row.workload.name] = append(byWorkload[row.workload.name], row)
		}
	}
	for _, rows := range byWorkload {
		for _, server := range chartServers(rows) {
			files[chartName(rows[0].workload, server)] = draw(chartData(rows, server))
		}
	}
	return files
}

// chartServers returns the names of the servers that have a chart each.
func chartServers(rows []*row) []string {
	var names []string
	for _, row := range rows {
		name := row.target.server.Name()
		if row.target.server.Backend() == Etcd && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return []string{"no etcd"}
	}
	return names
}

func chartName(w workload, server string) string {
	return strings.NewReplacer(" ", "-", ",", "").Replace(w.name+" "+server) + ".svg"
}

func chartData(rows []*row, etcd string) plot {
	w := rows[0].workload
	p := plot{title: w.chart.title + " (" + etcd + ")", xLabel: w.param, yLabel: w.metrics[w.chart.metric].name, logY: w.chart.logY}
	at := make(map[string]int)
	for _, row := range rows {
		if elsewhere(rows, row.target.server, etcd) {
			continue
		}
		name := row.target.peer.Name
		if row.target.server.Backend() != Etcd {
			name += " (" + row.target.server.Name() + ")"
		}
		s := row.summaries()[w.chart.metric]
		if s.n == 0 {
			continue
		}
		i, known := at[name]
		if !known {
			i = len(p.series)
			at[name] = i
			p.series = append(p.series, series{name: name})
		}
		p.series[i].points = append(p.series[i].points, point{float64(row.param), s})
	}
	return p
}

// elsewhere says whether a server belongs into the chart of another etcd than the one of
// that name: it is that other one, or laid out as it is.
func elsewhere(rows []*row, server Server, etcd string) bool {
	return slices.ContainsFunc(rows, func(r *row) bool {
		other := r.target.server
		return other.Backend() == Etcd && other.Name() != etcd && other.Layout() == server.Layout()
	})
}
