package metricscheck

import (
	"context"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

var drawTo = flag.String("draw", "", "the `file` to draw the dashboard to")

// step is between points of the picture, and between scrapes.
const step = time.Second

// Three processes share a lock and an election for 100 s. One is cut off at 30 s, and comes back at 50 s.
// At 70 s a process holds the lock for 10 s.
func TestDashboardIsDrawn(t *testing.T) {
	if *drawTo == "" {
		t.Skip("only with -draw")
	}
	need(t, "prometheus")
	cluster, f := embedtest.Start(t, embedtest.WithSize(3), embedtest.WithFsync()), newFleet()
	ttl := session.WithTTL(6 * time.Second)
	a, b, c := f.add(t, cluster, "shop", byPrometheus, ttl), f.add(t, cluster, "shop", byPrometheus, ttl), f.add(t, cluster, "shop", byOTel, ttl)
	f.export(t, tool(t), cluster, "exporter", "--name", "orders", "--name", "leader")
	f.serve(t, "etcd", promhttp.Handler())
	p := newServer(t, step, f.targets, "")
	began := time.Now()
	at := func(seconds int) { time.Sleep(time.Until(began.Add(time.Duration(seconds) * time.Second))) }
	inBackground(t, func(ctx context.Context) { a.stand(ctx, "a") }) // it leads first
	at(2)
	for _, i := range []*instance{a, b, c} {
		inBackground(t,
			func(ctx context.Context) { i.work(ctx, "orders", 20*time.Millisecond) },
			func(ctx context.Context) { i.work(ctx, "orders", 5*time.Millisecond) },
			func(ctx context.Context) { i.try(ctx, "orders", 200*time.Millisecond) },
			func(ctx context.Context) { i.work(ctx, "customer", 300*time.Millisecond) })
	}
	for _, i := range []*instance{b, c} {
		inBackground(t, func(ctx context.Context) { i.stand(ctx, "standby") })
	}
	at(30)
	a.link.Blackhole()
	at(50)
	a.link.Heal()
	at(70)
	h, err := b.mutex("orders").Lock(within(t))
	require.NoError(t, err)
	at(80)
	require.NoError(t, h.Unlock(within(t)))
	at(100)
	picture := drawDashboard(t, p, began)
	wellFormed(t, picture)
	require.NoError(t, os.WriteFile(*drawTo, []byte(picture), 0o600))
	require.NoError(t, os.Chmod(*drawTo, 0o644)) //nolint:gosec // it is a document
}

// The layout, in pixels. It is that of the dashboard.
const (
	panelWidth, panelHeight = 400, 230
	marginLeft, marginRight = 52, 12
	marginTop, marginBottom = 30, 62 // with the legend
	plotWidth               = panelWidth - marginLeft - marginRight
	plotHeight              = panelHeight - marginTop - marginBottom
	perRow                  = 3
	legendLines             = 2
)

// palette is Okabe and Ito's, for people with any colour vision; the bench has the same.
var palette = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a7f00"}

// curve is a series of a panel. Each point is seconds since the start, and a value.
type curve struct {
	name   string
	points [][2]float64
}

func drawDashboard(t *testing.T, p *server, began time.Time) string {
	t.Helper()
	d := readDashboard(t)
	end := time.Now()
	rows := (len(d.Panels) + perRow - 1) / perRow
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="11">`+"\n",
		perRow*panelWidth, rows*panelHeight)
	fmt.Fprintf(&out, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", perRow*panelWidth, rows*panelHeight)
	for i, panel := range d.Panels {
		var curves []curve
		for _, target := range panel.Targets {
			curves = append(curves, curvesOf(t, p, target.Expr, target.LegendFormat, began, end)...)
		}
		require.NotEmpty(t, curves, panel.Title)
		fmt.Fprintf(&out, `<g transform="translate(%d %d)">`+"\n", i%perRow*panelWidth, i/perRow*panelHeight)
		drawPanel(&out, panel.Title, panel.FieldConfig.Defaults.Unit, curves, end.Sub(began).Seconds())
		out.WriteString("</g>\n")
	}
	return out.String() + "</svg>\n"
}

func curvesOf(t *testing.T, p *server, expr, legend string, began, end time.Time) (all []curve) {
	t.Helper()
	seconds := func(at time.Time) string { return strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64) }
	found := p.api(t, "/api/v1/query_range", url.Values{
		"query": {expression(expr, 8*step)}, "start": {seconds(began)}, "end": {seconds(end)}, "step": {step.String()},
	})
	addresses := regexp.MustCompile(`127\.0\.0\.1:\d+`)
	for _, s := range found {
		c := curve{name: legendLabel.ReplaceAllStringFunc(legend, func(label string) string {
			return s.Metric[strings.Trim(label, "{}")]
		})}
		c.name = strings.TrimSpace(addresses.ReplaceAllString(c.name, "")) // ports say nothing
		for _, v := range s.Values {
			at, _ := v[0].(float64)
			text, _ := v[1].(string)
			value, err := strconv.ParseFloat(text, 64)
			if err == nil && !math.IsNaN(value) && !math.IsInf(value, 0) {
				c.points = append(c.points, [2]float64{at - float64(began.UnixMilli())/1000, value})
			}
		}
		all = append(all, c)
	}
	slices.SortStableFunc(all, func(a, b curve) int { return strings.Compare(a.name, b.name) })
	n := 0
	for i := range all {
		if all[i].name == "" {
			n++
			all[i].name = fmt.Sprint("instance ", n)
		}
	}
	return all
}

func drawPanel(out *strings.Builder, title, unit string, curves []curve, seconds float64) {
	top := 0.0
	for _, c := range curves {
		for _, pt := range c.points {
			top = max(top, pt[1])
		}
	}
	top = roundUp(top)
	x := func(v float64) float64 { return marginLeft + v/seconds*plotWidth }
	y := func(v float64) float64 { return marginTop + plotHeight*(1-v/top) }
	text(out, marginLeft, 18, "start", title)
	for i := range 5 {
		v := top * float64(i) / 4
		fmt.Fprintf(out, `<path d="M%d %.1fh%d" stroke="#ddd"/>`+"\n", marginLeft, y(v), plotWidth)
		text(out, marginLeft-6, y(v)+4, "end", figure(v, unit))
	}
	for s := 0.0; s <= seconds; s += 20 {
		text(out, x(s), marginTop+plotHeight+15, "middle", fmt.Sprint(s))
	}
	legend, line := marginLeft, 0
	for i, c := range curves {
		colour := palette[i%len(palette)]
		var path strings.Builder
		before := math.Inf(-1)
		for _, pt := range c.points {
			command := "L"
			if pt[0]-before > 2.5*step.Seconds() { // nothing was there
				command = "M"
			}
			before = pt[0]
			fmt.Fprintf(&path, "%s%.1f %.1f", command, x(pt[0]), y(pt[1]))
		}
		if path.Len() > 0 {
			fmt.Fprintf(out, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", path.String(), colour)
		}
		width := 26 + 6*len(c.name)
		if legend+width > panelWidth-marginRight && legend > marginLeft {
			legend, line = marginLeft, line+1
		}
		if line >= legendLines {
			continue
		}
		at := float64(marginTop + plotHeight + 32 + 14*line)
		fmt.Fprintf(out, `<path d="M%d %.1fh12" stroke="%s" stroke-width="2"/>`+"\n", legend, at-4, colour)
		text(out, float64(legend+16), at, "start", c.name)
		legend += width
	}
}

// roundUp returns the next of 1, 2, 4 and 10 times a power of ten.
func roundUp(v float64) float64 {
	if v <= 0 {
		return 1
	}
	ten := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 2, 4} {
		if v <= step*ten {
			return step * ten
		}
	}
	return 10 * ten
}

func figure(v float64, unit string) string {
	switch {
	case unit == "s" && v > 0 && v < 1:
		return strconv.FormatFloat(v*1000, 'g', 4, 64) + " ms"
	case unit == "s":
		return strconv.FormatFloat(v, 'g', 4, 64) + " s"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

func text(out *strings.Builder, x, y float64, anchor, s string) {
	fmt.Fprintf(out, `<text x="%.1f" y="%.1f" text-anchor="%s">`, x, y, anchor)
	_ = xml.EscapeText(out, []byte(s)) // a Builder does not fail
	out.WriteString("</text>\n")
}

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

func TestPanelsAreDrawn(t *testing.T) {
	var out strings.Builder
	drawPanel(&out, "a <title>", "s", []curve{
		{"gap & all", [][2]float64{{0, 0.1}, {1, 0.2}, {9, 0.3}}}, {"empty", nil}, {strings.Repeat("long ", 40), nil},
	}, 10)
	svg := "<svg>" + out.String() + "</svg>"
	wellFormed(t, svg)
	require.Contains(t, svg, "400 ms")
	require.Contains(t, svg, "a &lt;title&gt;")
	require.Regexp(t, `<path d="M[^L]*L[^M]*M[^L"]*" fill="none" stroke="#0072b2"`, svg, "nothing is drawn where nothing was")
	require.NotContains(t, svg, "NaN")
	require.Equal(t, []float64{1, 1, 2, 4, 10, 40, 0.02}, []float64{roundUp(0), roundUp(0.7), roundUp(1.5), roundUp(3), roundUp(5), roundUp(21), roundUp(0.015)})
}
