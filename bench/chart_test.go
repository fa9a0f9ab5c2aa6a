package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func wellFormed(t *testing.T, svg string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}

func TestChartsHaveTheirEtcdAndAllOthers(t *testing.T) {
	charts := fixedReport().charts()
	require.Len(t, charts, 2)
	one, three := charts["rates-etcd-1-member.svg"], charts["rates-etcd-3-members.svg"]
	for _, svg := range charts {
		wellFormed(t, svg)
		require.Contains(t, svg, "poller (other)")
		require.Contains(t, svg, "theirs &lt;&amp;&gt;")
	}
	require.Contains(t, one, "Grants (etcd, 1 member)")
	require.Equal(t, 4, strings.Count(one, "<circle"), "a mark for each point that was measured")
	require.Equal(t, 4, strings.Count(three, "<circle"))
	require.Contains(t, three, "keeper (ensemble)")
	require.NotContains(t, one, "keeper", "it is laid out as the other etcd")
	require.NotContains(t, one+three, "NaN")
}

func TestAxes(t *testing.T) {
	linear := axis{low: 0, high: 10, from: 100, to: 0}
	require.InDelta(t, 50, linear.at(5), 1e-9)
	require.Equal(t, []float64{0, 2, 4, 6, 8, 10}, linear.ticks())

	logarithmic := axis{low: 1, high: 100, log: true, from: 0, to: 100}
	require.InDelta(t, 50, logarithmic.at(10), 1e-9)
	require.Equal(t, []float64{1, 2, 5, 10, 20, 50, 100}, logarithmic.ticks())
	require.InDelta(t, 50, axis{low: 8, high: 8, log: true, from: 0, to: 100}.at(8), 1e-9, "a single point is in the middle")
}

func TestWhatALogarithmCannotShowIsLeftOut(t *testing.T) {
	p := plot{title: "zero", logY: true, series: []series{{"a", []point{{2, summary{0, 0, 0, 1}}}}}}
	wellFormed(t, draw(p))
	require.Contains(t, draw(p), "nothing was measured")
	p.series[0].points = append(p.series[0].points, point{8, summary{5, 4, 6, 3}})
	svg := draw(p)
	wellFormed(t, svg)
	require.Equal(t, 1, strings.Count(svg, "<circle"))
	require.NotContains(t, svg, "Inf")
}
