//go:build linux

package main

import (
	"bytes"
	"fmt"
	"math"
	"slices"
)

// The chart has a panel for each cost. Each has the numbers of connections on a logarithmic axis,
// and a line for each server.
const (
	panelWidth, panelHeight = 250, 190
	left, top               = 62, 62
	chartWidth, chartHeight = 3*(panelWidth+left) + 40, top + panelHeight + 60
)

const chartHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" font-family="sans-serif" font-size="12">
<title>What a connection costs, by the number of connections</title>
<style>
.bg{fill:#ffffff}text{fill:#1f2933}.m{fill:#52606d}.b{font-weight:bold}.g{stroke:#d5dce3}
.l{fill:none;stroke-width:2}.s0{stroke:#1f6fb2}.s1{stroke:#2f855a}.s2{stroke:#c05621}.s3{stroke:#7b4fa3}.s4{stroke:#9a7d0a}
.f0{fill:#1f6fb2}.f1{fill:#2f855a}.f2{fill:#c05621}.f3{fill:#7b4fa3}.f4{fill:#9a7d0a}
@media (prefers-color-scheme: dark){
.bg{fill:#0d1117}text{fill:#e6edf3}.m{fill:#9da9b5}.g{stroke:#2d3743}
.s0{stroke:#6cb6ff}.s1{stroke:#56b374}.s2{stroke:#f0883e}.s3{stroke:#c297ec}.s4{stroke:#e3c04b}
.f0{fill:#6cb6ff}.f1{fill:#56b374}.f2{fill:#f0883e}.f3{fill:#c297ec}.f4{fill:#e3c04b}}
</style>
<rect class="bg" width="100%%" height="100%%"/>
`

// A panel is one of the costs.
type panel struct {
	column
	log bool // of the vertical axis, which begins at 1
}

var panels = []panel{{user, false}, {beat, false}, {late, true}}

// chart draws the median of each line, and a stroke from the least to the greatest.
func chart(all []line) []byte {
	var names []string
	for _, l := range all {
		if !slices.Contains(names, l.Server) {
			names = append(names, l.Server)
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, chartHead, chartWidth, chartHeight)
	for i, name := range names {
		x := left + 150*i
		fmt.Fprintf(&b, `<circle class="f%d" cx="%d" cy="16" r="5"/><text x="%d" y="20">%s</text>`+"\n", i, x, x+10, name)
	}
	for i, p := range panels {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", left+i*(panelWidth+left), top)
		p.draw(&b, all, names)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func (p *panel) draw(b *bytes.Buffer, all []line, names []string) {
	fewest, most, high := math.Inf(1), 0.0, 0.0
	for _, l := range all {
		fewest, most = min(fewest, float64(l.Conns)), max(most, float64(l.Conns))
		high = max(high, l.spreads[p.name].Most)
	}
	x := func(conns int) float64 {
		return panelWidth * math.Log(float64(conns)/fewest) / max(math.Log(most/fewest), 1)
	}
	title := p.name
	if p.log {
		title += ", logarithmic"
	}
	fmt.Fprintf(b, `<text class="b" x="0" y="-14">%s</text>`+"\n", title)
	unit := step(high)
	y := func(v float64) float64 { return panelHeight * (1 - v/(unit*math.Ceil(high/unit))) }
	next := func(v float64) float64 { return v + unit }
	v := 0.0
	if p.log {
		y = func(v float64) float64 {
			return panelHeight * (1 - math.Log10(max(v, 1))/math.Ceil(math.Log10(max(high, 10))))
		}
		next, v = func(v float64) float64 { return v * 10 }, 1
	}
	for ; y(v) > -0.5; v = next(v) {
		fmt.Fprintf(b, `<path class="g" d="M0 %.1fH%d"/><text class="m" x="-6" y="%.1f" text-anchor="end">%g</text>`+"\n", y(v), panelWidth, y(v)+4, v)
	}
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		if float64(n) >= fewest && float64(n) <= most {
			fmt.Fprintf(b, `<path class="g" d="M%.1f 0V%d"/><text class="m" x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
				x(n), panelHeight, x(n), panelHeight+18, thousands(n))
		}
	}
	fmt.Fprintf(b, `<text class="m" x="%d" y="%d" text-anchor="middle">connections</text>`+"\n", panelWidth/2, panelHeight+38)
	for i, name := range names {
		path, to := "", "M"
		for _, l := range all {
			if l.Server == name {
				at, of := x(l.Conns), l.spreads[p.name]
				path += fmt.Sprintf("%s%.1f %.1f", to, at, y(of.Median))
				fmt.Fprintf(b, `<circle class="f%d" cx="%.1f" cy="%.1f" r="3.5"/><path class="l s%[1]d" d="M%.1[2]f %.1fV%.1f"/>`+"\n", i, at, y(of.Median), y(of.Least), y(of.Most))
				to = "L"
			}
		}
		fmt.Fprintf(b, `<path class="l s%d" d="%s"/>`+"\n", i, path)
	}
}

// step is the distance of the lines of a linear axis: 1, 2 or 5 with zeros, at most six of them.
func step(high float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(max(high, 1e-9)))-1)
	for _, s := range []float64{1, 2, 5, 10, 20} {
		if high/(unit*s) <= 6 {
			return unit * s
		}
	}
	return unit * 50
}
