package loop

import (
	"encoding/binary"
	"errors"
	"math"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/goroutine"
)

// noPackets is a UDP socket that counts.
type noPackets struct{ sent int }

func (p *noPackets) Send([]byte, netip.AddrPort, netip.Addr) error { p.sent++; return nil }
func (*noPackets) HasInput() bool                                  { return false }
func (*noPackets) Resume()                                         {}
func (*noPackets) Flush() int                                      { return 0 }
func (*noPackets) Close()                                          {}

// newPort returns a UDP socket of a rig.
func newPort(r *rig) (*packetPort, *noPackets) {
	to := &noPackets{}
	ln := r.server.listeners[0]
	ln.network = "udp"
	p := newPacketPort(r.Loop, ln, &net.UDPAddr{})
	p.to = to
	p.ln.idleTimeout = time.Hour // of the real clock, in some tests: nobody is to go meanwhile
	r.ports = append(r.ports, p)
	return p, to
}

// from is the n-th of very many addresses.
func from(n int) netip.AddrPort {
	var ip [4]byte
	binary.BigEndian.PutUint32(ip[:], 10<<24|uint32(n))
	return netip.AddrPortFrom(netip.AddrFrom4(ip), 1024)
}

// receive gives the port a datagram of each of the addresses from first on, in batches of 64, and
// new peers what time they need, however crowded it is.
func (p *packetPort) receive(first, n int) {
	var batch [64]engine.Datagram
	for at := 0; at < n; at += len(batch) {
		for i := range batch {
			batch[i] = engine.Datagram{Data: []byte("hello"), Peer: from(first + at + i)}
		}
		p.newPeers.tokens = bucketSize
		p.Received(batch[:min(len(batch), n-at)])
		for len(p.rest)+len(p.newPeers.queue) > 0 { // the machine is slow
			p.newPeers.tokens = bucketSize
			p.loop.turn()
		}
	}
}

func TestUDPSessionsAreSmall(t *testing.T) {
	const n = 20_000
	r := newRig(t, &Server{}, HandlerFunc(echoAll))
	p, _ := newPort(r)
	p.receive(0, 1000) // what does not count: the first of everything
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	p.receive(1000, n)
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (after.HeapAlloc - before.HeapAlloc) / n
	t.Logf("%d bytes for a session", each)
	if len(p.sessions) != n+1000 || each > 1024 {
		t.Errorf("%d sessions, %d bytes each", len(p.sessions), each)
	}
}

// A million addresses that nobody has: the sessions are bounded, and those that there were are
// served.
func TestUDPFloodOfAddresses(t *testing.T) {
	n := 1_000_000
	if testing.Short() {
		n = 100_000
	}
	r := newRig(t, &Server{Limits: Limits{MaxSessions: 10_000}}, HandlerFunc(echoAll))
	p, to := newPort(r)
	p.receive(0, 100)
	p.receive(1000, n)
	if len(p.sessions) != 10_000 || r.server.sessions.Load() != 10_000 || len(r.conns) != 10_000 {
		t.Errorf("%d sessions, %d counted", len(p.sessions), r.server.sessions.Load())
	}
	if refused := r.count[numRefused].Load(); refused != uint64(n-9900) {
		t.Errorf("%d were refused", refused)
	}
	to.sent = 0
	p.receive(0, 100)
	if to.sent != 100 {
		t.Errorf("%d of 100 peers were served", to.sent)
	}
}

// What is received and sent again allocates nothing.
func TestUDPDoesNotAllocate(t *testing.T) {
	if goroutine.Race {
		t.Skip("looking at each call's goroutine allocates; run it without -race, as CI does, too")
	}
	r := newRig(t, &Server{}, HandlerFunc(echoAll))
	p, _ := newPort(r)
	batch := []engine.Datagram{{Data: []byte("a"), Peer: from(1)}, {Data: []byte("b"), Peer: from(2)}}
	p.Received(batch)
	if n := testing.AllocsPerRun(100, func() { p.Received(batch) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// Peers with a session are served before new ones, wherever in the batch their datagrams are, and
// the datagrams of a new peer stay in order.
func TestUDPServesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		var opened int
		r := newRig(t, &Server{}, HandlerFunc(func(c *Conn, msg []byte) error {
			order = append(order, string(msg))
			if string(msg) == "panic" {
				panic("told to")
			}
			return nil
		}))
		p, _ := newPort(r)
		accept := p.ln.accept
		p.ln.accept = func(c *Conn) Handler {
			opened++
			order = append(order, "open")
			return accept(c)
		}
		p.Received([]engine.Datagram{{Data: []byte("hello"), Peer: from(1)}})
		order = nil
		var batch []engine.Datagram
		for _, d := range []struct {
			peer int
			msg  string
		}{{2, "a"}, {1, "b"}, {3, "panic"}, {2, "c"}, {1, "panic"}, {4, "d"}, {1, "not any more"}, {2, "e"}} {
			batch = append(batch, engine.Datagram{Data: []byte(d.msg), Peer: from(d.peer)})
		}
		p.Received(batch)
		want := []string{"b", "panic", "open", "a", "open", "panic", "c", "open", "d", "e"}
		if !slices.Equal(order, want) {
			t.Errorf("%q, want %q", order, want)
		}
		if opened != 4 || len(p.sessions) != 2 || len(p.newPeers.queue) != 0 {
			t.Errorf("%d were opened, %d are open, %d wait", opened, len(p.sessions), len(p.newPeers.queue))
		}
	})
}

// Any factor that an int can have is a limit.
func TestUDPLimitRepliesFactors(t *testing.T) { synctest.Test(t, testUDPLimitRepliesFactors) }

func testUDPLimitRepliesFactors(t *testing.T) {
	for _, c := range []struct {
		factor, allowed int
	}{{1, 5}, {3, 15}, {1 << 20, 100}, {math.MaxInt, 100}} {
		sent := 0
		r := newRig(t, &Server{}, HandlerFunc(func(c *Conn, _ []byte) error {
			for sent < 100 && c.Send([]byte("x")) == nil {
				sent++
			}
			return nil
		}))
		p, _ := newPort(r)
		accept := p.ln.accept
		p.ln.accept = func(conn *Conn) Handler {
			conn.LimitReplies(c.factor)
			return accept(conn)
		}
		p.Received([]engine.Datagram{{Data: []byte("hello"), Peer: from(1)}})
		if sent != c.allowed {
			t.Errorf("factor %d: %d bytes were sent for 5, want %d", c.factor, sent, c.allowed)
		}
	}
}

// What comes for a session that is paused, or was closed in the same turn, is lost, and counted. In
// virtual time, as new peers have a share of the loop's.
func TestUDPLostIsCounted(t *testing.T) { synctest.Test(t, testUDPLostIsCounted) }

func testUDPLostIsCounted(t *testing.T) {
	for name, stop := range map[string]func(c *Conn){"closed": (*Conn).Close, "paused": (*Conn).PauseRead} {
		r := newRig(t, &Server{}, HandlerFunc(func(c *Conn, msg []byte) error {
			if string(msg) == "stop" {
				stop(c)
			}
			return nil
		}))
		p, _ := newPort(r)
		p.receive(1, 1)
		batch := make([]engine.Datagram, 10)
		for i := range batch {
			batch[i] = engine.Datagram{Data: []byte("stop"), Peer: from(1)}
		}
		p.Received(batch)
		if n := r.Loop.count.load(); n[numMessages] != 2 || n[numLost] != 9 {
			t.Errorf("%s: %d delivered, %d lost; want 2 and 9", name, n[numMessages], n[numLost])
		}
	}
}

// closed counts how often it was closed.
type closed struct {
	net.Conn
	n int
}

func (c *closed) Close() error { c.n++; return nil }

// A start that fails does not close a second time what a loop has taken: the number of the
// descriptor may be another's by then.
func TestUDPSocketsAreClosedOnce(t *testing.T) {
	taken, left := new(closed), new(closed)
	s := &Server{listeners: []*listener{{packets: []net.Conn{taken, left}, taken: 1}, {}}}
	if s.closePackets(); taken.n != 0 || left.n != 1 {
		t.Errorf("what was taken was closed %d times, the other one %d times", taken.n, left.n)
	}
}

// Port 0 cannot be dialed: the kernel would take it, and refuse all that is sent.
func TestUDPDialPortZero(t *testing.T) {
	r := newRig(t, &Server{}, HandlerFunc(echoAll))
	nc, err := net.Dial("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	a := &dialing{loop: r.Loop, address: "127.0.0.1:0", network: "udp", deadline: never, open: func(_ *Conn, err error) Handler {
		failed = err
		return nil
	}}
	a.openSession(nc)
	var addr *net.AddrError
	if !errors.As(failed, &addr) || nc.Close() == nil {
		t.Errorf("got %v, or the socket is open", failed)
	}
}

// A deafLoop cannot receive.
type deafLoop struct{ rigLoop }

func (*deafLoop) ServePacket(net.Conn, engine.PacketSink) (engine.Packets, error) {
	return nil, errors.ErrUnsupported
}

// A socket that was inherited, and cannot be served, takes its sessions along.
func TestInheritedSocketFails(t *testing.T) {
	var closed []error
	r := newRig(t, &Server{}, HandlerFunc(echoAll))
	p, _ := newPort(r)
	p.receive(0, 1)
	for _, s := range p.sessions {
		s.c.AfterClose(func(err error) { closed = append(closed, err) })
		s.c.beginFrozen(&frozen{})
		s.c.thaw()
	}
	p.to, r.Loop.engine = nil, &deafLoop{}
	_ = r.Post(p.goOn)
	r.turn()
	if len(closed) != 1 || !errors.Is(closed[0], errors.ErrUnsupported) {
		t.Errorf("its sessions end with %v, want one with what the engine said", closed)
	}
}
