package main

import (
	"math"
	"slices"
)

// summary is what the rounds of one measurement come to.
type summary struct {
	median, min, max float64
	n                int
}

// summarize leaves out figures that are unknown; if all are, so is the summary.
func summarize(figures []float64) summary {
	known := slices.DeleteFunc(slices.Clone(figures), math.IsNaN)
	if len(known) == 0 {
		return summary{unknown, unknown, unknown, 0}
	}
	return summary{quantile(known, 0.5), slices.Min(known), slices.Max(known), len(known)}
}

// quantile interpolates between the two figures next to it.
func quantile(figures []float64, q float64) float64 {
	if len(figures) == 0 {
		return unknown
	}
	sorted := slices.Sorted(slices.Values(figures))
	at := q * float64(len(sorted)-1)
	below, part := math.Modf(at)
	i := int(below)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + part*(sorted[i+1]-sorted[i])
}
