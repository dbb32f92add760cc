package looptest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

func testSockets(t *testing.T, c engineConfig, network string) {
	for _, test := range []struct {
		name string
		f    func(t *testing.T, r *engineRig, network string)
	}{
		{"talk", testTalk},
		{"many messages", testManyMessages},
		{"large input", testLargeInput},
		{"last words", testLastWords},
		{"full", testFull},
		{"pauses", testPauses},
		{"paused and full", testPausedAndFull},
		{"paused end", testPausedEnd},
		{"paused end lingers", testPausedEndLingers},
		{"paused reset", testPausedReset},
		{"half close", testHalfClose},
		{"linger", testLinger},
		{"refuse", testRefuse},
		{"close", testClose},
		{"close hard", testCloseHard},
		{"nothing after close", testNothingAfterClose},
		{"pending", testPending},
		{"unsent", testUnsent},
		{"detach", testDetach},
		{"always room", testAlwaysRoom},
		{"moves", testMoves},
		{"moves at random", testRandomMoves},
	} {
		t.Run(test.name, func(t *testing.T) { test.f(t, startEngine(t, c, 2), network) })
	}
}

// write writes to a socket on the loop.
func (r *engineRig) write(e *ear, pieces ...string) {
	r.t.Helper()
	r.do(e.at, func() {
		for _, s := range pieces {
			if n, err := e.Write([]byte(s)); n != len(s) || err != nil {
				r.t.Errorf("write of %q: %d, %v", s, n, err)
			}
		}
	})
}

// pause pauses a socket.
func (r *engineRig) pause(e *ear) {
	r.t.Helper()
	r.do(e.at, func() {
		if err := e.Pause(); err != nil {
			r.t.Errorf("pause: %v", err)
		}
	})
}

// send sends as the peer.
func send(t testing.TB, p otherEnd, s string) {
	t.Helper()
	if _, err := io.WriteString(p, s); err != nil {
		t.Fatalf("the peer cannot send: %v", err)
	}
}

// gets reads want as the peer.
func gets(t testing.TB, p otherEnd, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(p, got); string(got) != want || err != nil {
		t.Errorf("the peer reads %.50q (%d bytes), %v; want %.50q", got[:n], n, err, want)
	}
}

// ends reads the end of the stream as the peer.
func ends(t testing.TB, p otherEnd) {
	t.Helper()
	if n, err := p.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("the peer reads %d bytes and %v, want the end", n, err)
	}
}

func testTalk(t *testing.T, r *engineRig, network string) {
	ear, peer := r.open(network)
	send(t, peer, "hello")
	ear.hears(t, "hello")
	r.write(ear, "you ", "there")
	gets(t, peer, "you there")
	_ = peer.Close()
	ear.ends(t, io.EOF)
}

// Nothing is missed by a loop that is busy now and then.
func testManyMessages(t *testing.T, r *engineRig, network string) {
	const peers, rounds = 4, 500
	done := make(chan struct{}, peers)
	for range peers {
		ear, peer := r.open(network)
		go func() {
			defer func() { done <- struct{}{} }()
			for i := range rounds {
				msg := string(rune('a' + i%26))
				if _, err := io.WriteString(peer, msg); err != nil {
					t.Errorf("the peer cannot send: %v", err)
					return
				}
				if got := <-ear.heard; got != msg {
					t.Errorf("heard %q, want %q", got, msg)
					return
				}
			}
		}()
	}
	for range peers {
		testkit.Receive(t, "the messages of a peer", done)
	}
}

func testLargeInput(t *testing.T, r *engineRig, network string) {
	ear, peer := r.open(network)
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		_, _ = peer.Write(large)
		_ = peer.CloseWrite()
	}()
	ear.hears(t, string(large))
	ear.ends(t, io.EOF)
}

// What came before the end is heard before it, also if both wait when the loop looks.
func testLastWords(t *testing.T, r *engineRig, network string) {
	ear, peer := r.open(network)
	r.do(0, func() {
		_, _ = peer.Write([]byte("last words"))
		_ = peer.CloseWrite()
	})
	ear.hears(t, "last words")
	ear.ends(t, io.EOF)
}

// flood writes until a socket is full, and returns how much it has taken.
func (r *engineRig) flood(e *ear) (n int) {
	p := make([]byte, 32<<10)
	r.do(e.at, func() {
		for {
			k, err := e.Write(p)
			if n += k; err != nil || k == 0 {
				return
			}
		}
	})
	return n
}

// fill floods a socket until it takes nothing more, and asks for room: a busy kernel may move what
// the socket has taken to the peer only later, and then there is room again. It returns how much
// that is.
func (r *engineRig) fill(e *ear) (n int) {
	r.t.Helper()
	for {
		k := r.flood(e)
		if n += k; k == 0 {
			r.t.Fatal("Writable is called for a socket that is full")
		}
		r.do(e.at, func() {
			if !e.NotifyWritable() {
				r.t.Error("NotifyWritable returns false")
			}
		})
		select {
		case <-e.writable:
		case <-time.After(10 * time.Millisecond):
			return n
		}
	}
}

// drain reads n bytes as the peer.
func drain(t testing.TB, p otherEnd, n int) {
	t.Helper()
	if got, err := io.CopyN(io.Discard, p, int64(n)); err != nil {
		t.Fatalf("the peer reads %d of %d bytes, %v", got, n, err)
	}
}

// A full socket takes nothing, reads on, and calls Writable once when there is room.
func testFull(t *testing.T, r *engineRig, network string) {
	ear, peer := r.open(network)
	n := r.fill(ear)
	send(t, peer, "x")
	ear.hears(t, "x")
	drain(t, peer, n)
	ear.room(t)
	r.write(ear, "more")
	gets(t, peer, "more")
	if n := len(ear.writable); n != 0 {
		t.Errorf("%d calls of Writable too many", n)
	}
	r.fill(ear)
	peer.Reset()
	ear.breaks(t)
}

// A paused socket hears nothing until it is resumed, and all of it then.
func testPauses(t *testing.T, r *engineRig, network string) {
	ear, peer := r.open(network)
	for range 20 {
		r.pause(ear)
		send(t, peer, "later")
		r.do(0, func() {}) // the loop has looked at its sockets since
		ear.silent(t)
		r.do(0, ear.Socket.Resume)
		ear.hears(t, "later")
	}
}

// Sockets that were paused or had to wait for room lose nothing either.
func testPausedAndFull(t *testing.T, r *engineRig, network string) {
	ear, peer := r.open(network)
	for range 3 {
		r.pause(ear)
		send(t, peer, "while paused")
		n := r.fill(ear)
		drain(t, peer, n)
		ear.room(t)
		ear.silent(t)
		r.do(0, ear.Socket.Resume)
		ear.hears(t, "while paused")
		send(t, peer, "then")
		ear.hears(t, "then")
	}
}

// A paused socket that ends in order keeps what it has, and the end.
func testPausedEnd(t *testing.T, r *engineRig, network string) {
	ear, peer := r.open(network)
	r.do(0, func() {
		_ = ear.Pause()
		ear.CloseWrite()
	})
	send(t, peer, "last words")
	_ = peer.Close()
	r.do(0, func() {})
	r.do(0, func() { ear.silent(t) }) // the loop has looked at its sockets since
	r.do(0, ear.Socket.Resume)
	ear.hears(t, "last words")
	ear.ends(t, io.EOF)
}

// A lingerer is a sink whose socket lingers after the end.
type lingerer struct{ *ear }

func (l lingerer) Ended(err error) {
	l.Socket.KeepWriting()
	l.ear.Ended(err)
}

// A socket that has ended in both directions while it was paused hears, when it is resumed, what
// came and then one end. Its loop has time for others, although the socket lingers.
func testPausedEndLingers(t *testing.T, r *engineRig, network string) {
	ear := newEar()
	peer := r.openTo(network, ear, func(engine.Socket) engine.Sink { return lingerer{ear} })
	r.do(0, func() {
		_ = ear.Pause()
		ear.CloseWrite()
	})
	ends(t, peer)
	send(t, peer, "last words")
	_ = peer.Close()
	r.do(0, func() {})
	r.do(0, ear.Socket.Resume)
	ear.hears(t, "last words")
	ear.ends(t, io.EOF)
	r.do(0, func() { ear.Close() })
	ear.silent(t)
}

// A paused socket hears of a reset, also if input waits. A unix socket has none, but for a peer
// that closes without having read everything: what that sent is heard before.
func testPausedReset(t *testing.T, r *engineRig, network string) {
	if network != "unix" {
		for _, waits := range [][]string{nil, {"b"}, {"b", "c"}} {
			ear, peer := r.open(network)
			r.pause(ear)
			for _, piece := range waits {
				send(t, peer, piece)
				r.do(0, func() { becomes(t, "the input is pending", ear.HasInput) })
			}
			peer.Reset()
			ear.ends(t, syscall.ECONNRESET)
		}
		return
	}
	ear, peer := r.open(network)
	r.pause(ear)
	r.write(ear, "never read")
	send(t, peer, "last words")
	peer.Reset()
	r.do(0, func() {})
	r.do(0, func() { ear.silent(t) }) // the loop has looked at its sockets since
	r.do(0, ear.Socket.Resume)
	ear.hears(t, "last words")
	ear.breaks(t)
}

// A socket that has ended its output reads on.
func testHalfClose(t *testing.T, r *engineRig, network string) {
	ear, peer := r.open(network)
	r.write(ear, "bye")
	r.do(0, ear.Socket.CloseWrite)
	gets(t, peer, "bye")
	ends(t, peer)
	send(t, peer, "still")
	ear.hears(t, "still")
	_ = peer.Close()
	ear.ends(t, io.EOF)
}

// A socket that lingers after the end writes on.
func testLinger(t *testing.T, r *engineRig, network string) {
	ear := newEar()
	peer := r.openTo(network, ear, func(engine.Socket) engine.Sink { return lingerer{ear} })
	_ = peer.CloseWrite()
	ear.ends(t, io.EOF)
	n := r.fill(ear)
	drain(t, peer, n)
	ear.room(t)
	r.write(ear, "afterwards")
	gets(t, peer, "afterwards")
	r.do(0, func() { ear.Close() })
	ends(t, peer)
	ear.silent(t)
}

// A socket that is closed while it opens does not call its Sink.
func testRefuse(t *testing.T, r *engineRig, network string) {
	ear := newEar()
	peer := r.openTo(network, ear, func(s engine.Socket) engine.Sink {
		s.Close()
		return ear
	})
	ends(t, peer)
	ear.silent(t)
}

// What was written before a socket is closed goes out.
func testClose(t *testing.T, r *engineRig, network string) {
	ear, peer := r.open(network)
	r.do(0, func() {
		_, _ = ear.Write([]byte("last words"))
		ear.Close()
	})
	gets(t, peer, "last words")
	ends(t, peer)
}

// A peer that does not read is reset by Reset.
func testCloseHard(t *testing.T, r *engineRig, network string) {
	ear, peer := r.open(network)
	r.fill(ear)
	r.do(0, func() { ear.Reset() })
	if network == "unix" {
		return // it has no reset
	}
	if _, err := io.Copy(io.Discard, peer); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the peer reads until %v, want %v", err, syscall.ECONNRESET)
	}
}

// A sink hears nothing after Close, though input, room and the end may wait.
func testNothingAfterClose(t *testing.T, r *engineRig, network string) {
	ear, peer := r.open(network)
	other, _ := r.open(network)
	n, before := r.fill(ear), 0
	r.do(0, func() {
		_, _ = peer.Write([]byte("input"))
		_ = peer.CloseWrite()
		ear.Close()
		before = len(ear.writable)
	})
	_, _ = io.CopyN(io.Discard, peer, int64(n)) // or the socket is reset, as its input was not read
	r.write(other, "the loop goes on")
	r.do(0, func() {
		ear.silent(t)
		testkit.Want(t, "calls of Writable after Close", len(ear.writable)-before, 0)
	})
}

// becomes waits on the loop.
func becomes(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(testkit.Patience); !cond(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Errorf("not yet: %s", what)
			return
		}
	}
}

// Input and the end are pending before the loop reads them, and no more when it has.
func testPending(t *testing.T, r *engineRig, network string) {
	ear, peer := r.open(network)
	r.do(0, func() {
		if ear.HasInput() {
			t.Error("pending, and nothing was sent")
		}
		_, _ = peer.Write([]byte("x"))
		becomes(t, "the input is pending", ear.Socket.HasInput)
	})
	ear.hears(t, "x")
	r.do(0, func() {
		if ear.HasInput() {
			t.Error("pending, and all was read")
		}
		_ = peer.CloseWrite()
		becomes(t, "the end is pending", ear.Socket.HasInput)
	})
	ear.ends(t, io.EOF)
}

// Something is unsent until the peer has acknowledged all, if the engine can tell.
func testUnsent(t *testing.T, r *engineRig, network string) {
	ear, peer := r.open(network)
	n := r.fill(ear)
	r.do(0, func() {
		if ear.Unacked() == 0 {
			t.Error("nothing is unsent of a full socket")
		}
	})
	drain(t, peer, n)
	testkit.Eventually(t, "nothing is unsent", func() (done bool) {
		r.do(0, func() { done = ear.Unacked() <= 0 })
		return done
	})
}

// A socket that is detached has lost nothing: what the engine has read and not handed over comes
// with it, and the rest is read from the connection.
func testDetach(t *testing.T, r *engineRig, network string) {
	ear, peer := r.open(network)
	socket, ok := ear.Socket.(engine.Detachable)
	if ok != r.config.system {
		t.Errorf("a socket is Detachable: %v, want %v", ok, r.config.system)
	}
	if !ok {
		return
	}
	var nc net.Conn
	var read []byte
	r.do(0, func() {
		_, _ = peer.Write([]byte("one, "))
		becomes(t, "the input is pending", ear.Socket.HasInput)
		var err error
		if nc, read, err = socket.Detach(); err != nil {
			t.Fatalf("Detach: %v", err)
		}
	})
	defer nc.Close()
	send(t, peer, "two")
	rest := make([]byte, len("one, two")-len(read))
	_, err := io.ReadFull(nc, rest)
	if got := string(read) + string(rest); got != "one, two" || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, "one, two")
	}
	if _, err := nc.Write([]byte("three")); err != nil {
		t.Errorf("write: %v", err)
	}
	gets(t, peer, "three")
	ear.silent(t)
}

// thirsty asks for room again whenever there is some, as output without end does.
type thirsty struct{ *ear }

func (s thirsty) Writable() {
	select {
	case s.writable <- struct{}{}:
	default: // the test has seen enough
	}
	s.Socket.NotifyWritable()
}

// Sockets that always have room do not keep the loop from polling the others.
func testAlwaysRoom(t *testing.T, r *engineRig, network string) {
	for range 2 {
		s := thirsty{newEar()}
		r.openTo(network, s.ear, func(engine.Socket) engine.Sink { return s })
		r.do(0, func() { s.Socket.NotifyWritable() })
		for range 10 {
			s.room(t)
		}
	}
	other, peer := r.open(network)
	for range 10 {
		send(t, peer, "x")
		other.hears(t, "x")
	}
}

// moves moves a socket to the other loop, and calls f on the way.
func (r *engineRig) moves(e *ear, f ...func()) {
	r.t.Helper()
	socket := e.Socket.(engine.Movable)
	r.do(e.at, func() {
		if err := socket.Leave(); err != nil {
			r.t.Errorf("leave: %v", err)
		}
	})
	for _, f := range f {
		f()
	}
	e.at = 1 - e.at
	r.do(e.at, func() {
		if err := socket.Join(r.loops[e.at].Loop); err != nil {
			r.t.Errorf("join: %v", err)
		}
	})
}

// A socket that moves has on its new loop what it had on the old one: input that waits, a pause,
// the wait for room, and its end.
func testMoves(t *testing.T, r *engineRig, network string) {
	for _, end := range []string{"end", "reset", "reset while paused", "half close"} {
		ear, peer := r.open(network)
		for range 3 {
			r.moves(ear)
			send(t, peer, "read")
			ear.hears(t, "read")
			r.pause(ear)
			r.moves(ear)
			send(t, peer, "held")
			r.do(ear.at, func() {})
			ear.silent(t)
			n := r.fill(ear)
			r.moves(ear)
			drain(t, peer, n)
			ear.room(t)
			ear.silent(t)
			r.do(ear.at, ear.Socket.Resume)
			ear.hears(t, "held")
			r.write(ear, "written")
			gets(t, peer, "written")
		}
		switch end {
		case "end":
			r.moves(ear, func() { _ = peer.Close() })
			ear.ends(t, io.EOF)
		case "reset":
			r.moves(ear, peer.Reset)
			ear.breaks(t)
		case "reset while paused":
			if network == "unix" || runtime.GOOS != "linux" && r.config.system {
				continue // the system does not tell
			}
			r.pause(ear)
			r.moves(ear)
			r.moves(ear, peer.Reset)
			ear.breaks(t)
		case "half close":
			testMovesLingering(t, r, network)
		}
	}
}

// A socket that goes on writing after its peer's end moves, too.
func testMovesLingering(t *testing.T, r *engineRig, network string) {
	ear := newEar()
	peer := r.openTo(network, ear, func(engine.Socket) engine.Sink { return lingerer{ear} })
	r.moves(ear)
	_ = peer.CloseWrite()
	ear.ends(t, io.EOF)
	r.moves(ear)
	n := r.fill(ear)
	r.moves(ear)
	drain(t, peer, n)
	ear.room(t)
	r.write(ear, "the rest")
	gets(t, peer, "the rest")
	r.do(ear.at, ear.Socket.Close)
	ends(t, peer)
}

// A socket may move in any state: no event is lost, repeated, or delivered on the wrong loop.
func testRandomMoves(t *testing.T, r *engineRig, network string) {
	rnd := rand.New(rand.NewPCG(testkit.Seed(t, 52), 0))
	ear, peer := r.open(network)
	paused, held := false, ""
	for i := range 300 {
		switch rnd.IntN(6) {
		case 0, 1:
			r.moves(ear)
		case 2:
			if !paused {
				r.pause(ear)
			}
			paused = true
		case 3:
			r.do(ear.at, ear.Socket.Resume)
			paused = false
			ear.hears(t, held)
			held = ""
		case 4:
			s := strconv.Itoa(i) + ","
			if send(t, peer, s); paused {
				held += s
			} else {
				ear.hears(t, s)
			}
		case 5:
			r.write(ear, "answer")
			gets(t, peer, "answer")
		}
	}
	r.do(ear.at, ear.Socket.Resume)
	ear.hears(t, held)
	_ = peer.Close()
	ear.ends(t, io.EOF)
	ear.silent(t)
}
