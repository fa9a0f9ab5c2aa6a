package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// plot is a chart of lines over a logarithmic x axis.
type plot struct {
	title, xLabel, yLabel string
	logY                  bool
	series                []series
}

type series struct {
	name   string
	points []point
}

// point is a median over x, with the range of the rounds.
type point struct {
	x float64
	y summary
}

// The layout, in pixels.
const (
	width, height        = 820, 440
	left, right          = 70, 250 // the legend is to the right
	top, bottom          = 40, 50
	innerWidth           = width - left - right
	innerHeight          = height - top - bottom
	legendLine           = 20
	markRadius, whiskers = 3.5, 4
)

// palette is Okabe and Ito's, for people with any colour vision.
var palette = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a7f00"}

// axis maps values to pixels.
type axis struct {
	low, high float64
	log       bool
	from, to  float64 // pixels
}

func (a axis) at(v float64) float64 {
	low, high := a.low, a.high
	if a.log {
		v, low, high = math.Log(v), math.Log(low), math.Log(high)
	}
	if high == low {
		return (a.from + a.to) / 2
	}
	return a.from + (v-low)/(high-low)*(a.to-a.from)
}

// ticks are the powers of ten within a logarithmic axis, with 2 and 5 times them if that
// is not too many, or five steps of a linear one.
func (a axis) ticks() []float64 {
	var all []float64
	if !a.log {
		for i := range 6 {
			all = append(all, a.low+(a.high-a.low)*float64(i)/5)
		}
		return all
	}
	steps := []float64{1, 2, 5}
	if a.high/a.low > 2000 {
		steps = steps[:1]
	}
	for ten := math.Floor(math.Log10(a.low)); ten <= math.Ceil(math.Log10(a.high)); ten++ {
		for _, step := range steps {
			if v := step * math.Pow(10, ten); v >= a.low*0.999 && v <= a.high*1.001 {
				all = append(all, v)
			}
		}
	}
	return all
}

// axes fit what is there. Figures that a logarithmic axis cannot show are left out.
func (p plot) axes() (x, y axis, ok bool) {
	x = axis{math.Inf(1), math.Inf(-1), true, left, left + innerWidth}
	y = axis{math.Inf(1), math.Inf(-1), p.logY, top + innerHeight, top}
	for _, s := range p.series {
		for _, pt := range s.points {
			if !p.shows(pt) {
				continue
			}
			x.low, x.high = min(x.low, pt.x), max(x.high, pt.x)
			y.low, y.high = min(y.low, pt.y.min), max(y.high, pt.y.max)
			ok = true
		}
	}
	if p.logY {
		y.low, y.high = y.low/1.2, y.high*1.2
	} else {
		y.low, y.high = 0, y.high*1.05
	}
	return x, y, ok
}

func (p plot) shows(pt point) bool { return pt.x > 0 && (!p.logY || pt.y.min > 0) }

// draw returns the chart as SVG.
func draw(p plot) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n",
		width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	text(&b, left, 22, "start", p.title)
	x, y, ok := p.axes()
	if !ok {
		text(&b, left, top+40, "start", "nothing was measured")
		return b.String() + "</svg>\n"
	}
	for _, v := range y.ticks() {
		at := y.at(v)
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/>`+"\n", left, at, left+innerWidth)
		text(&b, left-8, at+4, "end", tick(v))
	}
	seen := make(map[float64]bool)
	for _, s := range p.series {
		for _, pt := range s.points { // the numbers that were measured are the ticks
			if !seen[pt.x] && p.shows(pt) {
				seen[pt.x] = true
				text(&b, x.at(pt.x), top+innerHeight+18, "middle", tick(pt.x))
			}
		}
	}
	fmt.Fprintf(&b, `<path d="M%d %dV%dH%d" fill="none" stroke="#333"/>`+"\n", left, top, top+innerHeight, left+innerWidth)
	text(&b, left+innerWidth/2, height-12, "middle", p.xLabel)
	text(&b, 8, top-8, "start", p.yLabel)
	for i, s := range p.series {
		p.line(&b, s, i, x, y)
	}
	return b.String() + "</svg>\n"
}

func (p plot) line(b *strings.Builder, s series, i int, x, y axis) {
	// Where the colours are used up, dashes distinguish the lines.
	style := fmt.Sprintf(`stroke="%s"`, palette[i%len(palette)])
	if i >= len(palette) {
		style += ` stroke-dasharray="5 3"`
	}
	path := ""
	for _, pt := range s.points {
		if !p.shows(pt) {
			continue
		}
		command := "L"
		if path == "" {
			command = "M"
		}
		px, py := x.at(pt.x), y.at(pt.y.median)
		path += fmt.Sprintf("%s%.1f %.1f", command, px, py)
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="%v" fill="%s"/>`+"\n", px, py, markRadius, palette[i%len(palette)])
		low, high := y.at(pt.y.min), y.at(pt.y.max)
		fmt.Fprintf(b, `<path d="M%.1f %.1fh%dm%d 0V%.1fm%d 0h%d" fill="none" %s/>`+"\n",
			px-whiskers, low, 2*whiskers, -whiskers, high, -whiskers, 2*whiskers, style)
	}
	if path != "" {
		fmt.Fprintf(b, `<path d="%s" fill="none" stroke-width="2" %s/>`+"\n", path, style)
	}
	at := top + 10 + i*legendLine
	fmt.Fprintf(b, `<path d="M%d %dh20" stroke-width="2" %s/>`+"\n", left+innerWidth+16, at, style)
	text(b, left+innerWidth+42, float64(at+4), "start", s.name)
}

func tick(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) }

func text(b *strings.Builder, x, y float64, anchor, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s">`, x, y, anchor)
	_ = xml.EscapeText(b, []byte(s)) // a Builder does not fail
	b.WriteString("</text>\n")
}
