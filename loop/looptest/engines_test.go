package looptest

import (
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/netengine"
)

// An engineConfig says how an engine is tested.
type engineConfig struct {
	start      func() engine.Engine
	networks   []string
	connect    func(t *testing.T, e engine.Engine, network string) (net.Conn, otherEnd) // for Enroll
	dialPacket func(t *testing.T, e engine.Engine, to net.Addr) packetPeer
	system     bool // it uses the system's sockets, with their errors and addresses
}

// An otherEnd is the peer of a connection. Its methods may block, so they are not for loops, except
// for Write of a few bytes.
type otherEnd interface {
	io.ReadWriteCloser
	CloseWrite() error
	Reset() // closes it so that the engine sees an error, if the network has that
}

type packetPeer interface {
	Read(p []byte) (int, error)
	Write(p []byte) (int, error)
}

// systemEngine returns the engineConfig of an engine that uses the system's sockets.
func systemEngine(newEngine func() engine.Engine) engineConfig {
	c := engineConfig{newEngine, []string{"tcp"}, connectSystem, dialSystem, true}
	if runtime.GOOS != "windows" {
		c.networks = append(c.networks, "unix")
	}
	return c
}

// engines are those of this system; files with build constraints add to them.
var engines = map[string]engineConfig{
	"memory": {func() engine.Engine { return newMemory() }, []string{"memory"}, connectInMemory, dialPacketInMemory, false},
	"net":    systemEngine(func() engine.Engine { return netengine.New() }),
}

// All engines pass one suite.
func TestEngines(t *testing.T) {
	for name, c := range engines {
		t.Run(name, func(t *testing.T) {
			t.Run("loops", func(t *testing.T) { testLoops(t, c) })
			for _, network := range c.networks {
				t.Run(network, func(t *testing.T) { testSockets(t, c, network) })
			}
			t.Run("udp", func(t *testing.T) { testPackets(t, c) })
		})
	}
}

// An engineRig is a started engine whose loops run functions.
type engineRig struct {
	engine.Engine
	t      *testing.T
	config engineConfig
	base   time.Time
	loops  []*rigLoop
	ticks  chan time.Duration // when OnDeadline was called, since base
	probes chan int           // the loops of calls of OnProbe
}

// A rigLoop is a loop and its engine.Host.
type rigLoop struct {
	engine.Loop
	rig   *engineRig
	index int
	wakes atomic.Int64
	mu    sync.Mutex
	posts []func()
}

// startEngine starts an engine with so many loops, which ends with the test.
func startEngine(t *testing.T, c engineConfig, loops int) *engineRig {
	t.Helper()
	r := newEngineRig(t, c, loops)
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	return r
}

// newEngineRig is startEngine for a test that calls Stop itself.
func newEngineRig(t *testing.T, c engineConfig, loops int) *engineRig {
	t.Helper()
	r := &engineRig{
		Engine: c.start(), t: t, config: c, base: time.Now(),
		ticks: make(chan time.Duration, 1000), probes: make(chan int, 1000),
	}
	hosts := make([]engine.Host, loops)
	for i := range hosts {
		l := &rigLoop{rig: r, index: i}
		r.loops, hosts[i] = append(r.loops, l), l
	}
	handles, err := r.Start(r.base, hosts)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	for i, l := range r.loops {
		l.Loop = handles[i]
	}
	return r
}

func (l *rigLoop) OnWake() {
	l.wakes.Add(1)
	l.mu.Lock()
	posts := l.posts
	l.posts = nil
	l.mu.Unlock()
	for _, f := range posts {
		f()
	}
}

func (l *rigLoop) OnProbe()            { l.rig.probes <- l.index }
func (l *rigLoop) OnDeadline()         { l.rig.ticks <- l.rig.now() }
func (l *rigLoop) LoopEnded(err error) { l.rig.t.Errorf("loop %d ended: %v", l.index, err) }

func (r *engineRig) now() time.Duration { return time.Since(r.base) }

// do runs f on a loop and waits for it.
func (r *engineRig) do(i int, f func()) {
	r.t.Helper()
	done := make(chan struct{})
	r.post(i, func() { defer close(done); f() })
	r.loops[i].Wake()
	testkit.Receive(r.t, "the loop", done)
}

// askTurn runs f on loop 0 in a turn that Loop.Again asks for. It is called there.
func (r *engineRig) askTurn(f func()) {
	r.post(0, f)
	r.loops[0].Again()
}

// busy has loop 0 ask for turns until stop is called.
func (r *engineRig) busy() (stop func()) {
	over := false
	var turn func()
	turn = func() {
		if !over {
			r.askTurn(turn)
		}
	}
	r.do(0, turn)
	return func() { r.do(0, func() { over = true }) }
}

func (r *engineRig) post(i int, f func()) {
	l := r.loops[i]
	l.mu.Lock()
	defer l.mu.Unlock()
	l.posts = append(l.posts, f)
}

// open connects, and enrolls the connection on loop 0, where an ear hears it.
func (r *engineRig) open(network string) (*ear, otherEnd) {
	r.t.Helper()
	e := newEar()
	return e, r.openTo(network, e, func(engine.Socket) engine.Sink { return e })
}

// openTo is open with another sink. The socket is that of e.
func (r *engineRig) openTo(network string, e *ear, open func(engine.Socket) engine.Sink) otherEnd {
	r.t.Helper()
	nc, peer := r.config.connect(r.t, r, network)
	result := make(chan error, 1)
	r.loops[0].Enroll(nc, func(s engine.Socket) engine.Sink {
		defer func() { result <- nil }()
		e.Socket = s
		return open(s)
	}, func(err error) { result <- err })
	if err := testkit.Receive(r.t, "the connection is open", result); err != nil {
		r.t.Fatalf("lost: %v", err)
	}
	return peer
}

// An ear is an engine.Sink that records its calls.
type ear struct {
	engine.Socket
	at       int // its loop
	heard    chan string
	writable chan struct{}
	closed   chan error
}

func newEar() *ear {
	return &ear{heard: make(chan string, 100_000), writable: make(chan struct{}, 1000), closed: make(chan error, 10)}
}

func (e *ear) Readable(p []byte) { e.heard <- string(p) }
func (e *ear) Room([]byte) int   { return 0 }
func (e *ear) Writable()         { e.writable <- struct{}{} }
func (e *ear) Ended(err error)   { e.closed <- err }

// hears waits for want, in however many pieces.
func (e *ear) hears(t testing.TB, want string) {
	t.Helper()
	var got strings.Builder
	for got.Len() < len(want) {
		got.WriteString(testkit.Receive(t, "input", e.heard))
	}
	if got.String() != want {
		t.Errorf("heard %d bytes %.50q, want %d bytes %.50q", got.Len(), got.String(), len(want), want)
	}
}

// silent checks that nothing was heard that the test has not waited for.
func (e *ear) silent(t testing.TB) {
	t.Helper()
	testkit.Want(t, "pieces that were heard", len(e.heard), 0)
	testkit.Want(t, "ends that were heard", len(e.closed), 0)
}

func (e *ear) room(t testing.TB) {
	t.Helper()
	testkit.Receive(t, "room", e.writable)
}

func (e *ear) ends(t testing.TB, want error) {
	t.Helper()
	testkit.WantErr(t, "the end", testkit.Receive(t, "the end", e.closed), want)
}

// breaks waits for an end with any error.
func (e *ear) breaks(t testing.TB) {
	t.Helper()
	if err := testkit.Receive(t, "the end", e.closed); err == nil {
		t.Error("no error at the end")
	}
}

// connectSystem returns both ends of a connection on the loopback or a unix socket.
func connectSystem(t *testing.T, _ engine.Engine, network string) (net.Conn, otherEnd) {
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
	return ours, systemEnd{theirs}
}

type systemEnd struct{ net.Conn }

func (p systemEnd) CloseWrite() error {
	return p.Conn.(interface{ CloseWrite() error }).CloseWrite()
}

func (p systemEnd) Reset() {
	if tcp, ok := p.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = p.Close()
}

func dialSystem(t *testing.T, _ engine.Engine, to net.Addr) packetPeer {
	t.Helper()
	c, err := net.Dial("udp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(testkit.Patience))
	return c
}
