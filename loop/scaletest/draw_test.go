//go:build linux

package scaletest_test

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"
)

// A panel is one measure over the number of connections.
type panel struct {
	title string
	unit  func(v float64) string
	value func(row) float64
}

var panels = []panel{
	{"memory in all: a line of slope 1 is linear", megabytes, func(r row) float64 { return r.bytes * float64(r.conns) / 1e6 }},
	{"CPU per minute in all", seconds, func(r row) float64 { return r.cpu.Seconds() * float64(r.conns) }},
	{"worst turn", millis, func(r row) float64 { return float64(r.worst) / float64(time.Millisecond) }},
}

func megabytes(v float64) string { return fmt.Sprintf("%.4g MB", v) }
func seconds(v float64) string   { return fmt.Sprintf("%.2g s", v) }
func millis(v float64) string    { return fmt.Sprintf("%.2g ms", v) }

const width, height, margin = 300, 220, 56 // of a panel

// draw makes the picture: all axes are logarithmic, and a dashed line shows what linear growth from
// the first point on would be.
func draw(t *testing.T, name string, rows []row) {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" font-family="sans-serif" font-size="11">`+"\n",
		len(panels)*(width+margin), height+2*margin)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	for i, p := range panels {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", i*(width+margin)+margin/2, margin)
		p.draw(&b, rows)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (p panel) draw(b *strings.Builder, rows []row) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, r := range rows {
		low, high = min(low, p.value(r)), max(high, p.value(r))
	}
	first, last := float64(rows[0].conns), float64(rows[len(rows)-1].conns)
	low, high = low/2, max(high, low*last/first)*2
	x := func(n float64) float64 { return width * math.Log(n/first) / max(math.Log(last/first), 1) }
	y := func(v float64) float64 { return height - height*math.Log(v/low)/math.Log(high/low) }
	fmt.Fprintf(b, `<text x="0" y="-24" font-weight="bold">%s</text>`+"\n", p.title)
	fmt.Fprintf(b, `<path d="M0 0 V%d H%d" fill="none" stroke="#9aa5b1"/>`+"\n", height, width)
	begin := p.value(rows[0])
	fmt.Fprintf(b, `<path d="M0 %.1f L%d %.1f" stroke="#9aa5b1" stroke-dasharray="4 4"/>`+"\n", y(begin), width, max(0, y(begin*last/first)))
	var line strings.Builder
	for i, r := range rows {
		px, py := x(float64(r.conns)), y(p.value(r))
		fmt.Fprintf(&line, "%c%.1f %.1f ", "ML"[min(i, 1)], px, py)
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="#2f6f9f"/>`, px, py)
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, px, py-8, p.unit(p.value(r)))
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n", px, height+16, r.conns)
	}
	fmt.Fprintf(b, `<path d="%s" fill="none" stroke="#2f6f9f" stroke-width="1.5"/>`+"\n", line.String())
}
