package loop

import (
	"testing"
	"testing/synctest"
	"time"
)

// restingPackets counts how often it is to rest.
type restingPackets struct {
	noPackets
	rests int
}

func (p *restingPackets) Rest(time.Duration) { p.rests++ }

// From some sessions on new peers have an eighth of the loop's time, however many come; before that
// they have what they need.
func TestUDPNewcomersOfACrowdedAddress(t *testing.T) {
	synctest.Test(t, testUDPNewcomersOfACrowdedAddress)
}

func testUDPNewcomersOfACrowdedAddress(t *testing.T) {
	const few, cost, rounds = 100, 100 * time.Microsecond, 200
	p := newSlowPort(t, &Server{MaxSessions: few * fewSessions})
	p.arrive(false, "", numbers(0, few)...)
	for begun := p.clock(); len(p.late.waiting()) > 0; {
		if p.turn(); p.clock()-begun > few*cost {
			t.Fatalf("%d of %d wait after %v", len(p.late.waiting()), few, p.clock()-begun)
		}
	}
	begun := p.clock()
	for n := range rounds {
		p.arrive(false, "", numbers(few+64*n, few+64*(n+1))...)
		p.pass(time.Millisecond)
	}
	most := int(((p.clock()-begun)/welcomePart + welcomeSaved + welcomeShare) / cost)
	if opened := len(p.v4) - few; opened > most || opened < most/2 {
		t.Errorf("%d were opened in %v, want %d at most", opened, p.clock()-begun, most)
	}
}

// New peers who must wait longer are called when it is time for them, and the loop sleeps until
// then.
func TestUDPNewcomersAreCalled(t *testing.T) { synctest.Test(t, testUDPNewcomersAreCalled) }

func testUDPNewcomersAreCalled(t *testing.T) {
	p := newSlowPort(t, &Server{MaxSessions: fewSessions})
	p.arrive(false, "", 0)
	p.door.earn(p.clock())
	p.door.spend(welcomeSaved)
	p.arrive(false, "", numbers(1, 9)...)
	if len(p.v4) != 1 || p.yielded() {
		t.Fatalf("%d were opened, and the loop must sleep", len(p.v4))
	}
	for opened := 1; opened < 9; {
		if p.turn(); p.yielded() && len(p.v4) == opened {
			t.Fatal("the loop does not sleep")
		}
		if len(p.v4) > opened+2 { // what a turn of a millisecond has earned
			t.Fatalf("%d were opened at once", len(p.v4)-opened)
		}
		if opened = len(p.v4); p.clock() > time.Second {
			t.Fatalf("%d were opened in a second", opened)
		}
		p.pass(time.Millisecond)
	}
	if p.clock() < 7*100*time.Microsecond*welcomePart {
		t.Errorf("all were opened after %v", p.clock())
	}
}

// The socket of an address that turns many away rests after each look, unless it has more than a
// batch, and until that ceases.
func TestUDPFloodedSocketRests(t *testing.T) { synctest.Test(t, testUDPFloodedSocketRests) }

func testUDPFloodedSocketRests(t *testing.T) {
	p := newSlowPort(t, &Server{MaxSessions: 1})
	to := &restingPackets{}
	p.to = to
	rests := func(more bool, peers ...int) bool {
		before := to.rests
		p.arrive(more, "", peers...)
		p.pass(floodWindow / 10)
		return to.rests > before
	}
	p.arrive(false, "", 0)
	for range 100 { // far fewer than a flood
		p.arrive(false, "", 1)
		if p.pass(floodWindow / 4); to.rests != 0 {
			t.Fatal("it rests though few are turned away")
		}
	}
	p.pass(3 * floodWindow)
	for n := range 100 {
		if want := n >= 3; rests(false, 0, 1, 2) != want {
			t.Fatalf("after %d batches with 2 who are turned away: %v, want %v", n+1, !want, want)
		}
	}
	if rests(true, numbers(1, 65)...) {
		t.Error("it rests while it has more")
	}
	if !rests(false, 0) {
		t.Error("it does not rest after a look that found no new peer")
	}
	p.pass(2 * floodWindow)
	if rests(false, 0) {
		t.Error("it rests though the flood is over")
	}
}
