//go:build linux

package scaletest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// What a client does, as a trace has it.
const (
	answers = iota
	says
	vanishes
	arrives
	leaves
)

// trace is what clients have done, as a sum up to each second. What is summed is made of the
// client, of what it did, and of the millisecond, so runs with the same sums were the same to the
// millisecond, but for the order within one.
type trace struct {
	start time.Time
	sums  []uint64
}

// note does nothing before the start.
func (tr *trace) note(c *client, what uint64) {
	if tr.start.IsZero() {
		return
	}
	at := time.Since(tr.start)
	for int(at/time.Second) >= len(tr.sums) {
		tr.sums = append(tr.sums, tr.sum())
	}
	tr.sums[len(tr.sums)-1] += mixed(uint64(at/time.Millisecond)<<32 | uint64(c.number)<<4 | what)
}

func (tr *trace) sum() uint64 {
	if len(tr.sums) == 0 {
		return 0
	}
	return tr.sums[len(tr.sums)-1]
}

// mixed is the last step of SplitMix64.
func mixed(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// An outcome is what one run gave.
type outcome struct {
	row
	meter
	trace
}

// combined returns what several runs of the same have in common: a turn that is long by our own
// doing is long in each of them. CPU is that of the run that used least.
func combined(t *testing.T, runs []outcome) row {
	r := runs[0].row
	for i, o := range runs[1:] {
		if at := differ(runs[0].sums, o.sums); at >= 0 {
			t.Errorf("run %d is not the same as the first one, from second %d on", i+2, at)
		}
		r.bytes, r.objects, r.garbage = max(r.bytes, o.bytes), max(r.objects, o.objects), max(r.garbage, o.garbage)
		r.cpu, r.event = min(r.cpu, o.cpu), min(r.event, o.event)
	}
	if len(runs) == 1 {
		return r
	}
	var report strings.Builder
	for i, o := range runs {
		fmt.Fprintf(&report, "run %d: %v\n", i+1, o.all)
		fmt.Fprintf(&report, "    of these during collections: %v\n", o.collecting)
	}
	worst, at := again(runs, &report)
	r.worst = worst.took()
	fmt.Fprintf(&report, "%d connections: the worst turn, by the shortest of %d runs: at %v, %v", r.conns, len(runs), at, worst)
	t.Log(report.String())
	return r
}

// again returns the worst of the turns that each millisecond took at least, and when it was. It
// reports what was too long more than once.
func again(runs []outcome, report *strings.Builder) (worst turn, when time.Duration) {
	for ms := range runs[0].longest {
		at, least, long := time.Duration(ms)*time.Millisecond, runs[0].longest[ms], 0
		for _, o := range runs {
			if o.longest[ms].nanos < least.nanos {
				least = o.longest[ms]
			}
			if o.longest[ms].took() > worstTurn {
				long++
			}
		}
		if long > 1 {
			fmt.Fprintf(report, "at %v in %d runs above %v:", at, long, worstTurn)
			for _, o := range runs {
				fmt.Fprintf(report, " %v;", o.longest[ms])
			}
			report.WriteByte('\n')
		}
		if least.nanos > worst.nanos {
			worst, when = least, at
		}
	}
	return worst, when
}

// differ returns from which second on two sums differ, or -1.
func differ(a, b []uint64) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}
