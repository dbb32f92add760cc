//go:build linux

package measure

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Spread is a median, with the least and the greatest.
type Spread struct{ Median, Least, Most float64 }

// SpreadOf needs at least one value.
func SpreadOf(values []float64) Spread {
	v := slices.Sorted(slices.Values(values))
	return Spread{v[len(v)/2], v[0], v[len(v)-1]}
}

// String is the median with three digits, and the others after it if they differ.
func (s Spread) String() string {
	if digits(s.Least) == digits(s.Most) {
		return digits(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", digits(s.Median), digits(s.Least), digits(s.Most))
}

// digits rounds to three of them.
func digits(v float64) string {
	for decimals, least := 0, 100.0; decimals < 3; decimals, least = decimals+1, least/10 {
		if v >= least || v <= -least {
			return strconv.FormatFloat(v, 'f', decimals, 64)
		}
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// Quantile sorts values, and returns the one that a part q of them does not exceed; the zero value
// if there are none.
func Quantile[T cmp.Ordered](values []T, q float64) (v T) {
	if len(values) == 0 {
		return v
	}
	slices.Sort(values)
	return values[int(q*float64(len(values)-1))]
}

// Results are measures of contenders, in the order in which they came. Base, if it is one of them,
// is what the first is compared with, round by round.
type Results struct {
	Base                 string
	measures, contenders []string
	values               map[[2]string][]float64
}

// Add adds what one round gave.
func (r *Results) Add(measure, contender string, v float64) {
	if r.values == nil {
		r.values = make(map[[2]string][]float64)
	}
	if !slices.Contains(r.measures, measure) {
		r.measures = append(r.measures, measure)
	}
	if !slices.Contains(r.contenders, contender) {
		r.contenders = append(r.contenders, contender)
	}
	at := [2]string{measure, contender}
	r.values[at] = append(r.values[at], v)
}

// Show prints a table with its name. With a directory of documents it also brings the table to date
// that stands there between the comments <!-- name --> and <!-- end of name -->, which has no ratio.
// That table chooses the lines and columns, by their names; where there is none yet, it gets all.
func (r *Results) Show(name, docs string) error {
	fmt.Printf("\n%s\n\n", name)
	r.table(r.Base).print(os.Stdout)
	if docs == "" {
		return nil
	}
	return r.table("").replace(name, docs)
}

// table has a line for each measure and a column for each contender, and one for the ratio to base.
func (r *Results) table(base string) (t table) {
	t = table{append([]string{""}, r.contenders...)}
	compares := slices.Contains(r.contenders, base) && base != r.contenders[0]
	if compares {
		t[0] = append(t[0], r.contenders[0]+" / "+base)
	}
	for _, m := range r.measures {
		line := []string{m}
		for _, c := range r.contenders {
			cell := ""
			if v := r.values[[2]string{m, c}]; len(v) > 0 {
				cell = SpreadOf(v).String()
			}
			line = append(line, cell)
		}
		if compares {
			line = append(line, r.ratio(m))
		}
		t = append(t, line)
	}
	return t
}

func (r *Results) ratio(measure string) string {
	first, base := r.values[[2]string{measure, r.contenders[0]}], r.values[[2]string{measure, r.Base}]
	if len(first) == 0 || len(first) != len(base) {
		return ""
	}
	ratios := make([]float64, len(first))
	for i := range ratios {
		ratios[i] = first[i] / base[i]
	}
	return fmt.Sprintf("%.2f", SpreadOf(ratios).Median)
}

// A table is printed as Markdown that is readable as it is. Its first line is the head.
type table [][]string

func (t table) print(w io.Writer) {
	widths := make([]int, len(t[0]))
	for _, line := range t {
		for i, s := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(s))
		}
	}
	for n, line := range t {
		for i, s := range line {
			fmt.Fprintf(w, "| %s%s ", s, strings.Repeat(" ", widths[i]-utf8.RuneCountInString(s)))
		}
		fmt.Fprintln(w, "|")
		if n == 0 {
			for _, width := range widths {
				fmt.Fprint(w, "|", strings.Repeat("-", width+2))
			}
			fmt.Fprintln(w, "|")
		}
	}
}

func (t table) replace(name, docs string) error {
	pages, err := filepath.Glob(filepath.Join(docs, "*.md"))
	if err != nil {
		return err
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->"
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		before, rest, found := strings.Cut(string(text), begin)
		_, after, closed := strings.Cut(rest, end)
		if found && closed {
			old, _, _ := strings.Cut(rest, end)
			chosen, err := t.like(parse(old))
			if err != nil {
				return fmt.Errorf("%s, table %q: %w", page, name, err)
			}
			var b strings.Builder
			chosen.print(&b)
			return os.WriteFile(page, []byte(before+begin+"\n"+b.String()+"\n"+end+after), 0o644)
		}
	}
	return fmt.Errorf("no page in %s has a table %q", docs, name)
}

// parse reads a table of a page.
func parse(text string) (t table) {
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || strings.Trim(cells[0], "- ") == "" && strings.Contains(cells[0], "-") {
			continue // no line of a table, or the one below its head
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		t = append(t, cells)
	}
	return t
}

// like returns the lines and columns of t that old has, with the names that old has for them.
func (t table) like(old table) (table, error) {
	if len(old) == 0 {
		return t, nil
	}
	chosen := table{old[0]}
	for _, line := range old[1:] {
		i := slices.IndexFunc(t, func(measured []string) bool { return measured[0] == line[0] })
		if i < 0 {
			return nil, fmt.Errorf("the line %q was not measured", line[0])
		}
		now := []string{line[0]}
		for _, column := range old[0][1:] {
			k := slices.Index(t[0], column)
			if k < 0 {
				return nil, fmt.Errorf("the column %q was not measured", column)
			}
			now = append(now, t[i][k])
		}
		chosen = append(chosen, now)
	}
	return chosen, nil
}

// Docs is the usage of a flag for Show.
const Docs = "bring the tables of the documents in this `directory` to what was measured"

// Progress tells on standard error what goes on, over itself on a terminal. An empty text ends it.
func Progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "\r\x1b[K"+format, args...) }
