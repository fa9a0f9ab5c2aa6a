package main

import (
	"context"
	"slices"
)

// metric is one figure that a workload has for each target.
type metric struct {
	name   string // with its unit
	higher bool   // is better
	plain  bool   // neither is
}

// workload is something to measure.
type workload struct {
	name    string
	about   string
	param   string   // what the number means
	params  []int    // none: it has no number
	kinds   []Kind   // of peers that take part
	metrics []metric // the first is the one that ratios are of
	idle    bool     // it mostly waits, so all targets may do so at once
	chart   *chartOf // nil: none

	// measure returns a figure for each metric.
	measure func(ctx context.Context, c *cell) ([]float64, error)
}

// chartOf says what to draw of a workload, over its number.
type chartOf struct {
	title  string
	metric int
	logY   bool
}

// workloads are all there are, with the numbers of the options.
func workloads(o options) []workload {
	return []workload{
		pairWorkload(),
		hotWorkload(o.contenders),
		localWorkload(),
		tryWorkload(),
		namesWorkload(o.names),
		herdWorkload(o.herd),
		readMostlyWorkload(),
		releaseWorkload(),
		crashWorkload(),
		memoryWorkload(),
	}
}

func (w workload) takes(p Peer) bool { return slices.Contains(w.kinds, p.Kind) }
