package loop

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"runtime/debug"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A connection that has nothing to send and nothing that is less than a frame holds no buffer,
// whatever went before.
func TestIdleConnectionHoldsNoBuffer(t *testing.T) {
	r := newRig(t, &Server{Codec: codec.Lines{Max: 1 << 20}, Limits: Limits{MaxOutbound: 20 << 20, HoldBackAt: 10 << 20}}, HandlerFunc(echoAll))
	c, s, sock := r.connect()
	check := func(when string) {
		t.Helper()
		if b := c.out.box; b != nil {
			t.Errorf("%s: a box with %d bytes of output is held", when, b.Len())
		}
		if n := c.in.decoder.Buffered(); n != 0 {
			t.Errorf("%s: input holds %d bytes", when, n)
		}
	}
	check("at first")
	s.Readable([]byte("hello\n"))
	check("after a message")
	s.Readable([]byte("hel"))
	s.Readable([]byte("lo\n"))
	check("after a message in two pieces")
	sock.room = 10
	s.Readable(append(make([]byte, 200_000), '\n'))
	s.Readable(append(make([]byte, 100), '\n'))
	if c.pending() != 200_001+101-10 {
		t.Errorf("%d bytes wait", c.pending())
	}
	sock.room = 100_000
	s.Writable()
	sock.room = -1
	s.Writable()
	check("after a long flush")
	_ = c.Send([]byte("not\na line")) // an error of the codec
	check("after an error of AppendFrame")
}

// An idle connection is little more than a Conn: one more word makes it a size class larger, which is
// 16 bytes of each. An arrival, which is garbage soon, must not leave holes between Conns.
func TestConnIsSmall(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("for 64 bits")
	}
	for _, c := range []struct {
		name       string
		size, most uintptr
	}{
		{"a Conn", unsafe.Sizeof(Conn{}), 208}, {"its extras", unsafe.Sizeof(extras{}), 384}, {"an arrival", unsafe.Sizeof(arrival{}), 192},
	} {
		if c.size > c.most {
			t.Errorf("%s takes %d bytes, want %d at most", c.name, c.size, c.most)
		}
	}
}

// Connections from one listener share their local address, and those of others do not get it.
func TestEnds(t *testing.T) {
	var l Loop
	tcp := func(s string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s)) }
	a := l.addrsOf(nil, tcp("127.0.0.1:80"), tcp("127.0.0.1:1"))
	b := l.addrsOf(nil, tcp("127.0.0.1:80"), tcp("127.0.0.1:2"))
	if a.shared != b.shared || a.remote().String() != "127.0.0.1:1" || b.remote().String() != "127.0.0.1:2" {
		t.Errorf("%v and %v", a, b)
	}
	for _, local := range []net.Addr{tcp("127.0.0.1:81"), tcp("127.0.0.2:80"), tcp("[::ffff:127.0.0.1]:80"), tcp("[fe80::1%eth0]:80"), nil} {
		c := l.addrsOf(nil, local, tcp("127.0.0.1:3"))
		if got := c.local(); got != local {
			t.Errorf("local address %v, want %v", got, local)
		}
	}
	here, there := &net.UnixAddr{Name: "/a", Net: "unix"}, &net.UnixAddr{Net: "unix"}
	if u := l.addrsOf(nil, here, there); u.local() != net.Addr(here) || u.remote() != net.Addr(there) || a.local().String() != "127.0.0.1:80" {
		t.Errorf("%v", u)
	}
}

// When the buffers of all connections reach MaxBuffered, those that have the largest are closed
// until an eighth is free. On the way there HoldBackAt shrinks.
func TestMaxBuffered(t *testing.T) {
	r := newRig(t, &Server{Codec: codec.Lines{Max: 1 << 20}, Limits: Limits{MaxBuffered: 1 << 20}}, HandlerFunc(echoAll))
	reasons := make(map[error]int)
	var conns []*Conn
	receive := func(n int) {
		c, s, _ := r.connect()
		c.AfterClose(func(err error) { reasons[err]++ })
		conns = append(conns, c)
		s.Readable(make([]byte, n))
		for range 100 {
			r.turn()
		}
	}
	for range 10 {
		receive(1000)
	}
	const large = 128<<10 + 64
	testkit.Want(t, "HoldBackAt of a budget that is hardly used", r.holdBackAt, 256<<10)
	for _, holdBackAt := range []int{256 << 10, 256 << 10, 256 << 10, 64 << 10, 64 << 10, 16 << 10, 16 << 10} {
		receive(large - 64)
		testkit.Want(t, "HoldBackAt", r.holdBackAt, holdBackAt)
	}
	testkit.Want(t, "closed below the limit", len(reasons), 0)
	receive(large - 64)
	testkit.Want(t, "closed at the limit", reasons[ErrMaxBuffered], 2)
	testkit.Want(t, "open", len(r.conns), 16)
	r.server.phase.Store(phaseLooping) // which Stats asks
	st := r.server.Stats()
	testkit.Want(t, "Stats.ClosedBy", st.ClosedBy["memory"], 2)
	testkit.Want(t, "Limits.MaxBuffered", r.server.Limits.MaxBuffered, 1<<20)
	testkit.Want(t, "Stats.Buffered", st.Buffered, r.store.Pool.Size())
	if st.Buffered > 1<<20/8*7 {
		t.Errorf("%d bytes are buffered, want %d at most", st.Buffered, 1<<20/8*7)
	}
	for _, c := range conns {
		c.Close()
	}
	r.turn()
	testkit.Want(t, "bytes in use when all have closed", r.store.Pool.Size()-r.store.Pool.Held(), 0)
	testkit.Want(t, "HoldBackAt afterwards", r.holdBackAt, 256<<10)
}

// What a codec holds of unfinished messages counts as buffers do, until it is complete, the connection
// closes, or has moved to another loop.
func TestMaxBufferedOfCodecs(t *testing.T) {
	r := newRig(t, &Server{Codec: codec.Stack{Outer: codec.Length{Max: 1 << 20}, Inner: codec.Lines{Max: 1 << 20}}, Limits: Limits{MaxBuffered: 1 << 20}},
		HandlerFunc(func(*Conn, []byte) error { return nil }))
	frame := func(text string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	}
	used := func() int { return r.store.Pool.Size() - r.store.Pool.Held() }
	half := strings.Repeat("x", 100<<10)
	first, s, _ := r.connect()
	s.Readable(frame("z\n"))
	r.turn()
	base := used() // a box for replies, which the loop keeps
	s.Readable(frame(half))
	s.Readable(frame(half))
	r.turn()
	if n := used(); n < 200<<10 || n > 300<<10 {
		t.Errorf("%d bytes are used while 200 KiB of a line are there", n)
	}
	s.Readable(frame("\n"))
	r.turn()
	testkit.Want(t, "bytes in use when the line is complete", used(), base)
	s.Readable(frame("y"))
	first.Close()
	r.turn()
	testkit.Want(t, "bytes in use when it has closed", used(), base)

	reasons := make(map[error]int)
	var conns []*Conn
	for range 15 {
		c, s, _ := r.connect()
		c.AfterClose(func(err error) { reasons[err]++ })
		conns = append(conns, c)
		s.Readable(frame(half))
		for range 100 {
			r.turn()
		}
	}
	if n := reasons[ErrMaxBuffered]; n < 4 || n > 10 {
		t.Errorf("of 15 connections with 100 KiB, %d were closed for memory (%v), want 4 to 10 with a limit of 1 MiB", n, reasons)
	}
	for _, c := range conns {
		c.Close()
	}
	r.turn()
	testkit.Want(t, "bytes in use when all have closed", used(), base)
}

// Start warns if the memory limit is too small for MaxConns, MaxBuffered and, with UDP, MaxSessions.
// By default all fit.
func TestMemoryWarning(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(64 << 20))
	for _, tt := range []struct {
		name                              string
		maxConns, buffered, sessions      int
		wantConns, wantSize, wantSessions int
		udp, warned                       bool
	}{
		{"defaults", 0, 0, 0, 3276, 8 << 20, 8192, false, false},
		{"defaults with UDP", 0, 0, 0, 3276, 8 << 20, 8192, true, false},
		{"all fit", 5_000, 6 << 20, 20_000, 5_000, 6 << 20, 20_000, true, false},
		{"too many connections", 13_000, 0, 0, 13_000, 8 << 20, 8192, false, true},
		{"too many bytes", 0, 32 << 20, 0, 3276, 32 << 20, 8192, false, true},
		{"too many sessions", 0, 0, 50_000, 3276, 8 << 20, 50_000, true, true},
		{"sessions that cannot be", 0, 0, 50_000, 3276, 8 << 20, 50_000, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			s := &Server{Limits: Limits{MaxConns: tt.maxConns, MaxBuffered: tt.buffered, MaxSessions: tt.sessions}, NumLoops: 1, Logger: zerolog.New(&log)}
			if tt.udp {
				s.listeners = append(s.listeners, &listener{network: "udp"})
			}
			s.limitMemory(20_000)
			s.journal.Wait()
			testkit.Want(t, "MaxConns", s.Limits.MaxConns, tt.wantConns)
			testkit.Want(t, "MaxBuffered", s.Limits.MaxBuffered, tt.wantSize)
			testkit.Want(t, "MaxSessions", s.Limits.MaxSessions, tt.wantSessions)
			testkit.Want(t, "warned", strings.Contains(log.String(), "the memory limit is too low"), tt.warned)
		})
	}
}

// A piece of input is short, so that a connection which is held back while it has one keeps little;
// but long frames come whole.
func TestRoom(t *testing.T) {
	frames := func(n int) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(n)), make([]byte, 16<<10)...)
	}
	short, long := bytes.Repeat([]byte("x\n"), 8<<10), frames(8<<10)
	for _, tt := range []struct {
		name  string
		codec codec.Codec
		piece []byte
		set   func(c *Conn)
		want  int
	}{
		{"short lines", codec.Lines{}, short, nil, 48<<10 - len(short)},
		{"short frames", codec.Length{}, frames(100), nil, 48<<10 - len(long)},
		{"long frames", codec.Length{}, long, nil, 32*(8<<10+4) - len(long)},
		{"one frame of 1 MiB", codec.Length{Max: 1 << 20}, frames(1 << 20), nil, 4 + 1<<20 - len(long)},
		{"paused", codec.Length{}, long, (*Conn).PauseRead, 0},
		{"a budget half used", codec.Length{}, long, func(c *Conn) { c.loop.level = levelHalf }, 0},
		{"closing", codec.Length{}, long, (*Conn).Close, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, &Server{Codec: tt.codec}, HandlerFunc(echoAll))
			c, s, _ := r.connect()
			if tt.set != nil {
				tt.set(c)
			}
			testkit.Want(t, "room", s.Room(tt.piece), tt.want)
		})
	}
}

// shy keeps what is sent until the peer has said "hello".
type shy struct {
	codec.Lines
	kept  []byte
	open  bool
	reply []byte
}

func (*shy) New() codec.Codec { return new(shy) }

func (*shy) Open(dst []byte, _ codec.Peer) ([]byte, time.Duration, error) { return dst, time.Hour, nil }

func (s *shy) Opening() error {
	if s.open {
		return nil
	}
	return codec.ErrMalformed
}

func (*shy) Opened() error { return nil }

func (s *shy) Decode(data []byte) (int, []byte, error) {
	n, frame, err := s.Lines.Decode(data)
	if !s.open && string(frame) == "hello" {
		s.open, s.reply, s.kept = true, s.kept, nil
		frame = nil
	}
	return n, frame, err
}

func (s *shy) AppendFrame(dst, frame []byte) ([]byte, error) {
	if !s.open {
		s.kept = append(s.kept, frame...)
		return dst, nil
	}
	return s.Lines.AppendFrame(dst, frame)
}

func (s *shy) AppendReply(dst []byte) []byte {
	dst, s.reply = append(dst, s.reply...), nil
	return dst
}

// What a codec keeps until its handshake is done counts as buffers do, until it is sent or the
// connection closes.
func TestMaxBufferedBeforeTheHandshake(t *testing.T) {
	r := newRig(t, &Server{Codec: new(shy), Limits: Limits{MaxBuffered: 1 << 20}}, HandlerFunc(func(*Conn, []byte) error { return nil }))
	used := func() int { return r.store.Pool.Size() - r.store.Pool.Held() }
	first, s, _ := r.connect()
	s.Readable([]byte("hello\n"))
	_ = first.Send(make([]byte, 200<<10)) // into a buffer that the loop keeps
	r.turn()
	base := used()
	second, s, _ := r.connect()
	third, _, _ := r.connect()
	for _, c := range []*Conn{second, second, third} {
		testkit.WantErr(t, "Send", c.Send(make([]byte, 50<<10)), nil)
	}
	r.turn()
	testkit.Want(t, "kept for two connections", used()-base, 150<<10)
	third.Close()
	r.turn()
	testkit.Want(t, "when one has closed", used()-base, 100<<10)
	s.Readable([]byte("hello\n"))
	r.turn()
	if n := second.held(); n != 0 || second.pending() != 0 {
		t.Errorf("%d bytes are kept when the handshake is done, and %d wait", n, second.pending())
	}
}

// A reply within a handshake of several steps gives nothing back, and a codec that needs no reply at its
// end keeps nothing after it.
func TestMaxBufferedInASteppedHandshake(t *testing.T) {
	r := newRig(t, &Server{Codec: new(stepping), Limits: Limits{MaxBuffered: 1 << 20}}, HandlerFunc(func(*Conn, []byte) error { return nil }))
	c, s, _ := r.connect()
	testkit.WantErr(t, "Send", c.Send(make([]byte, 50<<10)), nil)
	testkit.Want(t, "kept", c.held(), 50<<10)
	s.Readable([]byte("step\n"))
	r.turn()
	testkit.Want(t, "kept after the first reply", c.held(), 50<<10)
	s.Readable([]byte("hello\n"))
	r.turn()
	testkit.Want(t, "kept after the handshake", c.held(), 0)
}

// stepping is shy, with a reply to each line before "hello", and none to that.
type stepping struct{ shy }

func (*stepping) New() codec.Codec { return new(stepping) }

func (s *stepping) Decode(data []byte) (int, []byte, error) {
	n, line, err := s.Lines.Decode(data)
	switch {
	case s.open || line == nil || err != nil:
		return n, line, err
	case string(line) == "hello":
		s.open = true
	default:
		s.reply = []byte("go on\n")
	}
	return n, nil, nil
}
