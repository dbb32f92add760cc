package loop

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// From some sessions on new peers have a sixteenth of the loop's time, however many come; before
// that they have what they need.
func TestUDPNewcomersOfACrowdedAddress(t *testing.T) {
	synctest.Test(t, testUDPNewcomersOfACrowdedAddress)
}

func testUDPNewcomersOfACrowdedAddress(t *testing.T) {
	const few, cost, rounds = 100, 100 * time.Microsecond, 200
	p := newSlowPort(t, &Server{Limits: Limits{MaxSessions: few * crowdPart}})
	p.arrive("", numbers(0, few)...)
	for begun := p.clock(); len(p.newPeers.queue) > 0; {
		if p.turn(); p.clock()-begun > few*cost {
			t.Fatalf("%d of %d wait after %v", len(p.newPeers.queue), few, p.clock()-begun)
		}
	}
	begun := p.clock()
	for n := range rounds {
		p.arrive("", numbers(few+64*n, few+64*(n+1))...)
		p.turn()
		p.pass(time.Millisecond)
	}
	most := int(((p.clock()-begun)/crowdPart + bucketSize + openSlice) / cost)
	if opened := len(p.sessions) - few; opened > most || opened < most/2 {
		t.Errorf("%d were opened in %v, want %d at most", opened, p.clock()-begun, most)
	}
}

// New peers who must wait longer are called when it is time for them, and the loop sleeps until
// then.
func TestUDPNewcomersAreCalled(t *testing.T) { synctest.Test(t, testUDPNewcomersAreCalled) }

func testUDPNewcomersAreCalled(t *testing.T) {
	p := newSlowPort(t, &Server{Limits: Limits{MaxSessions: crowdPart}})
	p.arrive("", 0, 1)
	p.refill()
	p.newPeers.tokens = 0
	p.arrive("", numbers(2, 10)...)
	if len(p.sessions) != 2 || p.yielded() {
		t.Fatalf("%d were opened, and the loop must sleep", len(p.sessions))
	}
	for opened := 2; opened < 10; {
		if p.tickAt <= p.clock() { // its bell rings
			if p.turn(); p.yielded() {
				p.turn()
			}
		}
		if p.yielded() && len(p.sessions) == opened {
			t.Fatal("the loop does not sleep")
		}
		if len(p.sessions) > opened+2 { // what a turn of a millisecond has earned
			t.Fatalf("%d were opened at once", len(p.sessions)-opened)
		}
		if opened = len(p.sessions); p.clock() > time.Second {
			t.Fatalf("%d were opened in a second", opened)
		}
		p.pass(time.Millisecond)
	}
	if p.clock() < 7*100*time.Microsecond*crowdPart {
		t.Errorf("all were opened after %v", p.clock())
	}
}

// A crowd that proves its addresses is let in faster than one that does not.
func TestUDPCrowdThatProvesItsAddresses(t *testing.T) {
	var took [2]time.Duration
	for i, proof := range []string{"", "proof"} {
		synctest.Test(t, func(t *testing.T) { took[i] = letCrowdIn(t, proof) })
	}
	if t.Logf("without a proof %v, with one %v", took[0], took[1]); took[1] > took[0]/3 {
		t.Error("a proof is worth less than two thirds of the time")
	}
}

// letCrowdIn returns how long it takes until all of a crowd have a session who say hello again and
// again, and then, 5 ms later, what is the proof.
func letCrowdIn(t *testing.T, proof string) time.Duration {
	const crowd, roundTrip = 1000, 5
	p := newSlowPort(t, &Server{Limits: Limits{MaxSessions: crowd * 2}})
	accept := p.ln.accept
	p.ln.accept = func(c *Conn) Handler {
		c.LimitReplies(3)
		accept(c)
		return HandlerFunc(func(c *Conn, msg []byte) error {
			if strings.HasSuffix(string(msg), "proof") {
				c.LimitReplies(0)
			}
			return nil
		})
	}
	said := make(map[int]int) // when each got an answer, in ms
	begun := p.clock()
	for ms := 0; len(p.sessions) < crowd; ms++ {
		var waiting []int
		for n := range crowd {
			if p.sessions[sessionKey{peer: from(n)}] == nil {
				if waiting = append(waiting, n); len(waiting) == 64 {
					break
				}
				continue
			}
			if at, told := said[n]; !told {
				said[n] = ms
			} else if ms == at+roundTrip && proof != "" {
				p.arrive(proof, n)
			}
		}
		p.arrive("", waiting...)
		for p.turn(); p.yielded(); p.turn() {
		}
		if p.pass(time.Millisecond); p.clock()-begun > time.Minute {
			t.Fatalf("%d of %d have a session", len(p.sessions), crowd)
		}
	}
	return p.clock() - begun
}

// A peer that has proved its address once gains nothing by doing it again, and one that came when
// the address was not crowded gains nothing at all.
func TestUDPProofCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSlowPort(t, &Server{Limits: Limits{MaxSessions: crowdPart}})
		p.arrive("", 0)
		p.arrive("", 1)
		p.pass(time.Second)
		p.arrive("", 2) // a crowd
		for n, times := range []int{0, 0, 1} {
			c := p.sessions[sessionKey{peer: from(n)}].c
			for i := range 3 {
				p.newPeers.tokens = 0
				c.LimitReplies(3)
				c.LimitReplies(0)
				if back := p.newPeers.tokens; back > 0 != (i < times) {
					t.Errorf("peer %d, proof %d: %v is given back", n, i, back)
				}
			}
		}
	})
}
