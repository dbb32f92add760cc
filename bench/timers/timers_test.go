package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The rivals must be right, or it is easy to be faster: all contenders that are told the time run
// the same random operations, and what is due, at each step, must be the same.
func TestSteppersAgree(t *testing.T) {
	const n, steps = 500, 3000
	var want [][]int
	for _, k := range kinds {
		c, ok := k.make(n).(stepper) // a nil one is none
		if !ok {
			continue
		}
		r := rand.New(rand.NewPCG(1, 2))
		var got [][]int
		var fired []int
		pending := make([]bool, n)
		for step := range steps {
			i := r.IntN(n)
			d := time.Duration(1+r.IntN(200)) * time.Millisecond
			switch op := r.IntN(4); {
			case !pending[i]:
				c.add(i, d, func() { fired = append(fired, i); pending[i] = false })
				pending[i] = true
			case op == 0:
				c.stop(i)
				pending[i] = false
			default:
				c.reset(i, d)
			}
			fired = nil
			c.advance(time.Duration(step) * time.Millisecond)
			slices.Sort(fired)
			got = append(got, fired)
		}
		if want == nil {
			want = got
		}
		for step := range got {
			if !slices.Equal(got[step], want[step]) {
				t.Fatalf("%s: %v due at step %d, want %v", k.name, got[step], step, want[step])
			}
		}
	}
	if len(slices.Concat(want...)) < steps/10 {
		t.Errorf("only %d ran", len(slices.Concat(want...)))
	}
}

// The heap in order runs what is due at once as it was added, and the wheel does.
func TestInOrder(t *testing.T) {
	for _, k := range kinds {
		if k.name != "timing.Wheel" && k.name != "heap in order" {
			continue
		}
		c := k.make(1000).(stepper)
		var fired []int
		for i := range 1000 {
			c.add(i, time.Millisecond-time.Duration(i%7), func() { fired = append(fired, i) })
		}
		for i := 0; i < 1000; i += 3 {
			c.stop(i)
		}
		c.advance(time.Millisecond)
		if len(fired) != 666 || !slices.IsSorted(fired) {
			t.Errorf("%s: %d ran, in order: %v", k.name, len(fired), slices.IsSorted(fired))
		}
	}
}

func TestResults(t *testing.T) {
	r := newResults()
	for _, v := range []float64{3, 1, 2} {
		r.add("a measure, of it", "ns", "timing.Wheel", v)
		r.add("a measure, of it", "ns", "<peer>", 4*v)
	}
	var out bytes.Buffer
	r.print(&out)
	for _, want := range []string{"a measure, of it [ns]", "2      1 to 3      1\n", "8     4 to 12      4\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	dir := t.TempDir()
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"timers.csv":                 "\"a measure, of it\",ns,<peer>,2,4\n",
		"timers-a-measure-of-it.svg": "&lt;peer&gt;",
	} {
		if data, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s: %v, no %q in\n%s", file, err, want, data)
		}
	}
}

// The table in Markdown has measures that there are, and says what is to be divided by what.
func TestBeside(t *testing.T) {
	for _, row := range besideRows {
		if !slices.ContainsFunc(jobs, func(j job) bool { return slices.Contains(j.names, row.measure) }) {
			t.Errorf("no job measures %q", row.measure)
		}
	}
	r := newResults()
	for _, v := range []float64{3, 1, 2} {
		r.add("a", "ns", "timing.Wheel", v)
		r.add("a", "ns", "4-ary heap", 4)
	}
	var out bytes.Buffer
	printBeside(&out, "a, ns", 1_020_003, r.table("a"))
	if want := "| a, ns | 1,020,003 | 2 (1–3) | 4 | 0.50 |\n"; out.String() != want || r.table("b") != nil {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
