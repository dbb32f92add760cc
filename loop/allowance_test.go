package loop

import (
	"testing"
	"testing/synctest"
	"time"
)

// From some sessions on new peers have a sixteenth of the loop's time, however many come; before that
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
	p.arrive(false, "", 0, 1)
	p.saved.earn(p.clock())
	p.saved.spend(welcomeSaved)
	p.arrive(false, "", numbers(2, 10)...)
	if len(p.v4) != 2 || p.yielded() {
		t.Fatalf("%d were opened, and the loop must sleep", len(p.v4))
	}
	for opened := 2; opened < 10; {
		if p.published <= p.clock() { // its bell rings
			if p.turn(); p.yielded() {
				p.turn()
			}
		}
		if p.yielded() && len(p.v4) == opened {
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
