package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQuantilesInterpolate(t *testing.T) {
	figures := []float64{4, 1, 3, 2}
	require.InDelta(t, 1, quantile(figures, 0), 0)
	require.InDelta(t, 2.5, quantile(figures, 0.5), 1e-9)
	require.InDelta(t, 3.97, quantile(figures, 0.99), 1e-9)
	require.InDelta(t, 4, quantile(figures, 1), 0)
	require.InDelta(t, 7, quantile([]float64{7}, 0.99), 0)
	require.True(t, math.IsNaN(quantile(nil, 0.5)))
	require.Equal(t, []float64{4, 1, 3, 2}, figures, "the figures stay as they were")
}

func TestUnknownFiguresAreLeftOut(t *testing.T) {
	require.Equal(t, summary{2, 1, 3, 3}, summarize([]float64{3, unknown, 1, 2}))
	require.Zero(t, summarize([]float64{unknown}).n)
	require.Equal(t, "—", summarize(nil).String())
}

func TestFiguresHaveThreeDigits(t *testing.T) {
	for want, f := range map[string]float64{
		"0": 0, "1234": 1234.4, "100": 99.99999999999 + 0.5, "12.3": 12.34, "1.23": 1.234, "0.0123": 0.01234, "-0.500": -0.5, "—": math.NaN(),
	} {
		require.Equal(t, want, figure(f))
	}
	require.Equal(t, "2.00 (1.00–3.00)", summary{2, 1, 3, 3}.String())
	require.Equal(t, "2.00", summary{2, 2, 2, 1}.String())
}
