// Package enginetest tests implementations of engine.Engine, in the style of testing/slogtest. What
// only one engine promises is tested beside it, with a Rig.
package enginetest

import (
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// Config says how an engine is tested.
type Config struct {
	// New returns an engine that has not been started.
	New func() engine.Engine

	// Networks are those of Connect: each test of sockets runs once for each.
	Networks []string

	// Connect returns a connection for Engine.Enroll, and its other end.
	Connect func(t testing.TB, e engine.Engine, network string) (net.Conn, Peer)

	// DialPacket returns a peer of a UDP address that the engine has bound.
	DialPacket func(t testing.TB, e engine.Engine, to net.Addr) PacketPeer

	// Detaches: its sockets implement engine.Detachable.
	Detaches bool

	// System: it uses the sockets of the system, with their errors and their addresses.
	System bool
}

// A Peer is the other end of a connection. Its methods may block, so they are not for loops, except
// for Write of a few bytes.
type Peer interface {
	io.ReadWriteCloser
	CloseWrite() error
	Reset() // closes it so that the engine sees an error, if the network has that
}

// A PacketPeer is the other end of a UDP socket.
type PacketPeer interface {
	Write(p []byte) (int, error)
	Read(p []byte) (int, error)
	LocalAddr() net.Addr
}

// System returns the Config of an engine that uses the system's sockets.
func System(newEngine func() engine.Engine) Config {
	c := Config{New: newEngine, Networks: []string{"tcp"}, Connect: Connect, DialPacket: dialPacket, Detaches: true, System: true}
	if runtime.GOOS != "windows" {
		c.Networks = append(c.Networks, "unix")
	}
	return c
}

// Run tests an engine.
func Run(t *testing.T, c Config) {
	t.Run("loops", func(t *testing.T) { testLoops(t, c) })
	for _, network := range c.Networks {
		t.Run(network, func(t *testing.T) { testSockets(t, c, network) })
	}
	t.Run("udp", func(t *testing.T) { testPackets(t, c) })
}

// A Rig is a started engine with a Host that runs functions on its loops.
type Rig struct {
	engine.Engine
	T     *testing.T
	Base  time.Time
	Ticks chan time.Duration // when OnTick was called, since Base

	config Config
	loops  int
	probes chan int // the loops of calls of OnProbe
	mu     sync.Mutex
	posts  [][]func()
}

// Start starts an engine with so many loops, which ends with the test.
func Start(t *testing.T, c Config, loops int) *Rig {
	t.Helper()
	r := NewRig(t, c, loops)
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	if err := r.Engine.Start(loops, r.Base, r); err != nil {
		t.Fatalf("Start: %v", err)
	}
	return r
}

// NewRig returns a Rig whose engine the test starts and stops itself.
func NewRig(t *testing.T, c Config, loops int) *Rig {
	return &Rig{
		Engine: c.New(), T: t, Base: time.Now(), Ticks: make(chan time.Duration, 1000),
		config: c, loops: loops, probes: make(chan int, 1000), posts: make([][]func(), loops),
	}
}

// OnWake implements engine.Host.
func (r *Rig) OnWake(i int) {
	r.mu.Lock()
	posts := r.posts[i]
	r.posts[i] = nil
	r.mu.Unlock()
	for _, f := range posts {
		f()
	}
}

// OnProbe implements engine.Host.
func (r *Rig) OnProbe(i int) { r.probes <- i }

// OnTick implements engine.Host.
func (r *Rig) OnTick(int) { r.Ticks <- r.Now() }

// Ended implements engine.Host.
func (r *Rig) Ended(i int, err error) { r.T.Errorf("loop %d ended: %v", i, err) }

// Now returns the time since Base.
func (r *Rig) Now() time.Duration { return time.Since(r.Base) }

// Do runs f on a loop and waits for it.
func (r *Rig) Do(i int, f func()) {
	r.T.Helper()
	done := make(chan struct{})
	r.post(i, func() { defer close(done); f() })
	if err := r.Wake(i); err != nil {
		r.T.Fatalf("Wake: %v", err)
	}
	testkit.Receive(r.T, "the loop", done)
}

// AskTurn runs f on loop 0 in a turn that Engine.Again asks for. It is called there.
func (r *Rig) AskTurn(f func()) {
	r.post(0, f)
	r.Engine.Again(0)
}

func (r *Rig) post(i int, f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.posts[i] = append(r.posts[i], f)
}

// Open connects, and enrolls the connection on loop 0, where an Ear hears it.
func (r *Rig) Open(network string) (*Ear, Peer) {
	r.T.Helper()
	e := NewEar()
	return e, r.OpenTo(network, e, func(engine.Socket) engine.Sink { return e })
}

// OpenTo is Open with another open. The socket is that of e.
func (r *Rig) OpenTo(network string, e *Ear, open func(engine.Socket) engine.Sink) Peer {
	r.T.Helper()
	nc, peer := r.config.Connect(r.T, r, network)
	result := make(chan error, 1)
	r.Enroll(0, nc, func(s engine.Socket) engine.Sink {
		defer func() { result <- nil }()
		e.Socket = s
		return open(s)
	}, func(err error) { result <- err })
	if err := testkit.Receive(r.T, "the connection is open", result); err != nil {
		r.T.Fatalf("lost: %v", err)
	}
	return peer
}

// An Ear is a Sink that records what it is told.
type Ear struct {
	Socket   engine.Socket
	heard    chan string
	writable chan struct{}
	closed   chan error
}

// NewEar returns an Ear whose Socket is the test's to set.
func NewEar() *Ear {
	return &Ear{heard: make(chan string, 100_000), writable: make(chan struct{}, 1000), closed: make(chan error, 10)}
}

// Readable implements engine.Sink.
func (e *Ear) Readable(p []byte) { e.heard <- string(p) }

// Writable implements engine.Sink.
func (e *Ear) Writable() { e.writable <- struct{}{} }

// Closed implements engine.Sink.
func (e *Ear) Closed(err error) { e.closed <- err }

// Hears waits for want, in however many pieces.
func (e *Ear) Hears(t testing.TB, want string) {
	t.Helper()
	var got strings.Builder
	for got.Len() < len(want) {
		got.WriteString(testkit.Receive(t, "input", e.heard))
	}
	if got.String() != want {
		t.Errorf("heard %d bytes %.50q, want %d bytes %.50q", got.Len(), got.String(), len(want), want)
	}
}

// Room waits for Writable.
func (e *Ear) Room(t testing.TB) {
	t.Helper()
	testkit.Receive(t, "room", e.writable)
}

// End waits for the end, and returns its error.
func (e *Ear) End(t testing.TB) error {
	t.Helper()
	return testkit.Receive(t, "the end", e.closed)
}

// Pieces returns how many calls of Readable nothing has waited for yet.
func (e *Ear) Pieces() int { return len(e.heard) }

// Ends returns how many calls of Closed nothing has waited for yet.
func (e *Ear) Ends() int { return len(e.closed) }

// Connect returns both ends of a connection of the system, on the loopback or a unix socket.
func Connect(t testing.TB, _ engine.Engine, network string) (net.Conn, Peer) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = testkit.SocketPath(t)
	}
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ours, err := net.Dial(network, ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = theirs.Close() })
	_ = theirs.SetDeadline(time.Now().Add(testkit.Patience))
	return ours, sysPeer{theirs}
}

type sysPeer struct{ net.Conn }

func (p sysPeer) CloseWrite() error { return p.Conn.(interface{ CloseWrite() error }).CloseWrite() }

func (p sysPeer) Reset() {
	if tcp, ok := p.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = p.Close()
}

// dialPacket returns a socket of the system.
func dialPacket(t testing.TB, _ engine.Engine, to net.Addr) PacketPeer {
	t.Helper()
	c, err := net.Dial("udp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(testkit.Patience))
	return c
}
