package loop

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// slowPort is a UDP address whose new peers cost 100 us each. Its tests are in bubbles of virtual
// time.
type slowPort struct {
	*rig
	*packetPort
	order []string
}

func newSlowPort(t *testing.T, s *Server) *slowPort {
	p := new(slowPort)
	p.rig = newRig(t, s, HandlerFunc(func(_ *Conn, msg []byte) error {
		p.order = append(p.order, string(msg))
		return nil
	}))
	p.packetPort, _ = newPort(p.rig)
	accept := p.ln.accept
	p.ln.accept = func(c *Conn) Handler {
		p.pass(100 * time.Microsecond)
		return accept(c)
	}
	return p
}

// arrive brings datagrams, each of which says how often one has come from its peer.
func (p *slowPort) arrive(msg string, peers ...int) {
	var batch []engine.Datagram
	for _, n := range peers {
		batch = append(batch, engine.Datagram{Data: []byte(fmt.Sprint(n, msg)), Peer: from(n)})
	}
	p.Received(batch)
	for _, d := range batch {
		clear(d.Data) // the engine uses it again
	}
}

// numbers returns those from one to below another.
func numbers(first, end int) (all []int) {
	for n := first; n < end; n++ {
		all = append(all, n)
	}
	return all
}

// New peers have a share of the loop's time. Those above it wait, in order, for a turn after the
// next poll of the sockets, and peers with a session overtake them.
func TestUDPNewcomersHaveAShare(t *testing.T) { synctest.Test(t, testUDPNewcomersHaveAShare) }

func testUDPNewcomersHaveAShare(t *testing.T) {
	p := newSlowPort(t, &Server{})
	p.arrive("a", numbers(0, 20)...)
	if n := len(p.order); n != 5 || !p.yielded() || p.woken() != 0 {
		t.Fatalf("%d were opened in the first turn; a further one must come after the sockets", n)
	}
	p.arrive("b", 0, 20, 1)
	if got := p.order[5:7]; !slices.Equal(got, []string{"0b", "1b"}) {
		t.Errorf("%q came first", got)
	}
	for turns := 0; len(p.newPeers.queue) > 0; turns++ {
		before := len(p.order)
		if p.turn(); len(p.order)-before > 5 || turns > 10 {
			t.Fatalf("%d in turn %d", len(p.order)-before, turns)
		}
		if p.yielded() != (len(p.newPeers.queue) > 0) {
			t.Error("another turn must be asked for while somebody waits, and not otherwise")
		}
	}
	var opened []string
	for _, n := range numbers(0, 20) {
		opened = append(opened, fmt.Sprint(n, "a"))
	}
	opened = append(opened, "20b")
	got := slices.DeleteFunc(p.order, func(s string) bool { return s == "0b" || s == "1b" })
	if !slices.Equal(got, opened) || p.Loop.count[numLost].Load() != 0 {
		t.Errorf("%q, want %q; %d lost", got, opened, p.Loop.count[numLost].Load())
	}
	if p.newPeers.bytes != 0 || p.newPeers.queue != nil {
		t.Errorf("%d bytes wait, room for %d datagrams is kept", p.newPeers.bytes, cap(p.newPeers.queue))
	}
}

// slowPackets is a UDP socket that takes 25 us for each datagram that it sends, and that forgets
// none.
type slowPackets struct {
	noPackets
	pass    func(time.Duration)
	waiting int
	longest int // how many have waited
}

func (p *slowPackets) Send([]byte, netip.AddrPort, netip.Addr) error {
	p.waiting++
	p.longest = max(p.longest, p.waiting)
	return nil
}

func (p *slowPackets) Flush() int {
	p.pass(time.Duration(p.waiting) * 25 * time.Microsecond)
	p.waiting = 0
	return 0
}

// What new peers are answered leaves while sessions are opened, and is part of the time that they
// have.
func TestUDPNewcomersPayForTheirAnswers(t *testing.T) {
	synctest.Test(t, testUDPNewcomersPayForTheirAnswers)
}

func testUDPNewcomersPayForTheirAnswers(t *testing.T) {
	const answer, few = 25 * time.Microsecond, 100
	r := newRig(t, &Server{Limits: Limits{MaxSessions: few * crowdPart}}, HandlerFunc(echoAll))
	p, _ := newPort(r)
	to := &slowPackets{pass: r.pass}
	p.to = to
	first := 0
	arrive := func() {
		var batch []engine.Datagram
		for _, n := range numbers(first, first+64) {
			batch = append(batch, engine.Datagram{Data: []byte("hello"), Peer: from(n)})
		}
		first += len(batch)
		for _, step := range []func(){func() { p.Received(batch) }, r.turn} {
			begun := p.loop.clock()
			if step(); p.loop.clock()-begun > openSlice+openLot*answer {
				t.Fatalf("%d are open; the last ones took %v", len(p.sessions), p.loop.clock()-begun)
			}
		}
	}
	for len(p.sessions) <= few {
		arrive()
	}
	p.newPeers.queue, p.newPeers.bytes = nil, 0
	r.pass(time.Second)
	r.turn()
	opened, begun := len(p.sessions), p.loop.clock()
	for range 100 {
		arrive()
		r.pass(100 * time.Microsecond)
	}
	spent, earned := time.Duration(len(p.sessions)-opened)*answer, bucketSize+(p.loop.clock()-begun)/crowdPart
	if spent < earned/2 || spent > earned+openSlice {
		t.Errorf("the answers of a crowd took %v, and it had %v", spent, earned)
	}
	if to.longest > openLot || to.waiting != 0 {
		t.Errorf("%d answers have waited, %d do", to.longest, to.waiting)
	}
}

// The queue of new peers is bounded, by number and by bytes; peers with a session lose nothing.
func TestUDPNewcomersAreBounded(t *testing.T) { synctest.Test(t, testUDPNewcomersAreBounded) }

func testUDPNewcomersAreBounded(t *testing.T) {
	p := newSlowPort(t, &Server{})
	p.arrive("", 0)
	for at := 1; at < 3000; at += 64 {
		p.arrive("", append(numbers(at, at+63), 0)...)
	}
	if n := len(p.newPeers.queue); n < maxNewPeers-1 || n > maxNewPeers || cap(p.newPeers.queue) > 2*maxNewPeers {
		t.Errorf("%d wait, with room for %d", n, cap(p.newPeers.queue))
	}
	opened, waiting := len(p.sessions)-1, len(p.newPeers.queue)
	if lost := int(p.Loop.count[numLost].Load()); lost != 47*63-opened-waiting {
		t.Errorf("%d of %d were lost, %d opened, %d wait", lost, 47*63, opened, waiting)
	}
	if got := len(p.order) - opened; got != 1+47 {
		t.Errorf("%d datagrams of the peer with a session", got)
	}
	for len(p.newPeers.queue) > 0 {
		p.newPeers.take()
	}
	large := engine.Datagram{Data: make([]byte, 60<<10), Peer: from(1)}
	for n := range 6 {
		if got := p.newPeers.put(large); got != (n < 4) {
			t.Errorf("%v for the large datagram %d", got, n)
		}
	}
}

// Where no session can be opened nobody waits.
func TestUDPNewcomersBeyondTheLimit(t *testing.T) { synctest.Test(t, testUDPNewcomersBeyondTheLimit) }

func testUDPNewcomersBeyondTheLimit(t *testing.T) {
	p := newSlowPort(t, &Server{Limits: Limits{MaxSessions: 3}})
	p.arrive("", numbers(0, 64)...)
	for len(p.newPeers.queue) > 0 {
		p.turn()
		p.pass(time.Millisecond)
	}
	if n := p.Loop.count.load(); n[numRefused] != 61 || n[numSessions] != 64 || n[numLost] != 0 {
		t.Errorf("%d refused of %d, %d lost", n[numRefused], n[numSessions], n[numLost])
	}
	p.arrive("", numbers(64, 128)...)
	if n := p.Loop.count.load(); n[numRefused] != 61+64 || n[numSessions] != 128 || len(p.newPeers.queue) != 0 {
		t.Errorf("%d refused of %d, %d wait", n[numRefused], n[numSessions], len(p.newPeers.queue))
	}
}

// A panic in the Accept of one that waits concerns nobody else.
func TestUDPNewcomersThatPanic(t *testing.T) { synctest.Test(t, testUDPNewcomersThatPanic) }

func testUDPNewcomersThatPanic(t *testing.T) {
	p := newSlowPort(t, &Server{})
	accept, n := p.ln.accept, 0
	p.ln.accept = func(c *Conn) Handler {
		if n++; n%2 == 0 {
			p.pass(100 * time.Microsecond)
			panic("told to")
		}
		return accept(c)
	}
	p.arrive("", numbers(0, 20)...)
	for len(p.newPeers.queue) > 0 {
		p.turn()
	}
	if len(p.order) != 10 || p.Loop.count[numPanics].Load() != 10 || len(p.sessions) != 10 {
		t.Errorf("%d served, %d panics, %d sessions", len(p.order), p.Loop.count[numPanics].Load(), len(p.sessions))
	}
}
