package main

import (
	"fmt"
	"os"
	"strings"
)

// Ours is in another colour.
const ours, theirs = "#2f6f9f", "#9aa5b1"

// plot draws the CPU time per message: for each cell one group of bars, with a whisker from the
// least to the greatest. Each cell has its own scale, as they differ by a hundred times.
func plot(name string, rows []summary) error {
	const column, line, head, label, width = 330, 18, 26, 80, 160
	groups := group(rows)
	high := 0
	for _, g := range groups {
		high = max(high, head+line*len(g)+14)
	}
	const columns = 3
	lines := (len(groups) + columns - 1) / columns
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" font-family="sans-serif" font-size="11">`+"\n",
		column*min(columns, len(groups)), high*lines+24)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	b.WriteString(`<text x="8" y="16" font-size="13" font-weight="bold">Server CPU seconds per million messages</text>` + "\n")
	for i, g := range groups {
		x, y := column*(i%columns), 24+high*(i/columns)
		most := 0.0
		for _, r := range g {
			most = max(most, r.cpu.most)
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" font-weight="bold">%s</text>`+"\n", x+8, y+16, g[0].cell)
		for k, r := range g {
			top, scale := y+head+line*k, width/most
			fill := theirs
			if strings.HasPrefix(r.peer, "loopwheel") {
				fill = ours
			}
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, x+label-6, top+11, r.peer)
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="13" fill="%s"/>`, x+label, top, scale*r.cpu.median, fill)
			fmt.Fprintf(&b, `<path d="M%.1f %d H%.1f" stroke="black"/>`, float64(x+label)+scale*r.cpu.least, top+6, float64(x+label)+scale*r.cpu.most)
			fmt.Fprintf(&b, `<text x="%.1f" y="%d">%.2f</text>`+"\n", float64(x+label)+scale*r.cpu.most+5, top+11, r.cpu.median)
		}
	}
	b.WriteString("</svg>\n")
	return os.WriteFile(name, []byte(b.String()), 0o644)
}

// group divides rows by their cells.
func group(rows []summary) (groups [][]summary) {
	for i, r := range rows {
		if i == 0 || rows[i-1].cell != r.cell {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], r)
	}
	return groups
}
