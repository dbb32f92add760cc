package main

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// plot draws a table as horizontal bars on a logarithmic scale: the bar ends at the median, the
// whisker goes from the least to the greatest value. Ours are in another colour.
func (t *table) plot(dir string) error {
	const left, width, line, top = 130, 420, 24, 40
	lo, hi := math.Inf(1), 0.0
	for _, row := range t.rows {
		_, least, most := row.spread()
		lo, hi = min(lo, max(least, 1e-6)), max(hi, most)
	}
	lo = math.Pow(10, math.Floor(math.Log10(lo)-0.3))
	x := func(v float64) float64 {
		return left + width*math.Log(max(v, lo)/lo)/math.Log(max(hi, lo*10)/lo)
	}
	var b strings.Builder
	height := top + line*len(t.rows) + 10
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" font-family="sans-serif" font-size="12">`+"\n", left+width+90, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	fmt.Fprintf(&b, `<text x="10" y="18" font-size="14" font-weight="bold">%s [%s], logarithmic</text>`+"\n", html.EscapeString(t.name), t.unit)
	for i, row := range t.rows {
		median, least, most := row.spread()
		y := top + line*i
		fill := "#9aa5b1"
		if strings.HasPrefix(row.contender, "timing.") {
			fill = "#2f6f9f"
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-8, y+13, html.EscapeString(row.contender))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="16" fill="%s"/>`+"\n", left, y, x(median)-left, fill)
		fmt.Fprintf(&b, `<path d="M%.1f %d H%.1f" stroke="black"/>`+"\n", x(least), y+8, x(most))
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`+"\n", max(x(median), x(most))+6, y+13, short(median))
	}
	b.WriteString("</svg>\n")
	return os.WriteFile(filepath.Join(dir, t.file()), []byte(b.String()), 0o644)
}

// file is the name of the table's plot.
func (t *table) file() string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '-'
	}, t.name)
	return "timers-" + strings.ReplaceAll(strings.ReplaceAll(name, "--", "-"), "--", "-") + ".svg"
}
