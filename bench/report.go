package main

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// report is what a run comes to.
type report struct {
	about   [][2]string
	took    time.Duration
	peers   []Peer
	absent  []absence
	rows    []*row
	stopped bool // before everything was measured
}

// write fills dir with the report, its charts, and the figures of every round.
func (r report) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make a directory for the report: %w", err)
	}
	files := r.charts()
	text, err := r.samples()
	if err != nil {
		return err
	}
	files["samples.csv"] = text
	files["report.md"] = r.markdown()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	return nil
}

func (r report) markdown() string {
	var b strings.Builder
	b.WriteString("# Locks compared\n\n")
	if r.stopped {
		b.WriteString("**This run was stopped before its end.**\n\n")
	}
	b.WriteString("Medians, with the smallest and the largest round in brackets. × is the figure to its left divided by that of " +
		reference + " on the same etcd; for peers on ZooKeeper, on the etcd that is set up alike; for those on other servers, on the first etcd that is listed: " +
		"how often as fast where more is better (↑), how often as slow where less is (↓). " +
		"For an RWMutex and an Election, too, the reference is the Mutex.\n\n")
	b.WriteString("Servers differ in what they promise: with \"fsync\" an answered request survives a crash of the machine; the others lose it.\n\n")
	b.WriteString("| | |\n|---|---|\n")
	for _, a := range r.about {
		fmt.Fprintf(&b, "| %s | %s |\n", a[0], a[1])
	}
	fmt.Fprintf(&b, "| the run took | %v |\n\n", r.took.Round(time.Second))

	b.WriteString("| peer | settings |\n|---|---|\n")
	for _, p := range r.peers {
		fmt.Fprintf(&b, "| %s | %s |\n", p.Name, p.About)
	}
	b.WriteString("\n")
	for _, a := range r.absent {
		fmt.Fprintf(&b, "Absent: %s: %s\n\n", a.Server, strings.ReplaceAll(a.Reason, "\n", " "))
	}

	for i := 0; i < len(r.rows); {
		end := i
		for end < len(r.rows) && r.rows[end].workload.name == r.rows[i].workload.name {
			end++
		}
		section(&b, r.rows[i:end])
		i = end
	}
	return b.String()
}

// section writes the table of one workload.
func section(b *strings.Builder, rows []*row) {
	w := rows[0].workload
	fmt.Fprintf(b, "## %s\n\n%s\n\n", w.name, w.about)
	if w.chart != nil {
		for _, server := range chartServers(rows) {
			fmt.Fprintf(b, "![%s, %s](%s)\n\n", w.chart.title, server, chartName(w, server))
		}
	}
	if w.params != nil {
		fmt.Fprintf(b, "| %s ", w.param)
	}
	b.WriteString("| peer | server ")
	for i, m := range w.metrics {
		fmt.Fprintf(b, "| %s%s ", m.name, m.arrow())
		if i == 0 {
			b.WriteString("| × ")
		}
	}
	b.WriteString("|\n" + strings.Repeat("|---", len(w.metrics)+3))
	if w.params != nil {
		b.WriteString("|---")
	}
	b.WriteString("|\n")
	for _, row := range rows {
		if w.params != nil {
			fmt.Fprintf(b, "| %d ", row.param)
		}
		fmt.Fprintf(b, "| %s | %s ", row.target.peer.Name, row.target.server.Name())
		if len(row.rounds) == 0 {
			fmt.Fprintf(b, "| %s ", strings.ReplaceAll(row.trouble, "\n", " "))
			b.WriteString(strings.Repeat("| ", len(w.metrics)) + "|\n")
			continue
		}
		for i, s := range row.summaries() {
			fmt.Fprintf(b, "| %s ", s)
			if i == 0 {
				fmt.Fprintf(b, "| %s ", ratio(row, rows))
			}
		}
		b.WriteString("|")
		if row.trouble != "" {
			fmt.Fprintf(b, " after %d rounds: %s |", len(row.rounds), strings.ReplaceAll(row.trouble, "\n", " "))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

func (m metric) arrow() string {
	switch {
	case m.plain:
		return ""
	case m.higher:
		return " ↑"
	}
	return " ↓"
}

// ratio compares the first metric with the reference's, on an etcd that is laid out as the
// row's server if there is one.
func ratio(of *row, rows []*row) string {
	var base *row
	for _, r := range rows {
		if r.target.peer.Name != reference || r.param != of.param {
			continue
		}
		if base == nil || r.target.server.Layout() == of.target.server.Layout() {
			base = r
		}
	}
	if base == nil {
		return ""
	}
	x := of.summaries()[0].median / base.summaries()[0].median
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return ""
	}
	return figure(x)
}

func (s summary) String() string {
	switch s.n {
	case 0:
		return "—"
	case 1:
		return figure(s.median)
	}
	return fmt.Sprintf("%s (%s–%s)", figure(s.median), figure(s.min), figure(s.max))
}

// figure has three significant digits, which is more than such measurements are good for.
func figure(f float64) string {
	switch {
	case math.IsNaN(f):
		return "—"
	case math.Abs(f) >= 100:
		return strconv.FormatFloat(f, 'f', 0, 64)
	case f == 0:
		return "0"
	}
	return strconv.FormatFloat(f, 'f', max(0, 2-int(math.Floor(math.Log10(math.Abs(f))))), 64)
}

// samples returns every figure of every round, for further evaluation.
func (r report) samples() (string, error) {
	var b strings.Builder
	w := csv.NewWriter(&b)
	_ = w.Write([]string{"workload", "number", "peer", "server", "round", "metric", "figure"})
	for _, row := range r.rows {
		for round, figures := range row.rounds {
			for i, f := range figures {
				_ = w.Write([]string{
					row.workload.name, number(row.param), row.target.peer.Name, row.target.server.Name(),
					fmt.Sprint(round + 1), row.workload.metrics[i].name, fmt.Sprint(f),
				})
			}
		}
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return "", fmt.Errorf("write the samples: %w", err)
	}
	return b.String(), nil
}
