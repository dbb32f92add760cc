package meter

import (
	"testing"
	"time"
)

func TestLongest(t *testing.T) {
	const s = time.Second
	var p Series
	expect := func(now, recent, ever time.Duration) {
		t.Helper()
		read := p
		read.pass(now)
		if r, e := read.Recent(), read.Max; r != recent || e != ever {
			t.Errorf("at %v: recent %v, ever %v; want %v, %v", now, r, e, recent, ever)
		}
	}
	expect(0, 0, 0)
	p.note(5, 1, 1*s)
	p.note(3, 1, 2*s)
	p.note(-1, 1, 3*s)
	expect(3*s, 5, 5)
	p.note(2, 1, 11*s) // a new span; the last one is still recent
	expect(12*s, 5, 5)
	p.note(1, 1, 21*s)
	expect(22*s, 2, 5)
	expect(32*s, 1, 5)
	expect(42*s, 0, 5)
	p.note(4, 1, time.Hour)
	expect(time.Hour+s, 4, 5)
}
